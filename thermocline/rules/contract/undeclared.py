"""Fields that writers' schemas declare and a table has no place for: of a sample of the records, by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from thermocline.rules.column_types import ColumnType
from thermocline.rules.contract.changes import VALUE, judged_parts, schema_changes
from thermocline.rules.contract.modes import Kind
from thermocline.rules.contract.refusing import JUDGED_MAX, Head, heads_of
from thermocline.rules.decode.framing import schema_id
from thermocline.rules.decode.schema_documents import ID_MAX, WriterSchemas
from thermocline.rules.decode.unread import SAMPLE_VALUES, Sampled, UnreadFields, bounded
from thermocline.rules.definition import LiveTable
from thermocline.rules.headers import HeadersOf, no_headers

__all__ = ["Undeclared", "undeclared_fields"]

_NEW: Final = (Kind.NEW_COLUMNS, Kind.NEW_FIELDS)


class Undeclared(Protocol):
    """Counts fields of values that no column is read from."""

    def is_read(self, name: str) -> bool:
        """Whether a column is read from a field of that name, or whether a record is a delete."""
        ...

    def of(
        self,
        values: Sequence[bytes | None],
        values_max: int = SAMPLE_VALUES,
        headers_of: HeadersOf = no_headers,
    ) -> Sampled:
        """What ``values_max`` of some values have, evenly of all."""
        ...


def undeclared_fields(definition: LiveTable, schemas: WriterSchemas | None) -> Undeclared:
    """What counts them: by the schemas of writers, or in the values of JSON; nothing in other formats."""
    is_judged = any(part.name == VALUE for part in judged_parts(definition))
    if schemas is None or not is_judged:
        return UnreadFields(definition)
    return WriterFields(definition, schemas)


class WriterFields:
    """Counts the fields that the schemas of values declare, with the names of those around them and dots.

    A field counts whether or not the record has a value in it: whoever wrote it knows the field.
    """

    def __init__(self, definition: LiveTable, schemas: WriterSchemas) -> None:
        """For the records of that table."""
        self._definition = definition
        self._schemas = schemas
        self._parts = tuple(part for part in judged_parts(definition) if part.name == VALUE)
        self._known: dict[Head, frozenset[str]] = {}
        self._read = {
            name
            for column in definition.columns
            if column.is_in_row
            for name in _names(".".join(column.read_from), column.type)
        }

    def is_read(self, name: str) -> bool:
        """See `Undeclared`."""
        return name in self._read

    def of(
        self,
        values: Sequence[bytes | None],
        values_max: int = SAMPLE_VALUES,
        headers_of: HeadersOf = no_headers,
    ) -> Sampled:
        """See `Undeclared`. Raises what `WriterSchemas` raises."""
        places = range(0, len(values), max(len(values) // values_max, 1))[:values_max]
        sample = [values[place] for place in places]
        found: Counter[str] = Counter()
        looked_at = 0
        heads = heads_of(self._parts, (), sample, lambda index: headers_of(places[index]))
        for head, indexes in heads.items():
            looked_at += len(indexes)
            for name in self._undeclared(head):
                found[name] += len(indexes)
        return Sampled(looked_at, bounded(found))

    def _undeclared(self, head: Head) -> frozenset[str]:
        if head in self._known:
            return self._known[head]
        id_ = schema_id(head.head)
        if isinstance(id_, int) and id_ > ID_MAX:
            return frozenset()
        schema = self._schemas.of(id_)
        if schema.problem:
            return frozenset()
        changes = schema_changes(self._definition, head.part, schema, head.head)
        names = frozenset(".".join(change.path) for change in changes if change.kind in _NEW)
        if len(self._known) >= JUDGED_MAX:
            self._known.clear()
        self._known[head] = names
        return names


def _names(name: str, of: ColumnType) -> Iterator[str]:
    yield name
    for inner in of.fields:
        yield from _names(f"{name}.{inner.name}", inner.type)
