"""Deleted positions written and read, here and by PyIceberg, in both format versions."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO, _read_deletes
from pyiceberg.manifest import DataFile as ManifestDataFile
from pyiceberg.manifest import FileFormat
from pyroaring import BitMap

from thermocline.iceberg.deletes import read_deletes, write_deletes
from thermocline.iceberg.files import Deletes

IO = PyArrowFileIO()
POSITIONS = st.sets(st.integers(0, 2**32 - 1), min_size=1, max_size=50)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tmp_path_factory.mktemp("deletes").as_uri()


def read_by_pyiceberg(deletes: Deletes) -> dict[str, list[int]]:
    file = ManifestDataFile.from_args(
        file_path=deletes.path, file_format=FileFormat(deletes.format.upper()), record_count=1
    )
    return {path: positions.to_pylist() for path, positions in _read_deletes(IO, file).items()}


@pytest.mark.parametrize("format_version", [2, 3])
@given(
    by_file=st.dictionaries(
        st.sampled_from(["file:///a.parquet", "file:///ü b.parquet"]), POSITIONS, min_size=1
    )
)
def test_positions_read_back_as_they_were_written(
    folder: str, format_version: int, by_file: dict[str, set[int]]
) -> None:
    written = write_deletes(
        IO, f"{folder}/{uuid4()}", format_version, {k: BitMap(v) for k, v in by_file.items()}
    )
    assert {path: set(read_deletes(IO, deletes)) for path, deletes in written.items()} == by_file
    assert {path: deletes.cardinality for path, deletes in written.items()} == {
        path: len(positions) for path, positions in by_file.items()
    }


@pytest.mark.parametrize("format_version", [2, 3])
def test_pyiceberg_reads_the_same_positions(tmp_path: Path, format_version: int) -> None:
    by_file = {"file:///a.parquet": [0, 5, 70_000], "file:///b.parquet": list(range(3_000))}
    stem = f"{tmp_path.as_uri()}/x"
    written = write_deletes(IO, stem, format_version, {path: BitMap(rows) for path, rows in by_file.items()})
    assert all(deletes.path.startswith(stem) for deletes in written.values())
    for path, positions in by_file.items():
        assert read_by_pyiceberg(written[path])[path] == positions


@pytest.mark.parametrize(("format_version", "kind"), [(2, "parquet"), (3, "puffin")])
def test_each_data_file_has_a_file_of_deletes_of_its_own(
    tmp_path: Path, format_version: int, kind: str
) -> None:
    by_file = {f"file:///{name}.parquet": BitMap([1]) for name in "abc"}
    written = write_deletes(IO, f"{tmp_path.as_uri()}/x", format_version, by_file)
    assert ({d.format for d in written.values()}, len({d.path for d in written.values()})) == ({kind}, 3)
    for data_file, deletes in written.items():
        assert list(read_by_pyiceberg(deletes)) == [data_file]
        assert deletes.file_bytes == Path(deletes.path.removeprefix("file://")).stat().st_size


def test_a_position_delete_file_has_the_fields_and_the_order_of_the_specification(tmp_path: Path) -> None:
    """The rows are sorted by path and position; fields are found by their reserved ids, and are required."""
    name = "file:///a.parquet"
    (deletes,) = write_deletes(IO, f"{tmp_path.as_uri()}/x", 2, {name: BitMap([9, 3, 2**31, 4])}).values()
    table = pq.read_table(deletes.path.removeprefix("file://"))
    assert table.column("pos").to_pylist() == [3, 4, 9, 2**31]
    assert [(f.name, f.type, f.nullable) for f in table.schema] == [
        ("file_path", pa.string(), False),
        ("pos", pa.int64(), False),
    ]
    ids = [field.metadata[b"PARQUET:field_id"] for field in table.schema]
    assert ids == [b"2147483546", b"2147483545"]


@pytest.mark.parametrize("format_version", [2, 3])
def test_nothing_is_written_where_nothing_is_deleted(tmp_path: Path, format_version: int) -> None:
    assert write_deletes(IO, f"{tmp_path.as_uri()}/x", format_version, {}) == {}
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_deletion_vector_is_not_read(tmp_path: Path) -> None:
    (deletes,) = write_deletes(IO, f"{tmp_path.as_uri()}/x", 3, {"file:///a": BitMap([1, 2])}).values()
    path = Path(deletes.path.removeprefix("file://"))
    content = bytearray(path.read_bytes())
    content[deletes.offset + deletes.length - 6] ^= 1  # within the bitmap, before its checksum
    path.write_bytes(content)
    with pytest.raises(ValueError, match="not an intact deletion vector"):
        read_deletes(IO, deletes)


@pytest.mark.parametrize("row_group_size", [1, 2])
def test_position_deletes_of_several_data_files_are_not_read_as_those_of_one(
    tmp_path: Path, row_group_size: int
) -> None:
    path = tmp_path / "foreign.parquet"
    rows = {"file_path": ["file:///a", "file:///b"], "pos": np.arange(2)}
    pq.write_table(pa.table(rows), path, row_group_size=row_group_size)
    foreign = Deletes(path.as_uri(), "parquet", 0, path.stat().st_size, 2, path.stat().st_size)
    with pytest.raises(ValueError, match="several data files"):
        read_deletes(IO, foreign)


def test_the_path_of_position_deletes_takes_no_memory_for_each_position(tmp_path: Path) -> None:
    """Goal: deletes of millions of rows, each with a long path, fit beside a batch. Method: Arrow's peak."""
    data_file = f"s3://bucket/{'x' * 200}.parquet"
    positions = BitMap(range(500_000))
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        (deletes,) = write_deletes(IO, f"{tmp_path.as_uri()}/x", 2, {data_file: positions}).values()
        assert read_deletes(IO, deletes) == positions
    finally:
        pa.set_memory_pool(before)
    assert pool.max_memory() < 50 * len(positions)
    assert pq.read_schema(deletes.path.removeprefix("file://")).field("file_path").type == pa.string()


def test_position_deletes_of_several_row_groups_are_all_read(tmp_path: Path) -> None:
    path = tmp_path / "foreign.parquet"
    rows = pa.table({"file_path": ["file:///a"] * 5, "pos": np.arange(5)})
    pq.write_table(rows, path, row_group_size=2)
    foreign = Deletes(path.as_uri(), "parquet", 0, path.stat().st_size, 5, path.stat().st_size)
    assert read_deletes(IO, foreign) == BitMap(range(5))
