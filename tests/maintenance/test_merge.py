from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from thermocline.iceberg.files import DataFile
from thermocline.maintenance.merge import BYTES_IN_MEMORY, FOLDER_PREFIX, merged_rows
from thermocline.rules.definition import LiveTable

DEFINITION = LiveTable.build(
    name="events",
    identifier="app.events",
    topics=["events"],
    key=["id"],
    entity=["id"],
    columns={"id": "long", "note": "string"},
    buckets=1,
)


def test_rows_that_grow_along_the_key_are_never_all_in_memory(tmp_path: Path) -> None:
    notes = [5_000 * str(number % 10) for number in range(80_000)]
    notes[:2_000] = ["short"] * 2_000
    rows = pa.table({"id": np.arange(80_000), "note": notes})
    assert rows.nbytes > 1.3 * BYTES_IN_MEMORY
    path = str(tmp_path / "data.parquet")
    pq.write_table(rows, path, row_group_size=1_024)
    file = DataFile(path, 0, rows.num_rows, 0)
    pieces = [(piece.nbytes, piece["id"]) for piece in merged_rows(PyArrowFileIO(), DEFINITION, [file])]
    assert max(size for size, _ in pieces) < BYTES_IN_MEMORY
    assert pa.chunked_array([part for _, ids in pieces for part in ids.chunks]).equals(rows["id"])


def test_folders_of_rewrites_that_were_killed_are_removed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: a file that is not sorted is merged, which takes such a folder, while others are there."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left, in_use = tmp_path / f"{FOLDER_PREFIX}left", tmp_path / f"{FOLDER_PREFIX}in-use"
    for folder in (left, in_use):
        folder.mkdir()
        (folder / "0.arrow").write_bytes(b"rows")
    path = str(tmp_path / "data.parquet")
    pq.write_table(pa.table({"id": np.arange(2_000)[::-1], "note": ["note"] * 2_000}), path)
    lock = os.open(in_use, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)  # as a process that lives
    for _ in range(2):
        merged = merged_rows(PyArrowFileIO(), DEFINITION, [DataFile(path, 0, 2_000, 0)])
        assert next(merged)["id"][0].as_py() == 0
        (ours,) = set(tmp_path.glob(f"{FOLDER_PREFIX}*")) - {in_use}
        list(merged_rows(PyArrowFileIO(), DEFINITION, [DataFile(path, 0, 2_000, 0)]))
        assert ours.exists(), "what runs beside it is left alone"
        merged.close()
        assert set(tmp_path.glob(f"{FOLDER_PREFIX}*")) == {in_use}
    os.close(lock)
