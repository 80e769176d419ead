"""The one table of all histories: its definition, its few keys, and their records as bytes.

In histories with partial updates its definition says so, and some records leave their row's value as it is.
In those whose columns change, records have other fields, too, and the table takes these up by itself.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Final, NamedTuple

from pyiceberg.transforms import BucketTransform
from pyiceberg.types import StringType

from thermocline.rules.contract.modes import Contract
from thermocline.rules.definition import Column, LiveTable
from thermocline.rules.keys import encode_one
from thermocline.rules.routing import Condition

NAME: Final = "t"
IDENTIFIER: Final = "sim.t"
LOCATION: Final = "file:///simulated/t"

DEFINITION: Final = LiveTable.build(
    name=NAME,
    identifier=IDENTIFIER,
    topics=["a", "b"],
    key=["u", "k"],
    entity=["u"],
    columns={"u": "string", "k": "string", "v": "long"},
    buckets=2,
)
PARTIAL: Final = replace(DEFINITION, partial_updates=True)
_CONDITIONS: Final = {
    topic: (Condition.parse({"topic": r"(\w+)", "is": topic}),) for topic in DEFINITION.topics
}
CHANGING: Final = replace(DEFINITION, contract=Contract.parse({"new_columns": "evolve", "evolve_after": 3}))
PLAIN: Final = tuple(column.name for column in DEFINITION.columns)
"""The columns that it has in every history, and always in this order."""
ROTATING: Final = r"c\d+"
"""The pattern of topics that come and go, in histories that have such."""
_to_json: Final = LiveTable.to_json
_json: Final[dict[tuple[object, ...], str]] = {}
DEFINITIONS_MAX: Final = 300
"""What is made of definitions and kept: those of histories whose columns change have no end."""
TOPICS: Final = DEFINITION.topics

Key = tuple[str, str]
KEYS: Final[tuple[Key, ...]] = tuple((f"u{u}", f"k{k}") for u in range(4) for k in range(3))
_KEY_BYTES: Final = {key: f'{{"u":"{key[0]}","k":"{key[1]}"}}'.encode() for key in KEYS}
_KEY_OF: Final = {text: key for key, text in _KEY_BYTES.items()}
ENCODED: Final = {key: encode_one(DEFINITION, key) for key in KEYS}
"""Each key as the product's bytes, which sort as the key does."""


KEPT: Final = -2
"""The value of a record that leaves its row's as it is."""
NULL: Final = 0
"""A value that is null: of a row that has had none."""


FIELDS: Final = 3
"""Fields that records may have beside ``v``: x0, x1 and so on."""
WIDE: Final = 1 << 40
"""More than an int holds."""

Fields = dict[str, int | None]
More = tuple[tuple[int, int], ...]
"""The values of other columns than the plain ones, by field id, in that order; null ones are left out."""


class Row(NamedTuple):
    """A live row without its key: the value, and where it comes from."""

    v: int
    topic: str
    partition: int
    offset: int
    more: More = ()


class Stored(NamedTuple):
    """A row as a data file has it."""

    key: Key
    v: int
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    more: More = ()


def key_bytes(key: Key) -> bytes:
    """The key of a record."""
    return _KEY_BYTES[key]


def key_of(text: bytes) -> Key:
    """The key that a record's bytes say; for the oracle, which shares nothing with the decoder."""
    return _KEY_OF[text]


def value_bytes(v: int, fields: Fields | None = None) -> bytes:
    """The value of a record."""
    if fields:
        return json.dumps({"v": v, **fields}).encode()
    return b"{}" if v == KEPT else b'{"v":%d}' % v


def taking(definition: LiveTable, topic: str) -> LiveTable:
    """The same of a table that has the records of that topic alone; of all, where none is named."""
    return replace(definition, where=_CONDITIONS[topic]) if topic else definition


def sent_fields(v: int, sent: int) -> Fields:
    """What a record has beside ``v``, by two bits a field: nothing, a number, a wide one, or null."""
    kinds = {f"x{number}": sent >> 2 * number & 3 for number in range(FIELDS)}
    values = {name: 10 * v + number for number, name in enumerate(kinds)}
    return {
        name: None if kind == 3 else values[name] + (WIDE if kind == 2 else 0)
        for name, kind in kinds.items()
        if kind
    }


def definition_json(definition: LiveTable) -> str:
    """One of the three as the table carries it, with the topics and the columns that it has."""
    topics = (definition.topics, definition.topic_patterns, definition.version)
    options = (definition.where, definition.partial_updates, definition.contract.kinds)
    found = (*topics, *options, other_columns(definition))
    if found not in _json:
        alike = replace(
            definition,
            topics=DEFINITION.topics,
            topic_patterns=(),
            version=DEFINITION.version,
            where=(),
            columns=DEFINITION.columns,
        )
        assert alike in (DEFINITION, PARTIAL, CHANGING)
        if len(_json) >= DEFINITIONS_MAX:
            _json.clear()
        _json[found] = _to_json(definition)
    return _json[found]


def other_columns(definition: LiveTable) -> tuple[Column, ...]:
    """Its columns, where they are others than the plain ones: most histories have no such."""
    return () if len(definition.columns) == len(PLAIN) else definition.columns


def rotating_topic(number: int) -> str:
    """One that the pattern finds."""
    return f"c{number}"


@cache
def bucket_of(key: Key) -> int:
    """The bucket of a key, as Iceberg reckons it."""
    bucket = BucketTransform(DEFINITION.buckets).transform(StringType())(key[0])
    assert bucket is not None
    return bucket
