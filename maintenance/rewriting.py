"""Rewrites, one at a time: from the plan to the engine, and in a commit of the owner's to the table."""

from __future__ import annotations

import logging
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from thermocline.errors import CatalogUnreachable, CommitRejected, InternalError
from thermocline.failpoints import failpoint
from thermocline.iceberg.files import beside, data_location, delete_files
from thermocline.ingest.commit.change import TableChange
from thermocline.ingest.commit.commit import Landed, Rejected, Unknown
from thermocline.maintenance.compact import CompactionTask
from thermocline.maintenance.landing import landing
from thermocline.maintenance.planning import Waiting
from thermocline.process.logs import fields

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table

    from thermocline.iceberg.files import DataFile
    from thermocline.maintenance.compact import Compacted
    from thermocline.maintenance.journal import Journal
    from thermocline.maintenance.owning import Owning
    from thermocline.maintenance.plan import Budget, Plan, PlannedTask
    from thermocline.settings import MaintenanceSettings
    from thermocline.upsert.bucket_task import BucketResult

__all__ = ["Rewriting"]

RETRY_SECONDS_MAX: Final = 3_600.0
"""A rewrite that failed waits twice as long after each failure in a row, up to this."""
FAILURES_MAX: Final = 3
"""Of rewrites of a bucket; then its files are left out until the owner loads the table again."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Running:
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


class Rewriting:
    """The rewrites of one table: those that are planned, and the one that runs."""

    def __init__(self, settings: MaintenanceSettings, journal: Journal, budget: Budget) -> None:
        self.running: Running | None = None
        self._settings, self._journal, self._budget = settings, journal, budget
        self._queue: list[PlannedTask] = []
        self._worth_since: dict[int, float] = {}
        self._left_out: frozenset[str] = frozenset()
        self._table: Table | None = None
        self._io: FileIO | None = None
        self._failures: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._queue) + (self.running is not None)

    @property
    def waiting(self) -> Waiting:
        """What the next plan is to know."""
        now = self._journal.clock.monotonic()
        hours = {bucket: (now - since) / 3600 for bucket, since in self._worth_since.items()}
        return Waiting(self._budget_left, hours, self._left_out)

    @property
    def _budget_left(self) -> Budget:
        done = self._journal.done
        return self._budget.after(done.read_bytes, done.seconds)

    def take(self, plan: Plan, io: FileIO) -> None:
        """A new plan, in place of what is left of the one before.

        ``io`` is that of the table as it was loaded for the plan: what a catalog grants of the store may end.
        """
        self._io = io
        now = self._journal.clock.monotonic()
        self._worth_since = {task.bucket: self._worth_since.get(task.bucket, now) for task in plan.wanted}
        self._queue = list(plan.tasks)

    def _io_of(self, owner: Owning) -> FileIO:
        """As it was granted last."""
        return owner.table.io if self._io is None else self._io

    def forget(self) -> None:
        """What was planned is of other buckets."""
        self._queue.clear()
        self._worth_since, self._failures = {}, Counter()

    def start(self, owner: Owning) -> None:
        """The next one of the plan, if there is one that still can. None runs."""
        if not self._queue:
            return
        task = self._queue.pop(0)
        of_bucket, paths = owner.position.files.get(task.bucket, ()), task.paths
        files = tuple(file for file in of_bucket if file.path in paths)
        if len(files) < len(task.files):  # a batch has merged some of them meanwhile
            return
        if not self._budget_left.allows(task):
            return
        work = CompactionTask(
            self._io_of(owner),
            owner.definition,
            data_location(owner.table),
            beside(owner.table.location(), "moves"),
            task.bucket,
            files,
            self._settings.target_file_bytes,
        )
        try:
            future = owner.engine.start(work.run)
        except Exception as error:  # noqa: BLE001  whatever it is, it must not end ingest
            self._failed(task, error)
            return
        self.running = Running(task, files, future, self._journal.clock.monotonic())

    def land(self, owner: Owning) -> None:
        """The one that runs, if it is done."""
        if owner.table is not self._table:  # as after an outage, which rewrites may have failed for, too
            self._table, self._io = owner.table, owner.table.io
            self._left_out, self._failures = frozenset(), Counter()
        if self.running is None or not self.running.future.done():
            return
        running, self.running = self.running, None
        began = self._journal.clock.monotonic()
        try:
            compacted = running.future.result()
        except Exception as failure:  # noqa: BLE001  an engine raises what it likes; the table is as it was
            self._journal.add(seconds=began - running.started_at)
            self._failed(running.task, failure)
            return
        files = owner.position.files.get(compacted.bucket, ())
        try:
            part = landing(self._io_of(owner), owner.definition, data_location(owner.table), compacted, files)
            failpoint("landing.commit")
        except Exception as failure:  # noqa: BLE001  whatever it is, it must not end ingest
            self._drop(owner, running, compacted, failure)
            return
        if part is None:
            # By whom an input was taken away, or that this very rewrite has landed, is not known here: what
            # was written stays.
            gone = ValueError("a file that was rewritten is not part of the table any more")
            self._failed(running.task, gone)
            return
        self._commit(owner, running, compacted, part, began)

    def _commit(
        self, owner: Owning, running: Running, compacted: Compacted, part: BucketResult, began: float
    ) -> None:
        io = self._io_of(owner)
        clock = self._journal.clock
        began_ms = clock.now_ms() - round(1000 * (clock.monotonic() - running.started_at))
        change = replace(
            TableChange.carrying_on(owner.position), kind="rewrite", files=(part,), began_ms=began_ms
        )
        match owner.land(change):
            case Landed(snapshot_id, _):
                delete_files(io, [compacted.moves])
                self._landed(compacted, began - running.started_at)
                self._log(owner.definition.name, snapshot_id, running, part, began)
            case Rejected(CommitRejected() | InternalError() as error):
                delete_files(io, [deletes.path for deletes in part.deletes.values()])
                self._drop(owner, running, compacted, error)
            case Rejected(CatalogUnreachable() as error):
                delete_files(io, [deletes.path for deletes in part.deletes.values()])
                self.running = running  # it lands when the catalog is back
                raise error
            case Rejected(error):
                delete_files(io, [*change.paths(), compacted.moves])
                raise error
            case Unknown(error):
                raise error  # its files may be part of the table, now or in a moment: they are kept

    def _landed(self, compacted: Compacted, seconds: float) -> None:
        self._worth_since.pop(compacted.bucket, None)
        self._failures.pop(compacted.bucket, None)
        self._journal.succeeded("rewrite")
        self._journal.hasten("plan")  # there may be more to do
        rows_before = sum(file.rows for file in compacted.inputs)
        self._journal.add(
            rewrites=1,
            seconds=seconds,
            read_bytes=sum(file.bytes for file in compacted.inputs),
            written_bytes=sum(file.file_bytes for file in compacted.added),
            files_before=len(compacted.inputs),
            files_after=len(compacted.added),
            dead_rows=rows_before - sum(file.rows for file in compacted.added),
        )

    def _log(self, name: str, snapshot_id: int, running: Running, part: BucketResult, began: float) -> None:
        _logger.info(
            "compacted",
            extra=fields(
                table=name,
                snapshot_id=snapshot_id,
                bucket=part.bucket,
                reason=running.task.reason,
                files_before=len(part.removed),
                files_after=len(part.added),
                late_deletes=sum(one.cardinality for one in part.deletes.values()),
                predicted_seconds=round(running.task.cost_ms / 1000, 3),
                rewrite_seconds=round(began - running.started_at, 3),
                landing_seconds=round(self._journal.clock.monotonic() - began, 3),
            ),
        )

    def _drop(self, owner: Owning, running: Running, compacted: Compacted, error: Exception) -> None:
        delete_files(self._io_of(owner), compacted.paths())
        self._journal.add(dropped=1)
        self._failed(running.task, error)

    def _failed(self, task: PlannedTask, error: Exception) -> None:
        """Wait, longer each time: what failed once may fail again, after it has written as much."""
        wait_seconds = self._journal.failed("rewrite", error, RETRY_SECONDS_MAX)
        self._queue.clear()
        self._failures[task.bucket] += 1
        if self._failures[task.bucket] >= FAILURES_MAX:
            self._left_out |= task.paths
        self._journal.put_off("plan", wait_seconds)
