"""Facts about a log, which are values: ranges, records, and what topics are like. Knows no client."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Final

from thermocline.rules.headers import HeadersUnreadable

# What Kafka does where a topic says nothing, for a user who may not ask and a broker that leaves it out.
_DELETE_RETENTION_MS = 86_400_000
_RETENTION_MS = 604_800_000
_NO_BOUND_MS = (1 << 63) - 1
# The end of the year 9999: a producer that gives microseconds for milliseconds must not break what counts in
# microseconds, nor order a key's records one way here and another way there.
TIMESTAMP_MS_MAX = 253_402_300_799_999


# The client's types say that every field of a message may be missing; of a consumed one none is.
Message = Any


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The records of one partition from ``first`` up to, not including, ``end``."""

    topic: str
    partition: int
    first: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition} [{self.first}, {self.end})"


# In the place of headers that can't be read; known by its identity.
_UNREADABLE: Final[list[tuple[str, bytes | None]]] = []


@dataclass
class RecordChunk:
    """Consecutive records of one partition, offsets ascending; the lists are aligned, and never change."""

    topic: str
    partition: int
    keys: list[bytes | None]
    values: list[bytes | None]
    offsets: list[int]
    timestamps_ms: list[int]
    messages: Sequence[Message] = ()

    @classmethod
    def of(cls, topic: str, partition: int, messages: Sequence[Message]) -> RecordChunk:
        """The chunk of messages that carry no error."""
        return cls(
            topic,
            partition,
            [message.key() for message in messages],
            [message.value() for message in messages],
            [message.offset() for message in messages],
            [min(max(message.timestamp()[1], -1), TIMESTAMP_MS_MAX) for message in messages],
            messages,
        )

    @cached_property
    def content_bytes(self) -> int:
        """What keys and values take, reckoned once for all tables that take the chunk."""
        return sum(map(len, filter(None, self.keys))) + sum(map(len, filter(None, self.values)))

    @cached_property
    def greatest_timestamp_ms(self) -> int:
        """The greatest time of its records, of which there is one at least."""
        return max(self.timestamps_ms)

    def within(self, ranges: Sequence[OffsetRange]) -> RecordChunk | None:
        """Those of its records that are in the ranges, each of another partition; None if there are none."""
        own = [one for one in ranges if (one.topic, one.partition) == (self.topic, self.partition)]
        if not own:
            return None
        first, end = bisect_left(self.offsets, own[0].first), bisect_left(self.offsets, own[0].end)
        if (first, end) == (0, len(self.offsets)):
            return self
        part = slice(first, end)
        lists = (self.keys[part], self.values[part], self.offsets[part], self.timestamps_ms[part])
        return RecordChunk(self.topic, self.partition, *lists, self.messages[part]) if first < end else None

    def headers_of(self, index: int) -> list[tuple[str, bytes | None]] | None:
        """The headers of one record, in order; read only where they are wanted.

        Raises `HeadersUnreadable` where the name of one is not UTF-8.
        """
        return _headers_of(self.messages[index])

    def headers_of_some(
        self, indexes: Sequence[int]
    ) -> Callable[[int], list[tuple[str, bytes | None]] | None]:
        """The same for some of the records, by their place among the indexes."""
        return lambda place: self.headers_of(indexes[place])


@dataclass(frozen=True, slots=True)
class TopicRecords:
    """The records of chunks of one topic, one chunk after the other; the lists are aligned.

    What costs the same for few records as for many is done once for all partitions.
    """

    topic: str
    chunks: Sequence[RecordChunk]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    partitions: Sequence[int]
    offsets: Sequence[int]
    timestamps_ms: Sequence[int]
    messages: Sequence[Message]

    @classmethod
    def of_each(cls, chunks: Iterable[RecordChunk]) -> list[TopicRecords]:
        """The records of each topic, in the order of the chunks."""
        by_topic: dict[str, list[RecordChunk]] = {}
        for chunk in chunks:
            by_topic.setdefault(chunk.topic, []).append(chunk)
        return [cls.of(*some) for some in by_topic.values()]

    @classmethod
    def of(cls, *chunks: RecordChunk) -> TopicRecords:
        """The records of chunks of one topic; of one chunk at least."""
        return cls(
            chunks[0].topic,
            chunks,
            [*chain.from_iterable(chunk.keys for chunk in chunks)],
            [*chain.from_iterable(chunk.values for chunk in chunks)],
            [*chain.from_iterable([chunk.partition] * len(chunk.offsets) for chunk in chunks)],
            [*chain.from_iterable(chunk.offsets for chunk in chunks)],
            [*chain.from_iterable(chunk.timestamps_ms for chunk in chunks)],
            [*chain.from_iterable(chunk.messages for chunk in chunks)],
        )

    def headers_of(self, index: int) -> list[tuple[str, bytes | None]] | None:
        """As those of a chunk."""
        return _headers_of(self.messages[index])


def _headers_of(message: Message) -> list[tuple[str, bytes | None]] | None:
    headers = settle_headers(message)
    if headers is _UNREADABLE:  # safety: headers-unreadable
        raise HeadersUnreadable
    return headers


def settle_headers(message: Message) -> list[tuple[str, bytes | None]] | None:
    """The headers of a message; `_UNREADABLE` where they can't be read. Whoever asks next gets the same."""
    try:
        headers: list[tuple[str, bytes | None]] | None = message.headers()
    except SystemError:  # confluent-kafka would give half a list the next time, which ends the process
        message.set_headers(_UNREADABLE)
        headers = _UNREADABLE
    return headers


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What identifies a topic: a deleted and re-created topic keeps its name and changes its id."""

    topic_id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """What a topic's configuration says of how long tombstones live and where timestamps come from.

    ``is_hidden``: the user may not describe it, so that this is the more careful of what may be.
    """

    is_compacted: bool
    delete_retention_ms: int
    is_log_append_time: bool
    is_hidden: bool = False


@dataclass(frozen=True, slots=True)
class TopicRetention:
    """For how long a topic keeps records that nobody has read yet, by the records' own times.

    ``kept_ms`` is None where none is deleted for its age. ``compaction_lag_ms`` is how long a record lives on
    after a later one of its key came; None where the topic is not compacted. Where producers give the times,
    ``backdated_ms_max`` is how old one may be when its record is appended; None where nothing bounds it.
    ``bytes_max`` is how much of a partition a topic that is limited by size keeps; None where nobody says it.
    """

    kept_ms: int | None
    is_limited_by_size: bool
    compaction_lag_ms: int | None
    backdated_ms_max: int | None = None
    bytes_max: int | None = None


@dataclass(frozen=True, slots=True, order=True)
class OpenTransaction:
    """The oldest open transaction of a partition: where it begins, and how many offsets wait behind it."""

    topic: str
    partition: int
    begins_at: int
    held_back: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}@{self.begins_at}-{self.begins_at + self.held_back}"


def config_of(entries: Mapping[str, str | None]) -> TopicConfig:
    """From what a broker says of a topic; what it leaves out is taken for the more careful of what may be."""
    policy = entries.get("cleanup.policy")
    retention = entries.get("delete.retention.ms")
    return TopicConfig(
        is_compacted=policy is None or "compact" in policy.split(","),
        delete_retention_ms=_DELETE_RETENTION_MS if retention is None else int(retention),
        is_log_append_time=entries.get("message.timestamp.type") == "LogAppendTime",
    )


def retention_of(entries: Mapping[str, str | None]) -> TopicRetention:
    """From what a broker says of a topic; of what it leaves out, the least that may be so."""
    policies = (entries.get("cleanup.policy") or "compact,delete").split(",")
    kept_ms = int(entries.get("retention.ms") or _RETENTION_MS)
    is_deleted = "delete" in policies
    bytes_max = int(entries.get("retention.bytes") or -1)
    return TopicRetention(
        kept_ms=kept_ms if is_deleted and kept_ms >= 0 else None,
        is_limited_by_size=is_deleted and entries.get("retention.bytes") != "-1",
        compaction_lag_ms=int(entries.get("min.compaction.lag.ms") or 0) if "compact" in policies else None,
        backdated_ms_max=_backdated_ms_max(entries),
        bytes_max=bytes_max if is_deleted and bytes_max >= 0 else None,
    )


def _backdated_ms_max(entries: Mapping[str, str | None]) -> int | None:
    """Brokers before 4.0 have one setting for both directions, it counts where the newer one is not set."""
    for name in ("message.timestamp.before.max.ms", "message.timestamp.difference.max.ms"):
        bound_ms = int(entries.get(name) or _NO_BOUND_MS)
        if bound_ms != _NO_BOUND_MS:
            return bound_ms
    return None  # safety: views-backdated-setting
