"""Plan a batch: which offsets of which partitions come next. Pure but for the functions that ask the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from ingest.standstill import warn
from thermocline.catalog import SnapshotState, current_state, definition_of, load_table, open_catalog
from thermocline.clock import Clock, SystemClock
from thermocline.identity import check_identity, check_log
from thermocline.log import Log, OffsetRange
from thermocline.seam import Seam

if TYPE_CHECKING:
    from thermocline.settings import Settings

# A table that is idle says so this often while tombstones live: then ingest may stand still for most of their
# life before anybody has to fear for them.
NOTES_PER_RETENTION = 4

# While nobody knows how large the records are: with records of 1 kB some 100 MB, of 100 kB still 10 GB over
# all tasks, of which each holds 64 MB at a time.
FIRST_RECORDS_MAX = 100_000


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


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """One partition: what the log holds and how far the table is; ``lag`` counts offsets.

    ``held_back`` counts the offsets behind ``log_end`` that wait for an open transaction, which begins there.
    None where the log does not have the partition any more.
    """

    topic: str
    partition: int
    log_start: int | None
    seam: int
    log_end: int | None
    lag: int
    held_back: int


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
        OffsetRange(*place, seam[place], seam[place] + _share(lag, total, records_max))
        for place, lag in lags.items()
        if lag
    )
    return Batch(ranges, seam.advanced(ranges), log_ends)


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


def records_max_of(batch_records_max: int, batch_bytes_max: int, bytes_per_record: float) -> int:
    """The bound of a batch in records, from the mean size of the records before (0: unknown)."""
    if bytes_per_record <= 0:
        return min(batch_records_max, FIRST_RECORDS_MAX)
    return max(1, min(batch_records_max, int(batch_bytes_max / bytes_per_record)))


def drained_ms(batch: Batch, planned: Mark, before: Mark, before_ms: int) -> int:
    """When the table that a batch makes last held all that the log held.

    Args:
        planned: the ends that the batch was planned with.
        before: ends of an earlier plan, for a table that never catches up with the newest ones.
        before_ms: the same of the table that the batch was planned on.
    """
    passed = [mark.at_ms for mark in (planned, before) if batch.end.at_least(mark.ends)]
    return max([before_ms, *passed])


def is_note_due(table_drained_ms: int, log: Log, topics: Sequence[str], now_ms: int) -> bool:
    """Whether an idle table should say that it holds all of the log: tombstones age while nothing comes."""
    kept = [config.delete_retention_ms for config in log.configs(topics).values() if config.is_compacted]
    return bool(kept) and now_ms - table_drained_ms > min(kept) / NOTES_PER_RETENTION


def next_batch(settings: Settings, name: str, clock: Clock | None = None) -> Batch:
    """The batch that ingest would read now. Reads only; writes nothing.

    Raises what `thermocline.identity.check_log` raises.
    """
    state, log = _state_and_log(settings, name)
    starts, ends = check_log(name, state, log, state.seam.topics, (clock or SystemClock()).now_ms())
    records_max = records_max_of(settings.table(name).batch_records_max, 0, bytes_per_record=0)
    return plan_batch(with_new_partitions(state.seam, starts), ends, records_max)


def is_up_to_date(settings: Settings, name: str, clock: Clock) -> bool:
    """Whether ingest has nothing to commit now; warns of what an open transaction holds back.

    Raises what `thermocline.identity.check_log` raises.
    """
    state, log = _state_and_log(settings, name)
    topics, now_ms = state.seam.topics, clock.now_ms()
    starts, ends = check_log(name, state, log, topics, now_ms)
    batch = plan_batch(with_new_partitions(state.seam, starts), ends, FIRST_RECORDS_MAX)
    if batch.ranges or is_note_due(state.drained_ms, log, topics, now_ms):
        return False
    warn(name, log.open_transactions(ends))
    return True


def offsets(settings: Settings, name: str) -> list[PartitionOffsets]:
    """Every partition of the table's topics. Reads only, and shows a seam outside the log as it is."""
    state, log = _state_and_log(settings, name)
    check_identity(name, state.cluster_id, state.topic_ids, log, state.seam.topics)
    starts, ends = log.starts(state.seam.topics), log.ends(state.seam.topics)
    held_back = {(one.topic, one.partition): one.held_back for one in log.open_transactions(ends)}
    return [
        PartitionOffsets(
            topic,
            partition,
            log_start=_if_known(starts, (topic, partition)),
            seam=offset,
            log_end=_if_known(ends, (topic, partition)),
            lag=ends.get((topic, partition), offset) - offset,
            held_back=held_back.get((topic, partition), 0),
        )
        for topic, partition, offset in with_new_partitions(state.seam, starts).items()
    ]


def with_new_partitions(seam: Seam, starts: Seam) -> Seam:
    """The seam, with the partitions that a topic has gained, from their first offset."""
    return seam.advanced(
        {(topic, p): offset for topic, p, offset in starts.items() if (topic, p) not in seam}
    )


def offsets_of(log: Log, topics: Sequence[str], where: str) -> Seam:
    """Where "earliest", "latest" or an ISO 8601 time with a zone is in each partition now."""
    if where == "earliest":
        return log.starts(topics)
    if where == "latest":
        return log.ends(topics)
    return log.offsets_at(topics, int(datetime.fromisoformat(where).timestamp() * 1000))


def _state_and_log(settings: Settings, name: str) -> tuple[SnapshotState, Log]:
    table = load_table(open_catalog(settings.catalog), name, settings.table(name).identifier)
    definition_of(table, name)
    return current_state(table, name), Log(settings.kafka)


def _if_known(offsets: Seam, place: tuple[str, int]) -> int | None:
    return offsets[place] if place in offsets else None  # noqa: SIM401  where a seam has none, it says 0


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
