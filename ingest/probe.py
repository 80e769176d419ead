"""The probe: where in a bucket's data files the keys of a batch stand.

Only the key columns are read, and only of the row groups that may hold one of the keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from thermocline.deletes import read_vector
from thermocline.files import open_input
from thermocline.keys import encode_table
from thermocline.sparse_index import SparseIndex, load_sparse_index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.io import FileIO
    from pyroaring import BitMap

    from thermocline.definition import LiveTable
    from thermocline.files import DataFile

Positions = np.ndarray[tuple[int], np.dtype[np.int64]]

# Row groups read at once: half a million keys, some 30 MB, whatever the size of the file.
_GROUPS_AT_ONCE = 256
# Indexes kept by a worker between batches: a few kilobytes each, for the files of the buckets that it meets.
_INDEXES_MAX = 4_096


@dataclass(frozen=True, slots=True)
class Replaced:
    """What a batch replaces in one data file.

    ``positions`` are live rows of the file, ``key_indexes`` the batch's keys that stand there (aligned).
    """

    file: DataFile
    positions: Positions
    key_indexes: Positions
    deleted_before: BitMap | None


def probe(io: FileIO, definition: LiveTable, files: Sequence[DataFile], keys: pa.Array) -> Iterator[Replaced]:
    """The files in which keys of the batch are live. ``keys`` are encoded, unique and sorted."""
    sorted_keys = keys.to_pylist()
    for file in files:
        index = _index_of(io, definition, file.path)
        groups = index.groups_of(sorted_keys)
        if not groups:
            continue
        positions, key_indexes = _positions_of(io, definition, file, index, groups, keys)
        if not len(positions):
            continue
        deleted = read_vector(io, file.deletes) if file.deletes else None
        if deleted is not None:
            is_live = ~np.isin(positions, np.asarray(deleted.to_array(), dtype=np.int64), assume_unique=True)
            positions, key_indexes = positions[is_live], key_indexes[is_live]
        if len(positions):
            yield Replaced(file, positions, key_indexes, deleted)


def _positions_of(
    io: FileIO,
    definition: LiveTable,
    file: DataFile,
    index: SparseIndex,
    groups: list[int],
    keys: pa.Array,
) -> tuple[Positions, Positions]:
    positions, key_indexes = [], []
    with open_input(io, file.path) as source:
        parquet = pq.ParquetFile(source, pre_buffer=True)
        for start in range(0, len(groups), _GROUPS_AT_ONCE):
            some = groups[start : start + _GROUPS_AT_ONCE]
            rows = parquet.read_row_groups(some, columns=list(definition.key), use_threads=False)
            found = pc.index_in(encode_table(definition, rows), value_set=keys)
            is_hit = found.is_valid().to_numpy(zero_copy_only=False)
            positions.append(_rows_of(index, some)[is_hit])
            key_indexes.append(found.drop_null().to_numpy().astype(np.int64))
    return np.concatenate(positions), np.concatenate(key_indexes)


def _rows_of(index: SparseIndex, groups: list[int]) -> Positions:
    """The file positions of the rows of some row groups, in reading order."""
    return np.concatenate([np.arange(index.rows[g], dtype=np.int64) + index.row_starts[g] for g in groups])


def _index_of(io: FileIO, definition: LiveTable, path: str) -> SparseIndex:
    index = _INDEXES.get(path)
    if index is None:
        while len(_INDEXES) >= _INDEXES_MAX:
            del _INDEXES[next(iter(_INDEXES))]
        index = _INDEXES[path] = load_sparse_index(io, path, definition)
    return index


# By path, since a data file never changes; the oldest go first.
_INDEXES: dict[str, SparseIndex] = {}
