"""The one table of all histories: its definition, its few keys, and their records as bytes.

In histories with partial updates its definition says so, and some records leave their row's value as it is.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Final, NamedTuple

from pyiceberg.transforms import BucketTransform
from pyiceberg.types import StringType

from thermocline.rules.definition import LiveTable
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
ROTATING: Final = r"c\d+"
"""The pattern of topics that come and go, in histories that have such."""
_to_json: Final = LiveTable.to_json
_json: Final[dict[tuple[object, ...], str]] = {}
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


class Row(NamedTuple):
    """A live row without its key: the value, and where it comes from."""

    v: int
    topic: str
    partition: int
    offset: int


class Stored(NamedTuple):
    """A row as a data file has it."""

    key: Key
    v: int
    topic: str
    partition: int
    offset: int
    timestamp_ms: int


def key_bytes(key: Key) -> bytes:
    """The key of a record."""
    return _KEY_BYTES[key]


def key_of(text: bytes) -> Key:
    """The key that a record's bytes say; for the oracle, which shares nothing with the decoder."""
    return _KEY_OF[text]


def value_bytes(v: int) -> bytes:
    """The value of a record."""
    return b"{}" if v == KEPT else b'{"v":%d}' % v


def taking(definition: LiveTable, topic: str) -> LiveTable:
    """The same of a table that has the records of that topic alone; of all, where none is named."""
    return replace(definition, where=_CONDITIONS[topic]) if topic else definition


def definition_json(definition: LiveTable) -> str:
    """One of the two as the table carries it, with the topics that it has."""
    topics = (definition.topics, definition.topic_patterns, definition.version)
    found = (*topics, definition.where, definition.partial_updates)
    if found not in _json:
        alike = replace(
            definition, topics=DEFINITION.topics, topic_patterns=(), version=DEFINITION.version, where=()
        )
        assert alike in (DEFINITION, PARTIAL)
        _json[found] = _to_json(definition)
    return _json[found]


def rotating_topic(number: int) -> str:
    """One that the pattern finds."""
    return f"c{number}"


@cache
def bucket_of(key: Key) -> int:
    """The bucket of a key, as Iceberg reckons it."""
    bucket = BucketTransform(DEFINITION.buckets).transform(StringType())(key[0])
    assert bucket is not None
    return bucket
