"""The world of one history: cluster, catalog and store, the processes in it, and who watches over them.

Steps make things happen, one after another. Everything that a process asks for passes `World.edge`, where it
may die, be refused, or pause while the next steps of the history run.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from tests.simulation.catalog import FakeCatalog, FakeSnapshot, Metadata, Summary
from tests.simulation.engine import deleted_in
from tests.simulation.faults import Answer, Crash, Fault, Frame, Frames, Violation
from tests.simulation.kafka import FakeCluster
from tests.simulation.keeper import Keeper
from tests.simulation.oracle import Oracle, Produced, Rows
from tests.simulation.records import (
    CHANGING,
    DEFINITION,
    IDENTIFIER,
    KEPT,
    KEYS,
    PARTIAL,
    ROTATING,
    TOPICS,
    Row,
    definition_json,
    key_bytes,
    sent_fields,
    taking,
    value_bytes,
)
from tests.simulation.store import FakeIO
from thermocline.iceberg.catalog import BATCH_PROPERTY, DEFINITION_PROPERTY, EPOCH_PROPERTY, SEAM_PROPERTY
from thermocline.ingest.commit.change import TableChange, summary_fields
from thermocline.kafka.facts import TopicConfig
from thermocline.rules.seam import Seam

if TYPE_CHECKING:
    from tests.simulation.metadata import Late
    from tests.simulation.partitions import Transaction

STARTED_MS = 1_700_000_000_000
# How long tombstones are kept where topics are compacted; steps pass minutes, and some pass hours.
TOMBSTONES_KEPT_MS = 3_600_000
UPSERT, DELETE, BAD, TOUCH = range(4)
SENT = 4
"""And on from here an upsert with other fields, too: see `sent_fields`."""


class Step(Protocol):
    """One thing that happens. Its repr is Python that makes it again."""

    def run(self, world: World) -> None:
        """Make it happen; nothing where it makes no sense now."""
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is so for a whole history. ``takes``: the topic whose records are the table's; empty for all."""

    partitions: tuple[int, int] = (1, 1)
    is_compacted: bool = False
    is_append_time: bool = False
    wanders: bool = False
    is_arrow: bool = False
    is_merging: bool = False
    records_max: int = 100
    skew_ms_max: int = 0
    is_served: bool = False
    is_maintained: bool = False
    is_partial: bool = False
    is_rotating: bool = False
    takes: str = ""
    is_changing: bool = False


class SimClock:
    """A process's clock: skewed in what it says of the day, never in how time passes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.skew_ms = 0

    def monotonic(self) -> float:
        """Seconds since the history began."""
        return (self._world.now_ms - STARTED_MS) / 1000

    def now_ms(self) -> int:
        """What the process takes for the time."""
        return self._world.now_ms + self.skew_ms

    def sleep(self, seconds: float) -> None:
        """Time passes."""
        self._world.advance(seconds)


class World:
    """All there is in one history."""

    def __init__(self, around: Surroundings, steps: Iterable[Step] = (), beside: World | None = None) -> None:
        """``beside``: another one's cluster, time and processes, and a table of its own."""
        self.around, self._beside = around, beside
        definition = PARTIAL if around.is_partial else CHANGING if around.is_changing else DEFINITION
        definition = replace(definition, topic_patterns=(ROTATING,) if around.is_rotating else ())
        self.definition = taking(definition, around.takes)
        self.now_ms = STARTED_MS
        self.counts: Counter[str] = Counter()
        self.oracle = Oracle(around.takes)
        self.oracle.skew_ms = 2 * around.skew_ms_max
        self.frames: Frames = Frames(self.run_next) if beside is None else beside.frames
        self.cluster: FakeCluster = FakeCluster(SimClock(self)) if beside is None else beside.cluster
        if beside is None:
            self.cluster.before = lambda what: self.edge(f"log {what}")
        else:
            self.oracle.logs = beside.oracle.logs
        now_ms = (lambda: self.now_ms) if around.is_maintained else None
        self.io = FakeIO(self.edge, self._deleted, now_ms)
        self.catalog = FakeCatalog(self.io, self.edge, self._landed)
        self.catalog.keeps_manifests = around.is_maintained
        self.keeper = Keeper(self) if around.is_maintained else None
        self.late: list[Late] = []
        self.places: list[tuple[str, int]] = []
        self.transactions: dict[int, Transaction] = {}
        self.kept_bad: set[tuple[str, str, int, int]] = set()
        self.actors: dict[str, Any] = {}
        self.serving: Any = None
        self._clocks: dict[str, SimClock] = {}
        self._steps = deque(steps)
        self._values = 0
        self.violation: Violation | None = None
        self._create()

    # Time, and what runs in it.

    def advance(self, seconds: float) -> None:
        """Time passes, for everybody."""
        self.now_ms += round(seconds * 1000)

    def clock(self, name: str) -> SimClock:
        """The clock of a process."""
        return (
            self._clocks.setdefault(name, SimClock(self))
            if self._beside is None
            else self._beside.clock(name)
        )

    def run(self) -> None:
        """All steps."""
        while self._steps:
            self.run_next(1)
            if self.violation is not None:
                raise self.violation

    def run_next(self, count: int) -> None:
        """The next steps, as many as there are left."""
        for _ in range(min(count, len(self._steps))):
            if not self._steps:  # a step that was paused took them
                return
            step = self._steps.popleft()
            self.counts[type(step).__name__] += 1
            try:
                step.run(self)
                if self.serving is not None:
                    self.serving.check()
            except Violation as violation:  # which a paused process may catch, as it catches what it likes
                self.violation = self.violation or violation
                raise

    def edge(self, name: str, error: Callable[[], Exception] | None = None) -> None:
        """A process is about to do what others can see."""
        self.frames.edge(name, error)

    def process(
        self, name: str, fault: Fault | None, work: Callable[[], None], answer: Answer | None = None
    ) -> bool:
        """Run a process for a step; whether it died in it. One that is paused does not run."""
        frames = self.frames
        if frames.is_busy(name):
            return False
        frames.stack.append(Frame(name, fault, answer))
        depth = len(frames.stack)
        try:
            work()
        except Crash:
            self.counts["crashed"] += 1
            return True
        finally:
            assert len(frames.stack) == depth
            frames.stack.pop()
        return False

    # The log.

    def create_topic(self, topic: str, partitions: int) -> None:
        """A topic that has records from now on."""
        around = self.around
        config = TopicConfig(around.is_compacted, TOMBSTONES_KEPT_MS, around.is_append_time)
        self.cluster.create_topic(topic, partitions, config)
        self.places += [(topic, partition) for partition in range(partitions)]

    def delete_topic(self, topic: str) -> None:
        """It is gone, with all that it has."""
        self.cluster.delete_topic(topic)
        self.places = [place for place in self.places if place[0] != topic]

    def produce(self, place: int, key: int, what: int, transaction: Transaction | None = None) -> None:
        """A producer appends one record."""
        topic, partition = self.places[place % len(self.places)]
        if not self.cluster.is_up:
            return
        self._values += 1
        k, v = KEYS[key % len(KEYS)], self._values
        fields = sent_fields(v, what - SENT) if what >= SENT else {}
        what = min(what, SENT)
        sent = {UPSERT: value_bytes(v), DELETE: None, BAD: b"bad", TOUCH: value_bytes(KEPT)}
        value = value_bytes(v, fields) if what == SENT else sent[what]
        # Producers' clocks disagree by a few seconds, and some keys come out of order.
        at_ms = self.now_ms + (v * 7919 % 5000) - 2500
        source = self.cluster if transaction is None else transaction
        offset = source.produce(topic, partition, key_bytes(k), value, at_ms)
        taken = self.cluster.partition(topic, partition).records[-1]
        one = Produced(
            k,
            None if what == BAD else k,
            {UPSERT: v, SENT: v, TOUCH: KEPT}.get(what),
            topic,
            partition,
            offset,
            taken.timestamp_ms,
            transaction,
            appended_ms=self.now_ms,
            fields=fields,
        )
        self.oracle.log(self.cluster.topics[topic].topic_id, partition).records.append(one)
        self.counts["produced"] += 1
        self.counts["bad record"] += what == BAD
        self.counts["partial record"] += what == TOUCH

    # The table.

    def table(self) -> Metadata:
        """The table as it is."""
        return self.catalog.tables[IDENTIFIER]

    def committed_seam(self) -> dict[tuple[str, int], int]:
        """The seam of the newest snapshot of ours in main's history; empty where none is left."""
        states = self.oracle.states
        return next(
            (states[one.snapshot_id].seam for one in self.table().history() if one.snapshot_id in states), {}
        )

    def rows_of(self, snapshot: FakeSnapshot) -> Rows:
        """A snapshot's rows, read as anybody would. Raises `Violation`."""
        rows: Rows = {}
        try:
            for file in snapshot.files:
                deleted = deleted_in(self.io, file)
                for position, row in enumerate(self.io.objects[file.path]):
                    if position in deleted:
                        continue
                    if row.key in rows:
                        raise Violation("key-live-twice", f"snapshot {snapshot.snapshot_id}: {row.key}")
                    rows[row.key] = Row(row.v, row.topic, row.partition, row.offset, row.more)
        except (FileNotFoundError, KeyError) as error:
            raise Violation("file-missing", f"snapshot {snapshot.snapshot_id}: {error}") from error
        return rows

    def _create(self) -> None:
        if self._beside is not None:
            self.places = self._beside.places
        else:
            for topic, partitions in zip(TOPICS, self.around.partitions, strict=True):
                self.create_topic(topic, partitions)
        ids = {topic: one.topic_id for topic, one in self.cluster.topics.items()}
        seam = Seam(dict.fromkeys(self.places, 0))
        change = TableChange(seam, self.cluster.cluster_id, ids, watermark_ms=-1, drained_ms=self.now_ms)
        properties = {
            DEFINITION_PROPERTY: definition_json(self.definition),
            EPOCH_PROPERTY: "0",
            SEAM_PROPERTY: seam.to_json(),
            BATCH_PROPERTY: change.batch_id,
        }
        summary = Summary(summary_fields(change, 0, DEFINITION.version, {}))
        bare = FakeSnapshot(self.catalog.new_id(), None, 1, self.now_ms, summary, ())
        snapshot = self.catalog.listed(bare, None)
        ours = {snapshot.snapshot_id: snapshot}
        first = Metadata(ours, snapshot.snapshot_id, properties, {}, self.now_ms, 1)
        self.catalog.create(IDENTIFIER, first)

    def _landed(self, identifier: str, before: Metadata | None, after: Metadata, by: str) -> None:
        known = {} if before is None else before.snapshots
        if self.keeper is not None and before is not None:
            self.keeper.swapped(before, after)
        if self.around.is_changing:
            self._columns_seen(after.properties[DEFINITION_PROPERTY], by)
        for snapshot_id, snapshot in after.snapshots.items():
            if snapshot_id in known:
                continue
            rows = self.rows_of(snapshot)
            if by in ("", "foreign"):
                self.oracle.landed_foreign(snapshot, rows)
                continue
            read = self.oracle.landed(snapshot, rows, by)
            self._check_quarantine(snapshot, read)
            self.counts["landed"] += 1
            self.counts["landed with rows"] += bool(read)

    def _columns_seen(self, definition: str, by: str) -> None:
        before = self.oracle.table.columns
        self.counts["columns taken up"] += self.oracle.table.changed(definition, by)
        self.counts["columns changed"] += self.oracle.table.columns != before

    def _check_quarantine(self, snapshot: FakeSnapshot, read: list[Produced]) -> None:
        ids = self.oracle.states[snapshot.snapshot_id].topic_ids
        for one in read:
            place = (ids[one.topic], one.topic, one.partition, one.offset)
            is_bad = one.key is None and self.oracle.is_ours(one)
            if is_bad and place not in self.kept_bad and not one.is_superseded:
                raise Violation("bad-record-lost", f"{place} is before the seam, and not in quarantine")

    def _deleted(self, path: str) -> None:
        if path in self.table().paths():
            raise self.broken("file-missing", f"{path} was deleted, and a snapshot needs it")
        if self.keeper is not None:
            self.keeper.deleted(path)

    def broken(self, kind: str, detail: str) -> Violation:
        """A violation that is kept, whoever catches it."""
        violation = Violation(kind, detail)
        self.violation = self.violation or violation
        return violation
