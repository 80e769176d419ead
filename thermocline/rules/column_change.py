"""Columns of a table beside those that are wanted of it: what changes, at every level of nesting. Pure.

Known columns and fields keep their field ids, and new ones get those that come next, in declared order: that
of a column or a field itself first, then those within it, as Iceberg gives them when it is added.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from thermocline.rules.column_types import ColumnType, Kind, NestedField
from thermocline.rules.nested_types import names_within

if TYPE_CHECKING:
    from thermocline.rules.columns import Column

__all__ = ["ColumnChanges", "Widening", "columns_changed", "is_widening", "known_columns"]


@dataclass(frozen=True, slots=True)
class Widening:
    """A column, or a field within one, whose type holds every value that it held before, and more."""

    name: str
    before: ColumnType
    after: ColumnType


@dataclass(slots=True)
class ColumnChanges:
    """The columns that follow, what changes in sentences, and why the rest can't.

    ``is_reread``: columns go, have other names, or are read from elsewhere, so that what they were has to be
    known for the records that were read until then.
    """

    columns: list[Column] = field(default_factory=list)
    added: list[Column] = field(default_factory=list)
    widened: list[Widening] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    is_reread: bool = False


def columns_changed(
    current: Sequence[Column],
    wanted: Sequence[Column],
    key: Collection[str],
    ordering: Collection[str],
    ids: Iterator[int],
    drop: Collection[str] = (),
) -> ColumnChanges:
    """What makes the current columns the wanted ones; ``ids`` are those that Iceberg gives next.

    ``key`` are the columns of the key, ``ordering`` those that order records. ``drop`` are the columns and
    fields, by their full names, that may be left out.
    """
    found = ColumnChanges()
    known = dict(known_columns(current, wanted))
    _drop(found, [column for column in current if column not in known.values()], drop)
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
        _rename(found, before, column, {*key, *ordering})
        change = f"the column {column.name} can't become {column.type} from {before.type}"
        within = _Within(found, ids, change, drop)
        if column.name in key and column.type != before.type:  # safety: key-type
            why = "it is part of the key, whose bytes stand in the index of every file"
            found.problems.append(f"{within.change}: {why}")
            continue
        type_ = within.changed(column.name, before.numbered_type, column.type)
        # safety: kept-ids
        found.columns.append(replace(column, field_id=before.field_id, nested_ids=type_.ids, renamed_from=""))
    old_names = [before.name for name, before in known.items() if before.name != name]
    _check_names(found, current, drop, old_names)
    _reorder(found, current, known)
    return found


def known_columns(current: Sequence[Column], wanted: Sequence[Column]) -> Iterator[tuple[str, Column]]:
    """What the wanted columns are now, by the names that they are to have; nothing of new ones.

    A column whose new name the table has already was renamed before. What a renamed column was called is free
    for a new one.
    """
    by_name = {column.name: column for column in current}
    renamed = {
        column.name: column.renamed_from
        for column in wanted
        if column.name not in by_name and column.renamed_from in by_name
    }
    for column in wanted:
        if column.name in renamed:
            yield column.name, by_name[renamed[column.name]]
        elif column.name in by_name and column.name not in renamed.values():  # safety: old-name-is-free
            yield column.name, by_name[column.name]


def _drop(found: ColumnChanges, left_out: Sequence[Column], drop: Collection[str]) -> None:
    for column in left_out:
        if column.name not in drop:  # safety: kept-columns
            found.problems.append(
                f"the column {column.name} can't be left out: the table holds its values; drop it with "
                f'`table alter --drop`, or say what it is called now with renamed_from = "{column.name}"'
            )
            continue
        found.is_reread = True
        found.changes.append(
            f"column {column.name} is dropped: nothing shows its values any more, which stay in files until "
            "these are rewritten; a later column of that name is another one"
        )


def _rename(found: ColumnChanges, before: Column, wanted: Column, fixed: Collection[str]) -> None:
    """What changes of a known column beside its type: its name, where it is read from, its comment."""
    is_renamed = before.name != wanted.name
    if is_renamed and before.name in fixed:  # safety: fixed-names
        found.problems.append(
            f"the column {before.name} can't be renamed: it is part of the key or orders the records, and "
            "lookups and files go by its name"
        )
    is_moved = before.source != wanted.source
    is_implied = bool(wanted.renamed_from) and wanted.path == (before.name,)
    if is_moved and is_implied:  # safety: renamed-not-moved
        found.problems.append(
            f"the column {wanted.name} was read from {_origin(before)}: beside renamed_from, say where it is "
            "read from"
        )
    if is_moved and before.name in fixed:  # safety: kept-paths
        found.problems.append(
            f"the column {wanted.name} can't come from {_origin(wanted)} instead of {_origin(before)}: it is "
            "part of the key or orders the records, so the same record must have the same one whenever it is "
            "read"
        )
    if is_renamed:
        still = "" if is_moved else f", and still read from {_origin(wanted)}"
        found.changes.append(
            f"column {before.name} is renamed to {wanted.name}{still}; queries, grants and views have to name"
            " it so"
        )
    if is_moved:
        found.changes.append(
            f"column {wanted.name} is read from {_origin(wanted)}, from {_origin(before)} until now: of "
            "records beyond the table's seam; rows that are there keep their values"
        )
    if before.comment != wanted.comment:
        said = f"the comment {json.dumps(wanted.comment, ensure_ascii=False)}"
        found.changes.append(f"column {wanted.name} has {said if wanted.comment else 'no comment any more'}")
    found.is_reread |= is_renamed or is_moved  # safety: moved-is-noted


def _origin(column: Column) -> str:
    return column.origin or f"its name, {column.name}"


def _check_names(
    found: ColumnChanges, current: Sequence[Column], drop: Collection[str], old_names: Sequence[str]
) -> None:
    """What is named to be dropped, and is not there, or is not left out; what is renamed to two names."""
    for name, times in Counter(old_names).items():
        if times > 1:  # safety: renamed-once
            found.problems.append(f"the column {name} can't be renamed to {times} names")
    there = {name for column in current for name in (column.name, *names_within(column.type, column.name))}
    stays = {name for one in found.columns for name in (one.name, *names_within(one.type, one.name))}
    for name in drop:
        if name not in there:
            found.problems.append(f"{name} can't be dropped: the table has no such column or field")
        elif name in old_names:
            found.problems.append(f"{name} can't be dropped: the file says that it is renamed")
        elif name in stays:  # safety: drop-both
            found.problems.append(
                f"{name} can't be dropped: the file still has it. Delete it there; to have a new one of that "
                "name, drop first, and add it by another alteration"
            )


def _reorder(found: ColumnChanges, current: Sequence[Column], known: Mapping[str, Column]) -> None:
    kept = [known[column.name] for column in found.columns if column.name in known]
    if kept != [column for column in current if column in kept]:
        names = ", ".join(column.name for column in found.columns)
        found.changes.append(f"the columns are ordered {names}; who takes them by place has to follow")


@dataclass(slots=True)
class _Within:
    """What changes in the type of one column; ``change`` begins the sentences that refuse it."""

    found: ColumnChanges
    ids: Iterator[int]
    change: str
    drop: Collection[str]

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
            full = f"{name}.{one}"
            if one not in wanted and full in self.drop:
                self.found.is_reread = True
                self.found.changes.append(f"field {full} is dropped: nothing shows its values any more")
            elif one not in wanted:  # safety: kept-fields
                self.found.problems.append(
                    f"the field {full} can't be left out or renamed: the table holds its values; drop it with"
                    " --drop"
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
