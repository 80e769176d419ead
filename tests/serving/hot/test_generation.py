"""One LMDB file of hot records: what is said to fit into its map does fit."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

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
