"""The probe reads no more than it must, and finds every live row whatever it reads and keeps."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.io import FileIO
from pyroaring import BitMap

from tests.ingest.one_bucket import DEFINITION, IO, Key, OneBucketTable, Record, live_rows, records_of
from thermocline.bounded import Bounded
from thermocline.iceberg.data_file import ROW_GROUP_ROWS, write_data_file
from thermocline.iceberg.deletes import read_deletes
from thermocline.iceberg.files import DataFile, Deletes, local_path
from thermocline.rules.definition import LiveTable
from thermocline.rules.keys import encode_one
from thermocline.upsert import probe as module
from thermocline.upsert.files_by_bucket import by_bucket
from thermocline.upsert.probe import Replaced, WorkerCache, probe


@pytest.fixture
def table(tmp_path: Path) -> OneBucketTable:
    return OneBucketTable(tmp_path, merges=False)


class Reads:
    """What is read of Parquet files: (row groups, columns) per call; None stands for all row groups."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[list[int] | None, list[str]]] = []
        calls = self.calls

        class Counting(pq.ParquetFile):  # type: ignore[misc]
            def read_row_groups(self, groups: list[int], columns: list[str], **options: Any) -> pa.Table:
                calls.append((groups, columns))
                return super().read_row_groups(groups, columns, **options)

            def read(self, columns: list[str], **options: Any) -> pa.Table:
                calls.append((None, columns))
                return super().read(columns, **options)

        monkeypatch.setattr(pq, "ParquetFile", Counting)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


class Worker:
    """What one Spark worker keeps; ``enter`` makes it the one that runs the next task."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, bytes_max: int = 1 << 20) -> None:
        self._monkeypatch = monkeypatch
        self.cache = WorkerCache(*(Bounded(bytes_max) for _ in fields(WorkerCache)))

    def enter(self) -> None:
        self._monkeypatch.setattr(module, "worker_cache", self.cache)


def probed(table: OneBucketTable, *keys: Key) -> dict[str, list[int]]:
    """The live positions of the keys, by file."""
    encoded = pa.array(sorted(encode_one(table.definition, key) for key in keys), pa.binary())
    hits: Iterator[Replaced] = probe(IO, table.definition, table.files[0], encoded)
    return {hit.file.path: hit.positions.tolist() for hit in hits}


def sizes_joined(monkeypatch: pytest.MonkeyPatch, size_of: Callable[[pa.ChunkedArray], int]) -> list[int]:
    """Of the stored keys that are held at once, as they are joined with those of the batch."""
    sizes: list[int] = []
    index_in = pc.index_in

    def counted(stored: pa.ChunkedArray, value_set: pa.Array) -> Any:
        sizes.append(size_of(stored))
        return index_in(stored, value_set=value_set)

    monkeypatch.setattr(pc, "index_in", counted)
    return sizes


def key_of(number: int) -> Key:
    return (1, f"u{number:06}", "plan")


def rows(first: int, end: int, value: str = "gold") -> list[Record]:
    return [(number, key_of(number), value) for number in range(first, end)]


def test_row_groups_whose_keys_are_kept_are_not_read_again(
    table: OneBucketTable, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: keys of a large file that are kept stand where they would if they were read. Method: probes."""
    table.upsert(rows(0, 40 * ROW_GROUP_ROWS))
    (file,) = table.files[0]
    Worker(monkeypatch).enter()
    late, early, other = 20 * ROW_GROUP_ROWS + 5, 3 * ROW_GROUP_ROWS + 7, 9 * ROW_GROUP_ROWS
    assert probed(table, key_of(late)) == {file.path: [late]}
    assert probed(table, *(key_of(one) for one in (early, other, late))) == {file.path: [early, other, late]}
    assert probed(table, key_of(early + 1), key_of(late - 1)) == {file.path: [early + 1, late - 1]}
    read = [group for groups, _ in reads.calls for group in groups or ()]
    assert sorted(read) == sorted(set(read)), "a row group was read twice"


def test_row_groups_that_cannot_hold_a_key_of_the_batch_are_not_read(
    table: OneBucketTable, reads: Reads
) -> None:
    """Goal: what is read of a large file grows with the batch, not with the file. Method: its reads."""
    table.upsert(rows(0, 40 * ROW_GROUP_ROWS))
    (file,) = table.files[0]
    wanted = [3 * ROW_GROUP_ROWS + 17, 37 * ROW_GROUP_ROWS + 1]
    found = probed(table, *(key_of(number) for number in wanted), key_of(10**6 - 1))
    # The last key is beyond all others, so that the last row group may hold it.
    assert reads.calls == [([3, 37, 39], list(DEFINITION.key))]
    assert found == {file.path: wanted}


@pytest.mark.parametrize("below", [False, True])
def test_a_large_file_is_read_a_bounded_number_of_row_groups_at_a_time(
    table: OneBucketTable, reads: Reads, monkeypatch: pytest.MonkeyPatch, below: bool
) -> None:
    """Goal: the keys held at once don't grow with the file. Method: a small bound, and every key wanted."""
    monkeypatch.setattr(module, "GROUPS_AT_ONCE", 7)
    count = 20 * ROW_GROUP_ROWS - 5
    table.upsert(rows(0, count))
    wanted = range(0, count, 1 if below else 100)
    (found,) = probed(table, *(key_of(number) for number in wanted)).values()
    assert [len(groups or []) for groups, _ in reads.calls] == [7, 7, 6]
    assert found == list(wanted)


def test_a_row_group_that_another_writer_made_large_is_read_in_pieces(
    table: OneBucketTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: the file's rows are written again, in one row group and without an index."""
    count = 20 * ROW_GROUP_ROWS - 5
    table.upsert(rows(0, count))
    path = local_path(table.files[0][0].path)
    stored = pq.read_table(path, partitioning=None)
    pq.write_table(stored.replace_schema_metadata(None), path, row_group_size=count)
    Worker(monkeypatch).enter()
    monkeypatch.setattr(module, "GROUPS_AT_ONCE", 7)
    held = sizes_joined(monkeypatch, len)
    (found,) = probed(table, *(key_of(number) for number in range(0, count, 100))).values()
    assert found == list(range(0, count, 100))
    assert sum(held) == count
    assert max(held) == 7 * ROW_GROUP_ROWS


def test_young_files_are_joined_a_bounded_number_of_keys_at_a_time(
    table: OneBucketTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the keys held at once don't grow with the number of files. Method: a bound of two row groups."""
    for number in range(9):
        table.upsert(rows(600 * number, 600 * (number + 1)))
    monkeypatch.setattr(module, "GROUPS_AT_ONCE", 2)
    joined = sizes_joined(monkeypatch, len)
    found = probed(table, *(key_of(600 * number + number) for number in range(9)))
    assert joined == [1800, 1800, 1800]
    assert [found[file.path] for file in table.files[0]] == [[number] for number in range(9)]


@pytest.mark.parametrize("young", [True, False])
def test_of_long_keys_fewer_are_held_at_once(
    table: OneBucketTable, reads: Reads, monkeypatch: pytest.MonkeyPatch, young: bool
) -> None:
    """Goal: keys of a kilobyte take no more memory than keys of a few bytes, in files of either size."""
    monkeypatch.setattr(module, "YOUNG_ROWS_MAX", ROW_GROUP_ROWS if young else 0)
    monkeypatch.setattr(module, "GROUPS_AT_ONCE", 4)
    files, count = (6, ROW_GROUP_ROWS) if young else (1, 6 * ROW_GROUP_ROWS)
    keys = [(1, f"u{number:06}{'x' * 1_000}", "plan") for number in range(files * count)]
    for first in range(0, len(keys), count):
        table.upsert([(number, keys[number], "gold") for number in range(first, first + count)])
    held = sizes_joined(monkeypatch, lambda stored: stored.nbytes)
    found = probed(table, *keys[::100])
    assert len(held) == 6
    assert max(held) < 1_100 * ROW_GROUP_ROWS
    assert sum(map(len, found.values())) == len(keys[::100])


def test_deletes_are_read_for_the_files_that_are_joined_at_once(
    table: OneBucketTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the first hits come before the deletes of the last files were read, however many there are."""
    for number in range(4):
        table.upsert(rows(ROW_GROUP_ROWS * number, ROW_GROUP_ROWS * (number + 1)))
        table.upsert([(0, key_of(ROW_GROUP_ROWS * number), None)])
    monkeypatch.setattr(module, "GROUPS_AT_ONCE", 1)
    worker = Worker(monkeypatch)
    worker.enter()
    wanted = [encode_one(DEFINITION, key_of(ROW_GROUP_ROWS * number + 1)) for number in range(4)]
    hits = probe(IO, DEFINITION, table.files[0], pa.array(wanted, pa.binary()))
    for number in range(1, 5):
        assert next(hits).positions.tolist() == [1]
        assert len(worker.cache.deletes) == number


def test_a_worker_reads_young_files_and_their_deletes_once(
    table: OneBucketTable, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a commit costs the same after hundreds of others. Method: reads of Parquet and of deletes.

    The first worker writes the files, the second has yet to read them, and neither reads one twice.
    """
    deletes_read: list[Deletes] = []

    def counted(io: FileIO, deletes: Deletes) -> BitMap:
        deletes_read.append(deletes)
        return read_deletes(io, deletes)

    monkeypatch.setattr(module, "read_deletes", counted)
    first, second = Worker(monkeypatch), Worker(monkeypatch)
    first.enter()
    for number in range(30):
        table.upsert([(number, key_of(number), "gold"), (number, key_of(number + 100), "gold")])
        table.upsert([(number, key_of(number), None)])
    everything = [key_of(number) for number in (*range(30), *range(100, 130))]
    expected = {file.path: [1] for file in table.files[0]}
    assert len(expected) == 30
    assert probed(table, *everything) == expected
    assert (reads.calls, deletes_read) == ([], [])

    second.enter()
    assert probed(table, *everything) == expected
    assert [groups for groups, _ in reads.calls] == [None] * 30
    assert len(deletes_read) == 30
    assert probed(table, *everything) == expected
    assert (len(reads.calls), len(deletes_read)) == (30, 30)


def test_what_does_not_fit_a_worker_is_read_again(
    table: OneBucketTable, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        table.upsert(rows(100 * number, 100 * (number + 1)))
    worker = Worker(monkeypatch, bytes_max=5_000)
    worker.enter()
    wanted = [key_of(100 * number) for number in range(20)]
    for reads_so_far in (20, 20 + 18):
        assert sorted(probed(table, *wanted).values()) == [[0]] * 20
        assert (len(reads.calls), len(worker.cache.young_keys)) == (reads_so_far, 2)


@pytest.mark.parametrize("format_version", [3, 2])
@pytest.mark.parametrize("seed", range(2))
def test_whatever_workers_keep_the_files_hold_what_the_replay_of_all_batches_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, format_version: int
) -> None:
    """Goal: what a worker kept of files and deletes is never what they no longer are.

    Method: thirty batches, each run by one of three workers, one of which can keep next to nothing; files
    count as young up to a few hundred rows, so that both ways are taken; now and then the bucket's files are
    rewritten as one, as a compaction would; now and then a batch is run and not committed. A dict replays
    the batches that were.
    """
    print(f"seed {seed}")
    rng = random.Random(seed)
    monkeypatch.setattr(module, "YOUNG_ROWS_MAX", 200)
    monkeypatch.setattr(module, "GROUPS_AT_ONCE", 1)
    definition = LiveTable.build(
        name="profiles",
        identifier="app.profiles",
        topics=["profiles"],
        key=DEFINITION.key,
        entity=DEFINITION.entity,
        columns={column.name: str(column.type) for column in DEFINITION.columns},
        format_version=format_version,
    )
    table = OneBucketTable(tmp_path, definition)
    workers = [Worker(monkeypatch), Worker(monkeypatch), Worker(monkeypatch, bytes_max=3_000)]
    expected: dict[Key, str] = {}
    offset = 0
    for number in range(30):
        batch: list[Record] = []
        for _ in range(rng.choice([1, 20, 300, 1_500])):
            key = (rng.randrange(2), f"u{rng.randrange(40)}", f"k{rng.randrange(40)}")
            batch.append((offset, key, None if rng.random() < 0.2 else f"v{offset}"))
            offset += 1
        rng.choice(workers).enter()
        files = table.files
        table.upsert(batch)
        if rng.random() < 0.2:
            table.files = files
            continue
        for _, key, value in batch:
            expected.pop(key, None) if value is None else expected.update({key: value})
        if rng.random() < 0.15:
            table.files = by_bucket([rewritten(table, tmp_path / f"rewritten-{number}.parquet")])
        found = live_rows(table.files)
        assert len(found) == len(expected)
        assert dict(found) == expected


def rewritten(table: OneBucketTable, path: Path) -> DataFile:
    """All live rows of the table as one data file."""
    records = records_of([(0, key, value) for key, value in sorted(live_rows(table.files))])
    written = write_data_file(IO, path.as_uri(), table.definition, records.sort_by("_key"))
    return DataFile(written.path, 0, written.rows, written.file_bytes)
