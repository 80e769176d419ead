"""The plan of compaction: rewrites that save readers the most for each byte, under a budget. Pure.

The cost model says, in milliseconds of one core, what a scan and a lookup of a bucket take now, what they
would take after a rewrite of some of its files, and what that rewrite takes. A rewrite is worth it where
readers save more than it costs, for as long as it lasts: within `HORIZON_HOURS`, and only until ingest would
have merged the files by itself. Rules lie over that: a bucket with too many dead rows
is rewritten in any case, and one that waits for long gains weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from thermocline.iceberg.data_file import ROW_GROUP_ROWS
from thermocline.maintenance.measure import (
    BucketMeasure,
    FileMeasure,
    TableMeasure,
    as_one,
    depth_of,
    files_at_best,
)
from thermocline.upsert.tiers import FANOUT, MERGED_BYTES_MAX, SMALL_ROWS

if TYPE_CHECKING:
    from thermocline.iceberg.read_counts import ReadRates
    from thermocline.rules.definition import LiveTable
    from thermocline.settings import MaintenanceSettings

__all__ = ["Budget", "CostModel", "Costs", "Plan", "PlannedTask", "ReadCosts", "Reads", "plan_of"]

HORIZON_HOURS: Final = 24.0
"""A rewrite has to pay for itself within a day: after that, updates have undone much of it."""
SCORE_MIN: Final = 2.0
"""What readers save must be so many times the cost; both are estimates. Of a given budget, 1 saves a few
percent more, and 4 leaves tables with few hot keys slower than they need to be (`benchmarks.policy`)."""
FORCED_DEAD_RATIO: Final = 0.35
"""From here on a scan reads half as much again as it needs to."""
STARVED_HOURS: Final = 24.0
"""A bucket that was worth a rewrite for so long counts double, for twice as long threefold."""
FORCED_HOURS_MIN: Final = 1.0
"""Where ingest will have merged the files before that by itself, dead rows force nothing."""
TASK_BYTES_MAX: Final = 4 << 30
"""Of the inputs of one task: what is done again where it fails."""
_SIZES: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
"""Of the sets of files that are compared, beside all files of a bucket."""
TASK_FILES_MAX: Final = 128
"""All of them are open at once, each with rows in memory."""


@dataclass(frozen=True, slots=True)
class Costs:
    """The model's constants: of local disks and of object stores they differ, their ratios do so little.

    ``benchmarks/policy.py`` measures them on this machine's disk.
    """

    open_ms: float = 3.0
    """To open a file of rows or of deletes, and read its footer."""
    scan_bytes_per_ms: float = 1_000_000.0
    scan_row_ms: float = 0.00015
    dead_row_ms: float = 0.00005
    """To leave it out, beside reading it."""
    lookup_file_ms: float = 0.25
    """To look for a key in a file that may hold it, with short rows."""
    lookup_bytes_per_ms: float = 2_000_000.0
    """Of the row group that is unpacked for that."""
    rewrite_bytes_per_ms: float = 400_000.0
    """Of what is read, with writing about as much."""
    rewrite_row_ms: float = 0.0008
    """To decode, merge and encode a row of some columns: of short rows, that is nearly all."""
    commit_ms: float = 1_000.0
    """A commit, and what each reader does about a new snapshot."""


@dataclass(frozen=True, slots=True)
class Reads:
    """How often a table is read: scans of the whole, and lookups by bucket; without these, all evenly."""

    scans_per_hour: float = 1.0
    lookups_per_hour: float = 36_000.0
    by_bucket: Mapping[int, float] | None = None

    @classmethod
    def of(
        cls, settings: MaintenanceSettings, definition: LiveTable, counted: ReadRates | None = None
    ) -> Reads:
        """What the settings say, and what servers counted; nobody looks up a row of a table without a key.

        Where servers count lookups, those are all; extracts are only some of the scans.
        """
        if not definition.has_key:
            counted_scans = 0.0 if counted is None else counted.extracts
            return cls(settings.scans_per_hour + counted_scans, 0.0)
        if counted is None:
            return cls(settings.scans_per_hour, 3600 * settings.lookups_per_second)
        return cls(settings.scans_per_hour + counted.extracts, by_bucket=counted.lookups)

    def lookups_of(self, bucket: int, buckets: int) -> float:
        """Lookups an hour in one bucket."""
        if self.by_bucket is not None:
            return self.by_bucket.get(bucket, 0.0)
        return self.lookups_per_hour / max(buckets, 1)


@dataclass(frozen=True, slots=True)
class Budget:
    """What may be spent; None has no bound."""

    bytes: int | None = None
    seconds: float | None = None

    def allows(self, task: PlannedTask) -> bool:
        """Whether there is enough for it, by what it is expected to take."""
        return self.covers(task.bytes, task.cost_ms)

    def covers(self, read_bytes: int, cost_ms: float) -> bool:
        """Whether there is enough for a rewrite of so many bytes, which takes so long."""
        is_short = self.seconds is not None and cost_ms > 1000 * self.seconds
        return not is_short and (self.bytes is None or read_bytes <= self.bytes)

    def rank(self, task: PlannedTask) -> float:
        """What readers save for each unit of what is short: bytes where these are bounded, else time."""
        return task.score if self.bytes is None else task.score * task.cost_ms / max(task.bytes, 1)

    def after(self, spent_bytes: int, spent_seconds: float) -> Budget:
        """What is left after so much, at least nothing."""
        return Budget(
            None if self.bytes is None else max(self.bytes - spent_bytes, 0),
            None if self.seconds is None else max(self.seconds - spent_seconds, 0),
        )


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """A rewrite of files of one bucket.

    ``saves_ms`` is what readers save in an hour, for ``lasts_hours``, ``cost_ms`` what it costs once, and
    ``score`` what comes back for each millisecond of that.
    """

    bucket: int
    files: tuple[FileMeasure, ...]
    reason: str
    saves_ms: float
    lasts_hours: float
    cost_ms: float
    score: float
    is_forced: bool = False
    is_bucket_change: bool = False
    """Files get the number of buckets that the table was altered to."""

    @property
    def paths(self) -> frozenset[str]:
        """Of the files to rewrite."""
        return frozenset(file.path for file in self.files)

    @property
    def bytes(self) -> int:
        """To read."""
        return sum(file.bytes for file in self.files)


@dataclass(frozen=True)
class Plan:
    """What is worth a rewrite, most urgent first: what the budget allows, and all of it."""

    tasks: tuple[PlannedTask, ...]
    wanted: tuple[PlannedTask, ...]

    @cached_property
    def debt_seconds(self) -> float:
        """How long all that is worth a rewrite would take one core: the sum of the costs of ``wanted``.

        Without what a change of the table's buckets asks for: that is no sign that maintenance is behind.
        """
        return sum(task.cost_ms for task in self.wanted if not task.is_bucket_change) / 1000

    @cached_property
    def bucket_change_seconds(self) -> float:
        """The same of the next rewrites that a change of the table's buckets asks for."""
        return sum(task.cost_ms for task in self.wanted if task.is_bucket_change) / 1000


def plan_of(
    measured: TableMeasure,
    target_bytes: int,
    reads: Reads,
    costs: Costs,
    budget: Budget | None = None,
    waiting_hours: Mapping[int, float] | None = None,
) -> Plan:
    """The plan for a table.

    ``waiting_hours`` says for how long buckets have been worth a rewrite, where that is known. A table that
    remembers deletes is not rewritten: there, only batches join files.
    """
    if measured.remembers_deletes:  # safety: no-rewrite-forgets
        return Plan((), ())
    wanted: list[PlannedTask] = []
    budget = budget or Budget()
    for bucket in measured.buckets.values():
        model = CostModel.of(bucket, measured, target_bytes, reads, costs)
        best = model.best(budget)
        if best is not None:
            waited = (waiting_hours or {}).get(bucket.bucket, 0.0)
            wanted.append(replace(best, score=best.score * (1 + waited / STARVED_HOURS)))
    wanted.sort(key=lambda task: (not task.is_forced, -budget.rank(task), task.bucket))
    return Plan(tuple(_within(wanted, budget)), tuple(wanted))


@dataclass(frozen=True, slots=True)
class ReadCosts:
    """Milliseconds of one scan, and of one lookup."""

    scan: float
    lookup: float


@dataclass(frozen=True, slots=True)
class CostModel:
    """What a bucket costs its readers, as it is and after a rewrite of some of its files."""

    measure: BucketMeasure
    target_bytes: int
    scans_per_hour: float
    lookups_per_hour: float
    rows_per_hour: float
    """Written to the bucket."""
    costs: Costs
    buckets_written: int = 0
    """How many buckets new files have."""

    @classmethod
    def of(
        cls, bucket: BucketMeasure, measured: TableMeasure, target_bytes: int, reads: Reads, costs: Costs
    ) -> CostModel:
        """Of one bucket of a table."""
        count = len(measured.buckets)
        return cls(
            bucket,
            target_bytes,
            reads.scans_per_hour,
            reads.lookups_of(bucket.bucket, count),
            measured.rows_per_hour / max(count, 1),
            costs,
            measured.buckets_written,
        )

    def scan_ms(self, files: Sequence[FileMeasure]) -> float:
        """To read all rows of these files once."""
        opened = len(files) + sum(file.dead_rows > 0 for file in files)
        dead = sum(file.dead_rows for file in files)
        read = sum(file.bytes for file in files) / self.costs.scan_bytes_per_ms
        read += sum(file.rows for file in files) * self.costs.scan_row_ms
        return opened * self.costs.open_ms + read + dead * self.costs.dead_row_ms

    def lookup_ms(self, files: Sequence[FileMeasure]) -> float:
        """To look for a key in the files that may hold it."""
        return depth_of(files) * self._lookup_file_ms

    @property
    def _lookup_file_ms(self) -> float:
        group_bytes = ROW_GROUP_ROWS * self.measure.bytes / max(self.measure.rows, 1)
        return self.costs.lookup_file_ms + group_bytes / self.costs.lookup_bytes_per_ms

    def task(self, chosen: Sequence[FileMeasure], reason: str, now: ReadCosts) -> PlannedTask:
        """What a rewrite of these files saves and costs, with what the bucket costs now."""
        saves_ms, cost_ms = self._saves_ms(chosen, now), self.cost_ms(chosen)
        lasts_hours = self._lasts_hours(chosen, saves_ms, now)
        score = saves_ms * lasts_hours / cost_ms
        return PlannedTask(self.measure.bucket, tuple(chosen), reason, saves_ms, lasts_hours, cost_ms, score)

    def _saves_ms(self, chosen: Sequence[FileMeasure], now: ReadCosts) -> float:
        after = self.after_ms(chosen)
        scans_ms = self.scans_per_hour * (now.scan - after.scan)
        return scans_ms + self.lookups_per_hour * (now.lookup - after.lookup)

    def _lasts_hours(self, chosen: Sequence[FileMeasure], saves_ms: float, now: ReadCosts) -> float:
        """For how long readers save: until ingest would have merged these files into the largest by itself.

        What would be saved without the files that it merges within a day lasts for all of it.
        """
        hours = sorted(self._merged_in_hours(file) for file in chosen)
        merged = [some for some in hours if some < HORIZON_HOURS]
        lasting = [file for file in chosen if self._merged_in_hours(file) >= HORIZON_HOURS]
        if not merged:
            return HORIZON_HOURS
        if not lasting:
            merged = merged[:-1] or merged
        until_merged = sum(merged) / len(merged)
        if not lasting or saves_ms <= 0:
            return until_merged
        share = min(max(self._saves_ms(lasting, now), 0.0) / saves_ms, 1.0)
        return share * HORIZON_HOURS + (1 - share) * until_merged

    def _merged_in_hours(self, file: FileMeasure) -> float:
        """It merges a file when `FANOUT` times its rows came; on average, half of them have."""
        if file.bytes > MERGED_BYTES_MAX or not self.rows_per_hour:
            return HORIZON_HOURS
        return min(HORIZON_HOURS, FANOUT / 2 * max(file.live_rows, SMALL_ROWS) / self.rows_per_hour)

    def now_ms(self) -> ReadCosts:
        """What the bucket costs as it is."""
        return ReadCosts(self.scan_ms(self.measure.files), self.lookup_ms(self.measure.files))

    def after_ms(self, chosen: Sequence[FileMeasure]) -> ReadCosts:
        """What it would cost after a rewrite of some of its files, or, if of all of them, at best."""
        paths = {file.path for file in chosen}
        files = [file for file in self.measure.files if file.path not in paths]
        count = 0
        # The new files hold disjoint keys: to a lookup they are like one.
        rewritten = as_one(chosen)
        if rewritten.live_rows:
            files.append(rewritten)
            count = files_at_best(rewritten.bytes, self.target_bytes)
        scan_ms = self.scan_ms(files) + max(count - 1, 0) * self.costs.open_ms
        return ReadCosts(scan_ms, self.lookup_ms(files))

    def cost_ms(self, chosen: Sequence[FileMeasure]) -> float:
        """To read these files and write them again."""
        opened = (len(chosen) + files_at_best(sum(file.live_bytes for file in chosen), self.target_bytes)) * (
            self.costs.open_ms
        )
        return (
            opened
            + sum(file.bytes for file in chosen) / self.costs.rewrite_bytes_per_ms
            + sum(file.rows for file in chosen) * self.costs.rewrite_row_ms
            + self.costs.commit_ms
        )

    def candidates(self, bytes_max: int | None = None) -> Iterator[tuple[list[FileMeasure], str]]:
        """Sets of files whose rewrite may be worth it, with why: those first that cost readers most a byte.

        Where dead rows force a rewrite, also those first that have most of them. None has more bytes than
        that, nor than one task may read.
        """
        yield from self._leading(self._read_ms_of_a_byte, bytes_max)
        if self._is_forced:
            yield from self._leading(lambda file: file.dead_rows / max(file.bytes, 1), bytes_max)

    def _leading(
        self, weight: Callable[[FileMeasure], float], bytes_max: int | None
    ) -> Iterator[tuple[list[FileMeasure], str]]:
        files = [file for file in self.measure.files if bytes_max is None or file.bytes <= bytes_max]
        files = _bounded(sorted(files, key=weight, reverse=True), bytes_max)
        for count in _SIZES:
            if count >= len(files):
                break
            yield files[:count], self._reason(files[:count])
        if len(files) > 1 or self.measure.dead_rows:
            yield files, self._reason(files)

    @property
    def _is_forced(self) -> bool:
        return self.measure.dead_ratio > FORCED_DEAD_RATIO

    def _read_ms_of_a_byte(self, file: FileMeasure) -> float:
        """What readers pay for its being a file of its own, and for its dead rows, in an hour."""
        live = FileMeasure(file.path, file.live_rows, file.live_bytes)
        scan_ms = self.costs.open_ms + self.scan_ms([file]) - self.scan_ms([live])
        read_ms = self.scans_per_hour * scan_ms + self.lookups_per_hour * self._lookup_file_ms
        return read_ms / max(file.bytes, 1)

    def _reason(self, chosen: Sequence[FileMeasure]) -> str:
        rows, dead = sum(file.rows for file in chosen), sum(file.dead_rows for file in chosen)
        return (
            f"lookups search {self.measure.depth:.1f} of {len(self.measure.files)} files; "
            f"{dead / max(rows, 1):.0%} of the rows in the {len(chosen)} to rewrite are dead"
        )

    def best(self, budget: Budget) -> PlannedTask | None:
        """The rewrite with the highest rank of those that are worth it, or a forced one.

        Of those that the budget allows; where it allows none, the one that it would be without a budget.
        """
        now = self.now_ms()
        if (older := self._older(now, budget)) is not None:
            return older
        tasks = [self.task(chosen, reason, now) for chosen, reason in self.candidates(budget.bytes)]
        best = self._best([task for task in tasks if budget.allows(task)], budget)
        if best is not None or budget == Budget():
            return best
        return self._best([self.task(chosen, reason, now) for chosen, reason in self.candidates()], budget)

    def _best(self, tasks: Sequence[PlannedTask], budget: Budget) -> PlannedTask | None:
        if self._is_forced:
            deadest = max(tasks, key=_dead_rows_per_ms, default=None)
            if deadest is not None and deadest.lasts_hours >= FORCED_HOURS_MIN:
                return replace(deadest, is_forced=True)
        return max((task for task in tasks if task.score >= SCORE_MIN), key=budget.rank, default=None)

    def _older(self, now: ReadCosts, budget: Budget) -> PlannedTask | None:
        """A rewrite of files with another number of buckets than new ones, whatever it saves.

        Of as many as the budget allows, or of one.
        """
        older = [file for file in self.measure.files if file.buckets != self.buckets_written]
        if not older:
            return None
        chosen = _bounded(sorted(older, key=lambda file: file.live_bytes))
        before = " or ".join(str(of) for of in sorted({file.buckets for file in older}))
        reason = (
            f"the table is being changed from {before} to {self.buckets_written} buckets; "
            f"{len(older)} files left in this one"
        )
        while len(chosen) > 1 and not budget.covers(sum(file.bytes for file in chosen), self.cost_ms(chosen)):
            chosen.pop()
        return replace(self.task(chosen, reason, now), is_forced=True, is_bucket_change=True)


def _dead_rows_per_ms(task: PlannedTask) -> float:
    return sum(file.dead_rows for file in task.files) / task.cost_ms


def _bounded(files: Sequence[FileMeasure], bytes_max: int | None = None) -> list[FileMeasure]:
    """The first of the files that one task may read, and of no more bytes than that."""
    taken: list[FileMeasure] = []
    left = TASK_BYTES_MAX if bytes_max is None else min(TASK_BYTES_MAX, bytes_max)
    for file in files:
        if len(taken) == TASK_FILES_MAX:
            break
        if not taken or file.bytes <= left:
            taken.append(file)
            left -= file.bytes
    return taken


def _within(wanted: Sequence[PlannedTask], budget: Budget) -> Iterator[PlannedTask]:
    for task in wanted:
        if budget.allows(task):
            budget = budget.after(task.bytes, task.cost_ms / 1000)
            yield task
