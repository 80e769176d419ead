"""Winners of a batch that come too late: the table has a row, or remembers a delete, of a higher sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thermocline.iceberg.rows import declared, moved_rows
from thermocline.rules.definition import PROVENANCE, SEQUENCE, TOMBSTONE
from thermocline.upsert.stored_rows import rows_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyiceberg.io import FileIO
    from pyroaring import BitMap

    from thermocline.iceberg.files import DataFile
    from thermocline.iceberg.tombstones import Tombstones
    from thermocline.rules.definition import LiveTable
    from thermocline.upsert.probe import Positions, Replaced
    from thermocline.upsert.unchanged import Mask

__all__ = ["forgotten_before_ms", "late_winners", "moved_with_tombstones"]

_HOUR_MS = 3_600_000
_TIME = PROVENANCE[3]


def late_winners(io: FileIO, definition: LiveTable, hits: Sequence[Replaced], winners: pa.Table) -> Mask:
    """For each winner, whether it loses against what the table has or remembers of its key.

    Reads the columns that order the records, in the row groups of these rows alone.
    """
    is_late = np.zeros(winners.num_rows, dtype=bool)
    ours = winners.column(SEQUENCE).combine_chunks()
    schema = definition.row_schema
    for hit in hits:
        for positions, indexes in (
            (hit.positions, hit.key_indexes),
            (hit.remembered, hit.remembered_indexes),  # safety: sequence-remembers
        ):
            for some, stored in _rows_at(io, hit, positions, definition):
                count = len(indexes[some])
                names = definition.merging.ordered_by
                columns = [declared(stored, schema.field(name), count) for name in names]
                below = definition.merging.sequences(pa.Table.from_arrays(columns, names=list(names)))
                # As `fold.loses` says of one.
                # safety: sequence-late-in-ingest
                is_below = pc.less(ours.take(pa.array(indexes[some])), below)
                is_late[indexes[some][is_below.to_numpy(zero_copy_only=False)]] = True
    return is_late


def _rows_at(
    io: FileIO, hit: Replaced, positions: Positions, definition: LiveTable
) -> Iterator[tuple[slice, pa.Table]]:
    if len(positions):
        yield from rows_at(io, definition, hit.file.path, positions, definition.merging.ordered_by)


def forgotten_before_ms(definition: LiveTable, records: pa.Table, now_ms: int) -> int:
    """Deletes that were appended before may be forgotten, by the time of the oldest of a batch's records.

    By the log's time: ingest that is behind by days forgets as if it were not. A time in the future counts as
    now, so a producer whose clock is fast can't make it forget more.
    """
    # safety: sequence-oldest-time
    oldest = pc.min(records.column(_TIME)).cast(pa.int64()).as_py()
    if oldest is None:  # of no log: nothing is forgotten by it
        return 0
    oldest_ms = int(oldest) // 1000
    oldest_ms = min(oldest_ms, now_ms)  # safety: sequence-future-time
    return oldest_ms - definition.tombstone_retention_hours * _HOUR_MS


def moved_with_tombstones(
    io: FileIO,
    definition: LiveTable,
    file: DataFile,
    deleted: BitMap,
    tombstones: Tombstones,
    before_ms: int,
) -> Iterator[pa.Table]:
    """The live rows of a file that is merged, and the deletes that are still to be remembered.

    As `moved_rows` gives them; which are which says `TOMBSTONE`.
    """
    remembered = np.asarray(tombstones.positions.to_array(), np.int64)
    for positions, rows in moved_rows(io, definition, file, deleted - tombstones.positions):
        is_tombstone = np.isin(positions, remembered, assume_unique=True)
        times_ms = rows.column(_TIME).cast(pa.int64()).to_numpy() // 1000
        is_kept = ~is_tombstone | (times_ms >= before_ms)  # safety: sequence-retention
        marked = rows.append_column(TOMBSTONE, pa.array(is_tombstone, pa.bool_()))
        yield marked if is_kept.all() else marked.filter(pa.array(is_kept))
