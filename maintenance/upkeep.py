"""Keeps a table in shape between the batches of its owner: what is due, one small step a turn.

    plan        in a thread: the files are measured, and what is worth a rewrite is put in order
    rewrite     on the engine, beside the batches (``compact``)
    buckets     in a turn: the unit of work follows, once no file has the old number of buckets
    land        in a turn: the rewrite becomes part of the table (``landing``), in a commit of the owner's
    manifests   in a turn: those of a bucket are put together (``manifests``), in such a commit
    expire      in a turn: old snapshots leave the metadata, in such a commit
    sweep       in a thread: files that no snapshot needs any more are deleted
    orphans     in a thread: files that no snapshot ever had are looked for, and deleted a day later

Nothing here can fail a batch: what goes wrong is logged, and tried again later. Raised is what a commit of
a batch would raise, too: that the table is not ours any more, that others committed to it, that a commit's
outcome is unknown, that the catalog is away. And `MaintenanceBehind`, where rewrites have fallen behind for
good.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from ingest.change import TableChange
from ingest.commit import Landed, Outcome, Rejected, Unknown
from ingest.unknown import notes
from maintenance.compact import CompactionTask
from maintenance.expiry import KeepRule, expirable
from maintenance.landing import landing
from maintenance.manifests import buckets_together
from maintenance.measure import Measurer
from maintenance.measures import observe
from maintenance.orphans import remove_orphans, seen_orphan_bytes
from maintenance.plan import Budget, Costs, Plan, PlannedTask, Reads, plan_of
from maintenance.sweep import Swept, may_delete_files, sweep
from thermocline.errors import (
    CatalogUnreachable,
    CommitRejected,
    ForeignSnapshot,
    InternalError,
    MaintenanceBehind,
)
from thermocline.failpoints import failpoint
from thermocline.iceberg.catalog import current_state, load_table
from thermocline.iceberg.expired import ExpiryNote, remove_note, write_note
from thermocline.iceberg.files import data_location, delete_files
from thermocline.iceberg.leases import forget_leases, leased_snapshots
from thermocline.iceberg.read_counts import forget_counts, read_rates
from thermocline.process.logs import fields
from thermocline.rules.bucket_change import finished

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from ingest.change import ManifestContent
    from ingest.engine import Engine
    from ingest.position import Position
    from maintenance.compact import Compacted
    from thermocline.iceberg.files import DataFile
    from thermocline.process.clock import Clock
    from thermocline.rules.definition import LiveTable
    from thermocline.settings import MaintenanceSettings

__all__ = ["Done", "Owning", "Seen", "TableUpkeep"]

PLAN_SECONDS: Final = 30.0
"""Between two plans: measuring reads what is new in the metadata."""
REPLAN_SECONDS: Final = 600.0
"""Between them where the rewrites of the first one are not done yet."""
EXPIRE_SECONDS: Final = 600.0
EXPIRED_MIN: Final = 20
"""Fewer wait: each expiry adds a snapshot of its own."""
SWEEP_SECONDS: Final = 1_800.0
ORPHANS_SECONDS: Final = 21_600.0
"""It lists all files of the table."""
LEFT_KEPT_MS: Final = 86_400_000
"""Counts of servers that are gone, and leases of readers that are."""
RETRY_SECONDS: Final = 60.0
"""After something failed; after each failure of a rewrite in a row twice as long, up to an hour."""
RETRY_SECONDS_MAX: Final = 3_600.0
FAILURES_MAX: Final = 3
"""Of rewrites of a bucket; then its files are left out until ingest starts again."""
DEBT_HOURS_WARN: Final = 6.0
"""Of one core, for all rewrites that are worth it."""
DEBT_HOURS_SLOW: Final = 12.0
DEBT_HOURS_MAX: Final = 24.0
"""A day of work: within a day a rewrite has to pay for itself, so this can't be made good any more."""
BEHIND_PLANS: Final = 6
"""So many plans in a row above it, none below the one before, stop ingest: about an hour."""
SLOWDOWN: Final = 4.0
"""By which commits are farther apart then: fewer and larger files, for fewer rewrites."""

_Together = dict["ManifestContent", int]
_logger = logging.getLogger(__name__)


class Owning(Protocol):
    """The table's owner, between two of its commits (`ingest.owner.Owner`)."""

    @property
    def definition(self) -> LiveTable:
        """Of the table."""
        ...

    @property
    def table(self) -> Table:
        """As it was when it was loaded last."""
        ...

    @property
    def engine(self) -> Engine:
        """What rewrites run on."""
        ...

    @property
    def position(self) -> Position:
        """The newest snapshot, and its files."""
        ...

    def land(self, change: TableChange) -> Outcome:
        """Commit."""
        ...


@dataclass(frozen=True, slots=True)
class Done:
    """What was done since a table's upkeep began."""

    rewrites: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    files_before: int = 0
    files_after: int = 0
    dead_rows: int = 0
    expired: int = 0
    swept_files: int = 0
    swept_bytes: int = 0
    orphans: int = 0
    """Deleted."""
    manifest_rewrites: int = 0
    seconds: float = 0.0
    """Of rewrites."""
    dropped: int = 0
    """Rewrites whose work was thrown away."""
    failures: int = 0
    """Steps that are tried again."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the table was like when it was last looked at; None before that."""

    measuring_seconds: float | None = None
    """To read what was new in its manifests."""
    metadata_bytes: int | None = None
    waiting_bytes: int | None = None
    """About what the files of expired snapshots take that are not deleted yet."""
    orphan_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class _Running:
    """A rewrite: what was planned, and its inputs, with the deletes that they had when it began."""

    task: PlannedTask
    inputs: tuple[DataFile, ...]
    future: Future[Compacted]
    started_at: float

    @property
    def held(self) -> frozenset[str]:
        """The inputs: batches leave them in the table."""
        return frozenset(file.path for file in self.inputs)

    @property
    def in_use(self) -> frozenset[str]:
        """All files that it reads: a sweep leaves them in the store."""
        deletes = (file.deletes.path for file in self.inputs if file.deletes is not None)
        return self.held | frozenset(deletes)


@dataclass(slots=True)
class TableUpkeep:
    """The upkeep of one table; see `ingest.owner.Upkeep`."""

    settings: MaintenanceSettings
    clock: Clock
    budget: Budget = field(default_factory=Budget)
    orphans_approved: int | None = None
    debt_hours_max: float = DEBT_HOURS_MAX
    expired_min: int = EXPIRED_MIN
    plan: Plan | None = None
    done: Done = field(default_factory=Done)
    seen: Seen = Seen()
    _measurer: Measurer | None = None
    _queue: list[PlannedTask] = field(default_factory=list)
    _running: _Running | None = None
    _planning: Future[tuple[Plan, Seen, _Together]] | None = None
    _buckets_together: _Together = field(default_factory=dict)
    _sweeping: Future[Swept] | None = None
    _searching: Future[tuple[int, int]] | None = None
    _due: dict[str, float] = field(default_factory=dict)
    _worth_since: dict[int, float] = field(default_factory=dict)
    _left_out: frozenset[str] = frozenset()
    _failures: Counter[int] = field(default_factory=Counter)
    _failed_in_a_row: int = 0
    _behind_plans: int = 0
    _thread: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="maintenance")
    )

    def held(self) -> frozenset[str]:
        """The inputs of the rewrite that runs."""
        return frozenset() if self._running is None else self._running.held  # safety: inputs-are-held

    @property
    def is_busy(self) -> bool:
        """Whether something runs, or waits for its turn."""
        running = (self._running, self._planning, self._sweeping, self._searching)
        return bool(self._queue) or any(one is not None for one in running) or self._is_due("plan")

    @property
    def is_settled(self) -> bool:
        """Whether nothing runs whose end is not known yet."""
        rewrite = self._running.future if self._running is not None else None
        running = (rewrite, self._planning, self._sweeping, self._searching)
        return all(one is None or one.done() for one in running)

    @property
    def waiting(self) -> int:
        """Rewrites that are planned or run."""
        return len(self._queue) + (self._running is not None)

    @property
    def now_at(self) -> PlannedTask | None:
        """The rewrite that runs."""
        return None if self._running is None else self._running.task

    @property
    def slowdown(self) -> float:
        """By how much commits should be farther apart: more of them would only add to the debt."""
        return SLOWDOWN if self._debt_hours >= DEBT_HOURS_SLOW else 1.0

    @property
    def _debt_hours(self) -> float:
        return 0.0 if self.plan is None else self.plan.debt_seconds / 3600

    def turn(self, owner: Owning) -> None:
        """What is due. Raises what says that the table is not ours, or that a commit is unknown.

        Also `MaintenanceBehind`.
        """
        name = owner.definition.name
        self._turn(owner)
        observe(name, self.done, self.seen, self.plan, self.clock.now_ms() / 1000)
        if self._behind_plans >= BEHIND_PLANS:
            hours = round(self._debt_hours, 1)
            raise MaintenanceBehind(table=name, hours=hours, max_hours=self.debt_hours_max)

    def _turn(self, owner: Owning) -> None:
        if self._running is not None and self._running.future.done():
            self._land(owner, self._running)
        if self._sweeping is not None and self._sweeping.done():
            self._swept(self._sweeping)
        if self._searching is not None and self._searching.done():
            self._searched(self._searching)
        if self._planning is not None and self._planning.done():
            self._planned(self._planning)
        if self._running is None:
            self._go_on(owner)
        is_idle = not self.waiting
        if self._planning is None and self._is_due("plan") and (is_idle or self._is_due("replan")):
            self._planning = self._thread.submit(self._plan_now, self._loader(owner), owner.definition)
        self._order_manifests(owner)
        if self._is_due("expire"):
            self._expire(owner)
        if self._sweeping is None and self._is_due("sweep"):
            files_ms = int(1000 * self.settings.files_seconds)
            in_use = frozenset() if self._running is None else self._running.in_use
            self._sweeping = self._thread.submit(sweep, self._loader(owner), files_ms, self.clock, in_use)
        if self._searching is None and self._is_due("orphans"):
            self._searching = self._thread.submit(self._search, self._loader(owner))

    def _go_on(self, owner: Owning) -> None:
        """While no rewrite runs."""
        if self._planning is None:
            self._raise_unit(owner)
        if self._queue:
            self._start(owner, self._queue.pop(0))

    def close(self) -> None:
        """A rewrite that runs is left alone: its files are named by nothing."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _is_due(self, what: str) -> bool:
        return self.clock.monotonic() >= self._due.get(what, 0.0)

    def _put_off(self, what: str, seconds: float) -> None:
        self._due[what] = self.clock.monotonic() + seconds

    def _loader(self, owner: Owning) -> Callable[[], Table]:
        definition = owner.definition
        return partial(load_table, owner.table.catalog, definition.name, definition.identifier)

    def _plan_now(self, load: Callable[[], Table], definition: LiveTable) -> tuple[Plan, Seen, _Together]:
        if self._measurer is None or self._measurer.definition != definition:
            self._measurer = Measurer(definition)
        table = load()
        current_state(table, definition.name)  # what others made of it is not ours to plan for
        counted = read_rates(table.io, table.location(), self.clock.now_ms())
        reads = Reads.of(self.settings, definition, counted)
        now = self.clock.monotonic()
        waiting = {bucket: (now - since) / 3600 for bucket, since in self._worth_since.items()}
        measured = self._measurer.measure(table, self.clock.now_ms())
        seen = Seen(self.clock.monotonic() - now, measured.metadata_bytes)
        together = buckets_together(measured, definition.buckets_written)
        measured = measured.without(self._left_out)
        target_bytes = self.settings.target_file_bytes
        plan = plan_of(measured, target_bytes, reads, Costs(), self._budget_left(), waiting)
        return plan, seen, together

    def _budget_left(self) -> Budget:
        spent, budget = self.done, self.budget
        return Budget(
            None if budget.bytes is None else max(budget.bytes - spent.read_bytes, 0),
            None if budget.seconds is None else max(budget.seconds - spent.seconds, 0),
        )

    def _planned(self, planning: Future[tuple[Plan, Seen, _Together]]) -> None:
        self._planning = None
        before = self._debt_hours
        try:
            self.plan, seen, self._buckets_together = planning.result()
        except ForeignSnapshot:
            self._put_off("plan", RETRY_SECONDS)
            raise
        except Exception as error:  # noqa: BLE001  whatever it is, it must not end ingest
            self._failed("plan", error)
            return
        self.seen = replace(
            self.seen, measuring_seconds=seen.measuring_seconds, metadata_bytes=seen.metadata_bytes
        )
        self._put_off("plan", PLAN_SECONDS)
        self._put_off("replan", REPLAN_SECONDS)
        is_worse = self._debt_hours >= max(before, self.debt_hours_max)
        self._behind_plans = self._behind_plans + 1 if is_worse else 0
        if self._debt_hours >= DEBT_HOURS_WARN:
            _logger.warning(
                "maintenance is behind",
                extra=fields(debt_hours=round(self._debt_hours, 1), commit_interval_factor=self.slowdown),
            )
        now = self.clock.monotonic()
        self._worth_since = {
            task.bucket: self._worth_since.get(task.bucket, now) for task in self.plan.wanted
        }
        self._queue = list(self.plan.tasks)

    def _start(self, owner: Owning, task: PlannedTask) -> None:
        of_bucket, paths = owner.position.files.get(task.bucket, ()), task.paths
        files = tuple(file for file in of_bucket if file.path in paths)
        if len(files) < len(task.files):  # a batch has merged some of them meanwhile
            return
        if not self._budget_left().allows(task):
            return
        location = data_location(owner.table)
        work = CompactionTask(
            owner.table.io,
            owner.definition,
            location,
            f"{owner.table.location().rstrip('/')}/thermocline/moves",
            task.bucket,
            files,
            self.settings.target_file_bytes,
        )
        try:
            future = owner.engine.start(work.run)
        except Exception as error:  # noqa: BLE001  whatever it is, it must not end ingest
            self._failed_rewrite(task, error)
            return
        self._running = _Running(task, files, future, self.clock.monotonic())

    def _land(self, owner: Owning, running: _Running) -> None:
        self._running = None
        seconds = self.clock.monotonic() - running.started_at
        try:
            compacted = running.future.result()
        except Exception as failure:  # noqa: BLE001  an engine raises what it likes; the table is as it was
            self.done = replace(self.done, seconds=self.done.seconds + seconds)
            self._failed_rewrite(running.task, failure)
            return
        files = owner.position.files.get(compacted.bucket, ())
        io = owner.table.io
        began = self.clock.monotonic()
        try:
            part = landing(io, owner.definition, data_location(owner.table), compacted, files)
            failpoint("landing.commit")
        except Exception as failure:  # noqa: BLE001  whatever it is, it must not end ingest
            self._drop(owner, running, compacted, failure)
            return
        if part is None:
            # By whom an input was taken away, or that this very rewrite has landed, is not known here: what
            # was written stays.
            gone = ValueError("a file that was rewritten is not part of the table any more")
            self._failed_rewrite(running.task, gone)
            return
        change = replace(TableChange.carrying_on(owner.position), kind="rewrite", files=(part,))
        match owner.land(change):
            case Landed(snapshot_id, _):
                delete_files(io, [compacted.moves])
                now = self.clock.monotonic()
                self._note(compacted, files, seconds)
                _logger.info(
                    "compacted",
                    extra=fields(
                        table=owner.definition.name,
                        snapshot_id=snapshot_id,
                        bucket=compacted.bucket,
                        reason=running.task.reason,
                        files_before=len(part.removed),
                        files_after=len(part.added),
                        late_deletes=sum(one.cardinality for one in part.deletes.values()),
                        predicted_seconds=round(running.task.cost_ms / 1000, 3),
                        rewrite_seconds=round(seconds, 3),
                        landing_seconds=round(now - began, 3),
                    ),
                )
            case Rejected(CommitRejected() | InternalError() as error):
                delete_files(io, [deletes.path for deletes in part.deletes.values()])
                self._drop(owner, running, compacted, error)
            case Rejected(CatalogUnreachable() as error):
                delete_files(io, [deletes.path for deletes in part.deletes.values()])
                self._running = running  # it lands when the catalog is back
                raise error
            case Rejected(error):
                delete_files(io, [*change.paths(), compacted.moves])
                raise error
            case Unknown(error):
                raise error  # its files may be part of the table, now or in a moment: they are kept

    def _raise_unit(self, owner: Owning) -> None:
        """End a raise of the number of buckets, once no file has the old one. No rewrite runs."""
        files = (file for some in owner.position.files.values() for file in some)
        raised = finished(owner.definition, (file.part.of for file in files))
        if raised is None or not self._is_due("raise"):
            return
        match owner.land(replace(TableChange.carrying_on(owner.position), definition=raised)):
            case Landed(snapshot_id, _):
                # What was planned is of other buckets.
                self._queue.clear()
                self._worth_since, self._failures = {}, Counter()
                self._due["plan"] = 0.0
                extra = fields(table=raised.name, snapshot_id=snapshot_id, buckets=raised.buckets)
                _logger.info("number of buckets raised", extra=extra)
            case Rejected(CommitRejected() as error):
                self._failed("raise", error)
            case Rejected(error) | Unknown(error):
                raise error

    def _drop(self, owner: Owning, running: _Running, compacted: Compacted, error: Exception) -> None:
        delete_files(owner.table.io, compacted.paths())
        self.done = replace(self.done, dropped=self.done.dropped + 1)
        self._failed_rewrite(running.task, error)

    def _failed_rewrite(self, task: PlannedTask, error: Exception) -> None:
        """Wait, longer each time: what failed once may fail again, after it has written as much."""
        self._failed("rewrite", error)
        self._queue.clear()
        self._failures[task.bucket] += 1
        if self._failures[task.bucket] >= FAILURES_MAX:
            self._left_out |= task.paths
        self._put_off("plan", min(RETRY_SECONDS * 2**self._failed_in_a_row, RETRY_SECONDS_MAX))
        self._failed_in_a_row += 1

    def _note(self, compacted: Compacted, files: Sequence[DataFile], seconds: float) -> None:
        self._worth_since.pop(compacted.bucket, None)
        self._failures.pop(compacted.bucket, None)
        self._failed_in_a_row = 0
        self._due["plan"] = 0.0  # there may be more to do
        read = [file for file in files if file.path in {one.path for one in compacted.inputs}]
        self.done = replace(
            self.done,
            rewrites=self.done.rewrites + 1,
            seconds=self.done.seconds + seconds,
            read_bytes=self.done.read_bytes + sum(file.bytes for file in read),
            written_bytes=self.done.written_bytes + sum(file.file_bytes for file in compacted.added),
            files_before=self.done.files_before + len(read),
            files_after=self.done.files_after + len(compacted.added),
            dead_rows=self.done.dead_rows
            + sum(file.rows for file in compacted.inputs)
            - sum(file.rows for file in compacted.added),
        )

    def _order_manifests(self, owner: Owning) -> None:
        """Where the last plan found that worth it."""
        together, self._buckets_together = self._buckets_together, {}
        if not together:
            return
        began = self.clock.monotonic()
        change = replace(TableChange.carrying_on(owner.position), kind="manifests", buckets_together=together)
        match owner.land(change):
            case Landed(snapshot_id, _):
                self.done = replace(self.done, manifest_rewrites=self.done.manifest_rewrites + 1)
                _logger.info(
                    "manifests rewritten",
                    extra=fields(
                        table=owner.definition.name,
                        snapshot_id=snapshot_id,
                        of=sorted(together),
                        seconds=round(self.clock.monotonic() - began, 3),
                    ),
                )
            case Rejected(CommitRejected() | InternalError() as error):
                self._failed("manifests", error)
            case Rejected(error) | Unknown(error):
                raise error

    def _expire(self, owner: Owning) -> None:
        self._put_off("expire", EXPIRE_SECONDS)
        try:
            table = self._loader(owner)()
            io, location = table.io, table.location()
            if not may_delete_files(table):
                return
            if any(True for _ in notes(io, location)):  # safety: expiry-waits-for-unknown
                # Whether they landed is read in the history.
                _logger.warning(
                    "no snapshot expires while a commit is unknown", extra=fields(location=location)
                )
                return
            now_ms = self.clock.now_ms()
            leased = leased_snapshots(io, location, now_ms)
            old = expirable(table, leased, KeepRule(self.settings.snapshots_seconds), now_ms)
            current = table.current_snapshot()
            if len(old) < self.expired_min or current is None:
                return
            if current.snapshot_id != owner.position.snapshot_id:
                return
            # safety: noted-before-expired
            note = ExpiryNote.of(now_ms, str(uuid.uuid4()), old)
            write_note(table, note)
            failpoint("expiry.noted")
        except Exception as failure:  # noqa: BLE001  whatever it is, it must not end ingest
            self._failed("expire", failure)
            return
        expired = tuple(snapshot.snapshot_id for snapshot in old)
        match owner.land(replace(TableChange.carrying_on(owner.position), expired=expired)):
            case Landed(snapshot_id, _):
                self.done = replace(self.done, expired=self.done.expired + len(expired))
                _logger.info(
                    "snapshots expired",
                    extra=fields(table=owner.definition.name, snapshot_id=snapshot_id, expired=len(expired)),
                )
            case Rejected(error):
                with suppress(OSError):
                    remove_note(table, note)
                if not isinstance(error, CommitRejected):
                    raise error
                self._failed("expire", error)
                self._put_off("expire", EXPIRE_SECONDS)
            case Unknown(error):
                raise error

    def _swept(self, sweeping: Future[Swept]) -> None:
        self._sweeping = None
        self._put_off("sweep", SWEEP_SECONDS)
        try:
            swept = sweeping.result()
        except Exception as error:  # noqa: BLE001  whatever it is, it must not end ingest
            self._failed("sweep", error)
            return
        self.seen = replace(self.seen, waiting_bytes=swept.waiting_bytes)
        self.done = replace(
            self.done,
            swept_files=self.done.swept_files + swept.files,
            swept_bytes=self.done.swept_bytes + swept.bytes,
        )

    def _search(self, load: Callable[[], Table]) -> tuple[int, int]:
        """How many orphans went, and the bytes of those that are left."""
        table, now_ms = load(), self.clock.now_ms()
        forget_counts(table.io, table.location(), now_ms - LEFT_KEPT_MS)
        forget_leases(table.io, table.location(), now_ms - LEFT_KEPT_MS)
        return remove_orphans(table, now_ms, self.orphans_approved), seen_orphan_bytes(table)

    def _searched(self, searching: Future[tuple[int, int]]) -> None:
        self._searching = None
        self._put_off("orphans", ORPHANS_SECONDS)
        try:
            deleted, left_bytes = searching.result()
        except Exception as error:  # noqa: BLE001  whatever it is, it must not end ingest
            self._failed("orphans", error)
            return
        self.seen = replace(self.seen, orphan_bytes=left_bytes)
        self.done = replace(self.done, orphans=self.done.orphans + deleted)

    def _failed(self, what: str, error: Exception) -> None:
        self._put_off(what, RETRY_SECONDS)
        self.done = replace(self.done, failures=self.done.failures + 1)
        _logger.warning(
            "maintenance will try again",
            extra=fields(what=what, error=type(error).__name__, detail=str(error).partition("\n")[0]),
        )
