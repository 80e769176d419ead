"""The owner of one table: plan from the seam, run a batch, commit; ``turns`` says when."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Self

from thermocline.errors import (
    ExitCode,
    ForeignSnapshot,
    InternalError,
    OffsetsGone,
    OwnerLost,
    ThermoclineError,
    TopicMissing,
)
from thermocline.failpoints import failpoint
from thermocline.iceberg.catalog import TOMBSTONES_PROPERTY, load_table
from thermocline.iceberg.files import data_location, delete_files
from thermocline.iceberg.rewrite import resume_state
from thermocline.ingest import activity
from thermocline.ingest.batch.accounting import Accounting, account, greatest_times, watermark_ms
from thermocline.ingest.batch.bad_records import BadRecords
from thermocline.ingest.batch.batch import BatchResult
from thermocline.ingest.batch.open_transactions import Standstill, warn
from thermocline.ingest.batch.plan import (
    Batch,
    DrainGoal,
    drained_ms,
    lag_of,
    plan_batch,
    records_max_of,
    split_for_tasks,
    with_new_partitions,
)
from thermocline.ingest.batch.read_task import KafkaRanges, ReadTask
from thermocline.ingest.claim.lease import OwnerLease
from thermocline.ingest.claim.opening import Opening, checked_definition
from thermocline.ingest.claim.ownership import REWRITES_MAX, say_taken_over
from thermocline.ingest.commit.change import TableChange
from thermocline.ingest.commit.commit import Committer, Landed, Outcome, Rejected, Unknown, landed
from thermocline.ingest.engine.engine import Engine, start_engine
from thermocline.ingest.owner import measures
from thermocline.ingest.owner.contested import contested, warn_of_contested_keys
from thermocline.ingest.owner.observers import Observers
from thermocline.ingest.owner.position import Position
from thermocline.ingest.owner.routing import Routing, routing_of
from thermocline.ingest.owner.topic_watch import TopicWatch
from thermocline.ingest.owner.unread import UnreadNames
from thermocline.ingest.owner.upkeep import NoUpkeep, Upkeep
from thermocline.ingest.quarantine import reopen_quarantine
from thermocline.ingest.table.progress import is_note_due
from thermocline.process.logs import fields
from thermocline.rules.bad_digest import merged
from thermocline.rules.identity import check_identity, check_log, check_not_compacted, check_tombstones
from thermocline.rules.seam import check_against_log
from thermocline.text.shown import json_text
from thermocline.upsert.bucket_task import written_paths
from thermocline.upsert.files_by_bucket import FilesByBucket, live_files, with_held

if TYPE_CHECKING:
    import threading

    from pyiceberg.table import Table

    from thermocline.kafka.log import Log
    from thermocline.process.clock import Clock
    from thermocline.rules.definition import LiveTable
    from thermocline.settings import Settings, TableSettings

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Owner:
    """One process that commits to one table; ``open`` makes one.

    ``live_files`` says which files a snapshot of the table has; ``on_commit`` hears of each that landed: it
    must return at once, and not fail. So must ``observers``, which hear more of it and end with the owner.
    ``lag_records`` is as of the last step.
    ``is_contested``: the last batch had keys in several partitions, and the next one is read as if it had.
    """

    settings: TableSettings
    definition: LiveTable
    log: Log
    table: Table
    task: ReadTask
    engine: Engine
    ends_engine: bool
    committer: Committer
    lease: OwnerLease
    bad_records: BadRecords
    position: Position
    clock: Clock
    live_files: Callable[[Table, int, str], FilesByBucket] = live_files
    on_commit: Callable[[], None] = lambda: None
    observers: Observers = field(default_factory=Observers)
    upkeep: Upkeep = field(default_factory=NoUpkeep)
    bytes_per_record: float | None = None
    must_reload: bool = False
    rewrites_met: int = 0
    lag_records: int = 0
    is_contested: bool = False
    drain_goal: DrainGoal | None = None
    standstill: Standstill = field(default_factory=Standstill)
    topics: TopicWatch = field(default_factory=TopicWatch)
    routing: Routing | None = None
    unread: UnreadNames = field(init=False)

    def __post_init__(self) -> None:
        """Begin with the fields that the table's properties have."""
        self.unread = UnreadNames(self.definition, self.table.properties)

    @classmethod
    def open(
        cls,
        settings: Settings,
        name: str,
        clock: Clock,
        stop: threading.Event | None = None,
        engine: Engine | None = None,
    ) -> Self:
        """Check definition and topics, wait until nobody holds the table, start the engine, take ownership.

        An ``engine`` that is handed in runs already, and outlives the owner.

        Raises:
            DefinitionDiffers: the file does not say what the table's definition says.
            ThermoclineError: the log does not fit the table (``thermocline.rules.identity.check_log``).
            TableHeld: another owner lives.
            OwnerLost: another owner took the table at the same moment.
            StoppedWaiting: ``stop`` was set before the table was free.
        """
        opening = Opening.of(settings, name, clock)
        opening.claim.wait_until_free(stop)
        with ExitStack() as undo:
            running = engine or start_engine(settings, name)
            if engine is None:
                undo.callback(running.stop)
            owner = cls.take(opening, running, clock)
            owner.ends_engine = engine is None
            undo.pop_all()
        return owner

    @classmethod
    def take(cls, opening: Opening, engine: Engine, clock: Clock) -> Self:
        """Take ownership of a table that nobody holds. Raises as `open`."""
        settings, name = opening.settings, opening.claim.name
        with ExitStack() as undo:
            owned = opening.claim.take(engine.jvm, log=opening.log)
            undo.callback(owned.release)
            definition = checked_definition(owned.definition, settings, name)
            table, state = owned.table, owned.state
            topic_ids, client_config = dict(state.topic_ids), opening.client_config
            companion = partial(reopen_quarantine, table.catalog, name, definition.identifier)
            bad_records = BadRecords(opening.policy, client_config, companion)
            quarantine = bad_records.quarantine
            task = ReadTask(
                definition,
                client_config,
                table.io,
                quarantine.io,
                quarantine.location(),
                topic_ids,
                opening.registry,
            )
            owner = cls(
                settings=settings.table(name),
                definition=definition,
                log=opening.log,
                table=table,
                task=task,
                engine=engine,
                ends_engine=False,
                committer=owned.committer,
                lease=owned.lease,
                bad_records=bad_records,
                position=Position.of(state, live_files(table, state.snapshot_id, name)),
                clock=clock,
                routing=routing_of(settings, name, table, engine.jvm),
            )
            undo.pop_all()
        interval_seconds = owner.settings.commit_interval_seconds
        measures.opened(name, interval_seconds, owned.settled, owner.position.files, clock.now_ms())
        return owner

    def close(self, error: ThermoclineError | None = None) -> None:
        """Free the table and end the engine; the table stays as its last commit left it.

        ``error`` is what ends the owner, if anything does.
        """
        try:
            self.lease.release(error)
        finally:
            self.observers.end()
            measures.closed(self._name)
            self.upkeep.close()
            if self.ends_engine:
                self.engine.stop()

    def catch_up(self, stop: threading.Event) -> int:
        """Batches until the table holds what the log holds now."""
        self.topics.look(self)
        goal = self.log.ends(self.definition.topics)
        self.step()
        while not stop.is_set() and not self.position.seam.at_least(goal):
            self.step()
        warn(self._name, self.log.open_transactions(self.definition.topics))
        return ExitCode.DONE if self.position.seam.at_least(goal) else ExitCode.PARTLY_DONE

    def maintain(self) -> None:
        """A turn of upkeep, between two batches. Raises what `Upkeep.turn` raises."""
        try:
            self.upkeep.turn(self)
        except ForeignSnapshot:
            self.must_reload = True  # the next step takes a rewrite by others over, or says why it can't

    def land(self, change: TableChange) -> Outcome:
        """Commit a change that leaves the table where it is in the log, between two batches.

        Raises `OwnerLost`; every other outcome is for the caller.
        """
        self.lease.check()
        outcome = self.committer.commit(self.position.snapshot_id, self.position.seam, change)
        if isinstance(outcome, Landed):
            self.position = self.position.after(outcome, change, self.definition.buckets)
            if change.definition is not None:
                # What the tasks of the next batch go by.
                self.definition = change.definition
                ids = dict(change.topic_ids)
                self.task = replace(self.task, definition=change.definition, topic_ids=ids)
                self.drain_goal = None  # its ends may be of a topic that left
            self.on_commit()
            self.observers.landed(outcome, change)
        return outcome

    def step(self) -> bool:
        """Plan, run and commit one batch; whether the log held more than the batch. No batch, no commit.

        A batch that met a rewrite by others is read again, on top of it, by the next step.
        """
        self.lease.check()  # safety: lease-checked
        # The lease of an idle table may be all that shows that its access to the store has ended.
        if self.must_reload or self.lease.has_failed:  # safety: reload-after-outage
            self._reload()
        try:
            is_behind = self._batch()
        except TopicMissing as error:
            if not self.topics.missed(self, error):
                raise
            return True
        except ForeignSnapshot:
            self.rewrites_met += 1
            if self.rewrites_met > REWRITES_MAX or not self._reload():
                raise
            return True
        self.rewrites_met = 0
        return is_behind

    def _batch(self) -> bool:
        failpoint("owner.plan")
        self.topics.look(self)
        if self.routing is not None:
            self.routing.look(self)
        topics = self.definition.topics
        if not topics:
            return False  # all were deleted, and there is no other one yet
        planned_at_ms = self.clock.now_ms()  # before the log is asked: what it gains from now on is newer
        starts, ends = check_log(self._name, self.position, self.log, self.definition, planned_at_ms)
        self.topics.saw(ends)
        if not self.position.has_read:
            # The table has no row yet that could have missed its tombstone.
            # safety: beh-first-read
            self.position = replace(self.position, tombstones_since_ms=dict.fromkeys(topics, planned_at_ms))
        seam = with_new_partitions(self.position.seam, starts)
        if len(seam) > 1 and self.definition.merging.is_keyed:
            ends = self.log.ends_together(topics)
        planned = DrainGoal(planned_at_ms, ends)
        self.drain_goal = self.drain_goal or planned
        records_max = records_max_of(
            self.settings.batch_records_max, self.settings.batch_bytes_max, self.bytes_per_record
        )
        measures.looked(self._name, seam, ends)
        batch = plan_batch(seam, ends, records_max, partial(self.log.offsets_at, topics))
        if batch.ranges:
            with self.observers.batch(batch):
                self._run(batch, planned)
        elif self.position.has_read and is_note_due(
            self.position.drained_ms,
            self.log,
            self.definition,
            planned_at_ms,
            self.settings.deleted_topic_seconds,
        ):
            self._note_drained(batch, planned)  # safety: beh-idle-note
        held = self.log.open_transactions(topics)
        self.topics.stepped(held)
        warn(self._name, self.standstill.long_open(held, self.position.seam, self.clock.monotonic()))
        measures.stepped(self._name, batch.end, ends, self.clock.now_ms())
        self.lag_records = lag_of(batch.end, ends)
        activity.doing("waiting for records")
        return batch.end != ends

    def _run(self, batch: Batch, planned: DrainGoal) -> None:
        started_at = self.clock.monotonic()
        try:
            result = self._read(batch)
        except OffsetsGone:
            # One partition said so, from where it was read: what is lost is counted in all, from the seam on.
            # The log may have lost its end instead.
            # safety: beh-ends-again
            check_against_log(self._name, self.position.seam, *self.log.bounds(batch.end.topics))
            raise
        ran_at = self.clock.monotonic()
        activity.step("commit")
        accounting = account(result, self.definition.on_error)
        outcome = self._commit(batch, result, accounting, planned)
        commit_seconds = self.clock.monotonic() - ran_at
        match measures.counted(self._name, outcome, self.clock.now_ms()):
            case Rejected(error):
                delete_files(self.table.io, written_paths(result.buckets))
                raise error
            case Unknown(error):
                # safety: unknown-keeps-files
                raise error  # its files may be part of the table, now or in a moment: they are kept
            case Landed(snapshot_id, seam):
                _logger.info(
                    "committed",
                    extra=fields(
                        table=self._name,
                        snapshot_id=snapshot_id,
                        seam=seam.to_dict(),
                        **accounting.counts(),
                        merged_files=sum(len(part.removed) for part in result.buckets),
                        carried_rows=sum(part.carried for part in result.buckets),
                        run_seconds=round(ran_at - started_at, 3),
                        commit_seconds=round(commit_seconds, 3),
                    ),
                )
                files, run_seconds = self.position.files, ran_at - started_at
                measures.landed(self._name, accounting, result.buckets, files, run_seconds, commit_seconds)
        self._learn(result)

    def _read(self, batch: Batch) -> BatchResult:
        """What the engine makes of a batch: once more where keys in several partitions have to be decided.

        To decide takes the partition time at each record, and reading each partition in one piece. While
        no key is met in several partitions, neither is paid for.
        """
        result = self._run_tasks(batch, is_timed=self.is_contested)
        if contested(result) and not self.is_contested:  # safety: contested-keys-are-decided
            delete_files(self.table.io, written_paths(result.buckets))
            self.bad_records.discard(result.reports)
            result = self._run_tasks(batch, is_timed=True)
        self.is_contested = contested(result)
        if self.routing is not None and not self.routing.has_room(result):
            self.bad_records.discard(result.reports)
            result = self._run_tasks(batch, is_timed=False)
        return result

    def _run_tasks(self, batch: Batch, is_timed: bool) -> BatchResult:
        activity.batch(self._name, sum(planned.end - planned.first for planned in batch.ranges))
        task = replace(self.task, partition_times=self.position.partition_times) if is_timed else self.task
        task = task if self.routing is None else self.routing.reading(task)
        tasks = split_for_tasks(batch.ranges, self.engine.tasks, may_cut=not is_timed)
        files = with_held(self.position.files, self.upkeep.held())
        return self.engine.run(task, KafkaRanges(tasks), files, data_location(self.table))

    def _commit(
        self, batch: Batch, result: BatchResult, accounting: Accounting, planned: DrainGoal
    ) -> Outcome:
        try:
            self._check_before_commit(batch, accounting)
            routed = {} if self.routing is None else self.routing.to_commit(self, result)
        except ThermoclineError as error:
            self.bad_records.discard(result.reports)
            return Rejected(error)
        try:
            self.bad_records.settle(result.reports)  # safety: quarantine-before-commit
        except ThermoclineError as error:
            return Rejected(error)
        change = replace(
            TableChange.carrying_on(self.position),
            seam=batch.end,
            watermark_ms=watermark_ms(batch, result.reports, planned.at_ms, self.position.watermark_ms),
            drained_ms=drained_ms(batch, planned, self.drain_goal or planned, self.position.drained_ms),
            partition_times=self.position.partition_times.advanced(greatest_times(batch, result.reports)),
            accounting=accounting,
            began_ms=planned.at_ms,
            bad_digest=merged(
                *(report.bad_digest for report in result.reports)
            ),  # safety: bad-digest-of-a-batch
            properties={
                TOMBSTONES_PROPERTY: json.dumps(dict(self.position.tombstones_since_ms)),
                **self.unread.met(result.reports, planned.at_ms),
                **self.topics.to_commit(self, batch.end.at_least(planned.ends)),
                **routed,
            },
            files=result.buckets,
            ranges=", ".join(str(planned) for planned in batch.ranges),
        )
        outcome = self.committer.commit(self.position.snapshot_id, self.position.seam, change)
        if isinstance(outcome, Landed):
            failpoint("owner.landed")
            self.position = self.position.after(outcome, change)
            self.unread.landed()
            if self.routing is not None:
                self.routing.landed()
            self.on_commit()
            self.observers.landed(outcome, change)
            if self.drain_goal is not None and batch.end.at_least(self.drain_goal.ends):
                self.drain_goal = planned
        return outcome

    def _note_drained(self, batch: Batch, planned: DrainGoal) -> None:
        """Commit that the table holds all of the log: what is appended later can't have been missed."""
        outcome = self._commit(batch, BatchResult((), ()), Accounting(), planned)
        done = landed(measures.counted(self._name, outcome, self.clock.now_ms()))
        _logger.info("drained", extra=fields(table=self._name, snapshot_id=done.snapshot_id))

    def _check_before_commit(self, batch: Batch, accounting: Accounting) -> None:
        self.lease.check()
        failpoint("owner.check")
        # The topic may have been recreated while it was being read: then the records could be others. What
        # retention took meanwhile was read: from where it had not been, no task would have got on.
        at, topics = self.position, batch.end.topics
        # safety: beh-identity-after-reading
        check_identity(self._name, at.cluster_id, at.topic_ids, self.log, topics)
        check_not_compacted(self.definition, self.log)
        if self.definition.has_key:
            # safety: beh-tombstones-after-reading
            check_tombstones(self.definition, at, batch.end, self.log, self.clock.now_ms())
        if not accounting.is_closed():
            raise InternalError(
                detail=f"the records of a batch do not add up: {json_text(accounting.counts())}",
                where="ingest",
            )

    def _learn(self, result: BatchResult) -> None:
        """How large records are, for the bound of the next batch; and of keys that change partition."""
        read = sum(report.records for report in result.reports)
        if read:
            self.bytes_per_record = sum(report.read_bytes for report in result.reports) / read
        warn_of_contested_keys(self.definition, result)

    def _reload(self) -> bool:
        """Where the table stands by now, and whether that is on a rewrite by others, which is taken over.

        Raises `OwnerLost` when another owner has taken it, `ForeignSnapshot` where it can't be continued, and
        `EngineFailed` where the engine has ended.
        """
        self.table = load_table(self.table.catalog, self._name, self.definition.identifier)
        # What a catalog grants of the store with a table may have ended, and is granted again with this one.
        self.lease.io = self.table.io
        self.bad_records.renew()
        quarantine = self.bad_records.quarantine
        self.task = replace(  # safety: access-again
            self.task,
            io=self.table.io,
            quarantine_io=quarantine.io,
            quarantine_location=quarantine.location(),
        )
        self.lease.renew_or_warn()  # an epoch as ours may be another's, of a catalog that was restored
        self.lease.check()
        failpoint("owner.reload")
        state, rewrite = resume_state(self.table, self.definition, self._name)
        if state.epoch != self.committer.epoch:
            raise OwnerLost(table=self._name, epoch_ours=self.committer.epoch, epoch_found=state.epoch)
        # A dead JVM looks like a catalog that does not answer, and would be waited out for ever.
        self.engine.check()
        self.committer.renew(self.table)
        if rewrite is not None:
            try:
                done = landed(self.committer.take_over(rewrite))
            except ForeignSnapshot:  # another one came while this was looked at
                self.rewrites_met += 1
                if self.rewrites_met > REWRITES_MAX:
                    raise
                return self._reload()
            say_taken_over(self._name, rewrite, done.snapshot_id)
            state = replace(state, snapshot_id=done.snapshot_id)
        of_files = state.snapshot_id if rewrite is None else rewrite.snapshot_id
        self.position = Position.of(state, self.live_files(self.table, of_files, self._name))
        if self.routing is not None:
            self.routing.reload(self.table)
        self.must_reload = False
        return rewrite is not None

    @property
    def _name(self) -> str:
        return self.definition.name
