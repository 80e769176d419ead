"""Plan a batch: which offsets of which partitions come next. Values in, values out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from thermocline.kafka.facts import TIMESTAMP_MS_MAX, OffsetRange
from thermocline.rules.partition_time import NO_TIME
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
class DrainGoal:
    """The log's ends at a time. Once the table has passed them, it holds all that the log held then."""

    at_ms: int
    ends: Seam


OffsetsAt = Callable[[int], Seam]
"""`thermocline.kafka.log.Log.offsets_at`: where each partition is at a time, in milliseconds."""


def plan_batch(seam: Seam, log_ends: Seam, records_max: int, offsets_at: OffsetsAt) -> Batch:
    """The next batch: everything up to the log's ends, or, where that is too much, up to a time.

    Such a batch has the records up to one partition time (`thermocline.rules.partition_time`), of all
    partitions. So of a key's records in several partitions, the winner is never in an earlier batch.
    Partitions without new offsets have no range; the batch is empty when none has.
    """
    ends = _within(log_ends, seam, log_ends)
    lagging = [place for place in _places(seam) if ends[place] > seam[place]]
    if lag_of(seam, ends) > records_max:
        is_one = len(lagging) == 1  # nothing in other partitions could be older
        ends = (
            _filled(seam, ends, records_max) if is_one else _up_to_a_time(seam, ends, records_max, offsets_at)
        )
    # safety: plan-from-seam
    ranges = tuple(
        OffsetRange(*place, seam[place], ends[place]) for place in lagging if ends[place] > seam[place]
    )
    return Batch(ranges, seam.advanced(ranges), log_ends)


def lag_of(seam: Seam, log_ends: Seam) -> int:
    """Offsets from the seam to the log's ends."""
    return sum(max(log_ends.get((topic, p), offset) - offset, 0) for topic, p, offset in seam.items())


def split_for_tasks(
    ranges: Sequence[OffsetRange], tasks: int, may_cut: bool = True
) -> list[list[OffsetRange]]:
    """The ranges as one list per task, none empty; within a task all are of different partitions.

    Fewer ranges than tasks are cut into pieces, where they may be; more are spread by size.
    """
    if len(ranges) < tasks and not may_cut:
        return [[whole] for whole in ranges]
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


@dataclass(frozen=True, slots=True)
class Bound:
    """What a table's batches may have, and what is known of its records: what one takes on average.

    ``packed_bytes_per_record`` is of each record that was read, also where only some were the table's.
    """

    batch_records_max: int
    batch_bytes_max: int
    bytes_per_record: float | None
    packed_bytes_per_record: float | None


def records_max_together(bounds: Sequence[Bound]) -> int:
    """The bound of a batch that several tables read together: none has more than alone, nor all of them.

    Alone, a batch is bounded by what it reads. Several tables hold what is read for each of them, packed.
    """
    alone = [
        records_max_of(one.batch_records_max, one.batch_bytes_max, one.bytes_per_record) for one in bounds
    ]
    if len(bounds) == 1:
        return alone[0]
    packed = [one.packed_bytes_per_record for one in bounds if one.packed_bytes_per_record is not None]
    if len(packed) < len(bounds):
        return max(1, min(*alone, FIRST_RECORDS_MAX // len(bounds)))
    bytes_max = min(one.batch_bytes_max for one in bounds)
    return max(1, min(*alone, int(bytes_max / max(sum(packed), 1))))  # safety: a-scan-is-bounded


def drained_ms(batch: Batch, planned: DrainGoal, before: DrainGoal, before_ms: int) -> int:
    """When the table that a batch makes last held all that the log held.

    Args:
        planned: the ends that the batch was planned with.
        before: ends of an earlier plan, for a table that never catches up with the newest ones.
        before_ms: the same of the table that the batch was planned on.
    """
    passed = [goal.at_ms for goal in (planned, before) if batch.end.at_least(goal.ends)]  # safety: drained
    # What lies in the future was said by a clock that was fast, and would hold for as long.
    return max([min(before_ms, planned.at_ms), *passed])  # safety: clock-that-was-fast


def with_new_partitions(seam: Seam, starts: Seam) -> Seam:
    """The seam, with the partitions that a topic has gained, from their first offset."""
    return seam.advanced(
        {(topic, p): offset for topic, p, offset in starts.items() if (topic, p) not in seam}
    )


def _up_to_a_time(seam: Seam, ends: Seam, records_max: int, offsets_at: OffsetsAt) -> Seam:
    """The ends as of a partition time: half of the bound at least, where a millisecond doesn't hold more.

    Of a millisecond that holds more than the bound, partitions are read one after the other, in the order in
    which they win.
    """
    low, low_ms = seam, NO_TIME - 1
    high, high_ms = ends, TIMESTAMP_MS_MAX
    # Halved each time, so at most 48 times.
    while high_ms - low_ms > 1 and 2 * lag_of(seam, low) < records_max:
        middle_ms = (low_ms + high_ms) // 2
        middle = _within(offsets_at(middle_ms + 1), seam, high)  # safety: plan-cut-in-time
        if lag_of(seam, middle) <= records_max:
            low, low_ms = middle, middle_ms
        else:
            high, high_ms = middle, middle_ms
    return low if lag_of(seam, low) else _filled(seam, high, records_max)


def _filled(seam: Seam, ends: Seam, records_max: int) -> Seam:
    """As much up to the ends as the bound allows, partition by partition."""
    left, found = records_max, {}
    for place in _places(seam):
        found[place] = min(ends[place], seam[place] + left)
        left -= found[place] - seam[place]
    return Seam(found)


def _within(offsets: Seam, least: Seam, most: Seam) -> Seam:
    """The offsets of the partitions that ``least`` has, none before it, and none beyond ``most``."""
    return Seam(
        {place: max(least[place], min(offsets.get(place), most.get(place))) for place in _places(least)}
    )


def _places(seam: Seam) -> list[tuple[str, int]]:
    return [(topic, partition) for topic, partition, _ in seam.items()]


def _cut(whole: OffsetRange, pieces: int) -> list[OffsetRange]:
    step = -(-(whole.end - whole.first) // pieces)
    return [
        OffsetRange(whole.topic, whole.partition, first, min(first + step, whole.end))
        for first in range(whole.first, whole.end, step)
    ]


def _size(ranges: Sequence[OffsetRange]) -> int:
    return sum(planned.end - planned.first for planned in ranges)
