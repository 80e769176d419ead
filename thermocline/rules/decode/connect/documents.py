"""Reads payloads by the schemas beside them, those of one schema together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from thermocline.rules.avro_schema import AvroType
from thermocline.rules.connect_schema import parse_connect_schema
from thermocline.rules.decode.connect.fitting import fitted_type, with_bytes_in
from thermocline.rules.decode.formats import Refusals
from thermocline.rules.decode.framing import HeadOf, no_heads
from thermocline.rules.decode.json_documents import JsonDocuments
from thermocline.rules.decode.schema_documents import Columns, read_in_groups
from thermocline.rules.definition import Column

__all__ = ["ConnectDocuments"]

READERS_MAX: Final = 100
"""Schemas whose readers are kept, each with its text of some kilobytes. A topic has a handful."""


class ConnectDocuments:
    """Reads JSON objects into columns, by their schemas where they have one; see `Documents`."""

    def __init__(
        self, row_at: Sequence[str], encoding: str, columns: Sequence[Column], required: Sequence[str]
    ) -> None:
        """Prepares for documents with these columns, of which some must not be null.

        ``row_at`` is the path in the schema to that of the row, from which columns are read that do not come
        from the event around it; ``encoding`` that of bytes which no schema declares as such.
        """
        self._row_at = tuple(row_at)
        self._columns = [replace(one, type=with_bytes_in(encoding, one.type)) for one in columns]
        self._required = required
        self._without = JsonDocuments(self._columns, required)
        self._readers: dict[bytes, JsonDocuments | str] = {}

    def read(
        self, texts: Sequence[bytes | None], refused: Refusals, head_of: HeadOf = no_heads
    ) -> dict[str, list[Any]]:
        """See `Documents`. ``head_of`` gives a document's schema itself."""
        if head_of is no_heads:
            return self._without.read(texts, refused)
        groups: dict[bytes, list[int]] = {}
        for index, text in enumerate(texts):
            schema = None if text is None else head_of(index)
            groups.setdefault(schema or b"", []).append(index)
        names = [column.name for column in self._columns]

        def read(schema: bytes, some: Sequence[bytes | None], refused: Refusals) -> Columns | str:
            reader = self._reader(schema)
            return reader if isinstance(reader, str) else reader.read(some, refused)

        return read_in_groups(names, texts, groups, read, refused)

    def _reader(self, schema: bytes) -> JsonDocuments | str:
        if not schema:
            return self._without
        reader = self._readers.get(schema)
        if reader is None:
            reader = self._made(schema)
            if len(self._readers) >= READERS_MAX:
                self._readers.clear()
            self._readers[schema] = reader
        return reader

    def _made(self, schema: bytes) -> JsonDocuments | str:
        try:
            declared = parse_connect_schema(schema)
        except ValueError as error:
            return f"the schema beside its payload can't be used: {error}"
        if declared is None:
            return self._without
        columns = [self._fitted(column, declared) for column in self._columns]
        return JsonDocuments(columns, self._required)

    def _fitted(self, column: Column, declared: AvroType) -> Column:
        path = column.read_from if column.event else (*self._row_at, *column.read_from)
        of: AvroType | None = declared
        for name in path:
            of = dict(of.fields).get(name) if of is not None else None
        return column if of is None else replace(column, type=fitted_type(of, column.type))
