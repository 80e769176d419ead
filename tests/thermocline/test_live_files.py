from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from thermocline.iceberg.leases import write_lease
from thermocline.iceberg.live_files import forget_live_files, live_folder, live_lease

IO = PyArrowFileIO()
NOW_MS = 1_800_000_000_000


def written(folder: Path, server: str, name: str, age_ms: int) -> Path:
    path = Path(live_folder(str(folder), server)) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    at = (NOW_MS - age_ms) / 1000
    os.utime(path, (at, at))
    return path


def test_only_what_servers_left_that_are_gone_is_removed(tmp_path: Path) -> None:
    location = tmp_path.as_uri()
    folder = tmp_path
    gone = written(folder, "gone", "bucket=1/rows.parquet", 2_000)
    without_lease = written(folder, "killed", "1.avro", 2_000)
    beginning = written(folder, "beginning", "1.avro", 500)
    running = written(folder, "running", "1.avro", 2_000)
    write_lease(IO, live_lease(location, "gone"), {}, {"5": NOW_MS - 1})
    write_lease(IO, live_lease(location, "running"), {}, {"4": NOW_MS - 1, "5": NOW_MS + 1})
    assert forget_live_files(IO, location, NOW_MS, NOW_MS - 1_000) == 2
    assert [path.exists() for path in (gone, without_lease, beginning, running)] == [False, False, True, True]
    assert Path(live_lease(str(folder), "gone")).exists()  # its server may be about to go on
    assert Path(live_lease(str(folder), "running")).exists()


def test_nothing_is_removed_where_a_lease_can_not_be_read(tmp_path: Path) -> None:
    location = tmp_path.as_uri()
    path = written(tmp_path, "server", "1.avro", 2_000)
    lease = Path(live_lease(str(tmp_path), "server"))
    lease.parent.mkdir(parents=True)
    lease.write_text("{")
    with pytest.raises(ValueError, match="is no lease"):
        forget_live_files(IO, location, NOW_MS, NOW_MS - 1_000)
    assert path.exists()
