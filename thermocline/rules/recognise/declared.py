"""Schemas that keys and values are said to have, before there is a record of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from thermocline.rules.decode.schema_documents import WriterSchema
from thermocline.rules.recognise.parts import FORMATS, Part
from thermocline.rules.recognise.values import Unrecognised

__all__ = ["PLAIN_KEYS", "DeclaredSchema", "declared_options", "declared_part"]

PLAIN_KEYS: Final = ("string", "int", "long", "bytes")
"""Formats of keys that need no schema: the key as a whole is one column."""


@dataclass(frozen=True, slots=True)
class DeclaredSchema:
    """A schema, what it is called in evidence, and whether each record names it, or none does.

    ``docs`` are of Protobuf: what its text says of the fields of each message, by the message's full name.
    """

    name: str
    schema: WriterSchema
    is_framed: bool = True
    docs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def declared_part(declared: DeclaredSchema | str | None, id_: int) -> Part:
    """Keys or values without documents, of a schema or of a plain format; ``id_`` is one that it may have.

    Raises `Unrecognised`.
    """
    if declared is None or isinstance(declared, str):
        return Part(declared or "", 0, 0, {}, ())
    schema = declared.schema
    if schema.problem or schema.kind not in FORMATS:
        why = schema.problem or f"{declared.name} is of a kind that is not read, {schema.kind}"
        raise Unrecognised(why, "write some records, and look at these: init")
    format_ = FORMATS[schema.kind]
    if format_ == "json_schema" and not declared.is_framed:
        format_ = "json"
    first_message = b"\x00" + id_.to_bytes(4) + b"\x00"
    return Part(
        format_,
        *(0, 0, {}, ()),
        ids=(id_,),
        heads={id_: first_message},
        names={id_: declared.name},
        is_framed=declared.is_framed,
        docs=declared.docs,
    )


def declared_options(of: str, declared: DeclaredSchema | str | None) -> Iterator[tuple[str, Any]]:
    """The options of a definition by which records are read that don't name their schema."""
    if not isinstance(declared, DeclaredSchema) or declared.is_framed:
        return
    schema = declared.schema
    if schema.kind == "AVRO":
        yield f"{of}_schema", schema.texts[-1]
    elif schema.kind == "PROTOBUF":
        from thermocline.rules.protobuf_schema import packed_schema  # noqa: PLC0415  (takes long to load)

        yield f"{of}_schema", packed_schema(schema.descriptors)
        if schema.message:
            yield f"{of}_message", schema.message
