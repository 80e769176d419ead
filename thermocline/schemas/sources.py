"""Schemas that a person names: a file of Avro, Protobuf or JSON Schema, or a subject of the registry."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from thermocline.rules.avro_schema import SchemaInvalid, parse_schema
from thermocline.rules.decode.schema_documents import WriterSchema
from thermocline.schemas.protobuf_compiler import CompilerFailed, compiled_file, is_descriptors

if TYPE_CHECKING:
    from thermocline.schemas.registry import SchemaRegistry

__all__ = ["NamedSchema", "NoSuchSchema", "schema_named"]

_SUFFIXES: Final = (".avsc", ".proto", ".json", ".pb", ".desc", ".bin")
"""A name that ends so is a file's, also if there is none."""


class NoSuchSchema(ValueError):
    """What a person named is no schema, as a sentence."""


@dataclass(frozen=True, slots=True)
class NamedSchema:
    """A schema, and what it is called; ``path`` of a file, None where the registry has it.

    ``docs`` are the comments of Protobuf: of the fields of each message, by the message's full name.
    """

    called: str
    schema: WriterSchema
    path: Path | None = None
    docs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def schema_named(text: str, registry: SchemaRegistry | None) -> NamedSchema:
    """The schema of a file, or else the newest one of a subject. A file may be followed by ``#MESSAGE``.

    Raises:
        NoSuchSchema: there is none, or it can't be used.
        RegistryUnreachable: the registry gives no answer.
    """
    name, _, message = text.partition("#")
    path = Path(name)
    if path.suffix.lower() in _SUFFIXES or path.is_file():
        return _of_file(path, message)
    if registry is None:
        raise NoSuchSchema(
            f"there is no file {text}, and no registry is configured that may have such a subject"
        )
    id_ = registry.latest(text)
    if id_ is None:
        raise NoSuchSchema(f"there is no file {text}, and the registry has no such subject")
    schema = registry.of(id_)
    if schema.problem:
        raise NoSuchSchema(schema.problem)
    return NamedSchema(f"schema {id_} of {text}", schema)


def _of_file(path: Path, message: str) -> NamedSchema:
    try:
        content = path.read_bytes()
        if is_descriptors(content) or path.suffix.lower() == ".proto":
            return _protobuf(path, message)
        text = content.decode()
        is_avro = path.suffix.lower() == ".avsc" or _is_avro(text)
        return NamedSchema(path.name, _avro(text) if is_avro else _json_schema(text), path)
    except (SchemaInvalid, CompilerFailed) as error:
        raise NoSuchSchema(f"{path} is no schema that can be used: {error}") from error
    except UnicodeDecodeError:
        raise NoSuchSchema(f"{path} is not UTF-8 text") from None
    except OSError as error:
        raise NoSuchSchema(f"{path} can't be read: {error.strerror or type(error).__name__}") from error


def _protobuf(path: Path, message: str) -> NamedSchema:
    from thermocline.rules.protobuf_schema import (  # noqa: PLC0415  (few need it; takes long to load)
        canonical,
        comments_of,
        message_called,
    )

    compiled = compiled_file(path)
    descriptors = canonical(compiled)
    try:
        message_called(descriptors, message)
    except SchemaInvalid as error:
        raise NoSuchSchema(f"{path}: {error}; say it as {path.name}#MESSAGE, with its full name") from error
    schema = WriterSchema(kind="PROTOBUF", descriptors=descriptors, message=message)
    return NamedSchema(path.name, schema, path, comments_of(compiled))


def _avro(text: str) -> WriterSchema:
    parse_schema((text,))
    return WriterSchema((text,))


def _json_schema(text: str) -> WriterSchema:
    from thermocline.rules.recognise.json_schema_fields import parse_json_schema  # noqa: PLC0415  (the same)

    parse_json_schema(text).fields()
    return WriterSchema((text,), kind="JSON")


def _is_avro(text: str) -> bool:
    """Whether a JSON document declares a record of Avro: JSON Schema has no such type."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.get("type") == "record" and isinstance(found.get("fields"), list)
