"""The age of the oldest record that waits, and for how long the log surely keeps all that wait.

Values in, values out: the log is asked by `thermocline.kafka.standing`. Ingest, its metrics, ``status`` and
servers say what this rule says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from thermocline.kafka.facts import TopicRetention

__all__ = [
    "Headroom",
    "Kept",
    "Limit",
    "Oldest",
    "RecordTime",
    "Standing",
    "Stretch",
    "TimeFrom",
    "standing_of",
]

Place = tuple[str, int]
MS_MAX: Final = 10 * 365 * 86_400_000
"""What a topic keeps by its size for longer than ten years is not worth a number."""


class Limit(StrEnum):
    """What may drop a record first.

    ``NONE``: nothing does. ``UNKNOWN``: something may, and can't be measured. ``GONE``: it was dropped.
    """

    TIME = "time"
    SIZE = "size"
    COMPACTION = "compaction"
    NONE = "none"
    UNKNOWN = "unknown"
    GONE = "gone"


class TimeFrom(StrEnum):
    """Who gave a record its time: the broker that appended it, or its producer."""

    APPEND = "append"
    PRODUCER = "producer"


@dataclass(frozen=True, slots=True)
class RecordTime:
    """The time of a record."""

    at_ms: int
    given_by: TimeFrom


@dataclass(frozen=True, slots=True)
class Stretch:
    """One partition: where its log begins, what was taken of it, and where it ends.

    ``first`` is the time of the first record that waits; None where none does, or it has no time or could not
    be read. ``offsets_per_second`` is how fast the log grows, None where that was not measured.
    """

    start: int
    taken: int
    end: int
    first: RecordTime | None = None
    offsets_per_second: float | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether any offset waits."""
        return self.taken < self.end


@dataclass(frozen=True, slots=True)
class Kept:
    """What a topic keeps.

    ``tombstones_ms`` is for how long ingest counts on its tombstones; None where losing one does no harm.
    ``behind_since_ms``: what waits was appended since then, at the earliest.
    """

    retention: TopicRetention
    tombstones_ms: int | None = None
    behind_since_ms: int = 0


@dataclass(frozen=True, slots=True)
class Oldest:
    """The oldest of the first records that wait in each partition; ``time`` is None where it is not known."""

    is_waiting: bool
    time: RecordTime | None = None

    @classmethod
    def of(cls, stretches: Mapping[Place, Stretch]) -> Oldest:
        """Of all partitions."""
        waiting = [one for one in stretches.values() if one.is_waiting]
        times = [one.first for one in waiting if one.first is not None]
        return cls(bool(waiting), min(times, key=lambda one: one.at_ms, default=None))

    def lag_seconds(self, now_ms: int) -> float | None:
        """How old it is; 0 where nothing waits, None where its time is not known."""
        if not self.is_waiting:
            return 0.0
        return None if self.time is None else max(now_ms - self.time.at_ms, 0) / 1000


@dataclass(frozen=True, slots=True)
class Headroom:
    """Until when nothing is dropped that waits: ``drops_at_ms``, or ``allowance_ms`` from when it comes.

    ``drops_at_ms`` is None where nothing waits. ``allowance_ms`` is what the limit grants to a new record.
    """

    limit: Limit
    allowance_ms: int | None = None
    drops_at_ms: int | None = None

    def left_ms(self, now_ms: int) -> int | None:
        """What is left; never below 0, and None where the limit gives no number."""
        if self.drops_at_ms is not None:
            return max(self.drops_at_ms - now_ms, 0)
        return self.allowance_ms


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a table is behind its log, in time, and how long that does no harm."""

    oldest: Oldest
    headroom: Headroom

    def document(self, now_ms: int) -> dict[str, Any]:
        """The same as JSON has it, in ``status`` and on servers."""
        left_ms, allowance_ms = self.headroom.left_ms(now_ms), self.headroom.allowance_ms
        return {
            "ingest_lag_seconds": self.oldest.lag_seconds(now_ms),
            "lag_time_from": None if self.oldest.time is None else self.oldest.time.given_by.value,
            "headroom_seconds": None if left_ms is None else left_ms / 1000,
            "headroom_limit": self.headroom.limit.value,
            "retention_seconds": None if allowance_ms is None else allowance_ms / 1000,
        }


def standing_of(
    stretches: Mapping[Place, Stretch],
    kept: Mapping[str, Kept],
    now_ms: int,
    record_bytes: float | None = None,
) -> Standing:
    """The standing of a table whose partitions and topics these are.

    ``record_bytes`` is what a record takes in the log at most, on average; None where nobody knows.
    """
    found = [
        headroom
        for (topic, _), stretch in stretches.items()
        for headroom in _headrooms(stretch, kept[topic], now_ms, record_bytes)
    ]
    measured = [one for one in found if one.left_ms(now_ms) is not None]
    if measured:
        least = min(measured, key=lambda one: one.left_ms(now_ms) or 0)
    else:
        least = Headroom(Limit.UNKNOWN if found else Limit.NONE)
    return Standing(Oldest.of(stretches), least)


def _headrooms(stretch: Stretch, kept: Kept, now_ms: int, record_bytes: float | None) -> Iterator[Headroom]:
    if stretch.taken < stretch.start:  # safety: headroom-gone
        yield Headroom(Limit.GONE, 0, now_ms)
        return
    if kept.retention.kept_ms is not None:
        yield _by_time(stretch, kept.retention.kept_ms, now_ms)
    if kept.retention.is_limited_by_size:
        yield from _by_size(stretch, kept.retention.bytes_max, now_ms, record_bytes)
    if kept.tombstones_ms is not None:
        yield _by_compaction(stretch, kept, kept.tombstones_ms)


def _by_time(stretch: Stretch, kept_ms: int, now_ms: int) -> Headroom:
    """By ``retention.ms``. Kafka drops whole segments, so it mostly keeps a record for longer."""
    if not stretch.is_waiting:
        return Headroom(Limit.TIME, kept_ms)
    if stretch.first is None:  # safety: headroom-unknown
        return Headroom(Limit.UNKNOWN)
    return Headroom(Limit.TIME, kept_ms, min(stretch.first.at_ms, now_ms) + kept_ms)


def _by_size(
    stretch: Stretch, bytes_max: int | None, now_ms: int, record_bytes: float | None
) -> Iterator[Headroom]:
    """By ``retention.bytes``, at the rate at which the log grows: the longer of two careful estimates.

    A log surely keeps as many of its newest records as fit into these bytes. One that has dropped records
    keeps, by and large, as many as it has now.
    """
    rate = stretch.offsets_per_second
    if rate == 0:
        return  # what is not followed by anything is not dropped for it
    waiting = stretch.end - stretch.taken
    holds = [bytes_max / record_bytes] if bytes_max is not None and record_bytes else []
    holds += [stretch.end - stretch.start] if stretch.start else []
    if rate is None or not holds:
        yield Headroom(Limit.UNKNOWN)
        return
    allowance_ms = min(int(max(holds) / rate * 1000), MS_MAX)
    left_ms = min(int(max(max(holds) - waiting, 0) / rate * 1000), MS_MAX)
    yield Headroom(Limit.SIZE, allowance_ms, now_ms + left_ms if stretch.is_waiting else None)


def _by_compaction(stretch: Stretch, kept: Kept, tombstones_ms: int) -> Headroom:
    """Until ingest stops because tombstones may be gone (``rules.identity.check_tombstones``)."""
    if not stretch.is_waiting:
        return Headroom(Limit.COMPACTION, tombstones_ms)
    since_ms = kept.behind_since_ms
    if stretch.first is not None and stretch.first.given_by is TimeFrom.APPEND:
        since_ms = max(since_ms, stretch.first.at_ms)
    return Headroom(Limit.COMPACTION, tombstones_ms, since_ms + tombstones_ms)
