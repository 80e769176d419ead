"""Differences between the definition of a table and the one in the file, one by one. Pure.

Each is judged by itself, by the rules of `alteration`: what an alteration would say of it, or why there is
none. So all that is refused here is refused of the whole, and nothing else is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from thermocline.errors import AlterationRefused
from thermocline.rules.alteration import plan_alteration
from thermocline.rules.column_change import known_columns
from thermocline.rules.columns import Column, declared, spelled
from thermocline.rules.definition import LiveTable, spelled_schema
from thermocline.rules.definition.option import default_of, option_of
from thermocline.rules.definition.stored import declared_option
from thermocline.rules.topic_patterns import entries_of

__all__ = ["COLUMNS", "Difference", "differences_of"]

COLUMNS = "columns"
_BESIDE = (COLUMNS, "file_buckets")
"""Options that are not compared as a whole; the second is part of the first number of buckets."""
ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Difference:
    """What the table has and the file has otherwise, in words.

    ``changes`` are what an alteration to the file's would say, empty where it is refused; ``refusals`` are
    why. ``setting`` is the name in the file, of an option or, ``in_columns``, of a column; ``value`` what the
    file must have there to be as the table is, None where it must have nothing. ``is_order``: of the columns.
    """

    of: str
    in_file: str
    in_table: str
    setting: str
    value: Any = None
    in_columns: bool = False
    is_order: bool = False
    changes: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Judge:
    """Says what an alteration to one other definition would be; the facts are those of `plan_alteration`."""

    current: LiveTable
    last_column_id: int
    files: Mapping[int, int]

    def judged(self, found: Difference, **changed: Any) -> Difference:
        """The difference with its changes, or its refusals, where these options alone are others."""
        wanted = replace(self.current, **changed)
        try:
            planned = plan_alteration(self.current, wanted, self.last_column_id, self.files)
        except AlterationRefused as error:
            return replace(found, refusals=error.problems)
        return replace(found, changes=planned.changes)


def differences_of(
    current: LiveTable,
    wanted: LiveTable,
    last_column_id: int = 0,
    files: Mapping[int, int] | None = None,
) -> tuple[Difference, ...]:
    """All differences, in the order of the options; the arguments are those of `plan_alteration`."""
    judge = _Judge(current, last_column_id, files or {})
    return (
        *_of_options(judge, wanted),
        *_of_columns(judge, current.columns, wanted.columns),
        *_of_order(judge, current.columns, wanted.columns),
    )


def _of_options(judge: _Judge, wanted: LiveTable) -> Iterator[Difference]:
    current = judge.current
    for field in fields(LiveTable):
        option, name = option_of(field), field.name
        if name in _BESIDE or not (option.meaning or option.fixed):
            continue
        ours, theirs = getattr(current, name), getattr(wanted, name)
        changed: dict[str, Any] = {name: theirs}
        if name == "buckets":
            ours, theirs = current.buckets_written, wanted.buckets_written
            changed = {name: wanted.buckets, "file_buckets": wanted.file_buckets}
        if name == "topics":  # safety: diff-of-patterns
            ours, theirs = entries_of(current), entries_of(wanted)
            changed |= {"topic_patterns": wanted.topic_patterns}
        if ours == theirs:
            continue
        value = declared_option(ours)
        value = list(value) if isinstance(value, tuple) else value
        is_unset = ours == default_of(field) and not ours
        found = Difference(
            of=option.setting or name,
            in_file=_spelled(name, theirs),
            in_table=_spelled(name, ours),
            setting=option.setting or name,
            value=None if is_unset else value,
        )
        yield judge.judged(found, **changed)


def _of_columns(judge: _Judge, ours: Sequence[Column], theirs: Sequence[Column]) -> Iterator[Difference]:
    known = dict(known_columns(ours, theirs))
    by_id = {
        known[one.name].field_id: one
        for one in theirs
        if one.name in known and known[one.name].name != one.name
    }
    left_out = [(column.name, column, None) for column in ours if column not in known.values()]
    pairs = [*left_out, *((column.name, known.get(column.name), column) for column in theirs)]
    for name, before, after in pairs:
        is_same_name = before is None or before.name == name
        if is_same_name and before is not None and after is not None and before.described == after.described:
            continue
        found = Difference(
            of=f"column {name}",
            in_file=ABSENT if after is None else after.described,
            in_table=ABSENT if before is None else before.described,
            setting=name,
            value=None if before is None else _written(before),
            in_columns=True,
        )
        columns = ours
        if before is None:  # its name may be that of a column that is renamed
            columns = [by_id.get(column.field_id, column) for column in ours]
        yield judge.judged(found, columns=_with(columns, before, after))


def _of_order(judge: _Judge, ours: Sequence[Column], theirs: Sequence[Column]) -> Iterator[Difference]:
    """The order of the columns that both have."""
    known = dict(known_columns(ours, theirs))
    both = {name for name, before in known.items() if before.name == name}
    kept, in_the_file = ([column.name for column in side if column.name in both] for side in (ours, theirs))
    if kept == in_the_file:
        return
    by_name = {column.name: column for column in ours}
    of_both = tuple(by_name[name] for name in kept)
    judge = replace(judge, current=replace(judge.current, columns=of_both))
    found = Difference(
        of="order of the columns",
        in_file=", ".join(in_the_file),
        in_table=", ".join(kept),
        setting=COLUMNS,
        value={column.name: _written(column) for column in ours},
        is_order=True,
    )
    yield judge.judged(found, columns=tuple(by_name[name] for name in in_the_file))


def _with(columns: Sequence[Column], before: Column | None, wanted: Column | None) -> tuple[Column, ...]:
    """The columns with one that is as it is wanted, or gone; a new one is the last."""
    if wanted is None:
        return tuple(column for column in columns if column != before)
    if before is None:
        return (*columns, wanted)
    return tuple(wanted if column == before else column for column in columns)


def _written(column: Column) -> Any:
    """A column as a person writes it."""
    found = declared(column)
    return found["type"] if set(found) == {"type"} else found


def _spelled(name: str, value: Any) -> str:
    """An option's value in a sentence."""
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, str) and name.endswith("_schema"):
        return spelled_schema(value)
    if value is None or isinstance(value, str):
        return value or "none"
    return spelled(getattr(value, "declared", value))
