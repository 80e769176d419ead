"""From which records the rows of a file may come: those that the batch read which added the file.

A row that comes from a later record is not in the snapshot's seam; one that comes from an earlier record is
an old value that somebody put back. Both are seen without the log.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from thermocline.iceberg.catalog import (
    ACCEPTED_BYTES_MAX,
    ACCEPTED_ENTRIES_MAX,
    ACCEPTED_PROPERTY,
    TAKEN_IN_PROPERTY,
)
from thermocline.rules.definition import PROVENANCE
from thermocline.rules.seam import Seam

if TYPE_CHECKING:
    from thermocline.iceberg.lineage import Link

# From here on, an entry may have been dropped to make room for one of the largest.
_FULL_BYTES: Final = ACCEPTED_BYTES_MAX - (64 << 10)

Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class OffsetWindow:
    """Offsets from ``first`` up to, not including, ``end``; None where there is no bound that is known.

    ``took_in``: rows may come from no record, since the table took in rows of another source.
    """

    first: Seam | None
    end: Seam | None
    took_in: bool = False

    def outside(self, rows: pa.Table | pa.RecordBatch) -> tuple[Mask, Mask]:
        """Which rows come from records at or beyond the end, or from none; which from before ``first``."""
        topics, partitions, offsets = (_one_chunk(rows.column(name)) for name in PROVENANCE[:3])
        nowhere: Mask = np.zeros(rows.num_rows, np.bool_)
        for column in (topics, partitions, offsets):
            nowhere |= column.is_null().to_numpy(zero_copy_only=False)
        topics, partitions, offsets = topics.fill_null(""), partitions.fill_null(0), offsets.fill_null(0)
        names = topics.dictionary_encode()
        numbers = partitions.to_numpy().astype(np.int64)
        place_of = names.indices.to_numpy().astype(np.int64) << 32 | numbers
        places, index = np.unique(place_of, return_inverse=True)
        known = [(names.dictionary[int(one >> 32)].as_py(), int(one & 0xFFFFFFFF)) for one in places]
        at = offsets.to_numpy()
        beyond, behind = nowhere.copy(), np.zeros(rows.num_rows, np.bool_)
        if self.end is not None:
            beyond |= at >= _offsets(self.end, known)[index]
        if self.first is not None:
            behind |= (at < _offsets(self.first, known)[index]) & ~nowhere  # safety: verify-behind
        return (beyond & ~nowhere if self.took_in else beyond), behind


@dataclass(frozen=True, slots=True)
class Origins:
    """The windows of a table's files, by the snapshot that added them."""

    windows: Mapping[int, OffsetWindow]
    before: OffsetWindow

    @classmethod
    def of(
        cls, links: Sequence[Link], properties: Mapping[str, str | None], rewrites: Collection[int] = ()
    ) -> Origins:
        """From what main's snapshots say. Of files that came with expired ones, less is known.

        ``rewrites`` are snapshots of others that are known to have kept every row.
        """
        took_in = TAKEN_IN_PROPERTY in properties
        windows: dict[int, OffsetWindow] = {}
        farthest = _farthest(links[:1], properties)
        for before, link in pairwise(links):
            if farthest is not None and link.snapshot_id not in rewrites:
                farthest = None if link.state is None else farthest.merged_max(link.state.seam)
            if link.state is None or link.is_rewrite or link.carried:
                windows[link.snapshot_id] = OffsetWindow(None, farthest, took_in)
            else:
                first = None if before.state is None or link.is_beside_the_log else before.state.seam
                windows[link.snapshot_id] = OffsetWindow(first, link.state.seam, took_in)
        return cls(windows, OffsetWindow(None, _farthest(links[:1], properties), took_in))

    def of_file(self, snapshot_id: int) -> OffsetWindow:
        """Where the rows of a file come from that a snapshot added."""
        return self.windows.get(snapshot_id, self.before)


def _farthest(links: Sequence[Link], properties: Mapping[str, str | None]) -> Seam | None:
    """As far as any of the logs was read that the table was told to leave, or the snapshots say."""
    text = properties.get(ACCEPTED_PROPERTY) or "[]"
    try:
        entries = json.loads(text)
        if len(entries) >= ACCEPTED_ENTRIES_MAX or len(text) > _FULL_BYTES:
            return None
        farthest = Seam()
        for entry in entries:
            farthest = farthest.merged_max(Seam.from_dict(entry["seam_before"]))
    except (ValueError, TypeError, KeyError):
        return None
    for link in links:
        if link.state is None:
            return None
        farthest = farthest.merged_max(link.state.seam)
    return farthest


def _offsets(seam: Seam, places: Sequence[tuple[str, int]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array([seam.get(place) for place in places], np.int64)


def _one_chunk(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
