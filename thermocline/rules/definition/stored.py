"""A definition as its table carries it, in a property: JSON that is equal for equal definitions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from thermocline.errors import ConfigInvalid, first_line
from thermocline.rules.columns import declared, parse_columns, spelled, stored_ids, with_nested_ids
from thermocline.rules.contract.modes import Contract
from thermocline.rules.definition.option import is_left_out
from thermocline.rules.definition.options import DeleteRule, OnError
from thermocline.rules.definition.parsing import spelled_schema
from thermocline.rules.routing import Condition, Source
from thermocline.rules.topic_patterns import entries_of

if TYPE_CHECKING:
    from thermocline.rules.columns import Column
    from thermocline.rules.definition.table import LiveTable

__all__ = [
    "apart_from_topics",
    "columns_of",
    "declared_option",
    "differences",
    "from_stored",
    "stored",
    "stored_columns",
]

_NOT_COMPARED = (
    *("name", "identifier", "version", "provenance_id", "columns", "buckets", "file_buckets"),
    *("topics", "topic_patterns"),
)

_OF_TOPICS: Final = ("topics", "topic_patterns", "version")
"""What changes in a definition when a topic comes or goes."""


def stored(table: LiveTable) -> str:
    """The text of a definition, without its name."""
    found: dict[str, object] = {}
    for option in fields(table):
        value = getattr(table, option.name)
        if option.name != "name" and not is_left_out(option, value):
            found[option.name] = declared_option(value)
    # As tables have it that were made before keys could have another format, or records an order.
    if table.key_format == table.format:
        del found["key_format"]
    if not table.sequence_by:
        del found["tombstone_retention_hours"]
    found["columns"] = stored_columns(table.columns)
    return json.dumps(found, sort_keys=True, separators=(",", ":"))


def stored_columns(columns: Sequence[Column]) -> list[dict[str, object]]:
    """Columns as JSON has them."""
    return [{"name": one.name, **stored_ids(one), **declared(one)} for one in columns]


def columns_of(stored_ones: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    """The columns that `stored_columns` gave, after a way through JSON. Raises `ValueError`."""
    specs = {one["name"]: {word: said for word, said in one.items() if word != "name"} for one in stored_ones}
    ids = {name: spec.pop("id") for name, spec in specs.items()}
    within = {name: spec.pop("ids") for name, spec in specs.items() if "ids" in spec}
    problems: list[str] = []
    found = with_nested_ids(tuple(parse_columns(specs, ids, problems)), within)
    if problems:
        raise ValueError("; ".join(problems))
    return found


def from_stored(build: Callable[..., LiveTable], text: str, name: str) -> LiveTable:
    """The definition of a text that `stored` gave. Raises `ConfigInvalid` for any other."""
    try:
        given = json.loads(text)
        columns = {column.pop("name"): column for column in given.pop("columns")}
        ids = {column: spec.pop("id") for column, spec in columns.items() if "id" in spec}
        within = {column: spec.pop("ids") for column, spec in columns.items() if "ids" in spec}
        types = {column: spec["type"] if len(spec) == 1 else spec for column, spec in columns.items()}
        # safety: stored-field-ids, stored-nested-ids
        return build(name=name, columns=types, field_ids=ids, nested_ids=within, **given)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        problem = f"the definition stored in the table can't be read: {first_line(error)}"
        raise ConfigInvalid(of=f"of table {name}", problems=(problem,)) from error


@lru_cache(maxsize=64)  # of a few tables, as their topics came and went
def apart_from_topics(text: str) -> str:
    """What a text that `stored` gave says of records.

    Equal for definitions that differ in topics alone, and in the comments of columns.
    """
    said = {name: value for name, value in json.loads(text).items() if name not in _OF_TOPICS}
    for column in said.get("columns", ()):
        column.pop("comment", None)
    return json.dumps(said)


def differences(ours: LiveTable, theirs: LiveTable) -> Iterator[str]:
    """What an alteration would have to change to make one definition the other, in sentences."""
    if ours.buckets_written != theirs.buckets_written:
        yield f"buckets is {ours.buckets_written}, not {theirs.buckets_written}"
    our_topics, their_topics = entries_of(ours), entries_of(theirs)
    if our_topics != their_topics:  # safety: patterns-differ
        yield f"topics is {spelled(our_topics)}, not {spelled(their_topics)}"
    for name in sorted(option.name for option in fields(ours) if option.name not in _NOT_COMPARED):
        one, other = getattr(ours, name), getattr(theirs, name)
        if one != other:
            yield f"{name} is {_spelled(name, one)}, not {_spelled(name, other)}"
    yield from _differing_columns(ours.columns, theirs.columns)


def _differing_columns(ours: Sequence[Column], others: Sequence[Column]) -> Iterator[str]:
    our_types, other_types = ({column.name: str(column) for column in side} for side in (ours, others))
    for name in dict.fromkeys([*our_types, *other_types]):
        left, right = our_types.get(name, "absent"), other_types.get(name, "absent")
        if left != right:
            yield f"column {name} is {left}, not {right}"
    if our_types == other_types and list(our_types) != list(other_types):
        yield f"the columns are ordered {', '.join(our_types)}, not {', '.join(other_types)}"


def declared_option(value: object) -> object:
    """An option's value as JSON has it, and as `LiveTable.build` reads it back."""
    if isinstance(value, tuple):
        return tuple(map(declared_option, value))
    return (
        value.declared if isinstance(value, OnError | DeleteRule | Condition | Source | Contract) else value
    )


def _spelled(name: str, value: object) -> str:
    if isinstance(value, str) and name.endswith("_schema"):
        return spelled_schema(value)
    return spelled(declared_option(value))
