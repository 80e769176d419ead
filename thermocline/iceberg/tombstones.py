"""The deletes that a table with ``sequence_by`` remembers, as rows that nobody else sees.

A late upsert must lose against a delete that came before it. So the delete is written as a row of the batch's
data file, with its key, its sequence and where it comes from, and the same commit deletes that row again.
Every engine leaves it out; here, the file's footer says which of its deleted rows are remembered deletes.
What a snapshot remembers is therefore in its files, and follows them through every commit and rollback.

Source: Iceberg table specification, "Scan Planning": position deletes and deletion vectors also apply to data
files of their own commit.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap

from thermocline.iceberg.files import open_input
from thermocline.iceberg.sparse_index import first_keys_in
from thermocline.rules.definition import PROVENANCE, TOMBSTONE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.io import FileIO

__all__ = ["FOOTER_KEY", "NO_TOMBSTONES", "Tombstones", "footer_entry", "load_tombstones", "tombstones_in"]

FOOTER_KEY = "thermocline.tombstones"
_MICROSECONDS = 1000  # in a millisecond


@dataclass(frozen=True, slots=True)
class Tombstones:
    """The remembered deletes of one data file: their positions, and the append time of the newest one."""

    positions: BitMap = field(default_factory=BitMap)
    newest_ms: int = -1

    def with_rows(self, rows: pa.Table, start: int) -> Tombstones:
        """Those of the file with more rows, from that position on. Rows that don't say so are none."""
        if TOMBSTONE not in rows.column_names:
            return self
        found = np.flatnonzero(rows.column(TOMBSTONE).to_numpy())
        if not len(found):
            return self
        times = pc.filter(rows.column(PROVENANCE[3]), rows.column(TOMBSTONE)).cast("int64")
        positions = self.positions | BitMap((found + start).astype(np.uint32))
        return Tombstones(positions, max(self.newest_ms, pc.max(times).as_py() // _MICROSECONDS))


NO_TOMBSTONES = Tombstones()


def footer_entry(tombstones: Tombstones) -> dict[str, str]:
    """The key-value metadata that a data file's footer carries them in; nothing where there are none."""
    if not tombstones.positions:
        return {}
    packed = msgspec.msgpack.encode((tombstones.positions.serialize(), tombstones.newest_ms))
    return {FOOTER_KEY: base64.b64encode(packed).decode()}


def tombstones_in(footer: pq.FileMetaData) -> Tombstones:
    """The remembered deletes of a file, by its footer; none where its index tells that it was copied."""
    entry = (footer.metadata or {}).get(FOOTER_KEY.encode())
    if entry is None or first_keys_in(footer) is None:  # safety: tombstones-of-this-file
        return NO_TOMBSTONES
    positions, newest_ms = msgspec.msgpack.decode(base64.b64decode(entry), type=tuple[bytes, int])
    return Tombstones(BitMap.deserialize(positions), newest_ms)


def load_tombstones(io: FileIO, path: str) -> Tombstones:
    """The same of the file at a path."""
    with open_input(io, path) as source:
        return tombstones_in(pq.read_metadata(source))
