from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import PyArrowFileIO

from maintenance.merge import BYTES_IN_MEMORY, merged_rows
from thermocline.iceberg.files import DataFile
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
