"""Random histories of a table and its log, in memory: what was produced, read by each commit, and lost.

The table is a plain dict that is changed as ingest's rules say; only decoding is the product's.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from thermocline.iceberg.catalog import SnapshotState
from thermocline.iceberg.lineage import Link
from thermocline.iceberg.reading import Place, Reading, reading_of
from thermocline.iceberg.rows import rows_schema, with_keys
from thermocline.kafka.facts import RecordChunk
from thermocline.rules.column_types import ColumnType, Kind
from thermocline.rules.definition import Column, LiveTable
from thermocline.rules.partition_time import PartitionTimes
from thermocline.rules.seam import Seam

TOPIC = "scores"
LARGE = 2**40  # no int, but a long
KEPT = -1  # of a record that leaves the score of its row as it is
NULL = -2  # of a row that has had none


def definition_of(version: int = 2, suppress_unchanged: bool = False, is_partial: bool = False) -> LiveTable:
    """A score by user: a long, and in version 1 an int."""
    return LiveTable.build(
        name="scores",
        identifier="app.scores",
        topics=[TOPIC],
        key=["user"],
        columns={"user": "string", "score": "long" if version == 2 else "int"},
        buckets=2,
        suppress_unchanged=suppress_unchanged,
        partial_updates=is_partial,
        version=version,
    )


@dataclass(frozen=True)
class Record:
    """``score`` is None for a tombstone; ``is_garbage`` is a record that nothing can read."""

    place: Place
    offset: int
    time: int
    user: str
    score: int | None
    is_garbage: bool = False
    greatest: int = -1
    """The greatest time of its partition so far."""

    def is_good(self, version: int) -> bool:
        return not self.is_garbage and (self.score is None or version == 2 or self.score < LARGE)

    @property
    def key(self) -> bytes:
        return json.dumps({"user": self.user}).encode()

    @property
    def value(self) -> bytes | None:
        if self.is_garbage:
            return b"{"
        if self.score == KEPT:
            return b"{}"
        return None if self.score is None else json.dumps({"score": self.score}).encode()


@dataclass
class Story:
    """A life of a table. ``rows`` are by user; ``seams`` and ``versions`` of the snapshots."""

    chance: random.Random
    partitions: int = 2
    suppresses: bool = False
    moves: bool = False
    is_partial: bool = False
    log: dict[Place, list[Record]] = field(default_factory=dict)
    starts: dict[Place, int] = field(default_factory=dict)
    seams: list[Seam] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    rows: dict[str, Record] = field(default_factory=dict)
    expired: int = 0
    compacted: bool = False
    repeated: str | None = None
    times: list[PartitionTimes] = field(default_factory=list)
    _next: dict[Place, int] = field(default_factory=dict)
    _greatest: dict[Place, int] = field(default_factory=dict)
    _batch_of: dict[tuple[Place, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.seams.append(Seam({(TOPIC, p): 0 for p in range(self.partitions)}))
        self.versions.append(1)
        self.times.append(PartitionTimes())

    def produce(self, count: int, users: int) -> None:
        for _ in range(count):
            user = f"u{self.chance.randrange(users)}"
            partition = (
                self.chance.randrange(self.partitions) if self.moves else int(user[1:]) % self.partitions
            )
            place = (TOPIC, partition)
            # Markers of transactions take offsets, too.
            offset = self._next.get(place, 0) + self.chance.choice((0, 0, 0, 1))
            kind = self.chance.random()
            score = None if kind < 0.25 else LARGE if kind < 0.35 else self.chance.randrange(4)
            if self.is_partial and score is not None and self.chance.random() < 0.4:
                score = KEPT
            time = self.chance.randrange(1000)
            greatest = self._greatest[place] = max(time, self._greatest.get(place, -1))
            record = Record(place, offset, time, user, score, kind > 0.95, greatest)
            self.log.setdefault(place, []).append(record)
            self._next[place] = offset + 1

    def ends(self) -> Seam:
        """Of the log, by partition."""
        return Seam({(TOPIC, p): self._next.get((TOPIC, p), 0) for p in range(self.partitions)})

    def commit(self) -> None:
        """Reads some more of each partition."""
        before, ends = self.seams[-1], {}
        for partition in range(self.partitions):
            place = (TOPIC, partition)
            low, high = before.get(place), self._next.get(place, 0)
            ends[place] = self.chance.choice((low, high, high, self.chance.randint(low, high)))
        self.seams.append(Seam(ends))
        self.versions.append(self.versions[-1])
        self.take_in(before, self.seams[-1])

    def take_in(self, before: Seam, ends: Seam) -> None:
        """Applies what lies between as one batch, the one of the last snapshot."""
        read = [
            record
            for place, records in self.log.items()
            for record in records
            if before.get(place) <= record.offset < ends.get(place)
        ]
        for record in read:
            self._batch_of[record.place, record.offset] = len(self.seams) - 1
        self.times.append(self.times[-1].advanced({record.place: record.greatest for record in read}))
        last: dict[tuple[str, Place], Record] = {}
        for record in read:
            if record.is_good(self.versions[-1]):
                last[record.user, record.place] = record
        for user in {user for user, _ in last}:
            winner = max((r for (u, _), r in last.items() if u == user), key=_rank)
            of_place = [one for one in read if (one.user, one.place) == (user, winner.place)]
            self._apply(self._laid_together(winner, of_place))

    def alter(self) -> None:
        """From here on a large score is good."""
        self.seams.append(self.seams[-1])
        self.versions.append(2)
        self.times.append(self.times[-1])

    def replay(self) -> None:
        """Applies records that were bad when they were read, where nothing newer of their key was read."""
        seam = self.seams[-1]
        for place, records in self.log.items():
            for record in records:
                batch = self._batch_of.get((place, record.offset), 0)
                was_bad = batch and not record.is_good(self.versions[batch])
                if not (was_bad and record.is_good(self.versions[-1]) and self.chance.random() < 0.5):
                    continue
                others = [
                    other
                    for some in self.log.values()
                    for other in some
                    if other.user == record.user
                    and other is not record
                    and other.offset < seam.get(other.place)
                    and (self.was_good(other) or self.rows.get(other.user) is other)
                ]
                if all(self._is_before(other, record) for other in others):
                    self._apply(record)

    def grow(self) -> None:
        self.partitions += 1

    def cut(self) -> None:
        """Retention takes the beginning of some partitions."""
        for place in list(self.log):
            start = self.chance.randint(0, self.seams[-1].get(place))
            self.starts[place] = start
            self.log[place] = [record for record in self.log[place] if record.offset >= start]

    def compact(self) -> None:
        """Only the last record of a key in a partition stays, and a tombstone may go, too."""
        self.compacted = True
        for place, records in self.log.items():
            last = {record.user: record.offset for record in records}
            self.log[place] = [
                record
                for record in records
                if last[record.user] == record.offset
                and (record.value is not None or self.chance.random() < 0.5)
            ]

    def expire(self) -> None:
        """The oldest snapshots go."""
        self.expired = self.chance.randint(1, len(self.seams) - 1)

    def reading(self) -> Reading:
        definition = definition_of(self.versions[-1], self.suppresses, self.is_partial)
        links, definitions = [], []
        for number in range(self.expired, len(self.seams)):
            state = SnapshotState(
                number, self.seams[number], 1, str(number), "c", {TOPIC: "t"}, self.versions[number], 0, 0,
                totals={"read": number}, partition_times=self.times[number],
            )  # fmt: skip
            snapshot: Any = SimpleNamespace(parent_snapshot_id=number - 1 if number else None)
            links.append(Link(snapshot, {}, state))
            definitions.append(_older(definition, self.versions[number]))
        earlier = sorted(set(self.versions[: self.expired + 1]))
        return reading_of(links, definitions, [_older(definition, one) for one in earlier], [], definition)

    def chunks(self) -> Sequence[RecordChunk]:
        return [
            RecordChunk(
                *place,
                [record.key for record in records],
                [record.value for record in records],
                [record.offset for record in records],
                [record.time for record in records],
            )
            for place, records in self.log.items()
            if records
        ]

    def table(self) -> pa.Table:
        definition = definition_of(self.versions[-1])
        schema = rows_schema(definition)
        again = [] if self.repeated is None else [(self.repeated, self.rows[self.repeated])]
        rows = [
            {
                "user": user,
                "score": None if row.score == NULL else row.score,
                "_kafka_topic": row.place[0],
                "_kafka_partition": row.place[1],
                "_kafka_offset": row.offset,
                "_kafka_timestamp": row.time * 1000,
            }
            for user, row in [*sorted(self.rows.items()), *again]
        ]
        plain = pa.schema([field for field in schema if field.name != "_key"])
        return with_keys(definition, pa.Table.from_pylist(rows, plain))

    def _laid_together(self, winner: Record, records: Sequence[Record]) -> Record:
        """The winner with what its partition's records came to."""
        score: int | None = KEPT
        for one in records:
            if one.is_good(self.versions[-1]):
                before = NULL if score is None else score
                score = before if one.score == KEPT else one.score
        return replace(winner, score=score) if winner.score == KEPT and score != KEPT else winner

    def _apply(self, record: Record) -> None:
        live = self.rows.get(record.user)
        if record.score == KEPT:
            record = replace(record, score=NULL if live is None else live.score)
        if record.score is None:
            self.rows.pop(record.user, None)
        elif not (self.suppresses and live is not None and live.score == record.score):
            self.rows[record.user] = record

    def was_good(self, record: Record) -> bool:
        batch = self._batch_of.get((record.place, record.offset), 0)
        return bool(batch) and record.is_good(self.versions[batch])

    def _is_before(self, other: Record, record: Record) -> bool:
        if other.place == record.place:
            return other.offset < record.offset
        batches = [self._batch_of[one.place, one.offset] for one in (other, record)]
        return batches[0] < batches[1] if batches[0] != batches[1] else _rank(other) < _rank(record)


def _older(definition: LiveTable, version: int) -> LiveTable:
    kind = Kind.INT if version == 1 else Kind.LONG
    columns = tuple(
        Column(one.name, ColumnType(kind), one.field_id) if one.name == "score" else one
        for one in definition.columns
    )
    return definition if columns == definition.columns else replace(definition, columns=columns)


def _rank(record: Record) -> tuple[int, str, int]:
    return (record.greatest, *record.place)
