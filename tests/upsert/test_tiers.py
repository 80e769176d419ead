"""Which files a batch merges: few stay, whatever comes, and little is written again. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from thermocline.iceberg.files import DataFile
from thermocline.upsert.tiers import FANOUT, MERGED_BYTES_MAX, SMALL_ROWS, files_to_merge


@dataclass
class Bucket:
    """Files by path with their live rows; each row takes as many bytes as said."""

    row_bytes: int = 50
    live: dict[str, int] = field(default_factory=dict)
    written: int = 0
    _number: int = 0

    def add(self, rows: int) -> list[str]:
        """One batch; the files that it merged."""
        files = [DataFile(path, 0, count, count * self.row_bytes) for path, count in self.live.items()]
        merged = [file.path for file in files_to_merge(files, self.live, rows)]
        total = rows + sum(self.live.pop(path) for path in merged)
        if total:
            self._number += 1
            self.live[f"{self._number}"] = total
            self.written += total
        return merged


@pytest.mark.parametrize("rows", [1, 125, 1_000, 1_500])
def test_files_and_what_is_written_again_are_logarithmic_in_the_number_of_commits(rows: int) -> None:
    """A day of one a minute: fewer than FANOUT files a tier, and each row is written about once a tier."""
    bucket = Bucket(row_bytes=10)
    most = 0
    for _ in range(1_440):
        bucket.add(rows)
        most = max(most, len(bucket.live))
    tiers = 1
    while SMALL_ROWS * FANOUT**tiers < 1_440 * rows:
        tiers += 1
    assert most <= (FANOUT - 1) * (tiers + 1)
    small = SMALL_ROWS / (FANOUT - 1) / rows  # times that a row is written while its file is small
    assert bucket.written <= 1_440 * rows * (tiers + 1 + small)


def test_files_that_are_large_together_are_left_to_others() -> None:
    bucket = Bucket(row_bytes=100)
    rows = MERGED_BYTES_MAX // 100 // (FANOUT - 1) + 1
    for _ in range(20):
        assert bucket.add(rows) == []
    for _ in range(50):
        assert all(bucket.live.get(path, 0) < rows for path in bucket.add(3))
    assert len(bucket.live) <= 20 + FANOUT


def test_of_more_small_files_than_one_batch_can_merge_the_smallest_go_first() -> None:
    """Files that piled up before are worked off batch by batch."""
    bucket = Bucket(row_bytes=1_000)
    bucket.live = {f"old {number}": 500 + number for number in range(400)}
    for _ in range(20):
        bucket.add(10)
    assert len(bucket.live) < 3 * FANOUT


def test_large_files_with_few_live_rows_hold_no_small_ones_back() -> None:
    for sizes in ([40 << 20], [12 << 20] * 3, [17 << 20, 16 << 20]):
        live = {f"large {number}": 5 + number for number in range(len(sizes))}
        bytes_of = dict(zip(live, sizes, strict=True))
        for number in range(40):
            files = [DataFile(path, 0, 10**6, bytes_of.get(path, 10_000)) for path in live]
            merged = files_to_merge(files, live, 100)
            live[f"small {number}"] = 100 + sum(live.pop(file.path) for file in merged)
        assert len(live) <= len(sizes) + 2 * FANOUT


def test_a_file_of_few_live_rows_goes_with_small_ones_and_one_without_any_goes_at_once() -> None:
    files = [DataFile(path, 0, 100_000, 10_000) for path in "abcd"]
    live = {"a": 0, "b": 100, "c": 5, "d": 100_000}
    assert [file.path for file in files_to_merge(files, live, 10)] == ["a"]
    live["d"] = 7
    assert [file.path for file in files_to_merge(files, live, 10)] == ["a", "c", "d", "b"]


def test_no_file_is_merged_twice_and_the_bound_holds() -> None:
    chance = random.Random(3)
    for _ in range(500):
        live = {f"{n}": chance.choice([0, 1, 900, 5_000, 40_000, 10**6]) for n in range(chance.randrange(40))}
        files = [DataFile(path, 0, count + 1, chance.randrange(1, 10**7)) for path, count in live.items()]
        merged = [file.path for file in files_to_merge(files, live, chance.choice([0, 1, 3_000]))]
        assert len(merged) == len(set(merged))
        assert all(live[path] for path in live if path not in merged)
        assert (
            sum(file.bytes for file in files if file.path in merged and live[file.path]) <= MERGED_BYTES_MAX
        )
