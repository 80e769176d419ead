"""Columns of every type, in files, hot tier and lookups, are what the log says, and differ when not."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from tests.manual_clock import ManualClock
from thermocline.iceberg.catalog import SnapshotState
from thermocline.iceberg.data_file import write_data_file
from thermocline.iceberg.files import DataFile
from thermocline.iceberg.lineage import Link
from thermocline.iceberg.reading import Reading, reading_of
from thermocline.kafka.facts import RecordChunk, TopicRecords
from thermocline.rules.decode import decoder_for
from thermocline.rules.definition import KEY, LiveTable
from thermocline.rules.fold import winners
from thermocline.rules.read_point import ReadPoint
from thermocline.rules.seam import Seam
from thermocline.serving.hot.pinned import hold
from thermocline.serving.hot.tier import HotTier
from thermocline.verify.entities import Entities, parameters_of
from thermocline.verify.log_decode import LogDecoder
from thermocline.verify.overlay_check import extract_findings, hot_findings, unpacked
from thermocline.verify.report import Report
from thermocline.verify.sample import entities_of
from thermocline.verify.staging import EXTRACT, HOT, LOG, MEMORY_BYTES_MIN, STORED, Staging
from thermocline.verify.table_check import TableCheck
from thermocline.verify.table_rows import bucket_rows
from thermocline.verify.unconfirmed import UnconfirmedFindings

DEFINITION = LiveTable.build(
    name="kinds",
    identifier="app.kinds",
    topics=["kinds"],
    key=["id", "raw", "day", "number"],
    entity=["id", "raw"],
    buckets=1,
    columns={
        "id": "uuid",
        "raw": "binary",
        "day": "date",
        "number": "long",
        "text": "string",
        "other_id": "uuid",
        "other_raw": "binary",
        "other_day": "date",
        "small": "int",
        "large": "long",
        "ratio": "double",
        "price": "decimal(12,3)",
        "flag": "boolean",
        "at": "timestamptz",
        "local": "timestamp",
        "clock": "time",
        "nested": "list<struct<id: uuid, of: map<string, double>>>",
    },
)
END = 40
PLACE = ("kinds", 0)
IO = PyArrowFileIO()


def chunk(changed: int | None = None, within: str = "ratio") -> RecordChunk:
    """Upserts of 20 keys, each twice, some as tombstones; at the offset ``changed`` a zero has another sign.

    ``within`` is the column that has it.
    """
    keys, values = [], []
    for offset in range(END):
        number = offset % 20
        key = {
            "id": str(UUID(int=number)),
            "raw": base64.b64encode(b"\x00\xff%d" % number).decode(),
            "day": f"2026-01-{number + 1:02}",
            "number": -number,
        }
        value: dict[str, Any] | None = {
            "text": f"naïve \u0000 {offset}",
            "other_id": str(UUID(int=offset)),
            "other_raw": base64.b64encode(b"%d" % offset).decode(),
            "other_day": "1969-12-31",
            "small": -offset,
            "large": 2**40 + offset,
            "ratio": -0.0 if (offset, within) != (changed, "ratio") else 0.0,
            "price": 12.125,
            "flag": offset % 2 == 0,
            "at": "2026-03-01T12:00:00.000001Z",
            "local": "2026-03-01T12:00:00.000001",
            "clock": "23:59:59.000001",
            "nested": [
                {
                    "id": str(UUID(int=offset)),
                    "of": {"a": -0.0 if (offset, within) != (changed, "nested") else 0.0},
                },
                None,
            ],
        }
        if offset % 7 == 3:
            value = {}
        keys.append(json.dumps(key).encode())
        values.append(None if offset % 9 == 5 else json.dumps(value).encode())
    offsets = list(range(END))
    return RecordChunk(*PLACE, list(keys), list(values), offsets, [1_000 + offset for offset in offsets])


def reading(seam: int) -> Reading:
    ids = {"kinds": "k"}
    states = [
        SnapshotState(number, Seam({PLACE: end}), 1, str(number), "c", ids, 1, 0, 0, totals={"read": end})
        for number, end in enumerate([0, seam])
    ]
    parents = (None, 0)
    links = [
        Link(SimpleNamespace(parent_snapshot_id=parent), {}, state)  # type: ignore[arg-type]
        for parent, state in zip(parents, states, strict=True)
    ]
    return reading_of(links, [DEFINITION] * 2, [DEFINITION], [], DEFINITION)


@contextmanager
def staged(seam: int, hot_end: int = END) -> Iterator[Staging]:
    """All of the log, staged by a table that has read it up to a seam, and a hot tier up to its own end."""
    cuts = [Seam({PLACE: END}), Seam({PLACE: hot_end})]
    with closing(Staging(None, DEFINITION, MEMORY_BYTES_MIN)) as staging:
        staging.add(LOG, LogDecoder(reading(seam), cuts).decode(chunk()))
        yield staging


def stored(folder: Path, seam: int, changed: int | None = None, within: str = "ratio") -> pa.Table:
    """The rows of a data file that holds all before a seam, as verify reads them."""
    records = LogDecoder(reading(seam), []).decode(chunk(changed, within)).slice(0, seam)
    last = winners(records)
    rows = last.filter(pc.invert(last.column("_tombstone"))).sort_by(KEY)
    path = (folder / "rows.parquet").as_uri()
    write_data_file(IO, path, DEFINITION, rows)
    (pieces,) = [pa.concat_tables(bucket_rows(IO, DEFINITION, [DataFile(path, 0, rows.num_rows, 0)]))]
    return pieces


def checked(rows: pa.Table, seam: int, hot_end: int = END) -> Report:
    report = Report("kinds")
    unconfirmed = UnconfirmedFindings(set(), is_by_value=False, report=report)
    check = TableCheck(reading(seam), {PLACE: 0}, set(), set(), report, unconfirmed)
    with staged(seam, hot_end) as staging:
        staging.add(STORED, rows)
        check.check(staging)
    return report


@pytest.mark.parametrize("seam", [20, 30, END])
def test_rows_in_files_are_what_the_log_says(tmp_path: Path, seam: int) -> None:
    rows = stored(tmp_path, seam)
    report = checked(rows, seam)
    assert report.findings == []
    assert report.agreed == rows.num_rows > 10


def test_a_hot_tier_that_is_behind_the_table_hides_none_of_the_table_s_records(tmp_path: Path) -> None:
    report = checked(stored(tmp_path, 30), 30, hot_end=22)
    assert report.findings == []


@pytest.mark.parametrize("within", ["ratio", "nested"])
def test_a_zero_of_another_sign_is_another_value(tmp_path: Path, within: str) -> None:
    report = checked(stored(tmp_path, 20, 7, within), 20)
    assert report.counts == {"row-differs": 1}
    assert report.findings[0].key is not None
    assert report.findings[0].key["id"] == UUID(int=7)


@pytest.mark.parametrize("changed", [None, 33])
def test_the_hot_tier_and_an_extract_are_what_the_log_says(tmp_path: Path, changed: int | None) -> None:
    seam, clock = Seam({PLACE: 20}), ManualClock()
    tier = HotTier.open(tmp_path / "hot", DEFINITION, Seam({PLACE: 0}), clock)
    pin = hold(tmp_path / "hot", "kinds", 1, seam, clock)
    fed = chunk(changed)
    decoded = decoder_for(DEFINITION).decode(fed.keys, fed.values)
    clock.advance(1)
    tier.append([(TopicRecords.of(fed), decoded)], Seam({PLACE: END}), {})
    tier.seal()
    with pin.open(1) as hot:
        scanned = hot.scan(0, seam)
    tier.close()
    point, rows = ReadPoint(1, seam, Seam({PLACE: END})), stored(tmp_path, 20)
    hot_rows = winners(LogDecoder(reading(20), []).decode(chunk()).slice(20))
    shown = hot_rows.filter(pc.invert(hot_rows.column("_tombstone")))
    for missing in (0, 1):
        with staged(20) as staging:
            staging.add(STORED, rows)
            staging.add(HOT, *unpacked(DEFINITION, scanned))
            staging.add(EXTRACT, shown.slice(missing))
            staging.reduce_log()
            assert staging.count(HOT) == 20
            found = list(hot_findings(staging, Seam({PLACE: END})))
            assert [one.finding.code for one in found] == (["hot-differs"] if changed else [])
            lost = list(extract_findings(staging, point))
            assert [(one.finding.code, one.origin) for one in lost] == [("extract-differs", None)] * missing


def test_answers_in_json_are_what_the_log_says(tmp_path: Path) -> None:
    kept = Entities(DEFINITION, reading(20))
    kept.take_rows(stored(tmp_path, 20))
    records = LogDecoder(reading(20), []).decode(chunk())
    kept.take_records(records.filter(pa.array(records.column("_segment").to_numpy() > 0)))
    point = ReadPoint(1, Seam({PLACE: 20}), Seam({PLACE: END}))
    entities = entities_of(DEFINITION, records.slice(0, 20)).to_pylist()
    answered = 0
    for number, entity in enumerate(entities):
        key = json.loads(chunk().keys[20 + number] or b"")
        assert parameters_of(DEFINITION, entity) == {"id": key["id"], "raw": key["raw"]}
        value = chunk().values[20 + number]
        answer = [] if value is None else [answer_of(key, json.loads(value))]
        assert kept.judge(entity, answer, point, lambda _: None) is None
        answered += bool(answer)
    assert answered == 18


def answer_of(key: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    """What a lookup says of a record: as it was sent, but for decimals, which are text."""
    row = {column.name: {**key, **value}.get(column.name) for column in DEFINITION.columns}
    return {**row, "price": None if row["price"] is None else f"{row['price']:.3f}"}
