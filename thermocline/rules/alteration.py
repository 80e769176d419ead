"""Alterations: the definition that a table has against the one that is wanted of it.

Pure: `plan_alteration` gives the definition that follows, or every reason why there is none. What may change
is what leaves each row, key, index and delete that is there as it is. `definition_by` goes the other way: the
definition as it was before alterations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import count
from typing import TYPE_CHECKING

from pyiceberg import types

from thermocline.errors import AlterationRefused
from thermocline.rules.bucket_change import problems_of_buckets, with_buckets
from thermocline.rules.column_types import ColumnType, Kind
from thermocline.rules.definition import (
    PROVENANCE,
    Column,
    LiveTable,
    problems_of_new_names,
    spelled_schema,
    with_next_ids,
)
from thermocline.rules.definition.option import option_of
from thermocline.rules.topic_patterns import (
    entries_of,
    finds,
    found_by_pattern,
    named_in,
)
from thermocline.text.shown import json_text

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

__all__ = ["Alteration", "definition_by", "plan_alteration"]


@dataclass(frozen=True, slots=True)
class Widening:
    """A column whose type holds every value that it held before, and more."""

    name: str
    before: ColumnType
    after: ColumnType


@dataclass(frozen=True, slots=True)
class Alteration:
    """What changes, and the definition that follows.

    ``added`` are new columns in declared order, with the field ids that Iceberg will give them; ``topics``
    are new ones; ``changes`` says everything in sentences, and is empty where nothing differs. A new number
    of buckets has ``files_to_rewrite``. ``undone`` is what other programs changed, and is given back first.
    """

    definition: LiveTable
    added: tuple[Column, ...]
    widened: tuple[Widening, ...]
    topics: tuple[str, ...]
    changes: tuple[str, ...]
    files_to_rewrite: int = 0
    undone: tuple[str, ...] = ()


def plan_alteration(
    current: LiveTable,
    wanted: LiveTable,
    last_column_id: int = 0,
    files: Mapping[int, int] | None = None,
) -> Alteration:
    """The alteration that makes the current definition say what the wanted one says.

    ``wanted`` is as the configuration has it: its version and its field ids don't count. ``last_column_id``
    is the largest field id that the Iceberg table ever gave, to columns of other programs and dropped ones
    too. ``files`` are the numbers of live files, by how many buckets their partition spec has.

    Raises:
        AlterationRefused: with every change that can't be made and why, not only the first.
    """
    files = files or {}
    problems = [*_fixed_fields(current, wanted), *_problems_of_columns(current, wanted)]
    problems += problems_of_buckets(current, wanted.buckets_written, files)
    problems += [*_problems_of_order(current, wanted, files), *_problems_of_topics(current, wanted)]
    if problems:
        raise AlterationRefused(table=current.name, problems=tuple(problems))
    columns = tuple(_columns_with_ids(current, wanted, last_column_id))
    before = {column.name: column for column in current.columns}
    added = tuple(column for column in columns if column.name not in before)
    widened = tuple(_widened(before, columns))
    topics = tuple(topic for topic in wanted.topics if topic not in current.topics)
    changes = (
        *_changed_columns(added, widened),
        *_changed_topics(current, wanted, topics),
        *_changed_buckets(current, wanted, files),
        *_changed_options(current, wanted),
    )
    named = replace(wanted, topics=current.topics)
    in_buckets = with_buckets(current, wanted.buckets_written, files)
    definition = replace(
        wanted,
        topics=tuple(dict.fromkeys((*named_in(wanted), *found_by_pattern(named), *wanted.topics))),
        buckets=in_buckets.buckets,
        file_buckets=in_buckets.file_buckets,
        name=current.name,
        columns=columns,
        provenance_id=current.provenance_id,
        version=current.version + bool(changes),
    )
    left = sum(count for of, count in files.items() if of != definition.buckets_written)
    return Alteration(definition, added, widened, topics, changes, left)


def definition_by(definition: LiveTable, schema: Schema) -> LiveTable:
    """The definition as it was when the table had an older schema: fewer columns, or narrower ones."""
    by_id = {one.field_id: one.field_type for one in schema.fields}
    columns = tuple(
        replace(column, type=_type_by(column.type, by_id[column.field_id]))
        for column in definition.columns
        if column.field_id in by_id
    )
    return definition if columns == definition.columns else replace(definition, columns=columns)


def _fixed_fields(current: LiveTable, wanted: LiveTable) -> Iterator[str]:
    for field in fields(LiveTable):
        why = option_of(field).fixed
        if not why:
            continue
        ours, theirs = getattr(current, field.name), getattr(wanted, field.name)
        if ours != theirs:  # safety: fixed-fields
            yield f"{field.name} can't become {_spelled(theirs)} from {_spelled(ours)}: {why}"


def _free() -> Iterator[str]:
    """The fields that may be altered as a whole."""
    return (field.name for field in fields(LiveTable) if option_of(field).is_free)


def _problems_of_topics(current: LiveTable, wanted: LiveTable) -> Iterator[str]:
    for topic in current.topics:
        # safety: kept-topics
        if topic not in wanted.topics and not finds(wanted.topic_patterns, topic):
            yield f"the topic {topic} can't be left out: the table holds rows of it, and its seam"


def _problems_of_columns(current: LiveTable, wanted: LiveTable) -> Iterator[str]:
    columns = {column.name: column for column in wanted.columns}
    for column in current.columns:
        yield from _problems_of_column(current, column, columns.get(column.name))
    names = [column.name for column in current.columns]
    yield from problems_of_new_names(name for name in columns if name not in names)  # safety: new-names-alter
    yield from _problems_of_places(names, columns)


def _problems_of_places(names: Collection[str], wanted: Collection[str]) -> Iterator[str]:
    kept = [name for name in names if name in wanted]
    in_the_file = [name for name in wanted if name in names]
    if kept != in_the_file:
        yield (
            f"the columns can't be reordered from {', '.join(kept)} to {', '.join(in_the_file)}: readers may "
            "take them by place"
        )


def _problems_of_column(current: LiveTable, column: Column, wanted: Column | None) -> Iterator[str]:
    if wanted is None:  # safety: kept-columns
        yield (
            f"the column {column.name} can't be left out or renamed: the table holds its values, and "
            "readers know it by its name"
        )
        return
    if column.origin != wanted.origin:  # safety: kept-paths
        yield (
            f"the column {column.name} can't come from {wanted.origin or 'its name'} instead of "
            f"{column.origin or 'its name'}: the same record must mean the same row whenever it is read"
        )
    if column.type != wanted.type:
        yield from _problem_of_type(current, column, wanted.type)


def _problems_of_order(current: LiveTable, wanted: LiveTable, files: Mapping[int, int]) -> Iterator[str]:
    """Of a table that remembers deletes."""
    is_raised = wanted.buckets_written > current.buckets_written
    if current.merging.remembers_deletes and is_raised and any(files.values()):  # safety: ordered-buckets
        yield (
            f"buckets can't be raised to {wanted.buckets_written}: with sequence_by, files are not rewritten "
            "for it, as they remember deletes"
        )
    ours, theirs = current.tombstone_retention_hours, wanted.tombstone_retention_hours
    if theirs > ours:  # safety: retention-only-falls
        yield (
            f"tombstone_retention_hours can't be raised to {theirs} from {ours}: deletes that were forgotten "
            "already can't be remembered again"
        )


def _problem_of_type(current: LiveTable, column: Column, wanted: ColumnType) -> Iterator[str]:
    change = f"the column {column.name} can't become {wanted} from {column.type}"
    if column.name in current.key:  # safety: key-type
        yield f"{change}: it is part of the key, whose bytes stand in the index of every file"
    elif column.type.fields and wanted.fields:
        yield f"{change}: what is nested in a column can't be altered"
    elif not _is_widening(column.type, wanted):  # safety: widening-only
        yield f"{change}: only int to long and a higher precision of a decimal leave every value as it is"


def _is_widening(before: ColumnType, after: ColumnType) -> bool:
    if before.kind is Kind.INT:
        return after.kind is Kind.LONG
    if before.kind is Kind.DECIMAL and after.kind is Kind.DECIMAL:
        assert before.precision is not None
        assert after.precision is not None
        return after.precision > before.precision and after.scale == before.scale  # safety: decimal-scale
    return False


def _type_by(now: ColumnType, then: types.IcebergType) -> ColumnType:
    if now.kind is Kind.LONG and isinstance(then, types.IntegerType):
        return ColumnType(Kind.INT)
    if now.kind is Kind.DECIMAL and isinstance(then, types.DecimalType):
        return ColumnType(Kind.DECIMAL, then.precision, then.scale)
    return now


def _columns_with_ids(current: LiveTable, wanted: LiveTable, last_column_id: int) -> Iterator[Column]:
    """The wanted columns with the ids they have, or, for new ones, those that Iceberg gives next."""
    known = {column.name: column for column in current.columns}
    used = [number for column in current.columns for number in (column.field_id, *column.nested_ids)]
    ids = count(max([last_column_id, *used, current.provenance_id + len(PROVENANCE) - 1]) + 1)
    for column in wanted.columns:
        before = known.get(column.name)
        if before is None:
            yield with_next_ids(replace(column, field_id=next(ids)), ids)
        else:
            # safety: kept-ids
            yield replace(column, field_id=before.field_id, nested_ids=before.nested_ids)


def _widened(before: Mapping[str, Column], columns: Sequence[Column]) -> Iterator[Widening]:
    for column in columns:
        known = before.get(column.name)
        if known is not None and known.type != column.type:
            yield Widening(column.name, known.type, column.type)


def _changed_columns(added: Sequence[Column], widened: Sequence[Widening]) -> Iterator[str]:
    for column in added:
        yield f"column {column.name} is added as {column.type}; rows that are there have null"
    for one in widened:
        yield f"column {one.name} is widened from {one.before} to {one.after}"


def _changed_options(current: LiveTable, wanted: LiveTable) -> Iterator[str]:
    for name in _free():
        ours, theirs = getattr(current, name), getattr(wanted, name)
        if ours != theirs:
            yield f"{name} becomes {_spelled(theirs)}, from {_spelled(ours)}"


def _changed_topics(current: LiveTable, wanted: LiveTable, added: Sequence[str]) -> Iterator[str]:
    yield from (f"topic {topic} feeds the table, too" for topic in added)
    ours, theirs = entries_of(current), entries_of(wanted)
    if current.topic_patterns != wanted.topic_patterns:
        before, after = _spelled(current.topic_patterns), _spelled(wanted.topic_patterns)
        yield f"topics are found by {after}, from {before}"
    elif not added and ours != theirs:
        yield f"topics are listed as {_spelled(theirs)}"


def _changed_buckets(current: LiveTable, wanted: LiveTable, files: Mapping[int, int]) -> Iterator[str]:
    before, after = current.buckets_written, wanted.buckets_written
    if before != after:
        left = f"; {sum(files.values()):,} files are to be rewritten, bucket by bucket" if files else ""
        yield f"buckets becomes {after}, from {before}{left}"


def _spelled(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "nothing"
    return json_text(value) if isinstance(value, bool) else spelled_schema(str(value or "none"))
