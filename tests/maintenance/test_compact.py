"""Compaction beside batches, on real files, against a plain dict."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.ingest.one_bucket import DEFINITION, IO, Key, OneBucketTable, Record, live_rows, records_of
from thermocline.iceberg.data_file import ROW_GROUP_ROWS, DataFileWriter, WrittenFile
from thermocline.iceberg.files import DataFile, local_path
from thermocline.iceberg.rewrite import column_ids
from thermocline.iceberg.row_lineage import LINEAGE
from thermocline.iceberg.sparse_index import load_sparse_index
from thermocline.maintenance import merge
from thermocline.maintenance.compact import Compacted, CompactionTask
from thermocline.maintenance.landing import landing
from thermocline.rules.decode import decoder_for, json_row, natural_values, records_table
from thermocline.rules.definition import LiveTable
from thermocline.rules.field_ids import field_ids
from thermocline.rules.keys import encode_table


def _task(table: OneBucketTable, files: list[DataFile], target_bytes: int = 128 << 20) -> CompactionTask:
    return CompactionTask(
        IO, table.definition, table.location, f"{table.location}/moves", 0, tuple(files), target_bytes
    )


def _land(table: OneBucketTable, done: Compacted) -> None:
    change = landing(IO, table.definition, table.location, done, table.files[0])
    assert change is not None
    assert change.rows_gained() == 0
    table.commit(change)


@pytest.mark.parametrize("format_version", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_no_row_is_lost_doubled_or_brought_back_by_a_compaction_beside_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, format_version: int
) -> None:
    """Method: a random part of the files is compacted; batches delete and update their rows meanwhile."""
    monkeypatch.setattr(merge, "ROWS_IN_MEMORY", 4 * ROW_GROUP_ROWS)
    rng = random.Random(seed)
    table = OneBucketTable(tmp_path, replace(DEFINITION, format_version=format_version))
    expected: dict[Key, str] = {}
    offset = 0
    for _ in range(6):
        running: list[Compacted] = []
        for number in range(4):
            if number == 2 and table.files.get(0):
                files = rng.sample(list(table.files[0]), rng.randint(1, len(table.files[0])))
                running.append(_task(table, files, rng.choice([1, 20_000, 1 << 30])).run())
                table.held = frozenset(file.path for file in files)
            batch: list[Record] = []
            for _ in range(rng.choice([10, 3_000])):
                key = (1, f"u{rng.randrange(40)}", f"k{rng.randrange(100)}")
                batch.append((offset, key, None if rng.random() < 0.2 else f"v{offset}"))
                offset += 1
            for _, key, value in batch:
                expected.pop(key, None) if value is None else expected.update({key: value})
            table.upsert(batch)
        for done in running:
            _land(table, done)
        table.held = frozenset()
        rows = live_rows(table.files)
        assert len(rows) == len(expected)
        assert dict(rows) == expected


def test_the_rows_are_in_key_order_in_files_of_the_target_size(tmp_path: Path) -> None:
    table = OneBucketTable(tmp_path, merges=False)
    numbers = list(range(30_000))
    random.Random(1).shuffle(numbers)
    for part in range(5):
        some = numbers[part * 6_000 : (part + 1) * 6_000]
        table.upsert([(one, (1, f"u{one:05}", "plan"), f"{one * 7919}") for one in some])
    whole = sum(file.bytes for file in table.files[0])
    done = _task(table, list(table.files[0]), whole // 12).run()
    assert len(done.added) in range(3, 12)
    keys: list[bytes] = []
    for file in done.added:
        index = load_sparse_index(IO, file.path, DEFINITION)
        assert set(index.rows[:-1]) <= {ROW_GROUP_ROWS}
        found = encode_table(DEFINITION, pq.read_table(local_path(file.path), partitioning=None)).to_pylist()
        assert index.first_keys == found[::ROW_GROUP_ROWS]
        keys += found
    assert keys == sorted(keys)
    assert len(keys) == 30_000


@pytest.mark.parametrize("sorted_at_once", [1_000, 45, 1])
def test_a_file_that_another_writer_left_unsorted_is_sorted_however_large_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sorted_at_once: int
) -> None:
    monkeypatch.setattr(merge, "SORTED_ROWS_MAX", sorted_at_once)
    table = OneBucketTable(tmp_path)
    table.upsert([(one, (1, f"u{one:03}", "plan"), "ours") for one in range(0, 200, 2)])
    backwards = records_of([(one, (1, f"u{one:03}", "plan"), "theirs") for one in range(199, 0, -2)])
    path = tmp_path / "backwards.parquet"
    pq.write_table(backwards.select(DEFINITION.table_schema.names), path, row_group_size=40)
    theirs = DataFile(path.as_uri(), 0, 100, path.stat().st_size)
    table.files = {0: [*table.files[0], theirs]}
    table.upsert([(200, (1, "u099", "plan"), None), (201, (1, "u100", "plan"), None)])
    done = _task(table, list(table.files[0])).run()
    rows = pq.read_table(local_path(done.added[0].path), partitioning=None)
    left = [one for one in range(200) if one not in (99, 100)]
    assert rows.column("user_id").to_pylist() == [f"u{one:03}" for one in left]
    assert rows.column("value").to_pylist() == ["theirs" if one % 2 else "ours" for one in left]
    table.upsert([(202, (1, "u197", "plan"), None)])
    _land(table, done)
    assert [key[1] for key, _ in sorted(live_rows(table.files))] == [
        f"u{one:03}" for one in left if one != 197
    ]


def test_what_is_sorted_at_once_is_bounded_also_where_only_the_first_rows_are_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "BYTES_IN_MEMORY", 1 << 20)
    monkeypatch.setattr(merge, "ROWS_READ", 100)
    sorted_bytes: list[int] = []

    class Counting(pa.ipc.RecordBatchFileWriter):  # type: ignore[misc]
        def write_table(self, table: pa.Table, max_chunksize: int) -> None:
            sorted_bytes.append(table.nbytes)
            super().write_table(table, max_chunksize)

    monkeypatch.setattr(pa.ipc, "new_file", Counting)
    count = 4 * ROW_GROUP_ROWS
    values = ["short" if one < ROW_GROUP_ROWS else "x" * 1_000 for one in range(count)]
    rows = [(one, (1, f"u{count - one:05}", "plan"), value) for one, value in enumerate(values)]
    path = tmp_path / "backwards.parquet"
    pq.write_table(records_of(rows).select(DEFINITION.table_schema.names), path, row_group_size=100)
    table = OneBucketTable(tmp_path)
    table.files = {0: [DataFile(path.as_uri(), 0, count, path.stat().st_size)]}
    done = _task(table, list(table.files[0])).run()
    assert sum(file.rows for file in done.added) == count
    assert len(sorted_bytes) > 1
    assert max(sorted_bytes) < 2 << 20


def test_a_task_whose_input_is_gone_does_not_land(tmp_path: Path) -> None:
    table = OneBucketTable(tmp_path)
    table.upsert([(one, (1, f"u{one}", "plan"), "gold") for one in range(9)])
    done = _task(table, list(table.files[0])).run()
    assert landing(IO, DEFINITION, table.location, done, []) is None


def test_of_dead_rows_alone_no_file_is_left(tmp_path: Path) -> None:
    table = OneBucketTable(tmp_path)
    table.upsert([(one, (1, f"u{one}", "plan"), "gold") for one in range(9)])
    table.held = frozenset(file.path for file in table.files[0])
    table.upsert([(9 + one, (1, f"u{one}", "plan"), None) for one in range(9)])
    done = _task(table, list(table.files[0])).run()
    assert done.added == ()
    _land(table, done)
    assert table.files == {0: []}
    assert pa.ipc.open_file(local_path(done.moves)).num_record_batches == 0


def test_long_values_are_read_in_smaller_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Method: each step of the merge writes one piece of the file of moves."""
    monkeypatch.setattr(merge, "BYTES_IN_MEMORY", 1 << 20)
    table = OneBucketTable(tmp_path, merges=False)
    for part in range(4):
        table.upsert([(one, (1, f"u{4 * one + part:04}", "plan"), "x" * 10_000) for one in range(200)])
    done = _task(table, list(table.files[0])).run()
    moves = pa.ipc.open_file(local_path(done.moves))
    steps = [moves.get_batch(number).num_rows for number in range(moves.num_record_batches)]
    assert sum(steps) == 800
    assert max(steps) <= (1 << 20) // 10_000


def test_a_task_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Method: the store takes no more after some files."""
    table = OneBucketTable(tmp_path, merges=False)
    for part in range(2):
        table.upsert([(one, (1, f"u{one:05}-{part}", "plan"), f"{one * 7919}") for one in range(9_000)])
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    finish = DataFileWriter.finish
    finished: list[WrittenFile] = []

    def finish_one(writer: DataFileWriter) -> WrittenFile:
        if finished:
            raise OSError("no space left")
        finished.append(finish(writer))
        return finished[0]

    monkeypatch.setattr(DataFileWriter, "finish", finish_one)
    with pytest.raises(OSError, match="no space"):
        _task(table, list(table.files[0]), 1).run()
    assert finished
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before


def test_nested_values_and_the_ids_of_their_fields_are_carried_over(tmp_path: Path) -> None:
    """Method: files of more than one row group, every third row of them replaced, into one."""
    columns = {"id": "long", "v": "list<struct<of: map<string, double>, when: timestamp>>"}
    definition = LiveTable.build(
        name="nested", identifier="app.nested", topics=["nested"], key=["id"], buckets=1, columns=columns
    )
    table = OneBucketTable(tmp_path, definition, merges=False)
    expected: dict[int, Any] = {}
    for first, step in ((0, 1), (0, 3), (1, 6)):
        ids = range(first, 3_000, step)
        values = [None if one % 5 == 0 else _nested_value(one, step) for one in ids]
        expected |= dict(zip(ids, values, strict=True))
        keys = [json.dumps({"id": one}).encode() for one in ids]
        decoded = decoder_for(definition).decode(
            keys, [json.dumps({"v": value}).encode() for value in values]
        )
        table.run(records_table(definition, decoded, "nested", 0, range(len(keys)), [0] * len(keys)))
    done = _task(table, list(table.files[0])).run()
    _land(table, done)
    (file,) = table.files[0]
    stored = pq.read_table(local_path(file.path), partitioning=None)
    found = json.loads(json_row({"v": natural_values(definition.columns[1].type, stored.column("v"))}))
    assert dict(zip(stored.column("id").to_pylist(), found["v"], strict=True)) == expected
    stored = stored.drop_columns(LINEAGE.names)
    assert dict(field_ids(stored.schema)) == column_ids(definition.iceberg_schema())


def _nested_value(number: int, step: int) -> Any:
    return [{"of": {"a": number / 2, "b": None}, "when": f"2026-01-01T00:00:{number % 60:02}"}, None] * step
