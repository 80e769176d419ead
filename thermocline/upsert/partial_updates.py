"""Columns that a batch's records leave as they are, filled from the rows that they replace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from thermocline.iceberg.rows import declared
from thermocline.rules import fold
from thermocline.rules.fold import absent_columns
from thermocline.upsert.stored_rows import rows_at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyiceberg.io import FileIO

    from thermocline.rules.definition import LiveTable
    from thermocline.rules.fold import Flags, Indexes
    from thermocline.upsert.probe import Replaced

__all__ = ["filled"]


def filled(io: FileIO, definition: LiveTable, hits: Sequence[Replaced], winners: pa.Table) -> pa.Table:
    """The winners, whose absent columns have the values of the live row of their key; null without one.

    Reads the row groups of these rows alone. What it takes is in memory, at most a row for each winner.
    """
    absent = absent_columns(winners)
    return fold.filled(winners, absent, *_stored(io, definition, hits, absent, winners.num_rows))


def _stored(
    io: FileIO,
    definition: LiveTable,
    hits: Sequence[Replaced],
    absent: Mapping[str, Flags],
    winners: int,
) -> tuple[Indexes, pa.Table]:
    """The live rows of the winners that lack a column: which winner each belongs to, and those columns."""
    schema = pa.schema([definition.records_schema.field(name) for name in absent])
    is_partial = np.zeros(winners, np.bool_)
    for flags in absent.values():
        is_partial |= flags
    places, pieces = [np.empty(0, np.int64)], [schema.empty_table()]
    for hit in hits:
        wanted = is_partial[hit.key_indexes]
        positions, indexes = hit.positions[wanted], hit.key_indexes[wanted]
        for some, stored in rows_at(io, definition, hit.file.path, positions, schema.names):
            count = len(indexes[some])
            pieces.append(pa.table([declared(stored, field, count) for field in schema], schema=schema))
            places.append(indexes[some])
    return np.concatenate(places), pa.concat_tables(pieces)
