"""Bucket tasks of a table without a key, on real files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from thermocline.iceberg.deletes import read_deletes
from thermocline.iceberg.files import DataFile, local_path
from thermocline.iceberg.sparse_index import load_sparse_index
from thermocline.rules.decode import decoder_for, records_table
from thermocline.rules.definition import LiveTable
from thermocline.rules.keys import encode_table
from thermocline.upsert.bucket_task import BucketResult, run_bucket_task
from thermocline.upsert.tiers import FANOUT

EVENTS = LiveTable.build(
    name="events",
    identifier="app.events",
    topics=["events", "others"],
    key=[],
    key_from="value",
    columns={"user_id": "string"},
    format_version=2,
)
IO = PyArrowFileIO()


def records_of(topic: str, offsets: list[int]) -> pa.Table:
    """Records of one user, which differ by nothing but their place."""
    decoded = decoder_for(EVENTS).decode([None] * len(offsets), [b'{"user_id":"u1"}'] * len(offsets))
    return records_table(EVENTS, decoded, topic, 0, offsets, [0] * len(offsets))


def run(folder: Path, files: list[DataFile], records: pa.Table, is_replay: bool = False) -> BucketResult:
    done = run_bucket_task(IO, EVENTS, folder.as_uri(), 0, files, records, is_replay)
    (added,) = done.added
    files[:] = [
        DataFile(file.path, 0, file.rows, file.bytes, done.deletes.get(file.path, file.deletes))
        for file in files
    ]
    files.append(DataFile(added.path, 0, added.rows, added.file_bytes))
    return done


def live_places(files: list[DataFile]) -> list[tuple[str, int]]:
    places = []
    for file in files:
        deleted = read_deletes(IO, file.deletes) if file.deletes else ()
        rows = pq.read_table(local_path(file.path), partitioning=None).to_pylist()
        places += [
            (row["_kafka_topic"], row["_kafka_offset"]) for n, row in enumerate(rows) if n not in deleted
        ]
    return sorted(places)


def test_every_record_is_a_row_of_its_own(tmp_path: Path) -> None:
    files: list[DataFile] = []
    first = run(
        tmp_path, files, pa.concat_tables([records_of("events", [0, 1]), records_of("others", [1, 5])])
    )
    second = run(tmp_path, files, records_of("events", [2, 3]))
    assert live_places(files) == [("events", n) for n in range(4)] + [("others", 1), ("others", 5)]
    assert (first.applied, first.superseded, first.unchanged, first.keys_in_several_partitions) == (
        4,
        0,
        0,
        0,
    )
    assert (second.applied, second.deletes) == (2, {})


def test_small_files_are_merged_and_every_record_stays(tmp_path: Path) -> None:
    files: list[DataFile] = []
    for number in range(10):
        done = run(tmp_path, files, records_of("events", [3 * number, 3 * number + 1]))
        removed = {file.path for file in done.removed}
        files[:] = [file for file in files if file.path not in removed]
    assert len(files) <= FANOUT
    assert live_places(files) == [("events", 3 * n + more) for n in range(10) for more in (0, 1)]


def test_a_replayed_record_that_is_in_the_table_does_not_become_a_second_row(tmp_path: Path) -> None:
    files: list[DataFile] = []
    run(tmp_path, files, records_of("events", [0, 1, 4]))
    run(tmp_path, files, records_of("events", [1, 2]), is_replay=True)
    assert live_places(files) == [("events", n) for n in (0, 1, 2, 4)]


@pytest.mark.parametrize("row_group_rows", [2, 100])
def test_a_file_of_another_writer_is_indexed_by_where_its_rows_come_from(
    tmp_path: Path, row_group_rows: int
) -> None:
    records = records_of("events", [0, 1, 2, 3, 4])
    path = tmp_path / "foreign.parquet"
    pq.write_table(records.select(EVENTS.table_schema.names), path, row_group_size=row_group_rows)
    index = load_sparse_index(IO, path.as_uri(), EVENTS)
    assert index.is_sorted
    assert index.first_keys == encode_table(EVENTS, records).to_pylist()[::row_group_rows]
