"""The owner of one table, which alone commits to it; ``turns`` says when, ``table_batch`` how."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Self

from thermocline.errors import (
    ForeignSnapshot,
    OwnerLost,
    ThermoclineError,
    TopicMissing,
)
from thermocline.failpoints import failpoint
from thermocline.iceberg.catalog import load_table
from thermocline.iceberg.files import delete_files
from thermocline.iceberg.rewrite import resume_state
from thermocline.ingest.batch.bad_records import BadRecords
from thermocline.ingest.batch.open_transactions import Standstill
from thermocline.ingest.batch.plan import (
    DrainGoal,
)
from thermocline.ingest.batch.read_task import ReadTask
from thermocline.ingest.claim.lease import OwnerLease
from thermocline.ingest.claim.opening import Opening, checked_definition
from thermocline.ingest.claim.ownership import REWRITES_MAX, say_taken_over
from thermocline.ingest.commit.change import TableChange
from thermocline.ingest.commit.commit import Committer, Landed, Outcome, landed
from thermocline.ingest.engine.engine import Engine, start_engine
from thermocline.ingest.owner import measures
from thermocline.ingest.owner.observers import Observers
from thermocline.ingest.owner.passed import PassedOver
from thermocline.ingest.owner.position import Position
from thermocline.ingest.owner.routing import Routing, routing_of
from thermocline.ingest.owner.scans import catch_up, step_together
from thermocline.ingest.owner.schema_watch import SchemaWatch
from thermocline.ingest.owner.topic_watch import TopicWatch
from thermocline.ingest.owner.unread import UnreadNames
from thermocline.ingest.owner.upkeep import NoUpkeep, Upkeep
from thermocline.ingest.quarantine import reopen_quarantine
from thermocline.upsert.bucket_task import written_paths
from thermocline.upsert.files_by_bucket import FilesByBucket, live_files

if TYPE_CHECKING:
    import threading

    from pyiceberg.table import Table

    from thermocline.ingest.batch.batch import BatchResult
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
    ``position`` is the table's; ``passed`` is how far the owner is beyond it, where it `may_pass_over`
    batches that held nothing for the table.
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
    packed_bytes_per_record: float | None = None
    must_reload: bool = False
    rewrites_met: int = 0
    lag_records: int = 0
    is_contested: bool = False
    may_pass_over: bool = True
    passed: PassedOver | None = None
    drain_goal: DrainGoal | None = None
    standstill: Standstill = field(default_factory=Standstill)
    topics: TopicWatch = field(default_factory=TopicWatch)
    routing: Routing | None = None
    schemas: SchemaWatch = field(default_factory=SchemaWatch)
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
            interval_seconds = owner.settings.commit_interval_seconds
            measures.opened(name, interval_seconds, owned.settled, owner.position.files, clock.now_ms())
            undo.pop_all()
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

    @property
    def at(self) -> Position:
        """Where the next batch begins: the table's position, or beyond it, where ranges were passed over."""
        return self.position if self.passed is None else self.passed.beyond(self.position)

    def catch_up(self, stop: threading.Event) -> int:
        """Batches until the table holds what the log holds now, or told to stop; see `scans.catch_up`."""
        ((_, outcome),) = catch_up([self], stop)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def leave(self, result: BatchResult) -> None:
        """Delete the files of a batch that is read again, or not committed."""
        delete_files(self.table.io, written_paths(result.buckets))
        self.bad_records.discard(result.reports)

    @contextmanager
    def leaving(self, result: BatchResult) -> Iterator[None]:
        """Where the block raises, the batch is left."""
        try:
            yield
        except BaseException:
            self.leave(result)
            raise

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
            before = self.position
            self.position = before.after(outcome, change, self.definition.buckets)
            if (before.seam, before.topic_ids) != (change.seam, change.topic_ids):
                self.passed = None  # topics came or left
            if change.definition is not None:
                # What the tasks of the next batch go by.
                self.definition = change.definition
                self.unread.follow(change.definition)
                ids = dict(change.topic_ids)
                self.task = replace(self.task, definition=change.definition, topic_ids=ids)
                self.drain_goal = None  # its ends may be of a topic that left
            self.on_commit()
            self.observers.landed(outcome, change)
        return outcome

    def step(self) -> bool:
        """Plan, run and commit one batch; whether the log held more than the batch. No batch, no commit.

        A batch that met a rewrite by others is read again, on top of it, by the next step. Batches of several
        tables are read together by `scans.step_together`.
        """
        ((_, outcome),) = (one for group in step_together([self]) for one in group)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def prepare(self) -> None:
        """Before each batch: the table is still ours, and is known as it is."""
        self.lease.check()  # safety: lease-checked
        # The lease of an idle table may be all that shows that its access to the store has ended.
        if self.must_reload or self.lease.has_failed:  # safety: reload-after-outage
            self._reload()

    def met(self, error: Exception) -> bool:
        """Whether what ended a batch was no fault, and the next one has to come at once; else raises it."""
        match error:
            case TopicMissing() if self.topics.missed(self, error):
                return True
            case ForeignSnapshot():
                self.rewrites_met += 1
                if self.rewrites_met <= REWRITES_MAX and self._reload():
                    return True
        raise error

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
        self.passed = None
        if self.routing is not None:
            self.routing.reload(self.table)
        self.must_reload = False
        return rewrite is not None

    @property
    def _name(self) -> str:
        return self.definition.name
