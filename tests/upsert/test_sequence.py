"""Tables that a column orders, in bucket tasks: an older event loses, also against a delete that is gone."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests.ingest.one_bucket import IO, OneBucketTable
from tests.tier import quick_or_full
from thermocline.iceberg import data_file
from thermocline.iceberg.deletes import read_deletes
from thermocline.iceberg.rows import live_rows
from thermocline.iceberg.tombstones import load_tombstones
from thermocline.rules.decode import decoder_for, records_table
from thermocline.rules.definition import LiveTable
from thermocline.upsert import probe
from thermocline.upsert.sequence import forgotten_before_ms

HOUR_MS = 3_600_000
Event = tuple[int, int, str | None]
"""A key, a sequence, and the value; None deletes."""

DEFINITION = LiveTable.build(
    name="t",
    identifier="a.t",
    topics=["t"],
    key=["id"],
    columns={"id": "long", "version": "long", "text": "string"},
    buckets=1,
    delete_when={"path": "op", "values": ["D"]},
    sequence_by=["version"],
    tombstone_retention_hours=2,
)


def records_of(
    definition: LiveTable, events: Sequence[Event], first_offset: int, time_ms: int = 0
) -> pa.Table:
    keys = [json.dumps({"id": key}).encode() for key, _, _ in events]
    values = [
        json.dumps({"version": version} | ({"op": "D"} if text is None else {"text": text})).encode()
        for _, version, text in events
    ]
    decoded = decoder_for(definition).decode(keys, values)
    assert not decoded.bad
    offsets = range(first_offset, first_offset + len(events))
    return records_table(definition, decoded, "t", 0, offsets, [time_ms] * len(events))


def rows_of(table: OneBucketTable) -> dict[int, tuple[int, str]]:
    rows = []
    for file in table.files.get(0, ()):
        deleted = read_deletes(IO, file.deletes) if file.deletes else None
        for piece in live_rows(IO, table.definition, file.path, deleted):
            rows += piece.to_pylist()
    found = {row["id"]: (row["version"], row["text"]) for row in rows}
    assert len(found) == len(rows), "a key is live twice"
    return found


def remembered(table: OneBucketTable) -> int:
    return sum(len(load_tombstones(IO, file.path).positions) for file in table.files.get(0, ()))


@pytest.mark.parametrize("format_version", [2, 3])
@pytest.mark.parametrize("merges", [True, False])
@pytest.mark.parametrize("seed", range(quick_or_full(2, 3)))
def test_the_rows_are_those_of_a_dict_that_keeps_the_highest_sequence(
    tmp_path: Path, seed: int, merges: bool, format_version: int
) -> None:
    """Goal: whatever the order of events, and wherever batches end, late ones lose, deletes included.

    Method: random batches over few keys and sequences, small enough that files are merged all the time.
    """
    print(f"seed {seed}")
    draw = random.Random(seed)
    definition = replace(DEFINITION, format_version=format_version)
    table = OneBucketTable(tmp_path, definition, merges)
    state: dict[int, tuple[int, str | None]] = {}
    offset = 0
    for _ in range(40):
        events: list[Event] = []
        for _ in range(draw.randrange(1, 12)):
            text = None if draw.random() < 0.4 else f"v{draw.randrange(3)}"
            event = (draw.randrange(8), draw.randrange(60), text)
            events.append(event)
            if event[1] >= state.get(event[0], (-1, None))[0]:
                state[event[0]] = event[1:]
        done = table.run(records_of(definition, events, offset))
        offset += len(events)
        assert done.applied + done.superseded + done.unchanged == len(events)
        expected = {key: value for key, value in state.items() if value[1] is not None}
        assert rows_of(table) == expected


def test_a_delete_is_remembered_for_as_long_as_the_table_says(tmp_path: Path) -> None:
    """Method: each batch joins the files of those before; of one file, one delete is older than another."""
    table = OneBucketTable(tmp_path, DEFINITION)
    table.run(records_of(DEFINITION, [(1, 5, "old"), (2, 5, "other")], 0))
    table.run(records_of(DEFINITION, [(1, 9, None)], 2))
    table.run(records_of(DEFINITION, [(2, 9, None)], 3, 2 * HOUR_MS))
    for offset in range(4, 12):
        table.run(records_of(DEFINITION, [(1, 8, "late"), (offset, 1, "new")], offset, 2 * HOUR_MS))
    assert not {1, 2} & rows_of(table).keys()
    assert remembered(table) == 2
    for offset in range(12, 20):
        table.run(records_of(DEFINITION, [(offset, 1, "new")], offset, 2 * HOUR_MS + 1))
    assert remembered(table) == 1
    table.run(records_of(DEFINITION, [(1, 8, "late"), (2, 8, "late")], 20, 2 * HOUR_MS + 1))
    assert rows_of(table)[1] == (8, "late")
    assert 2 not in rows_of(table)


def test_deletes_are_forgotten_by_the_oldest_record_of_a_batch() -> None:
    """Goal: a late upsert that comes beside a new record still meets the delete that it must lose against."""
    old_ms, new_ms = 1_767_225_600_000, 1_767_312_000_000  # a day apart
    batch = pa.concat_tables(
        [
            records_of(DEFINITION, [(1, 1, "new")], 0, new_ms),
            records_of(DEFINITION, [(2, 1, "late")], 1, old_ms),
        ]
    )
    assert forgotten_before_ms(DEFINITION, batch, now_ms=new_ms) == 1_767_218_400_000  # 2 h before


def test_no_delete_is_forgotten_for_a_producer_whose_clock_is_fast(tmp_path: Path) -> None:
    """Method: all records of each batch seem to come ten years from now, and each batch merges files."""
    table = OneBucketTable(tmp_path, DEFINITION)
    now_ms = time.time_ns() // 1_000_000
    table.run(records_of(DEFINITION, [(1, 9, None)], 0, now_ms))
    for offset in range(1, 9):
        table.run(records_of(DEFINITION, [(1 + offset, 1, "new")], offset, now_ms + 87_600 * HOUR_MS))
    table.run(records_of(DEFINITION, [(1, 8, "late")], 9, now_ms))
    assert 1 not in rows_of(table)


def test_a_delete_may_come_before_what_it_deletes(tmp_path: Path) -> None:
    table = OneBucketTable(tmp_path, DEFINITION)
    deleted = table.run(records_of(DEFINITION, [(1, 5, None)], 0))
    late = table.run(records_of(DEFINITION, [(1, 4, "late")], 1))
    assert rows_of(table) == {}
    assert (deleted.applied, late.superseded) == (1, 1)
    table.run(records_of(DEFINITION, [(1, 5, "same sequence, and later")], 2))
    assert rows_of(table) == {1: (5, "same sequence, and later")}


@pytest.mark.parametrize("seed", range(3))
def test_a_key_is_found_also_where_its_row_and_its_deletes_are_in_several_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Method: row groups of two rows, all files taken for large, and few keys, written and deleted."""
    monkeypatch.setattr(data_file, "ROW_GROUP_ROWS", 2)
    monkeypatch.setattr(probe, "YOUNG_ROWS_MAX", 0)
    draw = random.Random(seed)
    table = OneBucketTable(tmp_path, DEFINITION)
    expected: dict[int, tuple[int, str]] = {}
    for version in range(60):
        key, text = draw.randrange(4), None if draw.random() < 0.5 else f"v{version}"
        table.run(records_of(DEFINITION, [(key, version, text)], version))
        expected.pop(key, None)
        if text is not None:
            expected[key] = (version, text)
        assert rows_of(table) == expected
