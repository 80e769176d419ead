"""Counts of reads that servers leave beside a table."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from pyiceberg.io.pyarrow import PyArrowFileIO

from thermocline.iceberg.read_counts import ReadCounts, forget_counts, read_rates, write_counts

IO = PyArrowFileIO()
HOUR_MS = 3_600_000
NOW_MS = 1_000 * HOUR_MS


def test_the_rates_of_all_processes_add_up_and_what_is_damaged_counts_for_nothing(tmp_path: Path) -> None:
    location = f"{tmp_path}"
    assert read_rates(IO, location, NOW_MS) is None
    write_counts(IO, location, "a", ReadCounts(NOW_MS - HOUR_MS, Counter({1: 10, 2: 5}), 2), NOW_MS)
    write_counts(IO, location, "b", ReadCounts(NOW_MS - HOUR_MS // 2, Counter({1: 10}), 0), NOW_MS)
    (tmp_path / "thermocline" / "reads" / "c.json").write_bytes(b'{"lookups": ')
    rates = read_rates(IO, location, NOW_MS)
    assert rates is not None
    assert (rates.lookups, rates.extracts) == ({1: 30.0, 2: 5.0}, 2.0)


def test_counts_of_processes_that_are_gone_go(tmp_path: Path) -> None:
    for name in ("old", "new"):
        write_counts(IO, f"{tmp_path}", name, ReadCounts(0, Counter({1: 1}), 0), NOW_MS)
    os.utime(tmp_path / "thermocline" / "reads" / "old.json", (1, 1))
    forget_counts(IO, f"{tmp_path}", 2_000)
    assert [path.stem for path in (tmp_path / "thermocline" / "reads").iterdir()] == ["new"]
