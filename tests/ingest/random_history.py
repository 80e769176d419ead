"""Random histories of one key: a log, the batches that read it, and what was lost of both since.

The oracle of a replay is the same history with the candidate good when its batch read it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from tests.newest import newest
from thermocline.iceberg.reading import Incarnation, Reading
from thermocline.ingest.quarantine import SeenRecords
from thermocline.ingest.replay.judgement import Judgement, Origin, Outcome
from thermocline.ingest.replay.replay import Replay
from thermocline.kafka.facts import OffsetRange, RecordChunk, TopicConfig, TopicFacts
from thermocline.rules.column_types import ColumnType, Kind
from thermocline.rules.decode import decoder_for
from thermocline.rules.definition import Column, LiveTable
from thermocline.rules.keys import encode_one
from thermocline.rules.partition_time import PartitionTimes
from thermocline.rules.seam import Seam

DEFINITION = LiveTable.build(
    name="t",
    identifier="a.t",
    topics=["A", "B"],
    key=["k"],
    columns={"k": "int", "v": "string", "n": "long", "w": "string"},
    buckets=1,
)
EARLIER = replace(DEFINITION, columns=(*DEFINITION.columns[:2], Column("n", ColumnType(Kind.INT), 3)))
"""The definition before it was altered: ``n`` was an int, and there was no ``w``."""
WIDENED, OUTDATED = {"n": 2**40}, {"w": 5}
"""Fields of records that are good by one of the definitions alone: by the later one, and by the earlier."""
KEY = encode_one(DEFINITION, [1])
KEPT_MS = 60  # for which tombstones are kept
Place = tuple[str, int]


@dataclass(frozen=True)
class Surroundings:
    """What happens around the batches. Each of them may hide what a replay must know."""

    partitions: int = 2
    is_append_time: bool = False
    is_cut: bool = False
    is_expired: bool = False
    joins_later: bool = False
    suppresses: bool = False
    is_compacted: bool = False
    is_rebased: bool = False
    is_altered: bool = False
    is_late: bool = False
    """What bad records lacked when they were read, as their schema, is there by now."""


def reading_of_seams(
    seams: Sequence[Seam],
    begins: Seam | None = None,
    definitions: Sequence[LiveTable] = (),
    times: Sequence[PartitionTimes] = (),
) -> Reading:
    """Of snapshots of which the first is not the table's. ``begins``: of topics that joined on the way."""
    incarnations = {}
    for topic, partition, _ in seams[-1].items() if seams else ():
        place = (topic, partition)
        first = next(index for index, seam in enumerate(seams) if place in seam)
        begin = (begins or Seam()).get(place) if first else None
        incarnations[place] = Incarnation(begin, first, tuple(seam[place] for seam in seams[first:]))
    known = definitions or [DEFINITION] * len(seams)
    return Reading(
        seams[-1] if seams else Seam(), incarnations, known, (), is_whole=False, partition_times=tuple(times)
    )


@dataclass(eq=False)
class Record:
    """A record of the key. ``at_ms``: when it was appended; the spelling is of the key's bytes.

    ``is_bad``: by the definition of the batch that read it. ``is_kept_too``: it was bad when a batch that did
    not commit read it, and good when it was read again. ``more`` are fields beside the value.
    """

    topic: str
    offset: int
    timestamp_ms: int
    value: str | None
    is_bad: bool
    at_ms: int
    spelling: bytes
    partition: int = 0
    more: Mapping[str, int] = field(default_factory=dict)
    is_kept_too: bool = False
    partition_time_ms: int = -1

    @property
    def content(self) -> object:
        """What its row says; the earlier definition, which alone reads outdated fields, leaves them out."""
        return (self.value, self.more.get("n"))

    def shown(self, is_readable: bool) -> bytes | None:
        if not is_readable and not self.more:
            return b"oops"
        return None if self.value is None else json.dumps({"v": self.value, **self.more}).encode()

    def __repr__(self) -> str:
        bad = " bad" if self.is_bad else ""
        return f"{self.topic}@{self.offset} t={self.timestamp_ms} at={self.at_ms} {self.value}{bad}"


@dataclass
class RandomHistory:
    """One history, made from a seed; ``candidate`` is None where nothing was bad.

    ``row`` is that of the key as the table has it.
    """

    seed: int
    around: Surroundings
    batches: list[list[Record]] = field(default_factory=list)
    seams: list[Seam] = field(default_factory=list)
    drained_ms: list[int | None] = field(default_factory=list)
    definitions: list[LiveTable] = field(default_factory=list)
    times: list[PartitionTimes] = field(default_factory=list)
    row: Record | None = None
    begins: Seam = field(default_factory=Seam)
    first_known: int = 0
    candidate: Record | None = None
    now_ms: int = 0
    settled: list[Record] = field(default_factory=list)
    """What left the quarantine."""

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._places: list[Place] = [("A", 0), ("B", 0)][: self.around.partitions]
        self.log: dict[Place, list[Record]] = {place: [] for place in self._places}
        self.ends = dict.fromkeys(self._places, 0)
        self._greatest: dict[Place, int] = {}
        self._definition = EARLIER if self.around.is_altered else DEFINITION
        self._run()
        self.row = self.table()

    def table(self, taken_for_good: Collection[Record] = ()) -> Record | None:
        """The row of the key after all batches; with some bad records taken for good."""
        row: Record | None = None
        for batch in self.batches:
            good = [record for record in batch if not record.is_bad or record in taken_for_good]
            winner = newest(good) if good else None
            if winner is None or self._is_suppressed(winner, row):
                continue
            row = None if winner.value is None else winner
        return row

    def verdict(self, monkeypatch: pytest.MonkeyPatch) -> Judgement:
        """What a replay says of the candidate."""
        (verdict,) = self.replaying(monkeypatch).judge([self.kept()]).verdicts.values()
        return verdict

    def readable(self) -> list[Record]:
        """The records of the log that are in quarantine, and are good by now."""
        return [
            record
            for batch in self.batches
            for record in batch
            if record.is_kept_too or (record.is_bad and (self.around.is_late or record.more == WIDENED))
            if record in self.log[record.topic, 0]
        ]

    def kept(self, candidate: Record | None = None) -> dict[str, Any]:
        """A record, or the candidate, as the quarantine has it."""
        candidate = candidate or self.candidate
        assert candidate is not None
        return {
            "topic": candidate.topic,
            "topic_id": f"id of {candidate.topic}",
            "partition": 0,
            "offset": candidate.offset,
            "timestamp": datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=candidate.timestamp_ms),
            "key": candidate.spelling,
            "value": candidate.shown(is_readable=True),
            "headers": None,
        }

    def replaying(self, monkeypatch: pytest.MonkeyPatch) -> Replay:
        """A replay of this history: all its own, but for the log and the table's files."""
        row = self.row
        live = {} if row is None else {KEY: Origin(row.topic, 0, row.offset, row.timestamp_ms)}
        monkeypatch.setattr("thermocline.ingest.replay.evidence.read_ranges", self._read)
        monkeypatch.setattr("thermocline.ingest.replay.replay.live_rows", lambda *_: live)
        known = slice(self.first_known, None)
        stand_ins: dict[str, Any] = {
            "state": SimpleNamespace(cluster_id="c", topic_ids={}, seam=self.seams[-1]),
            "table": SimpleNamespace(io=None),
            "log": _Log(self),
            "clock": SimpleNamespace(now_ms=lambda: self.now_ms),
        }
        return Replay(
            definition=DEFINITION,
            client_config={},
            registry=None,
            reading=reading_of_seams(
                self.seams[known], self.begins, self.definitions[known], self.times[known]
            ),
            drained_ms=self.drained_ms[known],
            files={},
            decoder=decoder_for(DEFINITION),
            quarantined=self._quarantined(),
            progress=lambda _done, _total: None,
            **stand_ins,
        )

    def is_right(self, verdict: Judgement, candidate: Record, replayed: Collection[Record] = ()) -> bool:
        """Whether the table is after that verdict as it would be, had the record been good.

        ``replayed``: with others that were applied before.
        """
        wanted = self.table([*replayed, candidate])
        match verdict.outcome:
            case Outcome.APPLIED:
                applied = None if candidate.value is None else candidate
                return content_of(applied) == content_of(wanted)
            case Outcome.SUPERSEDED | Outcome.ALREADY_APPLIED:
                return content_of(self.row) == content_of(wanted)
            case _:
                return verdict.outcome is Outcome.REFUSED

    def _quarantined(self) -> SeenRecords:
        places = SeenRecords()
        for record in (one for batch in self.batches for one in batch):
            is_kept = record.is_bad or record.is_kept_too
            if is_kept and record in self.log[record.topic, 0] and record not in self.settled:
                places.add(f"id of {record.topic}", 0, record.offset)
        return places

    def _is_suppressed(self, winner: Record, row: Record | None) -> bool:
        is_same = row is not None and row.content == winner.content
        return self.around.suppresses and is_same

    def _run(self) -> None:
        choose, around = self._random, self.around
        count = choose.randint(1, 4)
        joins_at = choose.randint(1, count - 1) if around.joins_later and count > 1 else 0
        rebased_at = choose.randint(1, count - 1) if around.is_rebased and count > 1 else None
        altered_at = choose.randint(1, count) if around.is_altered else None
        known = [place for place in self._places if not (joins_at and place[0] == "B")]
        self._note(Seam(dict.fromkeys(known, 0)), None)
        read = dict.fromkeys(self._places, 0)
        for number in range(count):
            if number == altered_at:
                self._definition = DEFINITION
                self._note(self.seams[-1], None)
            if number == rebased_at:
                self.log["B", 0], self.ends["B", 0] = [], 0
                for _ in range(choose.randint(0, 3)):
                    self._append(("B", 0))
                read["B", 0] = choose.choice([0, self.ends["B", 0]])
                self._greatest.pop(("B", 0), None)
                self._note(Seam({place: read[place] for place in known}), None)
                self.first_known = len(self.seams) - 1
            if number == joins_at and joins_at:
                self._join(known, read)
            for place in self._places:
                for _ in range(choose.randint(0, 3 if around.is_altered else 2)):
                    self._append(place)
            self._batch(known, read, is_last=number == count - 1)
        self._lose()

    def _append(self, place: Place) -> None:
        choose = self._random
        self.now_ms += choose.randint(1, 9)
        is_hopeless = choose.random() < (0.1 if self.around.is_altered else 0.35)
        value = choose.choice([None, "x", "y"])
        more = {}
        if self.around.is_altered and value is not None and not is_hopeless:
            more = choose.choice([{}, WIDENED, WIDENED, OUTDATED])
        record = Record(
            topic=place[0],
            offset=self.ends[place],
            timestamp_ms=self.now_ms if self.around.is_append_time else choose.randint(1, 99),
            value=value,
            is_bad=is_hopeless,
            at_ms=self.now_ms,
            spelling=choose.choice([b'{"k":1}', b'{"k": 1}']) if self.around.is_compacted else b'{"k":1}',
            more=more,
            is_kept_too=self.around.is_late and not is_hopeless and choose.random() < 0.3,
        )
        self.log[place].append(record)
        self.ends[place] += 1

    def _join(self, known: list[Place], read: dict[Place, int]) -> None:
        """B joins: as a partition that grew, from 0, or as a topic that is added, from its start or end."""
        known.append(("B", 0))
        if self._random.random() < 0.5:
            return
        read["B", 0] = self._random.choice([0, self.ends["B", 0]])
        self.begins = Seam({("B", 0): read["B", 0]})
        self._note(self.seams[-1].advanced({("B", 0): read["B", 0]}), None)

    def _batch(self, known: Sequence[Place], read: dict[Place, int], is_last: bool) -> None:
        batch = []
        all_of_it = is_last or self._random.random() < 0.5
        for place in known:
            end = self.ends[place] if all_of_it else self._random.randint(read[place], self.ends[place])
            batch += [record for record in self.log[place] if read[place] <= record.offset < end]
            read[place] = end
        for record in sorted(batch, key=lambda one: one.offset):
            place = (record.topic, record.partition)
            self._greatest[place] = max(record.timestamp_ms, self._greatest.get(place, -1))
            record.partition_time_ms = self._greatest[place]
        for record in batch:
            record.is_bad |= record.more == (WIDENED if self._definition is EARLIER else OUTDATED)
        self.batches.append(batch)
        is_drained = all(read[place] == self.ends[place] for place in known)
        self._note(Seam({place: read[place] for place in known}), self.now_ms if is_drained else None)

    def _note(self, seam: Seam, drained_ms: int | None) -> None:
        self.seams.append(seam)
        self.drained_ms.append(drained_ms)
        self.definitions.append(self._definition)
        self.times.append(PartitionTimes(self._greatest))

    def _lose(self) -> None:
        choose, around = self._random, self.around
        stands = {id(record) for records in self.log.values() for record in records}
        bad = [record for batch in self.batches for record in batch if record.is_bad and id(record) in stands]
        if around.is_altered:
            bad = [record for record in bad if record.more == WIDENED]
        self.candidate = choose.choice(bad) if bad else None
        if around.is_expired:
            self.first_known = choose.randint(self.first_known, len(self.seams) - 1)
        self.now_ms += choose.choice([1, 1, KEPT_MS])
        if around.is_compacted:
            for place in self._places:
                for _ in range(choose.choice([0, 0, 0, 2])):
                    self._append(place)
                self._compact(place)
        end = self.seams[-1]
        cut = {place: choose.randint(0, end.get(place)) if around.is_cut else 0 for place in self._places}
        self.starts = Seam(cut)

    def _compact(self, place: Place) -> None:
        """Keep the last record of each key's bytes, and tombstones for their time, up to some offset."""
        cleaned = self._random.randint(0, self.ends[place])
        last = {one.spelling: one.offset for one in self.log[place] if one.offset < cleaned}
        old_ms = self.now_ms - KEPT_MS
        self.log[place] = [
            one
            for one in self.log[place]
            if one.offset >= cleaned
            or (one.offset == last[one.spelling] and (self._is_no_tombstone(one) or one.at_ms > old_ms))
        ]

    def _is_no_tombstone(self, record: Record) -> bool:
        return record.value is not None or (record.is_bad and record is not self.candidate)

    def _read(
        self, _config: Mapping[str, Any], ranges: Sequence[OffsetRange], _name: str
    ) -> Iterator[RecordChunk]:
        for wanted in ranges:
            assert wanted.first >= self.starts[wanted.topic, wanted.partition]
            found = [
                record
                for record in self.log[wanted.topic, wanted.partition]
                if wanted.first <= record.offset < wanted.end
            ]
            if found:
                yield RecordChunk(
                    wanted.topic,
                    wanted.partition,
                    [record.spelling for record in found],
                    [self._shown(record) for record in found],
                    [record.offset for record in found],
                    [record.timestamp_ms for record in found],
                )

    def _shown(self, record: Record) -> bytes | None:
        return record.shown(self.around.is_late or not record.is_bad or record is self.candidate)


def content_of(row: Record | None) -> object:
    """What a row says; None where there is none."""
    return None if row is None else row.content


class _Log:
    """What a replay asks of the cluster."""

    def __init__(self, history: RandomHistory) -> None:
        self._of = history

    def cluster_id(self) -> str:
        return "c"

    def describe(self, topics: Sequence[str]) -> dict[str, TopicFacts]:
        return {topic: TopicFacts(f"id of {topic}", 1) for topic in topics}

    def configs(self, topics: Sequence[str]) -> dict[str, TopicConfig]:
        around = self._of.around
        return {topic: TopicConfig(around.is_compacted, KEPT_MS, around.is_append_time) for topic in topics}

    def starts(self, _topics: Sequence[str]) -> Seam:
        return self._of.starts

    def bounds(self, topics: Sequence[str]) -> tuple[Seam, Seam]:
        return self.starts(topics), self.ends(topics)

    def ends(self, topics: Sequence[str]) -> Seam:
        return Seam({place: end for place, end in self._of.ends.items() if place[0] in topics})

    def offsets_at(self, topics: Sequence[str], epoch_ms: int) -> Seam:
        return Seam(
            {
                place: next((one.offset for one in self._of.log[place] if one.timestamp_ms >= epoch_ms), end)
                for place, end in self._of.ends.items()
                if place[0] in topics
            }
        )
