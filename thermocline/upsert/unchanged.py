"""Rows of a batch that repeat what the table has; for tables with ``suppress_unchanged``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thermocline.rules.column_types import Kind
from thermocline.rules.comparable import nested_as_bytes
from thermocline.rules.definition import TOMBSTONE
from thermocline.upsert.stored_rows import rows_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.io import FileIO

    from thermocline.rules.definition import Column, LiveTable
    from thermocline.upsert.probe import Positions, Replaced

Mask = np.ndarray[Any, np.dtype[np.bool_]]


def unchanged_keys(io: FileIO, definition: LiveTable, hits: Sequence[Replaced], winners: pa.Table) -> Mask:
    """For each winner, whether its key is live exactly once, in a row with the same values.

    A tombstone never is. Of the columns, those of the definition count and provenance does not. A key that
    is live more than once (which only another writer can bring about) is not either: it is to be mended.
    """
    times_live = np.zeros(winners.num_rows, dtype=np.int64)
    is_same = np.zeros(winners.num_rows, dtype=bool)
    values = winners.select([column.name for column in definition.value_columns])
    is_row = pc.invert(winners.column(TOMBSTONE)).to_numpy()
    for hit in hits:
        np.add.at(times_live, hit.key_indexes, 1)
        compared = is_row[hit.key_indexes]  # safety: a-tombstone-is-never-suppressed
        if compared.any():
            positions, indexes = hit.positions[compared], hit.key_indexes[compared]
            is_same[indexes[_are_same(io, definition, hit.file.path, positions, values, indexes)]] = True
    unchanged: Mask = is_same & (times_live == 1)  # safety: a-key-live-twice-is-mended
    return unchanged


def _are_same(
    io: FileIO, definition: LiveTable, path: str, positions: Positions, winners: pa.Table, indexes: Positions
) -> Mask:
    """Whether each row of the file has the values of its winner. Reads the row groups of these rows alone."""
    if not definition.value_columns:
        return np.ones(len(positions), dtype=bool)
    names = [column.name for column in definition.value_columns]
    same = [
        _is_each_same(definition, stored, winners.take(pa.array(indexes[some])))
        for some, stored in rows_at(io, definition, path, positions, names)
    ]
    return np.concatenate(same)


def _is_each_same(definition: LiveTable, stored: pa.Table, wanted: pa.Table) -> Mask:
    """Row by row. A column that the stored rows lack is null in them: it was added later."""
    same: Mask = np.ones(wanted.num_rows, dtype=bool)
    for column in definition.value_columns:
        new = _comparable(wanted.column(column.name), column)
        if column.name in stored.column_names:
            old = _comparable(stored.column(column.name), column)
        else:
            old = pa.nulls(wanted.num_rows, new.type)
        # safety: null-is-not-any-value
        is_equal = pc.fill_null(pc.equal(old, new), pc.and_(old.is_null(), new.is_null()))
        same &= is_equal.to_numpy(zero_copy_only=False)
    return same


def _comparable(values: pa.ChunkedArray, column: Column) -> pa.Array:
    """The declared type, which a file from before an alteration may not have; a double as its bits.

    As numbers, 0.0 equals -0.0, which a reader tells apart, and NaN does not equal itself.
    """
    array = values.combine_chunks()
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if array.type != column.type.arrow:
        array = array.cast(column.type.arrow)
    if column.type.fields:
        return nested_as_bytes(column.type, array)
    # safety: doubles-are-compared-as-bits
    return array.view(pa.int64()) if column.type.kind is Kind.DOUBLE else array
