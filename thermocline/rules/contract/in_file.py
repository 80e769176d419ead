"""The definition as the file has it, with what the table gained by itself.

A table that evolves has columns, fields and wider types that nobody wrote into the file. As long as the file
lets it evolve, these are no differences; the file may have them, too. Of tables whose route says that they
have their own columns, the file names none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from thermocline.rules.column_change import is_widening, known_columns
from thermocline.rules.column_types import ColumnType, NestedField
from thermocline.rules.column_types import Kind as Nested
from thermocline.rules.contract.modes import Kind, Mode
from thermocline.rules.definition import Column, LiveTable

__all__ = ["with_evolved"]


def with_evolved(wanted: LiveTable, current: LiveTable, drop: Collection[str] = ()) -> LiveTable:
    """What the file wants of the table, with what its contract lets the table take up by itself.

    Not the columns that are to be dropped, nor those that the file calls otherwise.
    """
    if wanted.columns_by_schema:  # safety: columns-of-the-table
        return replace(wanted, columns=tuple(one for one in current.columns if one.name not in drop))
    known = dict(known_columns(current.columns, wanted.columns))
    renamed = {one.name for name, one in known.items() if one.name != name}
    columns = [_evolved_column(wanted, one, known.get(one.name)) for one in wanted.columns]
    named = {one.name for one in wanted.columns} | renamed | {*drop}
    gained = [
        one
        for one in current.columns
        if one.name not in named
        and one.is_in_row
        and not one.path
        and _evolves(wanted, Kind.NEW_COLUMNS, one)
    ]
    found = tuple(_in_table_order(columns, gained, current))
    return wanted if found == wanted.columns else replace(wanted, columns=found)


def _in_table_order(columns: list[Column], gained: list[Column], current: LiveTable) -> Iterator[Column]:
    """The file's columns with the others, each after the one that it follows in the table."""
    before = {one.name: place for place, one in enumerate(current.columns)}
    left = list(gained)
    for column in columns:
        while left and before[left[0].name] < before.get(column.name, -1):
            yield left.pop(0)
        yield column
    yield from left


def _evolves(wanted: LiveTable, kind: Kind, column: Column) -> bool:
    mode = wanted.contract.mode_of(kind, column.name, wanted.format)
    return mode is Mode.EVOLVE  # safety: contract-in-file


def _evolved_column(wanted: LiveTable, column: Column, table: Column | None) -> Column:
    if table is None or column.name in wanted.key:
        return column
    may_widen = _evolves(wanted, Kind.WIDER_TYPES, column)
    may_gain = _evolves(wanted, Kind.NEW_FIELDS, column)
    return replace(column, type=_evolved_type(column.type, table.type, may_widen, may_gain))


def _evolved_type(ours: ColumnType, table: ColumnType, may_widen: bool, may_gain: bool) -> ColumnType:
    if may_widen and is_widening(ours, table):
        return table
    if ours.kind is not table.kind or not ours.fields:
        return ours
    known = {one.name: one for one in table.fields}
    fields = [
        replace(one, type=_evolved_type(one.type, known[one.name].type, may_widen, may_gain))
        if one.name in known
        else one
        for one in ours.fields
    ]
    if ours.kind is Nested.STRUCT and may_gain:
        named = {one.name for one in ours.fields}
        fields += [NestedField(one.name, one.type) for one in table.fields if one.name not in named]
    return replace(ours, fields=tuple(fields))
