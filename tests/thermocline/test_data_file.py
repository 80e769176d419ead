from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import PyArrowFileIO

from thermocline.iceberg.data_file import write_data_file
from thermocline.rules.definition import KEY, LiveTable
from thermocline.rules.keys import encode_table

DEFINITION = LiveTable.build(
    name="events",
    identifier="app.events",
    topics=["events"],
    key=["user", "slot"],
    entity=["user"],
    columns={"user": "string", "slot": "int", "plan": "string", "note": "string", "ready": "boolean"},
    buckets=1,
)


def _rows(count: int) -> pa.Table:
    numbers = range(count)
    columns = {
        "user": [f"u{number // 10:06}" for number in numbers],
        "slot": [number % 10 for number in numbers],
        "plan": [("free", "gold")[number % 2] for number in numbers],
        "note": [f"note {number}" for number in numbers],
        "ready": [number % 3 == 0 for number in numbers],
        "_kafka_topic": ["events"] * count,
        "_kafka_partition": [0] * count,
        "_kafka_offset": list(numbers),
        "_kafka_timestamp": list(numbers),
        "_tombstone": [False] * count,
        KEY: [b""] * count,
    }
    rows = pa.table(columns, schema=DEFINITION.records_schema)
    return rows.set_column(rows.schema.get_field_index(KEY), KEY, encode_table(DEFINITION, rows))


def test_only_columns_whose_values_repeat_have_a_dictionary(tmp_path: Path) -> None:
    rows = _rows(5_000)
    path = str(tmp_path / "data.parquet")
    write_data_file(PyArrowFileIO(), path, DEFINITION, rows)
    group = pq.read_metadata(path).row_group(2)
    columns = [group.column(place) for place in range(group.num_columns)]
    with_dictionary = {column.path_in_schema for column in columns if column.has_dictionary_page}
    assert with_dictionary == {"user", "slot", "plan", "_kafka_topic", "_kafka_partition"}
    assert {column.path_in_schema for column in columns if column.compression == "ZSTD"} == {
        "note", "_kafka_offset", "_kafka_timestamp",
    }  # fmt: skip
    read = pq.read_table(path).select(["user", "slot", "plan", "note", "ready"])
    assert read.to_pydict() == rows.select(read.column_names).to_pydict()


def test_one_row_is_a_file(tmp_path: Path) -> None:
    path = str(tmp_path / "data.parquet")
    write_data_file(PyArrowFileIO(), path, DEFINITION, _rows(1))
    assert pq.read_table(path).num_rows == 1
