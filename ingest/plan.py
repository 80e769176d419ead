"""Plan a batch: which offsets of which partitions come next. Values in, values out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from thermocline.kafka.log import OffsetRange
from thermocline.rules.seam import Seam

# While nobody knows how large the records are, which each process learns by its first batch: of 100 kB that
# is 500 MB, as `batch_bytes_max` is by default. A task holds all records of its bucket.
FIRST_RECORDS_MAX = 5_000


@dataclass(frozen=True, slots=True)
class Batch:
    """Ranges that start at the seam; ``end`` is the seam after them, ``log_ends`` the log's at planning."""

    ranges: tuple[OffsetRange, ...]
    end: Seam
    log_ends: Seam


@dataclass(frozen=True, slots=True)
class Mark:
    """The log's ends at a time. Once the table has passed them, it holds all that the log held then."""

    at_ms: int
    ends: Seam


def plan_batch(seam: Seam, log_ends: Seam, records_max: int) -> Batch:
    """The next batch: everything up to the log's ends, or a share of each partition where that is too much.

    A partition's share is in proportion to its lag, so that all of them drain at the same time. Partitions
    without new offsets have no range; the batch is empty when none has.
    """
    lags = {
        (topic, partition): max(log_ends.get((topic, partition), offset) - offset, 0)
        for topic, partition, offset in seam.items()
    }
    total = sum(lags.values())
    ranges = tuple(
        # safety: plan-from-seam
        OffsetRange(*place, seam[place], seam[place] + _share(lag, total, records_max))
        for place, lag in lags.items()
        if lag
    )
    return Batch(ranges, seam.advanced(ranges), log_ends)


def lag_of(seam: Seam, log_ends: Seam) -> int:
    """Offsets from the seam to the log's ends."""
    return sum(max(log_ends.get((topic, p), offset) - offset, 0) for topic, p, offset in seam.items())


def split_for_tasks(ranges: Sequence[OffsetRange], tasks: int) -> list[list[OffsetRange]]:
    """The ranges as one list per task, none empty; within a task all are of different partitions.

    Fewer ranges than tasks are cut into pieces, more are spread by size.
    """
    if len(ranges) < tasks:
        pieces = -(-tasks // max(len(ranges), 1))
        return [[piece] for whole in ranges for piece in _cut(whole, pieces)]
    loads: list[list[OffsetRange]] = [[] for _ in range(tasks)]
    for planned in sorted(ranges, key=lambda planned: planned.first - planned.end):
        min(loads, key=_size).append(planned)
    return loads


def records_max_of(batch_records_max: int, batch_bytes_max: int, bytes_per_record: float | None) -> int:
    """The bound of a batch in records, from the mean size of keys and values before, if that is known."""
    if bytes_per_record is None:
        return min(batch_records_max, FIRST_RECORDS_MAX)
    return max(1, min(batch_records_max, int(batch_bytes_max / max(bytes_per_record, 1))))


def drained_ms(batch: Batch, planned: Mark, before: Mark, before_ms: int) -> int:
    """When the table that a batch makes last held all that the log held.

    Args:
        planned: the ends that the batch was planned with.
        before: ends of an earlier plan, for a table that never catches up with the newest ones.
        before_ms: the same of the table that the batch was planned on.
    """
    passed = [mark.at_ms for mark in (planned, before) if batch.end.at_least(mark.ends)]  # safety: drained
    # What lies in the future was said by a clock that was fast, and would hold for as long.
    return max([min(before_ms, planned.at_ms), *passed])  # safety: clock-that-was-fast


def with_new_partitions(seam: Seam, starts: Seam) -> Seam:
    """The seam, with the partitions that a topic has gained, from their first offset."""
    return seam.advanced(
        {(topic, p): offset for topic, p, offset in starts.items() if (topic, p) not in seam}
    )


def _share(lag: int, total: int, records_max: int) -> int:
    # At least one offset each, so that no partition waits for ever behind larger ones.
    return lag if total <= records_max else max(1, lag * records_max // total)


def _cut(whole: OffsetRange, pieces: int) -> list[OffsetRange]:
    step = -(-(whole.end - whole.first) // pieces)
    return [
        OffsetRange(whole.topic, whole.partition, first, min(first + step, whole.end))
        for first in range(whole.first, whole.end, step)
    ]


def _size(ranges: Sequence[OffsetRange]) -> int:
    return sum(planned.end - planned.first for planned in ranges)
