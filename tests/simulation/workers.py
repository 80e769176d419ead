"""An API worker of the simulation: the product's `ServedTable`, what it answered, and its extracts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tests.simulation.cold import FakePublished
from tests.simulation.columns import Columns, named
from tests.simulation.faults import Violation
from tests.simulation.records import DEFINITION, KEYS, NULL, PLAIN, Key, Row
from thermocline.errors import ThermoclineError
from thermocline.rules.definition import KEY, TOMBSTONE
from thermocline.rules.fold import overlay
from thermocline.rules.seam import Seam
from thermocline.serving.cold.reader import Entity
from thermocline.serving.hot.scan import PAYLOAD
from thermocline.serving.read.extract import Extract
from thermocline.serving.read.tables import ServedTable
from thermocline.serving.read.wanted import Wanted
from thermocline.serving.store.fed_by import fed_by
from thermocline.serving.store.layout import COLD

if TYPE_CHECKING:
    from tests.simulation.disk import MemoryPath
    from tests.simulation.faults import Fault
    from tests.simulation.machine_clock import MachineClock
    from tests.simulation.world import World
    from thermocline.rules.read_point import ReadPoint
    from thermocline.serving.read.look import Look

STALE_AFTER_SECONDS: Final = 5.0
USERS: Final = tuple(sorted({key[0] for key in KEYS}))
ENTITIES: Final = {user: Entity.of(DEFINITION, (user,)) for user in USERS}
ROWS: Final = {key: Entity.of(DEFINITION, key) for key in KEYS}
BUCKETS: Final = range(DEFINITION.buckets)

Value = int | tuple[Any, ...]
"""What a row says beside its key: ``v``, and where there are other columns, these by name."""
Found = dict[Key, Value]


@dataclass(eq=False)
class HeldExtract:
    """An extract that is under way: what was read of it so far, by bucket."""

    extract: Extract
    source: str
    read: dict[int, Found] = field(default_factory=dict)


class Answers:
    """What was answered in a history, by read point: two answers at one must be one."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[tuple[object, ...], dict[Key, Value | None]] = {}

    def check(self, what: str, found: Found, keys: Iterable[Key], at: ReadPoint, source: str) -> None:
        """Compares an answer for these keys with the oracle and with earlier ones at the read point."""
        world, wanted = self._world, set(keys)
        if world.counts["LoseEnd"]:  # what was read and then lost by the cluster is no record any more
            world.counts["not compared: the log lost its end"] += 1
            return
        ends = {(topic, partition): end for topic, partition, end in at.end.items()}
        expected = {k: row for k, row in world.oracle.rows(at.snapshot_id, ends).items() if k in wanted}
        columns = world.oracle.columns(at.snapshot_id)
        world.counts["answers with other columns"] += bool(columns and found)
        if {key: _value(row, columns) for key, row in expected.items()} != found:
            others = {k: r for k, r in world.oracle.rows(at.snapshot_id, ends).items() if k not in wanted}
            rows = {key: self._row(value, columns) for key, value in found.items()}
            world.oracle.check(what, {**others, **rows}, at.snapshot_id, ends)
        world.counts[f"{what} compared"] += 1
        # A tier that is filled again from a log that was compacted since may rightly lack what it had.
        place = (at.snapshot_id, source, tuple(sorted(ends.items())), world.counts["Compact"])
        before = self._known.setdefault(place, {})
        for key in wanted:
            now = found.get(key)
            if before.setdefault(key, now) != now:
                raise Violation(
                    "read-point-repeats-differently", f"{what}: {key} was {before[key]}, is {now}"
                )

    def _row(self, value: Value, columns: Columns) -> Row:
        v, *others = value if isinstance(value, tuple) else (value,)
        ids = {one.name: one.field_id for one in columns}
        if [name for name, _ in others] != sorted(ids):
            raise Violation("columns-differ", f"{value}, and the snapshot has {columns}")
        more = tuple(sorted((ids[name], one) for name, one in others if one is not None))
        for log in self._world.oracle.logs.values():
            for one in log.records:
                if one.v == v:
                    return Row(v, one.topic, one.partition, one.offset, more)
        return Row(v, "", 0, 0, more)


class Worker:
    """One run of a worker's process, from its start to its death."""

    def __init__(
        self, world: World, number: int, folder: MemoryPath, clock: MachineClock, answers: Answers
    ) -> None:
        self.name = f"worker {number}"
        self.world = world
        self.is_frozen = False
        self.extracts: list[HeldExtract] = []
        self._answers = answers
        self._clock = clock
        self._ends: dict[tuple[str, str], dict[tuple[str, int], int]] = {}  # by log, and topic's id
        self._sequence_number = 0
        published = FakePublished(folder / COLD, world.io)
        self.table = ServedTable(world.definition, folder, published, clock, STALE_AFTER_SECONDS)  # type: ignore[arg-type]

    @property
    def lease(self) -> Seam | None:
        """From where on it says that it needs hot records."""
        lease = self.table._lease
        return None if lease is None else Seam.from_json(lease.terms.seam)

    def has_written_lease(self) -> bool:
        """Whether its lease is on the disk."""
        lease = self.table._lease
        return lease is not None and str(lease.path) in self.world.serving.disk.files

    def refresh(self, fault: Fault | None) -> bool:
        """What its loop does ten times a second; whether it died in it."""
        return self.world.process(self.name, fault, self._refresh)

    def lookup(self, users: Sequence[str], keys: Sequence[Key], refreshes: bool, fault: Fault | None) -> bool:
        """A request for entities and for single rows; whether the process died in it.

        ``refreshes``: a refresh comes between its steps, as they run in different threads.
        """
        entities = [*(ENTITIES[user] for user in users), *(ROWS[key] for key in keys)]
        wanted = [*([key for key in KEYS if key[0] == user] for user in users), *([key] for key in keys)]

        def run() -> None:
            try:
                look = self.table.reader.look(entities)
            except ThermoclineError as error:
                self.world.counts[f"lookup refused: {error.code}"] += 1
                return
            looked_ms = self.world.now_ms
            if refreshes:
                self._refresh()
            try:
                cold = [self.table.reader.cold_rows(look.cold, entity) for entity in entities]
            except OSError as error:  # expired before it was opened, or the store is unavailable
                self._unreadable("lookup", look.cold.index.snapshot_id, error)
                return
            self._check(look, looked_ms, self.table.reader.overlay(look, cold), wanted)

        return self.world.process(self.name, fault, run)

    def pin(self, fault: Fault | None) -> bool:
        """Begins an extract; whether the process died in it."""

        def run() -> None:
            try:
                look = self.table.reader.look(())
                self._check_session(look)
                floor = look.read_point.end
                extract = self.table.extract(Wanted(), floor)
            except ThermoclineError as error:
                self.world.counts[f"extract refused: {error.code}"] += 1
                return
            if not extract.read_point.end.at_least(floor):
                raise Violation(
                    "session-back", f"an extract ends at {extract.read_point.end!r}, not {floor!r}"
                )
            self.extracts.append(HeldExtract(extract, extract._cold.index.source))
            self.world.counts["extracts begun"] += 1

        return self.world.process(self.name, fault, run)

    def read(self, held: HeldExtract, bucket: int, scans: bool) -> None:
        """One bucket of an extract, by entity or at once; again, it must be the same."""

        def run() -> None:
            try:
                found = _bucket_of(held.extract, bucket, scans)
            except OSError as error:
                self._unreadable("extract", held.extract._cold.index.snapshot_id, error)
                return
            before = held.read.setdefault(bucket, found)
            if before != found:
                raise Violation("read-point-repeats-differently", f"bucket {bucket}: {before}, then {found}")
            at = held.extract.read_point
            keys = [key for key in KEYS if ROWS[key].bucket == bucket]
            self._answers.check("extract", found, keys, at, held.source)

        self.world.process(self.name, None, run)

    def end(self, held: HeldExtract) -> None:
        """The last row was sent, or the client went away."""
        self.extracts.remove(held)
        self.world.process(self.name, None, held.extract.close)

    def _unreadable(self, what: str, snapshot_id: int, error: OSError) -> None:
        self.world.counts[f"{what}: a file was not readable"] += 1
        if isinstance(error, FileNotFoundError) and self.world.keeper is not None:
            self.world.keeper.missed(snapshot_id, error)

    def _check(
        self, look: Look, looked_ms: int, answer: Sequence[bytes], wanted: Sequence[Sequence[Key]]
    ) -> None:
        self._check_session(look)
        if math.isfinite(look.age_seconds):
            self._check_age(look, looked_ms - look.age_seconds * 1000)
        found: Found = {}
        for array, of in zip(answer, wanted, strict=True):
            rows = [bytes(row) for row in _decode_rows(array)]
            values = _values(rows)
            if len(values) != len(rows) or not values.keys() <= {*of}:
                raise Violation("key-live-twice", f"{of}: {rows}")
            if any(found.get(key, v) != v for key, v in values.items()):
                raise Violation("read-point-repeats-differently", f"{found} and {values} in one answer")
            found |= values
        keys = {key for of in wanted for key in of}
        self._answers.check("lookup", found, keys, look.read_point, look.cold.index.source)
        self.world.counts["lookups over hot records"] += any(look.hits)

    def _refresh(self) -> None:
        try:
            self.table.refresh()
        except (ThermoclineError, OSError) as error:  # logged, and tried again
            self.world.counts[f"refresh failed: {type(error).__name__}"] += 1

    def _check_session(self, look: Look) -> None:
        """What one client sees at one worker never goes back, and is as fresh as it says."""
        index, end = look.cold.index, look.read_point.end
        fed = fed_by(index.source)
        # Topics come and go, and the others go on.
        before = self._ends.get((fed.cluster_id, fed.accepted))
        if before is None:
            self._check_filled(index.source, end)
        ids = {topic: of for topic, of in fed.topic_ids.items() if topic in index.definition.topics}
        ends = {(ids[topic], partition): at for topic, partition, at in end.items() if topic in ids}
        known = (before or {}).items()
        if any(ends.get(place, 0) < at for place, at in known if place[0] in ids.values()):
            raise Violation("session-back", f"{self.name} answers to {end!r} after {before!r}")
        if index.sequence_number < self._sequence_number:
            raise Violation("session-back", f"{self.name} went back to snapshot {index.snapshot_id}")
        self._ends[fed.cluster_id, fed.accepted] = {**(before or {}), **ends}
        self._sequence_number = index.sequence_number

    def _check_filled(self, source: str, end: Seam) -> None:
        """Who has not answered yet waits until the hot tier is where the log ended when it was begun."""
        tailer = self.world.serving.tailer
        goal = None if tailer is None else tailer.goal
        # Where a disk was lost, it may still answer from the tier before, which is older and says so.
        if goal is None or goal.source != source or self.world.counts["disks lost"]:
            return
        if not self.world.counts["LoseEnd"] and any(end.get(p) < at for p, at in goal.ends.items()):
            raise Violation("ready-too-early", f"{self.name} answers to {end!r}, not yet {goal.ends}")

    def _check_age(self, look: Look, before_ms: float) -> None:
        """Everything that was there so long ago is in the answer."""
        world, end = self.world, look.read_point.end
        if world.counts["LoseEnd"] or world.around.is_compacted:
            return
        ids = world.oracle.states[look.read_point.snapshot_id].topic_ids
        for topic, one in world.cluster.topics.items():
            if ids.get(topic) != one.topic_id:
                continue
            for log in one.partitions:
                later = [record for record in log.records if record.offset >= end.get(log.place)]
                if any(record.transaction is not None or record.is_marker for record in later):
                    continue  # they may have waited for the end of a transaction
                if later and later[0].appended_ms < before_ms - 1:
                    raise Violation(
                        "age-lies",
                        f"{look.age_seconds} s, and {log.place}@{later[0].offset} is older: {end!r}",
                    )


def _values(rows: Sequence[bytes]) -> Found:
    decoded = [_decode(row) for row in rows]
    return {(row["u"], row["k"]): _read_value(row) for row in decoded}


def _read_value(row: dict[str, Any]) -> Value:
    v: int = NULL if row["v"] is None else row["v"]
    if len(row) == len(PLAIN):
        return v
    return (v, *sorted((name, value) for name, value in row.items() if name not in PLAIN))


def _value(row: Row, columns: Columns) -> Value:
    """The same of a row of the oracle's."""
    return (row.v, *named(row, columns)) if columns else row.v


def _bucket_of(extract: Extract, bucket: int, scans: bool) -> Found:
    """A bucket's rows as an extract joins them: its files' rows, and its hot winners over them."""
    cold, hot = extract._cold, extract._hot  # DuckDB would read real files
    found: Found = {}
    index = cold.index
    scanned = _scanned(hot.scan(bucket, index.seam)) if scans else None
    for entity in ENTITIES.values():
        if entity.bucket != bucket:
            continue
        hits = hot.lookup(bucket, entity.prefix, index.seam)
        if scanned is not None:
            payloads = {key: b"" if row is None else row.payload for key, row in hits.items()}
            if payloads != {key: row for key, row in scanned.items() if key.startswith(entity.prefix)}:
                raise Violation("hot-differs", f"a scan gives {scanned}, a lookup {payloads}")
        rows = cold.reader.entity_rows(index, entity, cold.rows.cold).by_key()
        winners: Mapping[bytes, bytes | None] = {
            key: None if row is None else cold.rows.hot(entity, key, row, rows.get(key))
            for key, row in hits.items()
        }
        found |= _values(list(overlay(rows, winners).values()))
    return found


def _scanned(table: Any) -> dict[bytes, bytes]:
    found = {}
    for row in table.to_pylist():
        assert row[KEY] not in found
        assert row[TOMBSTONE] == (not row[PAYLOAD])
        found[row[KEY]] = row[PAYLOAD]
    return found


_decode = msgspec.json.Decoder().decode
_decode_rows = msgspec.json.Decoder(list[msgspec.Raw]).decode

__all__ = ["Answers", "HeldExtract", "Worker"]
