"""The definition as the file has it, with what the table gained by itself.

A table that evolves has columns, fields and wider types that nobody wrote into the file. As long as the file
lets it evolve, these are no differences; the file may have them, too. Of tables whose route says that they
have their own columns, the file names none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from thermocline.rules.column_change import is_widening, known_columns
from thermocline.rules.column_types import ColumnType, NestedField
from thermocline.rules.column_types import Kind as Nested
from thermocline.rules.contract.modes import Kind, Mode
from thermocline.rules.definition import Column, LiveTable

__all__ = ["with_evolved"]


def with_evolved(wanted: LiveTable, current: LiveTable, drop: Collection[str] = ()) -> LiveTable:
    """What the file wants of the table, with what its contract lets the table take up by itself.

    Not the columns and fields that are to be dropped, by their full names, nor columns that the file calls
    otherwise.
    """
    if wanted.columns_by_schema:  # safety: columns-of-the-table
        return replace(wanted, columns=tuple(one for one in current.columns if one.name not in drop))
    known = dict(known_columns(current.columns, wanted.columns))
    renamed = {one.name for name, one in known.items() if one.name != name}
    columns = [_evolved_column(wanted, one, known.get(one.name), drop) for one in wanted.columns]
    named = {one.name for one in wanted.columns} | renamed | {*drop}
    gained = [
        replace(one, type=_without(one.type, one.name, drop))
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


def _evolved_column(wanted: LiveTable, column: Column, table: Column | None, drop: Collection[str]) -> Column:
    if table is None or column.name in wanted.key:
        return column
    may_widen = _evolves(wanted, Kind.WIDER_TYPES, column)
    may_gain = _evolves(wanted, Kind.NEW_FIELDS, column)
    within = _Within(may_widen, may_gain, drop)
    return replace(column, type=within.evolved(column.name, column.type, table.type))


def _without(of: ColumnType, name: str, drop: Collection[str]) -> ColumnType:
    """The type of what has that full name, without what is to be dropped within it."""
    fields = [
        replace(one, type=_without(one.type, f"{name}.{one.name}", drop))
        for one in of.fields
        if f"{name}.{one.name}" not in drop
    ]
    return replace(of, fields=tuple(fields)) if drop and of.fields else of


@dataclass(frozen=True, slots=True)
class _Within:
    """What a table may take up within a column; ``drop`` has what it may not keep, by full names."""

    may_widen: bool
    may_gain: bool
    drop: Collection[str]

    def evolved(self, name: str, ours: ColumnType, table: ColumnType) -> ColumnType:
        """The file's type of what has that full name, with what the table's has beyond it."""
        if self.may_widen and is_widening(ours, table):
            return table
        if ours.kind is not table.kind or not ours.fields:
            return ours
        known = {one.name: one for one in table.fields}
        fields = [
            replace(one, type=self.evolved(f"{name}.{one.name}", one.type, known[one.name].type))
            if one.name in known
            else one
            for one in ours.fields
        ]
        if ours.kind is Nested.STRUCT and self.may_gain:
            named = {one.name for one in ours.fields}
            gained = (one for one in _without(table, name, self.drop).fields if one.name not in named)
            fields += [NestedField(one.name, one.type) for one in gained]
        return replace(ours, fields=tuple(fields))
