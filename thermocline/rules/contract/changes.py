"""The differences between a writer's schema and a table's definition, by the names of fields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from thermocline.rules import column_types
from thermocline.rules.column_types import ColumnType
from thermocline.rules.contract.modes import Kind, Mode
from thermocline.rules.contract.writers import Part, fields_of
from thermocline.rules.decode.schema_documents import WriterSchema
from thermocline.rules.definition import Column, LiveTable
from thermocline.rules.recognise.fields import Field
from thermocline.text.shown import json_text

__all__ = ["KEY", "VALUE", "SchemaChange", "changes_of", "judged_parts", "modes_of", "schema_changes"]

KEY: Final = "key"
VALUE: Final = "value"
_SCHEMA_FORMATS: Final = ("avro", "protobuf", "json_schema")
_ROWS: Final = {"debezium": ("after",)}


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One difference, at a field of the writer's, ``path`` its names from the row on.

    ``column`` is the table's, or what a new one would be called. ``inside`` are the names from that column's
    type on. ``before`` is the type in the table, ``after`` the one that takes the writer's values; None where
    there is no such field.
    """

    kind: Kind
    path: tuple[str, ...]
    column: str
    inside: tuple[str, ...] = ()
    before: ColumnType | None = None
    after: ColumnType | None = None

    @property
    def place(self) -> str:
        """The field, in words."""
        return json_text(".".join(self.path))

    def __str__(self) -> str:
        match self.kind:
            case Kind.NEW_COLUMNS:
                return f"field {self.place} ({self.after}) has no column"
            case Kind.NEW_FIELDS:
                return f"field {self.place} ({self.after}) is not in column {self.column}"
            case Kind.REMOVED_FIELDS:
                return f"there is no field {self.place}, which column {self.column} is read from"
            case Kind.MADE_OPTIONAL:
                return f"field {self.place} may be null, and column {self.column} is part of the key"
        word = "wider" if self.kind is Kind.WIDER_TYPES else "narrower"
        return f"field {self.place} is {self.after}, {word} than {self.before} in column {self.column}"


def judged_parts(definition: LiveTable) -> tuple[Part, ...]:
    """The parts of records whose schemas their writers name, so that these can change."""
    parts: list[Part] = []
    is_event = definition.envelope == "debezium"
    if definition.format in _SCHEMA_FORMATS and definition.value_schema is None:
        parts.append(Part(VALUE, definition.format, _ROWS["debezium"] if is_event else ()))
    has_keys = definition.has_key and definition.key_from == "key" and definition.key_schema is None
    if has_keys and definition.key_format in _SCHEMA_FORMATS:
        parts.append(Part(KEY, definition.key_format))
    return tuple(parts)


def schema_changes(
    definition: LiveTable, part: Part, schema: WriterSchema, head: bytes
) -> tuple[SchemaChange, ...]:
    """The changes of a writer's schema; none where it can't be read, which decoding says."""
    fields = fields_of(part, schema, head)
    return tuple(changes_of(definition, fields, part.name)) if fields else ()


def changes_of(definition: LiveTable, fields: Sequence[Field], part: str = VALUE) -> Iterator[SchemaChange]:
    """The changes of fields of keys or values, in their order, then what is lacking."""
    by_name = {one.name: one for one in fields}
    in_part = _columns(definition, part)
    yield from _optional_keys(definition, in_part, by_name)
    if part == KEY:
        return
    columns = [column for column in in_part if column.name not in definition.key]
    names = _read_names(definition)
    for one in fields:
        if one.name not in names and one.type is not None:
            yield SchemaChange(Kind.NEW_COLUMNS, (one.name,), one.name, after=ColumnType.parse(one.type))
    for column in columns:
        yield from _changes_of_column(column, by_name)


def modes_of(
    definition: LiveTable, changes: Sequence[SchemaChange], part: Part
) -> Iterator[tuple[SchemaChange, Mode]]:
    """What the table's contract does about each change."""
    for change in changes:
        yield change, definition.contract.mode_of(change.kind, change.column, part.format)


def _columns(definition: LiveTable, part: str) -> Sequence[Column]:
    """The columns that are read from the keys, or from the rows of values."""
    in_value = definition.key_from != "key"
    if part == KEY:
        return definition.key_columns
    return [
        one for one in definition.columns if one.is_in_row and (in_value or one.name not in definition.key)
    ]


def _read_names(definition: LiveTable) -> set[str]:
    """The fields of a row that a column is read from, or whether the record is the table's, or a delete."""
    rule = definition.delete_when.path[:1] if definition.delete_when is not None else ()
    routes = {source.field[0] for source in definition.route.sources if source.field}
    return {one.read_from[0] for one in _columns(definition, VALUE)} | routes | set(rule)


def _optional_keys(
    definition: LiveTable, columns: Sequence[Column], fields: dict[str, Field]
) -> Iterator[SchemaChange]:
    for column in columns:
        if column.name not in definition.key or len(column.read_from) > 1:
            continue
        found = fields.get(column.read_from[0])
        if found is not None and not found.is_always_there:
            yield SchemaChange(Kind.MADE_OPTIONAL, column.read_from, column.name, before=column.type)


def _changes_of_column(column: Column, fields: dict[str, Field]) -> Iterator[SchemaChange]:
    first, *rest = column.read_from
    found = fields.get(first)
    if found is None:
        yield _removed(column, ())
        return
    if found.type is None:
        return  # null is its only value
    writer: ColumnType = ColumnType.parse(found.type)
    for name in rest:
        if writer.kind is not column_types.Kind.STRUCT:
            return  # what is within it, its schema does not tell
        inner = {one.name: one.type for one in writer.fields}.get(name)
        if inner is None:
            yield _removed(column, ())
            return
        writer = inner
    yield from _compared(SchemaChange(Kind.NEW_FIELDS, column.read_from, column.name), column.type, writer)


def _removed(column: Column, inside: tuple[str, ...]) -> SchemaChange:
    path = (*column.read_from, *inside)
    return SchemaChange(Kind.REMOVED_FIELDS, path, column.name, inside, before=column.type)


def _compared(at: SchemaChange, ours: ColumnType, writer: ColumnType) -> Iterator[SchemaChange]:
    """The changes of one type, and of those within it; ``at`` says where."""
    if ours.kind is not writer.kind:
        kind = _OTHER_KINDS.get((ours.kind, writer.kind))
        if kind is not None and ours.epoch is None:
            yield replace(at, kind=kind, before=ours, after=writer)
    elif ours.kind is column_types.Kind.STRUCT:
        yield from _compared_structs(at, ours, writer)
    elif ours.fields:
        for one, other in zip(ours.fields, writer.fields, strict=True):
            yield from _compared(_within(at, one.name), one.type, other.type)
    elif ours.kind is column_types.Kind.DECIMAL and ours.scale == writer.scale:
        assert ours.precision is not None
        assert writer.precision is not None
        if ours.precision != writer.precision:
            kind = Kind.WIDER_TYPES if writer.precision > ours.precision else Kind.NARROWER_TYPES
            yield replace(at, kind=kind, before=ours, after=writer)


def _compared_structs(at: SchemaChange, ours: ColumnType, writer: ColumnType) -> Iterator[SchemaChange]:
    known = {one.name: one.type for one in ours.fields}
    theirs = {one.name: one.type for one in writer.fields}
    for name, type_ in theirs.items():
        if name in known:
            yield from _compared(_within(at, name), known[name], type_)
        else:
            yield replace(_within(at, name), kind=Kind.NEW_FIELDS, after=type_)
    for name, type_ in known.items():
        if name not in theirs:
            yield replace(_within(at, name), kind=Kind.REMOVED_FIELDS, before=type_)


def _within(at: SchemaChange, name: str) -> SchemaChange:
    return replace(at, path=(*at.path, name), inside=(*at.inside, name))


_OTHER_KINDS: Final = {
    (column_types.Kind.INT, column_types.Kind.LONG): Kind.WIDER_TYPES,
    (column_types.Kind.LONG, column_types.Kind.INT): Kind.NARROWER_TYPES,
}
"""By the column's kind and the writer's; any other pair is for decoding to judge, value by value."""
