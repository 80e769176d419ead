"""One LMDB file of hot records: what is said to fit into its map does fit."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from thermocline.rules.seam import Seam
from thermocline.serving.hot import arrived
from thermocline.serving.hot.arrived import arrived_by_bucket
from thermocline.serving.hot.generation import Covered, Generation, Meta

META = Meta(1, (Covered("profiles", 0, 0, 1),))
MAP_BYTES = 16 << 20
KEPT = 100_000
BATCH = 2_000  # of as many records each, it changes pages of 4 MB, four times what is kept for a seal
NEARLY_FULL_BYTES = 256 << 10


def fitting(generation: Generation, keys: Sequence[bytes]) -> dict[bytes, bytes]:
    """Small records of as many of the keys as are said to fit; none where one doesn't."""
    free_bytes = generation.free_bytes
    records: dict[bytes, bytes] = {}
    for key in keys:
        if generation.bytes_needed(records | {key: b"new"}) > free_bytes:
            break
        records[key] = b"new"
    return records


def test_small_records_that_are_said_to_fit_do_so_at_the_end_of_the_map(tmp_path: Path, seed: int) -> None:
    """Goal: a batch that the tier takes for small enough never fails for want of room, nor does the seal.

    Method: of many small records each batch changes some at random, nearly every one on a page of its own,
    while a reader keeps freed pages from being used again, until not one record more is said to fit.
    """
    chance = random.Random(seed)
    generation = Generation(tmp_path / "generation", MAP_BYTES, is_writer=True)
    kept = [chance.randbytes(16) for _ in range(KEPT)]
    generation.write(dict.fromkeys(kept, b"old"), META)
    while generation.free_bytes > NEARLY_FULL_BYTES:
        generation.write({chance.randbytes(16): bytes(generation.free_bytes // 4)}, META)
    with generation.read():
        while batch := fitting(generation, chance.sample(kept, BATCH)):
            generation.write(batch, META)
        generation.write({}, META)
    assert generation.free_bytes < NEARLY_FULL_BYTES


def appended(generation: Generation, start: int, *keys: bytes) -> None:
    """Records that came at or beyond an offset."""
    generation.write(dict.fromkeys(keys, b"value"), META, Seam({("profiles", 0): start}))


def since(generation: Generation, offset: int) -> Mapping[int, Sequence[bytes]] | None:
    with generation.read() as transaction:
        return arrived_by_bucket([transaction], ["profiles"], Seam({("profiles", 0): offset}))


def test_what_came_since_an_offset_is_told_by_bucket_and_nothing_older(tmp_path: Path) -> None:
    generation = Generation(tmp_path / "generation", MAP_BYTES, is_writer=True)
    generation.write({}, META)
    appended(generation, 0, b"\0\1a", b"\0\1b")
    appended(generation, 2, b"\0\2c", b"\0\1a", b"\xff\xfe refused")
    appended(generation, 5, b"\0\2d")
    assert since(generation, 5) == {2: [b"\0\2d"]}
    assert since(generation, 4) == {1: [b"\0\1a"], 2: [b"\0\2c", b"\0\2d"]}
    assert since(generation, 2) == {1: [b"\0\1a"], 2: [b"\0\2c", b"\0\2d"]}
    assert since(generation, 0) == {1: [b"\0\1a", b"\0\1b"], 2: [b"\0\2c", b"\0\2d"]}
    assert generation.records == 5, "notes are none"


def test_what_came_before_the_notes_that_are_left_is_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrived, "KEYS_MAX", 2)
    generation = Generation(tmp_path / "generation", MAP_BYTES, is_writer=True)
    generation.write({}, META)
    for offset, key in enumerate((b"\0\1a", b"\0\1b", b"\0\1c", b"\0\1d")):
        appended(generation, offset, key)
    # The key before the last two of them is noted still.
    assert since(generation, 1) == {1: [b"\0\1b", b"\0\1c", b"\0\1d"]}
    assert since(generation, 0) is None
    assert generation.records == 4


def test_a_generation_with_records_that_were_not_noted_does_not_tell_of_them(tmp_path: Path) -> None:
    """As one that a release without notes began."""
    generation = Generation(tmp_path / "generation", MAP_BYTES, is_writer=True)
    generation.write({b"\0\1a": b"value"}, META)
    assert since(generation, 0) is None
    appended(generation, 1, b"\0\1b")
    assert since(generation, 0) is None
    assert since(generation, 1) == {1: [b"\0\1b"]}
