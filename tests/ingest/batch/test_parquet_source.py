"""Parquet files as a source: what they are as decoded records, and which are refused."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from thermocline.errors import SourceInvalid
from thermocline.ingest.batch.parquet_source import ParquetFiles
from thermocline.ingest.batch.read_task import ReadReport, ReadTask
from thermocline.ingest.batch.source import Together
from thermocline.rules.definition import LiveTable

IO: Any = PyArrowFileIO()


def task_of(**settings: Any) -> ReadTask:
    columns = {"id": "int", "name": "string", "at": "timestamptz", "version": "long"}
    given = {"key": ["id"], "columns": columns, **settings}
    definition = LiveTable.build(name="t", identifier="app.t", topics=["t"], **given)
    return ReadTask(definition, {}, IO, IO, "", {})


def written(folder: Path, **columns: Any) -> ParquetFiles:
    pq.write_table(pa.table(columns), folder / "rows.parquet")
    return ParquetFiles([(folder / "rows.parquet").as_uri()], 2)


def read(files: ParquetFiles, task: ReadTask, report: ReadReport | None = None) -> list[pa.Table]:
    """The records of the first file."""
    report = report or ReadReport([])
    reader = files.reader(task, 0, Together())
    records = [reader.take(piece, report) for piece in files.pieces(task, 0)]
    reader.end(report)
    return records


def test_rows_are_records_without_a_place_and_what_a_file_lacks_is_null(tmp_path: Path) -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    files, report = written(tmp_path, id=[1, 2], at=[at, None]), ReadReport([])
    (records,) = read(files, task_of(), report)
    assert records.select(["id", "name", "at"]).to_pylist() == [
        {"id": 1, "name": None, "at": at},
        {"id": 2, "name": None, "at": None},
    ]
    assert records.column("_kafka_offset").null_count == 2
    assert records.column("_tombstone").to_pylist() == [False, False]
    assert (report.records, report.parts) == (2, [0])
    files.check([report])


def test_a_file_that_was_not_read_to_its_end_is_no_batch(tmp_path: Path) -> None:
    with pytest.raises(SourceInvalid, match="not read to its end"):
        written(tmp_path, id=[1]).check([ReadReport([])])


def test_rows_have_the_sequence_of_their_columns_and_must_have_one(tmp_path: Path) -> None:
    task = task_of(sequence_by=["version"])
    (records,) = read(written(tmp_path, id=[1, 2], version=[5, 7]), task)
    first, second = records.column("_sequence").to_pylist()
    assert first < second
    with pytest.raises(SourceInvalid, match="column version is null"):
        read(written(tmp_path, id=[1, 2], version=[5, None]), task)


def test_a_table_without_a_key_takes_in_no_rows_of_another_source(tmp_path: Path) -> None:
    with pytest.raises(SourceInvalid, match="known by its place in a topic"):
        read(written(tmp_path, id=[1]), task_of(key=[], key_from="value"))
