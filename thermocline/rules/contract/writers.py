"""The fields of a writer's schema, as a table's definition spells them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from thermocline.rules.avro_schema import parse_schema
from thermocline.rules.decode.framing import message_indexes
from thermocline.rules.decode.schema_documents import WriterSchema
from thermocline.rules.recognise.fields import Field
from thermocline.rules.recognise.json_schema_fields import parse_json_schema
from thermocline.rules.recognise.schema_fields import declared_fields, record_at

__all__ = ["Part", "fields_of"]


@dataclass(frozen=True, slots=True)
class Part:
    """A record's key or value: its format, and where it has a row, if that is in an event."""

    name: str
    format: str
    row_at: tuple[str, ...] = ()


def fields_of(part: Part, schema: WriterSchema, head: bytes) -> Sequence[Field]:
    """The fields that a schema declares; none where it has no fields, or none that can be told.

    ``head`` is what names it in the record: of Protobuf, that says which of its messages the record is.
    """
    if schema.problem:
        return ()
    try:
        return _READERS[part.format](schema, head, part.row_at)
    except (ValueError, RecursionError, IndexError):
        return ()  # no record of it can be read, which decoding says


def _avro(schema: WriterSchema, _: bytes, row_at: tuple[str, ...]) -> Sequence[Field]:
    record = record_at(parse_schema(schema.texts), *row_at)
    return () if record is None else declared_fields(record, {})


def _json_schema(schema: WriterSchema, _: bytes, row_at: tuple[str, ...]) -> Sequence[Field]:
    parsed = parse_json_schema(schema.texts[-1])
    found = parsed.at(row_at[0]) if row_at else parsed
    return () if found is None else found.fields()


def _protobuf(schema: WriterSchema, head: bytes, row_at: tuple[str, ...]) -> Sequence[Field]:
    from thermocline.rules.protobuf_schema import message_at  # noqa: PLC0415  (few need it; takes long to load)
    from thermocline.rules.recognise.message_fields import (  # noqa: PLC0415  (the same)
        message_at_field,
        message_fields,
    )

    message = message_at(schema.descriptors, message_indexes(head)).DESCRIPTOR
    found = message_at_field(message, row_at[0]) if row_at else message
    return () if found is None else message_fields(found, {})


_READERS: Final[Mapping[str, Callable[[WriterSchema, bytes, tuple[str, ...]], Sequence[Field]]]] = {
    "avro": _avro,
    "json_schema": _json_schema,
    "protobuf": _protobuf,
}
