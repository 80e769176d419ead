"""The definition that follows when a table takes up changes of its writers' schemas by itself.

What can't be taken up is named with the reason, and never keeps the rest from it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from thermocline.errors import AlterationRefused, ConfigInvalid
from thermocline.rules.alteration import Alteration, plan_alteration
from thermocline.rules.column_types import FIELD_NAME, ColumnType, NestedField
from thermocline.rules.columns import BUCKET_FIELD, COLUMN_NAME, Column, problems_of_new_names
from thermocline.rules.contract.changes import SchemaChange
from thermocline.rules.contract.modes import Kind
from thermocline.rules.definition import LiveTable

__all__ = ["Evolution", "Path", "evolved"]

Path = tuple[str, ...]
"""The names of a record's objects around a field, then its own."""


@dataclass(frozen=True, slots=True)
class Evolution:
    """What was taken up, and what was not, with the reason.

    ``alteration`` is from the table's definition to the one that follows; None where nothing was taken up.
    """

    alteration: Alteration | None = None
    taken: tuple[SchemaChange, ...] = ()
    passed_over: tuple[tuple[SchemaChange, str], ...] = ()


@dataclass(slots=True)
class _Evolving:
    current: LiveTable
    last_column_id: int
    dropped: Collection[Path]
    alteration: Alteration | None = None
    taken: list[SchemaChange] = field(default_factory=list)
    passed_over: list[tuple[SchemaChange, str]] = field(default_factory=list)

    def take(self, change: SchemaChange) -> None:
        """Take a change up, or note why not."""
        wanted = self.alteration.definition if self.alteration is not None else self.current
        why = _problem_of_dropped(self.dropped, change) or _problem(wanted, change)
        if not why:
            why = self._planned(_with_change(wanted, change))
        if why:
            self.passed_over.append((change, why))
        else:
            self.taken.append(change)

    def _planned(self, wanted: LiveTable) -> str:
        """Plan for all changes so far; why there is no plan, else empty."""
        try:
            planned = plan_alteration(self.current, wanted, self.last_column_id)
            LiveTable.from_json(planned.definition.to_json(), self.current.name)
        except AlterationRefused as error:
            return error.problems[0]
        except ConfigInvalid as error:
            return error.problems[0]
        self.alteration = planned
        return ""


def evolved(
    current: LiveTable,
    changes: Sequence[SchemaChange],
    last_column_id: int = 0,
    dropped: Collection[Path] = (),
) -> Evolution:
    """The table's definition with all of the changes that it can take up, of which each counts for the next.

    ``last_column_id`` as in `plan_alteration`. ``dropped`` are the fields of records that dropped columns,
    and fields within columns, were read from: these come back by hand alone.
    """
    found = _Evolving(current, last_column_id, dropped)
    for change in changes:
        found.take(change)
    return Evolution(found.alteration, tuple(found.taken), tuple(found.passed_over))


def _problem_of_dropped(dropped: Collection[Path], change: SchemaChange) -> str:
    """Why a change would bring back what was dropped; empty where it would not."""
    match change.kind:
        case Kind.NEW_COLUMNS:  # a dropped column may have been read from within the field
            is_dropped = change.path[0] in {path[0] for path in dropped}
        case Kind.NEW_FIELDS:
            is_dropped = change.path in dropped
        case _:  # of a column that somebody added again
            is_dropped = False
    why = "what was read from it was dropped; to have it again, write it into the file and alter the table"
    return why if is_dropped else ""


def _problem(wanted: LiveTable, change: SchemaChange) -> str:
    """Why a table can't have what a change adds; empty where it can."""
    if change.after is None or change.kind not in (Kind.NEW_COLUMNS, Kind.NEW_FIELDS, Kind.WIDER_TYPES):
        return "nothing can be added for it"
    if change.kind is Kind.WIDER_TYPES:
        return ""
    added = 1 + change.after.fields_within
    there = sum(1 + one.type.fields_within for one in wanted.columns)
    if there + added > wanted.contract.columns_max:  # safety: contract-columns-max
        return f"the table would have {there + added:,} columns, more than columns_max"
    name = change.path[-1]
    if change.kind is Kind.NEW_FIELDS:
        return _problem_of_field(wanted, change, name)
    if name.startswith("_") or name == BUCKET_FIELD:
        return "the name is reserved"
    if not COLUMN_NAME.fullmatch(name):
        return "a column can't have such a name"
    if any(problems_of_new_names([name])):
        return "Trino has hidden columns with such names"
    folded = {one.name.casefold(): one.name for one in wanted.columns}
    same = folded.get(name.casefold())  # safety: contract-case
    return "" if same is None else f"there is a column {same} already"


def _problem_of_field(wanted: LiveTable, change: SchemaChange, name: str) -> str:
    if not FIELD_NAME.fullmatch(name):
        return "a field of a struct can't have such a name"
    of = next(one.type for one in wanted.columns if one.name == change.column)
    for inner in change.inside[:-1]:
        of = next(one.type for one in of.fields if one.name == inner)
    same = {one.name.casefold(): one.name for one in of.fields}.get(name.casefold())
    return "" if same is None else f"there is a field {same} already"


def _with_change(wanted: LiveTable, change: SchemaChange) -> LiveTable:
    assert change.after is not None
    if change.kind is Kind.NEW_COLUMNS:
        return replace(wanted, columns=(*wanted.columns, Column(change.column, change.after, 0)))
    after, name = change.after, change.path[-1]
    if change.kind is Kind.WIDER_TYPES:
        return _with_type(wanted, change, change.inside, lambda _: after)

    def with_field(of: ColumnType) -> ColumnType:
        return replace(of, fields=(*of.fields, NestedField(name, after)))

    return _with_type(wanted, change, change.inside[:-1], with_field)


def _with_type(
    wanted: LiveTable,
    change: SchemaChange,
    inside: tuple[str, ...],
    make: Callable[[ColumnType], ColumnType],
) -> LiveTable:
    """The definition with another type at a place in a column."""
    columns = (
        replace(one, type=_at(one.type, inside, make)) if one.name == change.column else one
        for one in wanted.columns
    )
    return replace(wanted, columns=tuple(columns))


def _at(of: ColumnType, inside: tuple[str, ...], make: Callable[[ColumnType], ColumnType]) -> ColumnType:
    if not inside:
        return make(of)
    return replace(
        of,
        fields=tuple(
            replace(one, type=_at(one.type, inside[1:], make)) if one.name == inside[0] else one
            for one in of.fields
        ),
    )
