"""Checks of what a row is, and how the records of a key become one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from thermocline.rules.column_types import TYPES, closest
from thermocline.rules.columns import spelled
from thermocline.rules.definition.options import (
    PARTIAL_FORMATS,
    SEQUENCE_KINDS,
    TOMBSTONE_RETENTION_HOURS,
    TOMBSTONE_RETENTION_HOURS_MAX,
)
from thermocline.rules.nested_types import names_within

if TYPE_CHECKING:
    from thermocline.rules.columns import Column
    from thermocline.rules.definition.table import LiveTable

__all__ = ["problems"]


def problems(table: LiveTable, declared: Sequence[str]) -> Iterator[str]:
    """What is wrong with the options of `RowOptions`; ``declared`` are the columns as they are given."""
    yield from _nested_names(table.columns)
    yield from _key(table, declared)
    yield from _partial_updates(table)
    yield from _sequence(table)


def _nested_names(columns: Sequence[Column]) -> Iterator[str]:
    """Iceberg's names of fields within columns have dots, as a column's own name may have."""
    names = {column.name.casefold(): column.name for column in columns}
    for column in columns:
        for name in names_within(column.type, column.name):
            if name.casefold() in names:
                yield f'the column "{names[name.casefold()]}" has the name of a field within {column.name}'


def _key(table: LiveTable, declared: Sequence[str]) -> Iterator[str]:
    if not table.has_key and table.key_from != "value":  # safety: append-needs-values
        yield 'an empty key, with which every record adds a row, needs key_from = "value"'
    if len(set(table.key)) < len(table.key):
        yield f"the key {spelled(table.key)} names a column twice"
    for name in dict.fromkeys(table.key):
        if name not in declared:
            yield f'the key column "{name}" is not declared{closest(name, declared)}'
    for column in table.columns:
        if column.name in table.key and column.type.entry.key is None:
            kinds = sorted(kind for kind, entry in TYPES.items() if entry.key)
            yield f"column {column.name} is {column.type}, but a key can only have {', '.join(kinds)}"


def _partial_updates(table: LiveTable) -> Iterator[str]:
    if not table.partial_updates:
        return
    if not table.has_key:
        yield "partial_updates needs a key: without one, each record is a row of its own"
    elif all(column.header or column.topic for column in table.value_columns):
        yield "partial_updates needs a column that is read from the value and is not in the key"
    if table.format not in PARTIAL_FORMATS:
        known = " or ".join(PARTIAL_FORMATS)
        yield f"partial_updates needs values in {known}: in {table.format}, no column can be left out"
    if table.envelope == "maxwell":
        yield "partial_updates can't be used with Maxwell's events, which have whole rows"


def _sequence(table: LiveTable) -> Iterator[str]:
    if not 1 <= table.tombstone_retention_hours <= TOMBSTONE_RETENTION_HOURS_MAX:
        bounds = f"from 1 to {TOMBSTONE_RETENTION_HOURS_MAX}"
        yield f"tombstone_retention_hours is {table.tombstone_retention_hours}, but must be {bounds}"
    if not table.sequence_by:
        if table.tombstone_retention_hours != TOMBSTONE_RETENTION_HOURS:
            yield "tombstone_retention_hours needs sequence_by"
        return
    if not table.has_key:
        yield "sequence_by needs a key: without one, each record is a row of its own"
    if table.partial_updates:
        yield "sequence_by can't be combined with partial_updates yet"
    if len(set(table.sequence_by)) < len(table.sequence_by):
        yield f"sequence_by {spelled(table.sequence_by)} names a column twice"
    columns = {column.name: column for column in table.columns}
    for name in dict.fromkeys(table.sequence_by):
        if name not in columns:
            yield f'sequence_by has "{name}", which is not declared{closest(name, list(columns))}'
        elif name in table.key:
            yield f"sequence_by has the key column {name}, which is the same in all records of a key"
        else:
            yield from _sequence_column(table, columns[name])


def _sequence_column(table: LiveTable, column: Column) -> Iterator[str]:
    if column.type.kind not in SEQUENCE_KINDS:
        kinds = ", ".join(SEQUENCE_KINDS)
        yield f"column {column.name} is {column.type}, but sequence_by takes only {kinds}"
    if column.is_in_row and table.envelope != "plain":
        yield (
            f"sequence_by can't use column {column.name} of the row, as deletes in envelope = "
            f'"{table.envelope}" have no row: read it from the event or a header'
        )
