"""Columns of a table beside those that are wanted of it: what changes, at every level of nesting. Pure.

Known columns and fields keep their field ids, and new ones get those that come next, in declared order: that
of a column or a field itself first, then those within it, as Iceberg gives them when it is added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from thermocline.rules.column_types import ColumnType, Kind, NestedField

if TYPE_CHECKING:
    from thermocline.rules.columns import Column

__all__ = ["ColumnChanges", "Widening", "columns_changed", "is_widening"]


@dataclass(frozen=True, slots=True)
class Widening:
    """A column, or a field within one, whose type holds every value that it held before, and more."""

    name: str
    before: ColumnType
    after: ColumnType


@dataclass(slots=True)
class ColumnChanges:
    """The columns that follow, what changes in sentences, and why the rest can't."""

    columns: list[Column] = field(default_factory=list)
    added: list[Column] = field(default_factory=list)
    widened: list[Widening] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def columns_changed(
    current: Sequence[Column], wanted: Sequence[Column], key: Sequence[str], ids: Iterator[int]
) -> ColumnChanges:
    """What makes the current columns the wanted ones; ``ids`` are those that Iceberg gives next."""
    found = ColumnChanges()
    known = {column.name: column for column in current}
    for column in wanted:
        before = known.get(column.name)
        if before is None:
            new = replace(column, field_id=next(ids))
            # safety: new-nested-ids
            new = replace(new, nested_ids=tuple(next(ids) for _ in range(new.type.fields_within)))
            found.columns.append(new)
            found.added.append(new)
            found.changes.append(f"column {new.name} is added as {new.type}; rows that are there have null")
            continue
        within = _Within(
            found, ids, f"the column {column.name} can't become {column.type} from {before.type}"
        )
        if column.name in key and column.type != before.type:  # safety: key-type
            why = "it is part of the key, whose bytes stand in the index of every file"
            found.problems.append(f"{within.change}: {why}")
            continue
        type_ = within.changed(column.name, before.numbered_type, column.type)
        # safety: kept-ids
        found.columns.append(replace(column, field_id=before.field_id, nested_ids=type_.ids))
    return found


@dataclass(slots=True)
class _Within:
    """What changes in the type of one column; ``change`` begins the sentences that refuse it."""

    found: ColumnChanges
    ids: Iterator[int]
    change: str

    def changed(self, name: str, before: ColumnType, wanted: ColumnType, what: str = "column") -> ColumnType:
        """The wanted type with field ids; those that are known are kept."""
        if before.fields and before.kind is wanted.kind:
            return self._fields_changed(name, before, wanted)
        if before.unnumbered != wanted:
            if not is_widening(before, wanted):  # safety: widening-only
                why = "only int to long and a higher precision of a decimal leave every value as it is"
                self.found.problems.append(f"{self.change}: {why}")
            else:
                self.found.widened.append(Widening(name, before, wanted))
                self.found.changes.append(f"{what} {name} is widened from {before} to {wanted}")
        return wanted

    def _fields_changed(self, name: str, before: ColumnType, wanted: ColumnType) -> ColumnType:
        known = {one.name: one for one in before.fields}
        self._check_fields(name, list(known), [one.name for one in wanted.fields])
        fields = []
        for one in wanted.fields:
            full = f"{name}.{one.name}"
            there = known.get(one.name)
            if there is not None:
                type_ = self.changed(full, there.type, one.type, "field")
                fields.append(NestedField(one.name, type_, there.field_id))
                continue
            number = next(self.ids)
            fields.append(NestedField(one.name, one.type.with_ids(self.ids), number))
            self.found.changes.append(
                f"field {full} is added as {one.type}; values that are there have null in it"
            )
        return replace(wanted, fields=tuple(fields))

    def _check_fields(self, name: str, known: Sequence[str], wanted: Sequence[str]) -> None:
        """Fields that are left out, and those that are kept in another order."""
        for one in known:
            if one not in wanted:  # safety: kept-fields
                self.found.problems.append(
                    f"the field {name}.{one} can't be left out or renamed: the table holds its values"
                )
        kept = [one for one in wanted if one in known]
        before = [one for one in known if one in wanted]
        if kept != before:
            order = f"from {', '.join(before)} to {', '.join(kept)}"
            self.found.problems.append(f"the fields of {name} can't be reordered {order}")


def is_widening(before: ColumnType, after: ColumnType) -> bool:
    """Whether each value of the one type is a value of the other, and stored alike but for its width."""
    if before.epoch or after.epoch:
        return False
    if before.kind is Kind.INT:
        return after.kind is Kind.LONG
    if before.kind is Kind.DECIMAL and after.kind is Kind.DECIMAL:
        assert before.precision is not None
        assert after.precision is not None
        return after.precision > before.precision and after.scale == before.scale  # safety: decimal-scale
    return False
