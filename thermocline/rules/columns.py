"""A column of a table: its name, type and Iceberg id, and where a record has its value."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final

from thermocline.rules.column_types import ColumnType
from thermocline.rules.topic_parts import check_topic_pattern

PROVENANCE: Final = ("_kafka_topic", "_kafka_partition", "_kafka_offset", "_kafka_timestamp")
TOMBSTONE: Final = "_tombstone"
KEY: Final = "_key"
ABSENT: Final = "_absent"
SEQUENCE: Final = "_sequence"
PARTITION_TIME: Final = "_partition_time"
BUCKET_FIELD: Final = "bucket"

COLUMN_NAME: Final = re.compile(r"""[^"'`\\\x00-\x1f\x7f]+""")  # what SQL and JSON spell without escapes
# Trino adds hidden columns with such names to each Iceberg table ("$path", "$partition"), and a later release
# may add more. Iceberg's own metadata columns begin with "_".
TRINO_PREFIX: Final = "$"

COMMENT_CHARACTERS_MAX: Final = 1_000
"""Of a column's comment, which each metadata file of the table has."""

_ORIGINS: Final = frozenset({"path", "header", "event", "topic"})

ColumnText = str | Mapping[str, str | Sequence[str]]


@dataclass(frozen=True, slots=True)
class Column:
    """A column; ``field_id`` is what Iceberg knows it by, whatever it is called.

    ``nested_ids`` are those of the fields within its type, in the order of `ColumnType.with_ids`.
    ``path`` leads to its value in a record: the names of the objects around it, then its own. Or it is the
    value of a ``header``, or at a path in the change ``event`` around the row; or a part of the ``topic``'s
    name, the only group of this regular expression, which a whole name must match. ``renamed_from`` is what a
    file says that it was called, which no table stores. ``comment`` is for people, and for whoever reads the
    Iceberg table, where it is the column's documentation.
    """

    name: str
    type: ColumnType
    field_id: int
    path: tuple[str, ...] = ()
    header: str = ""
    nested_ids: tuple[int, ...] = ()
    event: tuple[str, ...] = ()
    topic: str = ""
    renamed_from: str = field(default="", compare=False)
    comment: str = ""

    @property
    def source(self) -> tuple[object, ...]:
        """Where its value is in a record; equal for columns that have the same, whatever they are called."""
        return self.header, self.topic, self.event, self.read_from if self.is_in_row else ()

    @property
    def numbered_type(self) -> ColumnType:
        """Its type with the ids of the fields within it."""
        return self.type.with_ids(iter(self.nested_ids))

    @property
    def read_from(self) -> tuple[str, ...]:
        """Where its value stands in a record or an event: its path, or the field of its name."""
        return self.event or self.path or (self.name,)

    @property
    def is_in_row(self) -> bool:
        """Whether it is read from the row that a record has, not from what is around it."""
        return not self.header and not self.event and not self.topic

    def __str__(self) -> str:
        """Its type, and where it is read from, unless from the field of its name."""
        return f"{self.type}{self.origin and ' from '}{self.origin}"

    @property
    def described(self) -> str:
        """The same with its comment: equal for columns of which a file says the same, whatever their ids."""
        return f"{self}, {spelled(self.comment)}" if self.comment else str(self)

    @property
    def origin(self) -> str:
        """Where it is read from, in words; empty for the field of its name."""
        if self.header:
            return f"header {spelled(self.header)}"
        if self.event:
            return f"the event's {spelled(self.event)}"
        if self.topic:
            return f"the topic's {spelled(self.topic)}"
        return spelled(self.path) if self.path else ""


def problems_of_new_names(names: Iterable[str]) -> Iterable[str]:
    """Why a table can't be given columns of these names, a sentence for each.

    A definition may have such a name: a table that got the column earlier is still read and written.
    """
    for name in names:
        if name.startswith(TRINO_PREFIX):
            yield (
                f'the column name "{name}" begins with "{TRINO_PREFIX}": Trino has hidden columns with such '
                "names, so the table's views could fail"
            )


def declared(column: Column) -> dict[str, object]:
    """The column as a definition stores it, without its name and ids."""
    type_ = column.type.declared
    fields: dict[str, object] = dict(type_) if isinstance(type_, Mapping) else {"type": type_}
    origin: dict[str, object] = {"path": column.path, "header": column.header, "event": column.event}
    origin |= {"topic": column.topic, "comment": column.comment}
    return fields | {name: value for name, value in origin.items() if value}


def stored_ids(column: Column) -> dict[str, object]:
    """Its Iceberg ids as a definition stores them."""
    return {"id": column.field_id} | ({"ids": column.nested_ids} if column.nested_ids else {})


def numbered_within(columns: Sequence[Column]) -> tuple[Column, ...]:
    """New columns with ids for the fields within them: after those of all columns and of provenance."""
    ids = count(len(columns) + len(PROVENANCE) + 1)
    return tuple(with_next_ids(column, ids) for column in columns)


def with_next_ids(column: Column, ids: Iterator[int]) -> Column:
    """A column whose type's fields have the ids that come next."""
    return replace(column, nested_ids=tuple(next(ids) for _ in range(column.type.fields_within)))


def with_nested_ids(columns: Sequence[Column], nested_ids: Mapping[str, Sequence[int]]) -> tuple[Column, ...]:
    """Columns with the ids that are known. Raises `ValueError` where they are not those of its fields."""
    found = tuple(replace(column, nested_ids=tuple(nested_ids.get(column.name, ()))) for column in columns)
    for column in found:
        if len(column.nested_ids) != column.type.fields_within:
            raise ValueError(
                f"column {column.name} has {len(column.nested_ids)} ids for the fields within it"
            )
    return found


def _parse_column(name: str, text: ColumnText, field_id: int) -> Column:
    """What is said of a column: its type, and where it is read from."""
    if isinstance(text, str):
        return Column(name, ColumnType.parse(text), field_id)
    beside = {*_ORIGINS, _RENAMED_FROM, _COMMENT}
    rest = {word: str(value) for word, value in text.items() if word not in beside}
    type_ = ColumnType.parse(rest["type"] if set(rest) == {"type"} else rest)
    _check_origin(text)
    header = str(text.get("header", ""))
    path = parse_path(text["path"]) if "path" in text else ()
    event = parse_path(text["event"]) if "event" in text else ()
    topic = str(text.get("topic", ""))
    renamed_from = str(text.get(_RENAMED_FROM, ""))
    if renamed_from and not _ORIGINS & text.keys():
        path = parse_path([renamed_from])  # what a record's field is called stays
    path = path if path != (name,) else ()
    comment = _comment(text.get(_COMMENT, ""))
    return Column(name, type_, field_id, path, header, (), event, topic, renamed_from, comment)


_RENAMED_FROM: Final = "renamed_from"
_COMMENT: Final = "comment"


def _comment(text: object) -> str:
    if not isinstance(text, str) or len(text) > COMMENT_CHARACTERS_MAX:
        raise ValueError(f"a comment is a text of at most {COMMENT_CHARACTERS_MAX:,} characters")
    return text


def _check_origin(text: Mapping[str, Any]) -> None:
    if "header" in text and ("path" in text or not str(text["header"])):
        raise ValueError("a column from a header needs the header's name, and can't have a path")
    if "event" in text and ("path" in text or "header" in text):
        raise ValueError("a column from the event can't have a path or a header")
    if "topic" in text:
        if len(_ORIGINS & text.keys()) > 1:
            raise ValueError("a column from the topic's name can't come from elsewhere, too")
        check_topic_pattern(text["topic"])


def parse_path(path: str | Sequence[str]) -> tuple[str, ...]:
    """Reads `a.b`, or a list of names. Raises `ValueError`."""
    names = tuple(path.split(".")) if isinstance(path, str) else tuple(path)
    for name in names or ("",):
        if not COLUMN_NAME.fullmatch(name):
            raise ValueError(
                f"the path {spelled(path)} has a name that is empty, or has quotes, backslashes or control "
                'characters; it is of the form "address.city", or ["address", "city"] where names have dots'
            )
    return names


def parse_columns(
    columns: Mapping[str, ColumnText], field_ids: Mapping[str, int], problems: list[str]
) -> Iterable[Column]:
    """Reads the columns of a definition; adds what is wrong to the problems."""
    for name, text in columns.items():
        if name.startswith("_") or name == BUCKET_FIELD:
            problems.append(f'the column name "{name}" is reserved')
        if not COLUMN_NAME.fullmatch(name):
            problems.append(
                f"the column name {spelled(name)} is empty, or has quotes, backslashes or control characters"
            )
        try:
            yield _parse_column(name, text, field_ids[name])
        except ValueError as error:
            problems.append(f"column {name}: {error}")
    # Spark and Trino match names without regard to case.
    folded = Counter(name.casefold() for name in columns)
    problems += [f'two column names differ only in case: "{name}"' for name, n in folded.items() if n > 1]


def spelled(value: object) -> str:
    """The value as JSON, for sentences."""
    return json.dumps(value, ensure_ascii=False)
