"""Processes that own the table, or want to: the product's owner, committer and commands on the fakes.

Nobody waits for a lease: everybody believes that the table is free, which is the worst that can happen to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from tests.simulation.catalog import FakeTable
from tests.simulation.engine import QUARANTINE_LOCATION, BadPlace, FakeEngine
from tests.simulation.faults import Answer, Fault, Violation, kind_of
from tests.simulation.metadata import FakeMetadataStore
from tests.simulation.records import IDENTIFIER, NAME
from tests.simulation.store import FakeIO
from tests.simulation.upkeep import Beside, WatchedUpkeep
from thermocline.errors import (
    AlterationRefused,
    CommitRejected,
    ForeignSnapshot,
    NotConfirmed,
    OffsetsGone,
    ThermoclineError,
    TombstonesGone,
    TopicDeleted,
)
from thermocline.iceberg.catalog import definition_of, epoch_of, load_table
from thermocline.iceberg.files import DataFile
from thermocline.iceberg.rewrite import resume_state
from thermocline.ingest.batch.bad_records import BadRecords, BadRecordsPolicy
from thermocline.ingest.batch.read_task import ReadTask
from thermocline.ingest.claim.ownership import Claim, Owned
from thermocline.ingest.commit.commit import Committer
from thermocline.ingest.commit.rotation import check_what_is_there
from thermocline.ingest.owner.owner import Owner
from thermocline.ingest.owner.position import Position
from thermocline.ingest.owner.scans import Outcome, step_together
from thermocline.ingest.owner.turns import REJECTIONS_MAX
from thermocline.ingest.owner.upkeep import NoUpkeep
from thermocline.ingest.quarantine import KEPT_SMALL, renew
from thermocline.ingest.table import resume
from thermocline.ingest.table.alter import alter_table

if TYPE_CHECKING:
    from collections.abc import Collection

    from tests.simulation.world import World
    from thermocline.ingest.commit.change import Onto
    from thermocline.rules.definition import LiveTable


class FreeLease:
    """A lease that nobody respects."""

    epoch_floor = 0
    has_failed = False

    def check_still_free(self) -> None:
        """It is."""

    def hold(self, epoch: int) -> None:
        """Nobody looks."""

    def release(self) -> None:
        """Nobody looks."""

    def check(self) -> None:
        """Nobody was met."""

    def renew_or_warn(self) -> None:
        """Nobody looks."""


class FakeQuarantine:
    """The companion table: the places of the bad records that it holds."""

    def __init__(self, io: FakeIO, kept: set[BadPlace]) -> None:
        self.io = io
        self.properties = KEPT_SMALL
        self._kept = kept

    def location(self) -> str:
        """Where its files are."""
        return QUARANTINE_LOCATION

    def refresh(self) -> None:
        """As it is now."""
        self.io.ask("quarantine load")

    def add_files(self, paths: Sequence[str], check_duplicate_files: bool = True) -> None:
        """Files become part of it."""
        self.io.ask("quarantine commit")
        for path in paths:
            self._kept.update(self.io.objects[path])


@dataclass
class Process:
    """A process of ingest: it owns the table, or the next thing that it does is to take it.

    ``stop`` is the error that ended it last; a crash leaves none. ``life`` counts how often it began again.
    """

    world: World
    name: str
    records_max: int
    owner: Owner | None = None
    stop: ThermoclineError | None = None
    life: int = 0
    rejections: int = 0
    unknown: list[str] = field(default_factory=list)
    may_pass_over: bool = True
    file: LiveTable | None = None

    @classmethod
    def of(cls, world: World, name: str) -> Process:
        """The process of that name in a world."""
        process = world.actors.get(name)
        if process is None:
            process = world.actors[name] = cls(world, name, world.around.records_max)
        return cast(Process, process)

    def ingest(self, fault: Fault | None, answer: Answer | None) -> None:
        """Take the table if it is not taken, then one batch; an error makes it wait, or ends it."""
        if self.world.process(self.name, fault, self._step, answer):
            self.owner = None

    def maintain(self, fault: Fault | None, answer: Answer | None) -> None:
        """The owner's turn of maintenance after a batch, where it has the table."""
        if self.owner is not None and self.world.process(self.name, fault, self._turn, answer):
            self.owner = None

    def work(self, is_task: bool, fault: Fault | None) -> bool:
        """What maintenance does beside batches; whether there was something to do."""
        upkeep = None if self.owner is None else self.owner.upkeep
        return isinstance(upkeep, WatchedUpkeep) and upkeep.beside.work(is_task, fault)

    def die(self, beside: Beside) -> None:
        """It dies in a thread of that life, whatever else it does; a life after that goes on."""
        upkeep = None if self.owner is None else self.owner.upkeep
        if isinstance(upkeep, WatchedUpkeep) and upkeep.beside is beside:
            self.owner = None
            self.world.frames.die(self.name)

    def resume(self, to: str, fault: Fault | None, answer: Answer | None) -> None:
        """Run the command that the last stop named, as another process."""
        stop, command = self.stop, Process.of(self.world, f"command of {self.name}")
        if stop is None or not hasattr(stop, "tokens"):
            return
        if not self.world.process(command.name, fault, lambda: command.run(stop, to), answer):
            self.stop = None

    def run(self, stop: ThermoclineError, to: str) -> None:
        """A resuming command."""
        self.life += 1
        clock, settings = self.world.clock(self.name), cast(Any, self)
        facts = cast(Any, stop).tokens
        try:
            if isinstance(stop, OffsetsGone | TombstonesGone | TopicDeleted):
                done = resume.accept_gap(settings, NAME, facts, clock)
            elif isinstance(stop, ForeignSnapshot):
                if stop.onto < 0:
                    return
                done = resume.rebase_onto(settings, NAME, stop.onto, facts, clock)
            else:
                done = resume.rebase(settings, NAME, facts, to, clock)
            self.world.counts[f"resumed {kind_of(stop)}" if done else "nothing to resume"] += 1
        except NotConfirmed:
            self.world.counts["facts differ"] += 1
        except ThermoclineError as error:
            self.failed(error)

    def alter(self, file: LiveTable, drop: Collection[str]) -> str:
        """The command that makes the table what the file says; what came of it, in a word."""
        self.life += 1
        self.file = file
        try:
            done = alter_table(cast(Any, self), NAME, self.world.clock(self.name), drop=drop)
        except AlterationRefused:  # somebody else, or the table by itself, came first
            return "refused"
        except ThermoclineError as error:
            self.failed(error)
            return "failed"
        return "done" if done.changes else "nothing to do"

    @property
    def kafka(self) -> Any:
        """For the commands: what a log is made of."""
        return self.world.cluster

    @property
    def by(self) -> str:
        """This life of the process."""
        return f"{self.name}#{self.life}"

    def table(self, _: str) -> SimpleNamespace:
        """For the commands: the settings of the table."""
        found = _settings(self.records_max)
        found.definition = lambda *_: self.file
        return found

    def failed(self, error: ThermoclineError) -> None:
        """What the loop does on an error: wait and read the table again, or end."""
        counts = self.world.counts
        counts[f"error {error.code}"] += 1
        _check_expected(self.world, error)
        self.rejections += isinstance(error, CommitRejected)
        if self.owner is not None and error.retryable and self.rejections < REJECTIONS_MAX:
            self.owner.must_reload = True
            return
        self.owner = None
        self.stop = error
        counts[f"stopped {kind_of(error)}"] += 1

    def claim(self, onto: Onto | None = None) -> tuple[Any, Committer]:
        """Take the table as `Claim.take` does."""
        world, clock = self.world, self.world.clock(self.name)
        table = load_table(cast(Any, world.catalog), NAME, IDENTIFIER)
        definition = definition_of(table, NAME)
        lease = cast(Any, FreeLease())
        claim = Claim(cast(Any, None), NAME, table, definition, epoch_of(table.properties, NAME), lease)
        store = FakeMetadataStore(
            world.catalog, IDENTIFIER, clock, world.edge, world.frames.next_answer, world.late, self.by
        )
        committer = Committer(store, NAME, definition.version, table)
        taken = claim.take_as(committer, onto)
        world.counts["rewrite taken over"] += claim.rewrite is not None
        world.counts["taken"] += 1
        for one in taken.settled:
            world.counts[f"unknown settled as {one.verdict.value}"] += 1
        return taken, committer

    def _step(self) -> None:
        if self.opens() and self.owner is not None:
            ((stepped,),) = step_together([self.owner])
            self.stepped(stepped[1])

    def opens(self) -> bool:
        """Whether it owns the table, or has just taken it."""
        try:
            self.owner = self.owner or self._open()
        except ThermoclineError as error:
            self.failed(error)
        return self.owner is not None

    def stepped(self, outcome: Outcome) -> None:
        """Its owner's batch came to that."""
        if isinstance(outcome, ThermoclineError):
            self.failed(outcome)
        elif isinstance(outcome, Exception):
            raise outcome
        else:
            assert self.owner is not None
            self.rejections = 0
            self._check_position(self.owner.position)
            self.world.counts["passed over"] += self.owner.passed is not None

    def _turn(self) -> None:
        owner = self.owner
        if owner is None or owner.must_reload:  # the next batch reads the table again first
            return
        try:
            owner.maintain()
            self._check_position(owner.position)
        except ThermoclineError as error:
            self.failed(error)

    def _open(self) -> Owner:
        world, clock, cluster = self.world, self.world.clock(self.name), self.world.cluster
        self.life += 1
        self.rejections = 0
        log = cast(Any, cluster.log())
        table = load_table(cast(Any, world.catalog), NAME, IDENTIFIER)
        definition = definition_of(table, NAME)
        state, _ = resume_state(table, definition, NAME)
        properties = table.properties
        check_what_is_there(definition, state, log, properties, clock.now_ms(), 3600.0)
        taken, committer = self.claim()
        policy = BadRecordsPolicy(NAME, taken.definition.on_error, 1.0, None, None)
        io = cast(Any, world.io)
        quarantine = cast(Any, FakeQuarantine(world.io, world.kept_bad))

        def open_quarantine() -> Any:
            renew(quarantine)
            return quarantine

        ids = taken.state.topic_ids
        beside = Beside(self) if world.around.is_maintained else None
        engine = FakeEngine(cluster, world.edge, world.around.is_arrow, world.around.is_merging, beside)
        return Owner(
            settings=cast(Any, _settings(self.records_max)),
            definition=taken.definition,
            log=log,
            table=taken.table,
            task=ReadTask(taken.definition, {}, io, io, QUARANTINE_LOCATION, dict(ids)),
            engine=engine,
            ends_engine=False,
            committer=committer,
            lease=cast(Any, FreeLease()),
            bad_records=BadRecords(policy, {}, open_quarantine),
            position=Position.of(taken.state, live_files(taken.table, taken.state.snapshot_id, NAME)),
            clock=clock,
            live_files=live_files,
            may_pass_over=self.may_pass_over,
            upkeep=NoUpkeep() if beside is None else WatchedUpkeep.of(world, clock, beside),
        )

    def _check_position(self, position: Position) -> None:
        """What an owner believes after a step must have landed."""
        states = self.world.oracle.states
        if position.snapshot_id not in states:
            raise Violation("acknowledged-not-landed", f"{self.by} goes on from {position.snapshot_id}")
        if {(topic, p): offset for topic, p, offset in position.seam.items()} != states[
            position.snapshot_id
        ].seam:
            raise Violation("seam-not-joined", f"{self.by} goes on from {position.seam}")
        snapshot = self.world.table().snapshots.get(position.snapshot_id)
        held = {file for files in position.files.values() for file in files}
        if snapshot is not None and held != set(snapshot.files):
            raise Violation("files-differ", f"{self.by} of snapshot {position.snapshot_id}")


def live_files(table: Any, snapshot_id: int, name: str) -> Mapping[int, Sequence[DataFile]]:
    """The live files of a snapshot of a fake table."""
    snapshot = cast(FakeTable, table).snapshot_by_id(snapshot_id)
    assert snapshot is not None
    grouped: dict[int, list[DataFile]] = {}
    for file in snapshot.files:
        grouped.setdefault(file.bucket, []).append(file)
    return grouped


def _settings(records_max: int) -> SimpleNamespace:
    return SimpleNamespace(
        commit_interval_seconds=60.0,
        batch_records_max=records_max,
        batch_bytes_max=1 << 30,
        deleted_topic_seconds=3600.0,
        start="earliest",
    )


@contextmanager
def own_table(
    settings: Any, name: str, clock: Any, onto: Onto | None = None, say: Any = None
) -> Iterator[Owned]:
    """As `ingest.claim.ownership.own_table`, of a process in the world."""
    process = cast(Process, settings)
    taken, committer = process.claim(onto)
    yield Owned(
        taken.definition,
        taken.table,
        taken.state,
        taken.settled,
        committer=committer,
        jvm=None,
        catalog=cast(Any, None),
        log=cast(Any, process.world.cluster.log()),
        lease=cast(Any, FreeLease()),
    )


# What must have happened before ingest may stop with an error; all others would be false alarms, or bugs.
_CAUSES = {
    "offsets-gone": ("Trim", "ReplaceTopic", "ReplaceCluster", "LoseEnd"),
    "topic-deleted": ("DeleteTopic",),
    "topic-missing": ("DeleteTopic",),
    "definition-changed": ("CreateTopic", "DeleteTopic", "columns changed"),
    "tombstones-gone": ("Advance", "ClockJump"),
    "log-replaced: end": ("LoseEnd", "ReplaceTopic", "ReplaceCluster"),
    "log-replaced: partitions": ("ReplaceTopic", "ReplaceCluster"),
    "log-replaced: topics": ("ReplaceTopic", "ReplaceCluster", "DeleteTopic"),
    "log-replaced: cluster": ("ReplaceCluster",),
    "foreign-snapshot": ("Append", "Rewrite", "Rollback", "Ingest", "Resume", "Alter"),
    "owner-lost": ("Ingest", "Resume", "Alter"),
    "commit-unknown": ("Ingest", "Resume", "Alter"),
    "commit-rejected": ("Ingest", "Resume", "Alter"),
    "catalog-unreachable": ("Ingest", "Resume", "Alter"),
    "kafka-unreachable": ("ClusterDown", "Ingest", "Resume", "Alter"),
    "range-incomplete": ("ClusterDown", "ReplaceTopic", "ReplaceCluster", "LoseEnd", "Ingest", "DeleteTopic"),
    "engine-failed": ("Ingest", "Expire"),
}


def _check_expected(world: World, error: ThermoclineError) -> None:
    if not any(world.counts[cause] for cause in _CAUSES.get(kind_of(error), ())):
        raise Violation("unexpected-stop", f"{error.code}: {error}") from error
