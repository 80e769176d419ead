"""Names of the types that values are of, as the schemas of their writers declare them.

Of Avro it is the full name of the record, of Protobuf that of the message, of JSON Schema the title.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from thermocline.rules.avro_schema import parse_schema
from thermocline.rules.decode.framing import (
    VALUE_HEADER,
    grouped_by_head,
    heads_in,
    id_length,
    indexes_length,
    message_indexes,
    schema_id,
)
from thermocline.rules.decode.schema_documents import ID_MAX, READERS_MAX, WriterSchema, WriterSchemas
from thermocline.rules.headers import HeadersOf

__all__ = ["RecordNames"]

_KINDS: Final = {"avro": "AVRO", "json_schema": "JSON", "protobuf": "PROTOBUF"}


class RecordNames:
    """Tells the names of values in one format, whose schemas are asked for once each."""

    def __init__(self, format_: str, schemas: WriterSchemas) -> None:
        """For values of a format that is read by schemas."""
        self._kind = _KINDS[format_]
        self._schemas = schemas
        self._length_of, self._short = (indexes_length, 6) if format_ == "protobuf" else (id_length, 5)
        self._known: dict[bytes, str | None] = {}

    def read(
        self, values: Sequence[bytes | None], headers_of: HeadersOf, refused: dict[int, str]
    ) -> list[str | None]:
        """The name of each value; None where its schema has none. Notes those of which it can't be told.

        Raises what `WriterSchemas` raises.
        """
        head_of = heads_in(headers_of, VALUE_HEADER)
        groups = grouped_by_head(values, head_of, self._length_of, self._short, refused.__setitem__)
        found: list[str | None] = [None] * len(values)
        for (head, _), indexes in groups.items():
            try:
                name = self._name(head)
            except ValueError as error:
                refused.update(dict.fromkeys(indexes, str(error)))
                continue
            for index in indexes:
                found[index] = name
        return found

    def _name(self, head: bytes) -> str | None:
        if head in self._known:
            return self._known[head]
        id_ = schema_id(head)
        if isinstance(id_, int) and id_ > ID_MAX:
            raise ValueError(f"no schema has the id {id_}")
        schema = self._schemas.of(id_)
        if schema.problem:  # which may be gone when it is asked for again
            raise ValueError(schema.problem)
        if schema.kind != self._kind:
            raise ValueError(f"schema {id_} is one of {schema.kind}, not of {self._kind}")
        try:
            name = _NAMES[self._kind](schema, head)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"its writer's schema {id_} can't be used: {error}") from error
        if len(self._known) >= READERS_MAX:
            self._known.clear()
        self._known[head] = name
        return name


def _avro(schema: WriterSchema, _: bytes) -> str | None:
    parsed = parse_schema(schema.texts)
    return parsed.name if parsed.kind == "record" else None


def _protobuf(schema: WriterSchema, head: bytes) -> str | None:
    from thermocline.rules.protobuf_schema import message_at  # noqa: PLC0415  (few need it; takes long to load)

    return str(message_at(schema.descriptors, message_indexes(head)).DESCRIPTOR.full_name)


def _json_schema(schema: WriterSchema, _: bytes) -> str | None:
    parsed = json.loads(schema.texts[-1])
    title = parsed.get("title") if isinstance(parsed, dict) else None
    return title if isinstance(title, str) else None


_NAMES: Final[Mapping[str, Callable[[WriterSchema, bytes], str | None]]] = {
    "AVRO": _avro,
    "JSON": _json_schema,
    "PROTOBUF": _protobuf,
}
