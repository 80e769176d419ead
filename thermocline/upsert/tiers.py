"""Size tiers: they choose the files that a batch merges into the one that it writes, so that few stay small.

Each batch adds a file to every bucket that it changes. Left alone, the files of a bucket, the deletes of a
commit and the files that a lookup opens would grow with the number of commits. So files are in tiers by their
live rows, each tier `FANOUT` times the one below: where the new file would be the `FANOUT`-th of its tier, it
takes the others of that tier and of those below with it, and may so fill the next one. A bucket then has
fewer than `FANOUT` files a tier, beside those that are too large to be merged, and a row is written about
once a tier.

Rows that were deleted do not count, so a file with few live rows left goes with small ones. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from thermocline.iceberg.files import DataFile

__all__ = ["FANOUT", "files_to_merge"]

FANOUT: Final = 4
# Below it, all files are of one tier: they cost the same, whatever they hold.
SMALL_ROWS: Final = 1_024
MERGED_BYTES_MAX: Final = 32 << 20
"""Of the files that one batch merges in one bucket; what they take unpacked has a bound of its own."""


def files_to_merge(files: Sequence[DataFile], live: Mapping[str, int], rows: int) -> list[DataFile]:
    """The files that go into a new file of ``rows`` rows, smallest first.

    ``live`` are the rows of each file, by path, that are left after the batch. A file without any is taken in
    any case: it just goes. Files that a compaction holds stay.
    """
    free = [file for file in files if not file.is_held]  # safety: held-files-stay
    free.sort(key=lambda file: live[file.path])
    merged = [file for file in free if not live[file.path]]
    rest = free[len(merged) :]
    taken: list[DataFile] = []
    while True:
        before = len(taken)
        tier = _tier(rows + sum(live[file.path] for file in taken))
        taken = list(_up_to(tier, rest, live))
        if len(taken) - before < FANOUT - 1:
            return [*merged, *taken[:before]]


def _up_to(tier: int, smallest_first: Sequence[DataFile], live: Mapping[str, int]) -> Iterator[DataFile]:
    """The files of the tier and of those below that one batch merges. Those of a lower tier come first."""
    room_bytes = MERGED_BYTES_MAX
    for file in smallest_first:
        if _tier(live[file.path]) <= tier and file.bytes <= room_bytes:
            room_bytes -= file.bytes
            yield file


def _tier(rows: int) -> int:
    tier = 0
    while rows >= SMALL_ROWS * FANOUT**tier:
        tier += 1
    return tier
