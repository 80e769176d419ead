"""Tables on disk by number: all rows come back, each under its number, in the order in which they came."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from verify.spill import Spill, part_of


@pytest.mark.parametrize("held_bytes_max", [1, 3_000, 1 << 30])
def test_rows_come_back_under_their_numbers(tmp_path: Path, held_bytes_max: int) -> None:
    chance = random.Random(held_bytes_max)
    spill, wanted = Spill(tmp_path / "spill", held_bytes_max), defaultdict(list)
    for _ in range(30):
        numbers = np.array([chance.randrange(6) for _ in range(chance.randrange(40))], np.int64)
        values = [chance.randrange(10**6) for _ in numbers]
        for number, value in zip(numbers.tolist(), values, strict=True):
            wanted[number].append(value)
        spill.add(numbers, pa.table({"value": pa.array(values, pa.int64())}))
    for number in range(7):
        found = [value for piece in spill.read(number) for value in piece.column("value").to_pylist()]
        assert found == wanted[number]
        assert (spill.bytes_of(number) > 0) == bool(found)
    spill.drop(0)
    assert list(spill.read(0)) == []
    assert spill.bytes_of(0) == 0


def test_equal_keys_are_in_one_part_and_parts_are_of_a_size() -> None:
    keys = [f"k{number % 1000}".encode() for number in range(4000)]
    parts = part_of(pa.table({"_key": pa.array(keys, pa.binary())}), 4)
    assert len({(key, part) for key, part in zip(keys, parts.tolist(), strict=True)}) == 1000
    assert min(np.bincount(parts)) > 800
