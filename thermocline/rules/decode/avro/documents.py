"""Avro documents: a body each, by the schema of its writer, whose id stands before it.

Source: Confluent Platform, "Wire format": a zero byte and a 4-byte id, or a byte 1 and a 16-byte GUID.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol
from uuid import UUID

from thermocline.rules.avro_schema import SchemaInvalid, parse_schema
from thermocline.rules.decode.avro.reader import RecordReader
from thermocline.rules.decode.formats import Refusals
from thermocline.rules.definition import Column

__all__ = ["AvroDocuments", "OneSchema", "SchemaId", "WriterSchema", "WriterSchemas"]

SchemaId = int | UUID
HEADS: Final = {0: 5, 1: 17}
"""How many bytes stand before the body, by the first of them."""
ID_MAX: Final = 2**31 - 1  # a registry's ids are positive ints of Java
READERS_MAX: Final = 1_000
"""Schemas whose code is kept. A topic has a handful; one that has a schema a record is read nevertheless."""


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """A schema's text, after those that it refers to; or the reason why no record of it can be read."""

    texts: tuple[str, ...] = ()
    problem: str = ""


class WriterSchemas(Protocol):
    """Knows schemas by their ids. An id means the same schema for ever."""

    def of(self, id_: SchemaId) -> WriterSchema:
        """The schema of an id. Raises an error of ours where it can't be asked for now."""
        ...


class OneSchema:
    """One schema for all records, whatever id they have."""

    def __init__(self, text: str) -> None:
        self._schema = WriterSchema((text,))

    def of(self, id_: SchemaId) -> WriterSchema:  # noqa: ARG002  (whichever it is)
        """See `WriterSchemas`."""
        return self._schema


class AvroDocuments:
    """Reads Avro records into columns; see `Documents`."""

    def __init__(
        self, schemas: WriterSchemas, is_framed: bool, columns: Sequence[Column], required: Sequence[str]
    ) -> None:
        """Prepares for records with these columns, of which some must not be null.

        ``is_framed``: an id stands before each body.
        """
        self._schemas = schemas
        self._is_framed = is_framed
        self._columns = columns
        self._required = [column for column in columns if column.name in required]
        self._readers: dict[bytes, RecordReader | str] = {}

    def read(self, texts: Sequence[bytes | None], refused: Refusals) -> dict[str, list[Any]]:
        """See `Documents`. Raises what `WriterSchemas` raises."""
        names = [column.name for column in self._columns]
        if not names and not any(texts):
            return {}
        found: dict[str, list[Any]] = {name: [None] * len(texts) for name in names}
        for head, indexes in self._by_head(texts, refused).items():
            reader = self._reader(head)
            if isinstance(reader, str):
                refused.update(dict.fromkeys(indexes, (None, reader)))
                continue
            of_some: Refusals = {}
            bodies: Any = texts if len(indexes) == len(texts) else [texts[index] for index in indexes]
            columns = reader.read(bodies, len(head), of_some)
            refused.update((indexes[place], why) for place, why in of_some.items())
            for name, values in zip(names, columns, strict=True):
                if len(indexes) == len(texts):
                    found[name] = values
                    continue
                into = found[name]
                for index, value in zip(indexes, values, strict=True):
                    into[index] = value
        return found

    def _by_head(self, texts: Sequence[bytes | None], refused: Refusals) -> dict[bytes, list[int]]:
        """The records by what stands before their bodies. Refuses those that have none, or none of ours."""
        by_head: dict[bytes, list[int]] = {}
        if not self._is_framed:
            by_head[b""] = [index for index, text in enumerate(texts) if text is not None]
        else:
            short = HEADS[0]
            for index, text in enumerate(texts):
                if text is None:
                    continue
                head = text[:short]
                try:
                    by_head[head].append(index)
                except KeyError:
                    by_head[head] = [index]
            by_head = _of_known_frames(by_head, texts, refused)
        if self._required:
            missing = (self._required[0], f"{self._required[0].name}: there is none")
            refused.update((index, missing) for index, text in enumerate(texts) if text is None)
        return by_head

    def _reader(self, head: bytes) -> RecordReader | str:
        reader = self._readers.get(head)
        if reader is not None:
            return reader
        schema_id: SchemaId = UUID(bytes=head[1:]) if len(head) == HEADS[1] else int.from_bytes(head[1:])
        if isinstance(schema_id, int) and schema_id > ID_MAX:
            return f"no schema has the id {schema_id}"
        schema = self._schemas.of(schema_id)
        if schema.problem:  # which may be gone when it is asked for again
            return schema.problem
        try:
            reader = RecordReader(parse_schema(schema.texts), self._columns, [c.name for c in self._required])
        except SchemaInvalid as error:
            of = f" {schema_id}" if self._is_framed else ""
            reader = f"the schema{of} of its writer can't be read by: {error}"
        if len(self._readers) >= READERS_MAX:
            self._readers.clear()
        self._readers[head] = reader
        return reader


def _of_known_frames(
    by_short_head: dict[bytes, list[int]], texts: Sequence[bytes | None], refused: Refusals
) -> dict[bytes, list[int]]:
    """By the whole heads; those that are of a GUID are longer than what was looked at so far."""
    by_head: dict[bytes, list[int]] = {}
    for head, indexes in by_short_head.items():
        if len(head) == HEADS[0] and head[0] == 0:
            by_head[head] = indexes
            continue
        for index in indexes:
            text = texts[index] or b""
            length = HEADS.get(text[0]) if text else None
            if length is None or len(text) < length:  # safety: avro-frame
                refused[index] = (None, _not_framed(text))
            else:
                by_head.setdefault(text[:length], []).append(index)
    return by_head


def _not_framed(text: bytes) -> str:
    if text and text[0] in HEADS:
        return f"only {len(text)} bytes: a schema's id has no room in them"
    first = f"begins with the byte {text[0]}" if text else "is empty"
    return f"it {first}, not with 0 or 1 and a schema's id"
