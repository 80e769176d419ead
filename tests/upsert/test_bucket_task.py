"""Rounds of random batches through the bucket task, on real files, against a plain dict."""

from __future__ import annotations

import errno
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlparse

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from tests.ingest.one_bucket import (
    DEFINITION,
    IO,
    Key,
    OneBucketTable,
    Record,
    live_rows,
    merge_by_row_groups,
    records_of,
)
from tests.tier import quick_or_full
from thermocline.iceberg.data_file import ROW_GROUP_ROWS
from thermocline.iceberg.deletes import read_deletes
from thermocline.iceberg.files import DataFile, local_path
from thermocline.iceberg.sparse_index import SparseIndex, load_sparse_index
from thermocline.rules.alteration import plan_alteration
from thermocline.rules.definition import LiveTable
from thermocline.rules.keys import encode_table
from thermocline.upsert import bucket_task
from thermocline.upsert.bucket_task import BucketResult, run_bucket_task
from thermocline.upsert.files_by_bucket import after_commit, by_bucket
from thermocline.upsert.probe import YOUNG_ROWS_MAX, probe
from thermocline.upsert.tiers import FANOUT, MERGED_BYTES_MAX


@pytest.fixture
def table(tmp_path: Path) -> OneBucketTable:
    return OneBucketTable(tmp_path)


@pytest.mark.parametrize("seed", range(4))
def test_the_files_hold_each_key_once_as_the_replay_of_all_batches_says(
    table: OneBucketTable, seed: int
) -> None:
    """Goal: probe, fold and deletes keep exactly the last value of each key.

    Method: twelve batches over a small key space, so that keys are updated, deleted and come back across
    many files and merged deletes; a dict replays them; every count is recomputed from the dict.
    """
    print(f"seed {seed}")
    rng = random.Random(seed)
    expected: dict[Key, str] = {}
    offset = 0
    for _ in range(12):
        batch: list[Record] = []
        for _ in range(rng.choice([1, 30, 6_000])):
            key = (rng.randrange(2), f"u{rng.randrange(60)}", f"k{rng.randrange(60)}")
            batch.append((offset, key, None if rng.random() < 0.2 else f"v{offset}"))
            offset += 1
        before = dict(expected)
        winners: dict[Key, str | None] = {key: value for _, key, value in batch}
        for key, value in winners.items():
            expected.pop(key, None) if value is None else expected.update({key: value})

        done = table.upsert(batch)

        absent = sum(value is None and key not in before for key, value in winners.items())
        counts = SimpleNamespace(applied=done.applied, superseded=done.superseded, unchanged=done.unchanged)
        assert counts == SimpleNamespace(
            applied=len(winners) - absent, superseded=len(batch) - len(winners), unchanged=absent
        )
        rows = live_rows(table.files)
        assert len(rows) == len(expected)
        assert dict(rows) == expected


def test_a_tombstone_for_an_absent_key_writes_nothing(table: OneBucketTable) -> None:
    done = table.upsert([(0, (1, "u1", "plan"), None)])
    assert (done.added, done.deletes, done.unchanged) == ((), {}, 1)


def test_a_row_that_was_already_deleted_is_not_deleted_again(table: OneBucketTable) -> None:
    key = (1, "u1", "plan")
    table.upsert([(0, key, "gold")])
    assert table.upsert([(1, key, None)]).applied == 1
    again = table.upsert([(2, key, None)])
    assert (again.applied, again.unchanged, again.deletes) == (0, 1, {})


def test_replaced_deletes_are_the_ones_that_the_new_deletes_contain(table: OneBucketTable) -> None:
    table.upsert([(offset, (1, "u1", key), "1") for offset, key in enumerate("abc")])
    first = table.upsert([(2, (1, "u1", "a"), None)])
    second = table.upsert([(3, (1, "u1", "b"), None)])
    (path,) = first.deletes
    assert second.replaced == {path: first.deletes[path]}
    assert sorted(read_deletes(IO, second.deletes[path])) == [0, 1]


def test_a_data_file_carries_the_first_key_of_each_of_its_row_groups(table: OneBucketTable) -> None:
    rows = 2 * ROW_GROUP_ROWS + 904
    done = table.upsert([(i, (1, f"u{i:05}", "plan"), "gold") for i in range(rows)])
    (added,) = done.added
    index = load_sparse_index(IO, added.path, DEFINITION)
    file = pq.ParquetFile(local_path(added.path))
    assert list(index.rows) == [ROW_GROUP_ROWS, ROW_GROUP_ROWS, 904]
    assert index.first_keys == [
        encode_table(DEFINITION, file.read_row_group(group)).to_pylist()[0] for group in range(3)
    ]


def test_a_file_without_an_index_of_ours_is_indexed_by_reading_it(tmp_path: Path) -> None:
    records = records_of([(i, (1, f"u{i:03}", "plan"), "gold") for i in range(100)])
    pq.write_table(
        records.select(DEFINITION.table_schema.names), tmp_path / "sorted.parquet", row_group_size=40
    )
    pq.write_table(records.slice(50), tmp_path / "tail.parquet")
    backwards = records.take(pa.array(range(99, -1, -1)))
    pq.write_table(backwards, tmp_path / "backwards.parquet", row_group_size=40)

    index = load_sparse_index(IO, (tmp_path / "sorted.parquet").as_uri(), DEFINITION)
    unsorted = load_sparse_index(IO, (tmp_path / "backwards.parquet").as_uri(), DEFINITION)

    assert (index.is_sorted, len(index.first_keys)) == (True, 3)
    assert not unsorted.is_sorted
    assert list(unsorted.candidates(b"", b"\x00")) == [0, 1, 2]


def test_a_file_that_another_writer_merged_by_row_groups_is_found_in_as_a_whole(
    table: OneBucketTable, tmp_path: Path
) -> None:
    """Such a writer gives the file the metadata of the first one, with an index of that one alone."""
    later = table.upsert([(i, (1, f"v{i:03}", "plan"), "gold") for i in range(100)])
    earlier = table.upsert([(i, (1, f"a{i:03}", "plan"), "gold") for i in range(100, 200)])
    merge_by_row_groups(tmp_path / "merged.parquet", [one.added[-1].path for one in (later, earlier)])

    merged = DataFile((tmp_path / "merged.parquet").as_uri(), 0, YOUNG_ROWS_MAX + 1, 0)
    index = load_sparse_index(IO, merged.path, DEFINITION)
    assert (len(index.first_keys), len(index.rows), index.is_sorted) == (2, 2, False)
    keys = encode_table(DEFINITION, pq.read_table(tmp_path / "merged.parquet")).sort()
    (found,) = probe(IO, DEFINITION, [merged], keys)
    assert len(found.positions) == len(keys)


def test_a_key_that_stands_several_times_is_in_all_its_row_groups() -> None:
    """As a row does, and deletes that are remembered of it."""
    index = SparseIndex([b"a", b"c", b"c", b"e"], np.full(4, 2, np.int64))
    assert list(index.candidates(b"c", b"c\x00")) == [0, 1, 2]
    assert index.groups_of([b"c"]) == [0, 1, 2]
    assert index.groups_of([b"d"]) == [2]
    assert index.groups_of([b"a", b"e"]) == [0, 2, 3]


def test_row_groups_that_cannot_hold_a_key_are_not_candidates(table: OneBucketTable) -> None:
    done = table.upsert([(i, (1, f"u{i:05}", "plan"), "gold") for i in range(3 * ROW_GROUP_ROWS)])
    (added,) = done.added
    index = load_sparse_index(IO, added.path, DEFINITION)
    first, second, third = index.first_keys
    assert index.groups_of([second + b"\x00"]) == [1]
    assert index.groups_of([first[:-1], third + b"\xff"]) == [2]
    assert index.groups_of([b""]) == []
    assert list(index.candidates(second + b"\x00", third)) == [1]
    assert list(index.candidates(first + b"\x00", None)) == [0, 1, 2]


def test_files_of_other_buckets_are_left_alone() -> None:
    other = DataFile("file:///x.parquet", bucket=7, rows=1, bytes=1)
    done = BucketResult(0)
    assert after_commit(by_bucket([other]), [done])[7] == [other]


def test_a_second_attempt_of_a_task_writes_files_of_its_own(table: OneBucketTable) -> None:
    """Spark may run a task again while, or after, its first attempt writes; only one result is committed."""
    table.upsert([(0, (1, "u1", "plan"), "gold"), (0, (1, "u2", "plan"), "gold")])
    before = table.files
    first = table.upsert([(1, (1, "u1", "plan"), "free")])
    table.files = before
    second = table.upsert([(1, (1, "u1", "plan"), "free")])
    paths = [done.added[0].path for done in (first, second)]
    paths += [deletes.path for done in (first, second) for deletes in done.deletes.values()]
    assert len(set(paths)) == 4


@pytest.mark.parametrize(("format_version", "files_made"), [(2, 0), (2, 1), (2, 2), (3, 0), (3, 1)])
def test_a_task_that_fails_while_it_writes_leaves_no_file(
    tmp_path: Path, format_version: int, files_made: int
) -> None:
    """Each attempt would leave some, until the disk is full. Method: the store ends after so many files."""

    class Full(PyArrowFileIO):
        made = 0

        def new_output(self, location: str) -> PyArrowFile:
            self.made += 1
            if self.made > files_made:
                Path(urlparse(location).path).touch()  # what was begun
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().new_output(location)

    definition = replace(DEFINITION, format_version=format_version)
    table = OneBucketTable(tmp_path, definition, merges=False)
    for offset in range(3):
        table.upsert([(offset, (1, f"u{offset}", key), "gold") for key in ("plan", "stays")])
    files = [replace(file, bytes=MERGED_BYTES_MAX + 1) for file in table.files[0]]
    before = sorted(tmp_path.rglob("*.*"))
    batch = records_of([(3 + number, (1, f"u{number}", "plan"), "free") for number in range(3)])
    with pytest.raises(OSError, match="No space"):
        run_bucket_task(Full(), definition, table.location, 0, files, batch)
    assert sorted(tmp_path.rglob("*.*")) == before


def test_a_table_without_a_key_looks_for_a_record_only_when_it_is_replayed(tmp_path: Path) -> None:
    """Goal: appending reads nothing, and a replayed record that is in the table is not in it twice."""
    definition = LiveTable.build(
        name="events",
        identifier="app.events",
        topics=["events"],
        key=[],
        key_from="value",
        buckets=1,
        columns={"value": "string"},
    )
    table = OneBucketTable(tmp_path, definition)

    def records(*offsets: int) -> pa.Table:
        count = len(offsets)
        events = pa.table(
            {
                "value": pa.array(["a"] * count, pa.string()),
                "_kafka_topic": pa.array(["events"] * count, pa.string()),
                "_kafka_partition": pa.array([0] * count, pa.int32()),
                "_kafka_offset": pa.array(offsets, pa.int64()),
                "_kafka_timestamp": pa.array([0] * count, pa.timestamp("us", "UTC")),
                "_tombstone": pa.array([False] * count, pa.bool_()),
            }
        )
        return events.append_column("_key", encode_table(definition, events)).cast(definition.records_schema)

    table.run(records(0, 1, 2))
    (file,) = table.files[0]
    table.files = by_bucket([replace(file, path="file:///nowhere.parquet")])
    assert table.run(records(3, 4)).deletes == {}

    table.files = by_bucket([file])
    replayed = run_bucket_task(IO, definition, table.location, 0, [file], records(2, 5), is_replay=True)
    assert [len(read_deletes(IO, deletes)) for deletes in replayed.deletes.values()] == [1]
    assert replayed.applied == 2


@pytest.mark.parametrize("format_version", [3, 2])
def test_many_small_batches_leave_few_files_that_hold_what_a_dict_does(
    tmp_path: Path, format_version: int
) -> None:
    """Goal: merging loses no row and brings none back, through updates, deletes and a later column."""
    definition = replace(DEFINITION, format_version=format_version)
    table = OneBucketTable(tmp_path, definition)
    rng = random.Random(format_version)
    expected: dict[Key, str] = {}
    carried = 0
    for number in range(quick_or_full(60, 400)):
        keys = [(1, f"u{rng.randrange(300):03}", f"k{rng.randrange(4)}") for _ in range(40)]
        batch: list[Record] = [
            (40 * number + at, key, None if rng.random() < 0.2 else f"v{number}")
            for at, key in enumerate(keys)
        ]
        for _, key, value in batch:
            expected.pop(key, None) if value is None else expected.update({key: value})
        before = len(live_rows(table.files))
        done = table.upsert(batch)
        carried += done.carried
        rows = live_rows(table.files)
        assert len(rows) == len(expected)
        assert dict(rows) == expected
        assert done.rows_gained() == len(rows) - before
        assert len(table.files[0]) <= 2 * FANOUT
        for file in table.files[0]:
            keys_stored = encode_table(definition, pq.read_table(local_path(file.path))).to_pylist()
            assert keys_stored == sorted(keys_stored)
    assert carried > 0


def test_rows_from_before_an_alteration_are_merged_as_the_table_is_defined_now(tmp_path: Path) -> None:
    """An int that became a long, and a column that was added later, which older rows have as null."""

    def definition_of(columns: dict[str, str]) -> LiveTable:
        return LiveTable.build(
            name="t", identifier="a.t", topics=["t"], key=["id"], buckets=1, columns=columns
        )

    earlier = definition_of({"id": "int", "count": "int"})
    wanted = definition_of({"id": "int", "count": "long", "note": "string"})
    later = plan_alteration(earlier, wanted).definition

    def records(definition: LiveTable, number: int, **values: object) -> pa.Table:
        row = {"id": number, **values, "_kafka_topic": "t", "_kafka_partition": 0, "_kafka_offset": number}
        row |= {"_kafka_timestamp": 0, "_tombstone": False}
        plain = pa.schema([field for field in definition.records_schema if field.name != "_key"])
        known = pa.Table.from_pylist([row], plain)
        return known.append_column("_key", encode_table(definition, known))

    table = OneBucketTable(tmp_path, earlier)
    for number in range(2):
        table.run(records(earlier, number, count=number))
    table.definition = later
    carried = [table.run(records(later, number, count=2**40, note="new")).carried for number in range(2, 4)]
    assert carried == [0, 3]
    (file,) = table.files[0]
    rows = pq.read_table(local_path(file.path), columns=["id", "count", "note"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        (0, 0, None),
        (1, 1, None),
        (2, 2**40, "new"),
        (3, 2**40, "new"),
    ]


def test_files_that_are_too_large_unpacked_stay_with_their_deletes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: values that repeat pack well, and must not fill the memory of a task."""
    monkeypatch.setattr(bucket_task, "MERGED_MEMORY_BYTES", 20_000)
    table = OneBucketTable(tmp_path)
    expected: dict[Key, str] = {}
    for number in range(8):
        batch: list[Record] = [(100 * number + at, (1, f"u{at}", f"{number}"), "x" * 500) for at in range(50)]
        batch.append((100 * number + 50, (1, "u0", f"{number - 1}"), None))
        for _, key, value in batch:
            expected.pop(key, None) if value is None else expected.update({key: value})
        assert table.upsert(batch).carried == 0
        rows = live_rows(table.files)
        assert len(rows) == len(expected)
        assert dict(rows) == expected
    assert len(table.files[0]) == 8
