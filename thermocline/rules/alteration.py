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
from thermocline.rules.column_change import ColumnChanges, Widening, columns_changed
from thermocline.rules.column_types import ColumnType, Kind
from thermocline.rules.definition import (
    PROVENANCE,
    Column,
    LiveTable,
    problems_of_new_names,
    spelled_schema,
)
from thermocline.rules.definition.option import option_of
from thermocline.rules.nested_types import iceberg_fields
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
class Alteration:
    """What changes, and the definition that follows.

    ``added`` are new columns in declared order, with the field ids that Iceberg will give them; ``topics``
    are new ones; ``changes`` says everything in sentences, and is empty where nothing differs. A new number
    of buckets has ``files_to_rewrite``. ``undone`` is what other programs changed, and is given back first.
    ``is_reread``: what the columns were has to be noted, for records that were read by then.
    """

    definition: LiveTable
    added: tuple[Column, ...]
    widened: tuple[Widening, ...]
    topics: tuple[str, ...]
    changes: tuple[str, ...]
    files_to_rewrite: int = 0
    undone: tuple[str, ...] = ()
    is_reread: bool = False


def plan_alteration(
    current: LiveTable,
    wanted: LiveTable,
    last_column_id: int = 0,
    files: Mapping[int, int] | None = None,
    drop: Collection[str] = (),
) -> Alteration:
    """The alteration that makes the current definition say what the wanted one says.

    ``wanted`` is as the configuration has it: its version and its field ids don't count. ``last_column_id``
    is the largest field id that the Iceberg table ever gave, to columns of other programs and dropped ones
    too. ``files`` are the numbers of live files, by how many buckets their partition spec has.
    ``drop`` are columns, and fields within columns by their full names, that may go.

    Raises:
        AlterationRefused: with every change that can't be made and why, not only the first.
    """
    files = files or {}
    of_columns = _columns_changed(current, wanted, last_column_id, drop)
    problems = [*_fixed_fields(current, wanted), *_problems_of_columns(current, wanted), *of_columns.problems]
    problems += problems_of_buckets(current, wanted.buckets_written, files)
    problems += [*_problems_of_order(current, wanted, files), *_problems_of_topics(current, wanted)]
    problems += _problems_of_version(current, wanted)
    if problems:
        raise AlterationRefused(table=current.name, problems=tuple(problems))
    topics = tuple(topic for topic in wanted.topics if topic not in current.topics)
    changes = (
        *of_columns.changes,
        *_changed_topics(current, wanted, topics),
        *_changed_buckets(current, wanted, files),
        *_changed_version(current, wanted),
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
        columns=tuple(of_columns.columns),
        provenance_id=current.provenance_id,
        version=current.version + bool(changes),
    )
    left = sum(count for of, count in files.items() if of != definition.buckets_written)
    added, widened = tuple(of_columns.added), tuple(of_columns.widened)
    return Alteration(definition, added, widened, topics, changes, left, is_reread=of_columns.is_reread)


def definition_by(definition: LiveTable, schema: Schema) -> LiveTable:
    """The definition as it was when the table had an older schema: fewer columns, or narrower ones."""
    by_id = {one.field_id: one.field_type for one in schema.fields}
    columns = tuple(
        _column_by(column, by_id[column.field_id])
        for column in definition.columns
        if column.field_id in by_id
    )
    return definition if columns == definition.columns else replace(definition, columns=columns)


def _column_by(column: Column, then: types.IcebergType) -> Column:
    type_ = _type_by(column.numbered_type, then)
    return replace(column, type=type_.unnumbered, nested_ids=type_.ids)


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
    names = [column.name for column in current.columns]
    new = (column.name for column in wanted.columns if column.name not in names)
    yield from problems_of_new_names(new)  # safety: new-names-alter


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


def _problems_of_version(current: LiveTable, wanted: LiveTable) -> Iterator[str]:
    if wanted.format_version < current.format_version:  # safety: format-version-only-rises
        yield (
            f"format_version can't become {wanted.format_version} from {current.format_version}: the deletes "
            "in the table are written in its form, and Iceberg has no way back"
        )


def _type_by(now: ColumnType, then: types.IcebergType) -> ColumnType:
    """A numbered type as it was: narrower where it was widened since, and without what was added since."""
    if now.kind is Kind.LONG and isinstance(then, types.IntegerType):
        return ColumnType(Kind.INT)
    if now.kind is Kind.DECIMAL and isinstance(then, types.DecimalType):
        return ColumnType(Kind.DECIMAL, then.precision, then.scale)
    by_id = {one.field_id: one.field_type for one in iceberg_fields(then)}
    known = [one for one in now.fields if one.field_id in by_id]  # safety: fields-of-then
    return replace(
        now, fields=tuple(replace(one, type=_type_by(one.type, by_id[one.field_id])) for one in known)
    )


def _columns_changed(
    current: LiveTable, wanted: LiveTable, last_column_id: int, drop: Collection[str]
) -> ColumnChanges:
    used = [number for column in current.columns for number in (column.field_id, *column.nested_ids)]
    ids = count(max([last_column_id, *used, current.provenance_id + len(PROVENANCE) - 1]) + 1)
    return columns_changed(current.columns, wanted.columns, current.key, current.sequence_by, ids, drop)


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


def _changed_version(current: LiveTable, wanted: LiveTable) -> Iterator[str]:
    before, after = current.format_version, wanted.format_version
    if before != after:
        yield (
            f"format_version becomes {after}, from {before}, for good: deletes are deletion vectors from "
            "then on, which every program that reads the table must know; no file is rewritten for it"
        )


def _spelled(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "nothing"
    return json_text(value) if isinstance(value, bool) else spelled_schema(str(value or "none"))
