"""One key in several partitions: whichever way a log is read, wherever it is cut, the same record wins."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.manual_clock import ManualClock
from thermocline.ingest.batch.accounting import greatest_times
from thermocline.ingest.batch.plan import Batch, plan_batch, split_for_tasks
from thermocline.ingest.batch.read_task import REPORT_BUCKET, KafkaRanges, ReadReport, ReadTask, run_read_task
from thermocline.kafka.facts import OffsetRange, RecordChunk, TopicRecords
from thermocline.rules.decode import decoder_for
from thermocline.rules.definition import KEY, TOMBSTONE, LiveTable
from thermocline.rules.fold import fold, overlay
from thermocline.rules.keys import encode_one
from thermocline.rules.partition_time import PartitionTimes
from thermocline.rules.seam import Seam
from thermocline.serving.hot.tier import HotTier
from thermocline.serving.hot.view import HotReader

DEFINITION = LiveTable.build(
    name="t",
    identifier="a.t",
    topics=["a", "b"],
    key=["k"],
    columns={"k": "int", "v": "int"},
    buckets=1,
    on_error="skip",
)
KEYS = {encode_one(DEFINITION, [key]): key for key in range(3)}
RECORDS_AT_ONCE = 3

Place = tuple[str, int]
Rows = Mapping[int, int]


@dataclass(frozen=True)
class Record:
    """``v`` is None for a delete; one that is bad counts with its time alone."""

    k: int
    v: int | None
    time_ms: int
    is_bad: bool = False


Log = Mapping[Place, Sequence[Record]]

PLACES = [("a", 0), ("a", 1), ("b", 0)]
START = Seam(dict.fromkeys(PLACES, 0))
RECORDS = st.builds(
    Record,
    k=st.sampled_from(sorted(KEYS.values())),
    v=st.none() | st.integers(0, 99),
    time_ms=st.integers(-1, 9),  # in any order: clocks are slow and fast
    is_bad=st.sampled_from([False, False, False, True]),
)
LOGS = st.fixed_dictionaries({place: st.lists(RECORDS, max_size=8) for place in PLACES})


def rows_of(log: Log, end: Seam, first: Seam = START, rows: Rows | None = None) -> Rows:
    """The oracle: what lies between of the log, at once, over rows; said as plainly as the rule is."""
    won: dict[int, tuple[tuple[int, str, int, int], int | None]] = {}
    for (topic, partition), records in log.items():
        last: dict[int, tuple[tuple[int, str, int, int], int | None]] = {}
        greatest_ms = -1
        for offset, record in enumerate(records[: end.get((topic, partition))]):
            greatest_ms = max(greatest_ms, record.time_ms)
            if not record.is_bad and offset >= first.get((topic, partition)):
                last[record.k] = (greatest_ms, topic, partition, offset), record.v
        for key, one in last.items():
            won[key] = max(one, won.get(key, one), key=lambda one: one[0])
    after = dict(rows or {}) | {key: v for key, (_, v) in won.items()}
    return {key: v for key, v in after.items() if v is not None}


def chunks_of(log: Log, ranges: Sequence[OffsetRange]) -> Iterator[RecordChunk]:
    for one in ranges:
        for first in range(one.first, one.end, RECORDS_AT_ONCE):
            offsets = range(first, min(first + RECORDS_AT_ONCE, one.end))
            records = [log[one.topic, one.partition][offset] for offset in offsets]
            yield RecordChunk(
                one.topic,
                one.partition,
                [json.dumps({"k": record.k}).encode() for record in records],
                [
                    b"{"
                    if record.is_bad
                    else None
                    if record.v is None
                    else json.dumps({"v": record.v}).encode()
                    for record in records
                ],
                list(offsets),
                [record.time_ms for record in records],
            )


@dataclass
class Ingested:
    """A table that takes a log in, batch by batch, as its owner does; after each, what it says."""

    log: Log
    tasks: int
    seams: list[Seam] = field(default_factory=lambda: [START])
    times: list[PartitionTimes] = field(default_factory=lambda: [PartitionTimes()])
    rows: list[Rows] = field(default_factory=lambda: [{}])

    def run(self, records_max: int, ends: Seam | None = None) -> None:
        """Takes in what there is: all of the log, or as much as there was at a moment."""
        ends = ends or ends_of(self.log)
        while self.seams[-1] != ends:
            self._commit(plan_batch(self.seams[-1], ends, records_max, self._offsets_at))

    def _offsets_at(self, at_ms: int) -> Seam:
        return Seam(
            {
                place: next((at for at, one in enumerate(records) if one.time_ms >= at_ms), len(records))
                for place, records in self.log.items()
            }
        )

    def _commit(self, batch: Batch) -> None:
        records, reports = self._read(batch, times=None)
        folded = fold(records)
        if folded.conflicts:
            records, reports = self._read(batch, self.times[-1])
            folded = fold(records)
        rows = dict(self.rows[-1])
        for row in folded.winners.to_pylist():
            rows.pop(row["k"], None)
            if not row[TOMBSTONE]:
                rows[row["k"]] = row["v"]
        self.rows.append(rows)
        self.seams.append(batch.end)
        self.times.append(self.times[-1].advanced(greatest_times(batch, reports)))

    def _read(self, batch: Batch, times: PartitionTimes | None) -> tuple[pa.Table, list[ReadReport]]:
        log: Any = self.log
        nothing: Any = None
        task = ReadTask(DEFINITION, log, nothing, nothing, "", {"a": "a", "b": "b"}, partition_times=times)
        tables, reports = [DEFINITION.records_schema.empty_table()], []
        for some in split_for_tasks(batch.ranges, self.tasks, may_cut=times is None):
            for packed in run_read_task([task], KafkaRanges([some]), 0):
                for _, bucket, stream in zip(*(column.to_pylist() for column in packed.columns), strict=True):
                    if bucket == REPORT_BUCKET:
                        reports.append(msgspec.msgpack.decode(stream, type=ReadReport))
                    else:
                        tables.append(pa.ipc.open_stream(stream).read_all())
        assert not any(report.error for report in reports)
        return pa.concat_tables(tables if len(tables) == 1 else tables[1:]), reports


def ends_of(log: Log) -> Seam:
    return Seam({place: len(records) for place, records in log.items()})


def hot_rows(reader: HotReader, seam: Seam) -> tuple[dict[bytes, int | None], dict[bytes, int | None]]:
    """The winners beyond a seam, as lookups see them, and as extracts do; None where one deletes its row."""
    with reader.view() as view:
        found, scanned = view.lookup(0, b"", seam), view.scan(0, seam)
    payloads = dict(zip(scanned.column(KEY).to_pylist(), scanned.column("payload").to_pylist(), strict=True))
    return (
        {key: None if row is None else value_of(row.payload) for key, row in found.items()},
        {key: value_of(payload) if payload else None for key, payload in payloads.items()},
    )


def value_of(payload: bytes) -> int:
    (value,) = msgspec.msgpack.decode(payload)
    return int(value)


def fed(folder: Path, log: Log, start: Seam, times: PartitionTimes, end: Seam) -> HotTier:
    """A hot tier with [start, end) of the log: its tailer ends in between, and another one goes on."""
    middle = Seam({place: (start.get(place) + end.get(place)) // 2 for place in PLACES})
    tier = HotTier.open(folder, DEFINITION, start, ManualClock(), partition_times=times)
    _append(tier, log, middle)
    tier.close()
    tier = HotTier.open(folder, DEFINITION, start, ManualClock(), partition_times=times)
    _append(tier, log, end)
    return tier


def _append(tier: HotTier, log: Log, until: Seam) -> None:
    ranges = [OffsetRange(*place, tier.end.get(place), until.get(place)) for place in PLACES]
    for chunk in chunks_of(log, ranges):
        reached = Seam({(chunk.topic, chunk.partition): chunk.offsets[-1] + 1})
        decoded = decoder_for(DEFINITION).decode(chunk.keys, chunk.values)
        tier.append([(TopicRecords.of(chunk), decoded)], reached, {})
    tier.append([], until, {})


@pytest.fixture
def is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read tasks read the log that stands in the client's configuration."""
    monkeypatch.setattr(
        "thermocline.ingest.batch.read_task.read_ranges", lambda config, ranges, _: chunks_of(config, ranges)
    )


def check_hot(ingested: Ingested, data: st.DataObject) -> None:
    """A hot tier from a snapshot on, laid over it or a later one up to some end, is what the oracle says."""
    log = ingested.log
    number = data.draw(st.integers(0, len(ingested.seams) - 1), "snapshot")
    opened_at = data.draw(st.integers(0, number), "tier opened at")
    seam, cold = ingested.seams[number], ingested.rows[number]
    end = Seam({p: data.draw(st.integers(seam.get(p), len(records))) for p, records in log.items()})
    with TemporaryDirectory() as folder:
        tier = fed(Path(folder), log, ingested.seams[opened_at], ingested.times[opened_at], end)
        reader = HotReader.open(Path(folder), DEFINITION)
        encoded = {encode_one(DEFINITION, [key]): v for key, v in cold.items()}
        for hot in hot_rows(reader, seam):
            shown = {KEYS[key]: v for key, v in overlay(encoded, hot).items()}
            assert shown == rows_of(log, end, seam, cold)
        reader.close()
        tier.close()


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])  # it opens files
@given(LOGS, st.integers(1, 25), st.integers(1, 4), st.data())
def test_the_same_record_wins_wherever_the_log_is_cut_and_whatever_it_is_read_by(
    is_read: None, log: Log, records_max: int, tasks: int, data: st.DataObject
) -> None:
    """Goal: rows follow from the log alone. Method: batches of any size, the log laid over any of them."""
    ingested = Ingested(log, tasks)
    ingested.run(records_max)
    for before, seam, rows in zip([START, *ingested.seams], ingested.seams, ingested.rows, strict=False):
        assert rows == rows_of(log, seam)
        assert rows == rows_of(log, seam, before, rows_of(log, before))
    check_hot(ingested, data)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])  # it opens files
@given(LOGS, st.integers(1, 25), st.integers(1, 4), st.data())
def test_what_comes_after_a_commit_counts_as_later_and_hot_as_it_will_be_committed(
    is_read: None, log: Log, records_max: int, tasks: int, data: st.DataObject
) -> None:
    """Method: the log is taken in as it was at some moments, whatever times came by then."""
    ingested = Ingested(log, tasks)
    for _ in range(3):
        seam = ingested.seams[-1]
        until = {p: data.draw(st.integers(seam.get(p), len(records))) for p, records in log.items()}
        ingested.run(records_max, Seam(until))
    expected: Rows = {}
    for before, seam, rows in zip([START, *ingested.seams], ingested.seams, ingested.rows, strict=False):
        expected = rows_of(log, seam, before, expected)
        assert rows == expected
    check_hot(ingested, data)


@pytest.mark.parametrize("records_max", [1, 3, 100])
def test_of_records_with_slow_clocks_the_one_that_its_partition_was_given_last_wins(
    records_max: int, is_read: None
) -> None:
    """A key moves from a/0 to a/1, where a producer's clock is slow: written down by hand."""
    log = {
        ("a", 0): [Record(0, 1, 5), Record(1, 1, 5), Record(2, 1, 5)],
        ("a", 1): [Record(0, 2, 6), Record(1, 2, 6), Record(0, 3, 1), Record(1, None, 1)],
        ("b", 0): [],
    }
    ingested = Ingested(log, tasks=1)
    ingested.run(records_max)
    assert ingested.rows[-1] == {0: 3, 2: 1}
