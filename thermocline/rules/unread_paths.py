"""Fields that a writer's schema declares and that no column of a table is read from, by their paths.

The same for schemas of Avro, Protobuf and JSON. Within what no column is read from at all, nothing is listed,
so that schemas that contain themselves end. Lists and maps add nothing to a path: ``items.price`` is the
field of each item.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from thermocline.rules.avro_schema import AvroType, parse_schema
from thermocline.rules.column_types import Kind
from thermocline.rules.decode.framing import message_indexes

if TYPE_CHECKING:
    from thermocline.rules.column_types import ColumnType
    from thermocline.rules.decode.schema_documents import WriterSchema
    from thermocline.rules.definition import LiveTable

__all__ = ["Declared", "UnreadPaths", "declared_row"]

_ITEMS: Final = (Kind.LIST, Kind.MAP)
Wanted = dict[str, Any]
"""What is read, by the names of fields: None of one that is read whole, else the same of what is within."""


class Declared(Protocol):
    """What a schema declares of an object, a record or a message."""

    @property
    def names(self) -> Sequence[str]:
        """The names of its fields, in the schema's order."""
        ...

    def within(self, name: str) -> Iterator[Declared]:
        """The objects that a field may have, also those in lists and maps."""
        ...


class UnreadPaths:
    """Tells what a table's columns are not read from."""

    def __init__(self, definition: LiveTable) -> None:
        """Columns of a record's header, or of the event around the row, read nothing of the row."""
        self._row_at = "after" if definition.envelope == "debezium" else ""
        self._wanted: Wanted = {}
        for column in definition.columns:
            if column.is_in_row:
                _want(self._wanted, column.read_from, _within(column.type))
        for source in definition.route.sources:
            if source.field:
                _want(self._wanted, source.field, None)
        if definition.delete_when is not None and definition.delete_when.path:
            _want(self._wanted, definition.delete_when.path, None)

    def is_read(self, path: str) -> bool:
        """Whether a column is read from there, from what is around it, or from within it."""
        wanted: Wanted | None = self._wanted
        for name in path.split("."):
            if wanted is None:
                return True
            if name not in wanted:
                return False
            wanted = wanted[name]
        return True

    def of(self, schema: WriterSchema, head: bytes = b"") -> tuple[str, ...] | None:
        """The paths in declared order; None where records of that schema have no row, or can't be read.

        ``head`` is what names the schema in records: of Protobuf, it says which message they are.
        """
        try:
            row = declared_row(schema, head, self._row_at)
            return None if row is None else tuple(dict.fromkeys(_unread(row, self._wanted, "")))
        except (ValueError, RecursionError):  # a schema that can't be used, as the decoder says
            return None


def declared_row(schema: WriterSchema, head: bytes = b"", row_at: str = "") -> Declared | None:
    """The row that a schema declares, in the field ``row_at`` or as the value; None where there is none.

    Raises `SchemaInvalid`.
    """
    value = _declared(schema, head)
    if value is None or not row_at:
        return value
    return next(iter(value.within(row_at)), None)


def _declared(schema: WriterSchema, head: bytes) -> Declared | None:
    if schema.problem:
        return None
    if schema.kind == "AVRO":
        return next(_records(parse_schema(schema.texts)), None)
    if schema.kind == "PROTOBUF":
        from thermocline.rules.protobuf_schema import (  # noqa: PLC0415  (takes long to load, and few need it)
            message_at,
            message_called,
        )

        if schema.message is None:
            return _Message(message_at(schema.descriptors, message_indexes(head)).DESCRIPTOR)
        return _Message(message_called(schema.descriptors, schema.message).DESCRIPTOR)
    if not schema.texts:
        return None
    from thermocline.rules.recognise.json_schema_fields import parse_json_schema  # noqa: PLC0415  (it stands on this)

    return parse_json_schema(schema.texts[-1])


@dataclass(frozen=True, slots=True)
class _Record:
    """A record of Avro; see `Declared`."""

    type: AvroType

    @property
    def names(self) -> Sequence[str]:
        """See `Declared`."""
        return [name for name, _ in self.type.fields]

    def within(self, name: str) -> Iterator[Declared]:
        """See `Declared`."""
        found = dict(self.type.fields).get(name)
        if found is not None:
            yield from _records(found)


def _records(of: AvroType) -> Iterator[_Record]:
    if of.kind == "record":
        yield _Record(of)
    for inner in (*of.branches, *([of.items] if of.items is not None else ())):
        yield from _records(inner)


@dataclass(frozen=True, slots=True)
class _Message:
    """A message of Protobuf, by its descriptor; see `Declared`."""

    descriptor: Any

    @property
    def names(self) -> Sequence[str]:
        """See `Declared`."""
        return [field.name for field in self.descriptor.fields]

    def within(self, name: str) -> Iterator[Declared]:
        """See `Declared`."""
        field = self.descriptor.fields_by_name.get(name)
        of = None if field is None else field.message_type
        if of is not None and of.GetOptions().map_entry:
            of = of.fields_by_name["value"].message_type
        if of is not None:
            yield _Message(of)


def _want(wanted: Wanted, path: Sequence[str], within: Wanted | None) -> None:
    """Adds what a column reads at a path; one that reads more there stays."""
    first, *rest = path
    if rest:
        inner, within = within, {}
        _want(within, rest, inner)
    if first not in wanted:
        wanted[first] = within
        return
    known = wanted[first]
    if known is None or within is None:
        wanted[first] = None
        return
    for name, inner in within.items():
        _want(known, (name,), inner)


def _within(of: ColumnType) -> Wanted | None:
    """What a column's type has of what it is read from; None where that is all of it."""
    if of.kind in _ITEMS:
        return _within(of.fields[-1].type)
    if of.kind is not Kind.STRUCT:
        return None
    return {field.name: _within(field.type) for field in of.fields}


def _unread(row: Declared, wanted: Mapping[str, Any], around: str) -> Iterator[str]:
    for name in row.names:
        inner = wanted.get(name)
        if name not in wanted:
            yield around + name
        elif inner is not None:
            for one in row.within(name):
                yield from _unread(one, inner, f"{around}{name}.")
