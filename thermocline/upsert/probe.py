"""The probe: where in a bucket's data files the keys of a batch stand.

Only key columns are read. A file of many row groups is read where its sparse index says that one of the keys
may stand. The young files of small batches are many instead of large, and a batch of random keys hits nearly
each of their row groups: their keys stay in the worker, and are joined many files at a time. The live catalog
keeps those of large files, too, since it probes once a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap

from thermocline.bounded import Bounded
from thermocline.iceberg.data_file import ROW_GROUP_ROWS
from thermocline.iceberg.deletes import read_deletes
from thermocline.iceberg.files import open_input
from thermocline.iceberg.sparse_index import SparseIndex, load_sparse_index
from thermocline.iceberg.tombstones import NO_TOMBSTONES, Tombstones, load_tombstones
from thermocline.rules.keys import encode_table

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from thermocline.iceberg.files import DataFile, Deletes
    from thermocline.rules.definition import LiveTable

Positions = np.ndarray[tuple[int], np.dtype[np.int64]]
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

# Row groups read at once, and as many keys of young files joined at once: a quarter of a million keys, some
# 15 MB, however large a file is and however many there are.
GROUPS_AT_ONCE = 256
# That is with keys of so many bytes on average; of longer ones, fewer at once.
_KEY_BYTES = 60
# A file of up to 16 row groups is young: a batch of a few hundred random keys reads nearly all of it anyway.
YOUNG_ROWS_MAX = 16 * ROW_GROUP_ROWS
# What a worker keeps of young files' keys, some 50 bytes each: two and a half million of them, such as 500
# commits of 5,000 records. It is on top of what a bucket's records take. What does not fit is read again.
_YOUNG_KEYS_BYTES_MAX = 128 << 20
# What a worker keeps of deletes: 2 bytes a deleted row, so those of as many young files.
_DELETES_BYTES_MAX = 32 << 20
# What a worker keeps of the indexes of large files: 50 bytes for a row group of 1,024 rows, so of a table of
# half a billion rows.
_INDEXES_BYTES_MAX = 32 << 20
# Beside its bytes, an object of Python and its entry.
_ENTRY_BYTES = 200
# Small files read at once: on an object store each takes the time of an answer, whatever its size.
_READS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Replaced:
    """What a batch replaces in one data file.

    ``positions`` are live rows of the file, ``key_indexes`` the batch's keys that stand there (aligned).
    ``remembered`` are deletes that the file remembers, ``remembered_indexes`` the batch's keys of these.
    """

    file: DataFile
    positions: Positions
    key_indexes: Positions
    deleted_before: BitMap | None
    remembered: Positions = field(default_factory=lambda: _NOWHERE)
    remembered_indexes: Positions = field(default_factory=lambda: _NOWHERE)


_NOWHERE: Positions = np.empty(0, np.int64)


@dataclass(slots=True)
class WorkerCache:
    """What a worker keeps of files, by path, since a data file never changes."""

    young_keys: Bounded[str, pa.Array] = field(default_factory=lambda: Bounded(_YOUNG_KEYS_BYTES_MAX))
    deletes: Bounded[Deletes, BitMap] = field(default_factory=lambda: Bounded(_DELETES_BYTES_MAX))
    tombstones: Bounded[str, Tombstones] = field(default_factory=lambda: Bounded(_DELETES_BYTES_MAX))
    indexes: Bounded[str, SparseIndex] = field(default_factory=lambda: Bounded(_INDEXES_BYTES_MAX))
    group_keys: Bounded[tuple[str, int], pa.Array] = field(default_factory=lambda: Bounded(0))
    """Of row groups of large files, by their number. None in ingest, whose batches meet all of them: what is
    kept of one would be gone before the next."""


worker_cache = WorkerCache()
"""That of this process. Spark's workers outlive their tasks; a bucket may come to any."""


def probe(io: FileIO, definition: LiveTable, files: Sequence[DataFile], keys: pa.Array) -> Iterator[Replaced]:
    """The files in which keys of the batch are live, or their deletes are remembered.

    ``keys`` are encoded, unique and sorted.
    """
    young = [file for file in files if file.rows <= YOUNG_ROWS_MAX]
    large = [file for file in files if file.rows > YOUNG_ROWS_MAX]
    for found in chain(
        _in_young_files(io, definition, young, keys), _in_large_files(io, definition, large, keys)
    ):
        yield from _live(
            io, [hit for hit in found if len(hit.positions)], definition.merging.remembers_deletes
        )


def keep_keys(path: str, keys: pa.Array) -> None:
    """Spare the next probe the reading of a file that was just written; ``keys`` are those of its rows."""
    if len(keys) <= YOUNG_ROWS_MAX:
        worker_cache.young_keys.put(path, keys, keys.nbytes + _ENTRY_BYTES)


def keep_group_keys(bytes_max: int) -> None:
    """From now on, keep so much of the keys of large files; for whoever probes often, with few keys."""
    worker_cache.group_keys = Bounded(bytes_max)


def keep_deletes(deletes: Deletes, positions: BitMap) -> None:
    """Spare the next probe the reading of deletes that were just written. They must not change any more."""
    worker_cache.deletes.put(deletes, positions, 2 * len(positions) + _ENTRY_BYTES)


def deleted_positions(io: FileIO, file: DataFile) -> BitMap | None:
    """The rows of a file that were deleted; None where none were. They must not be changed."""
    if file.deletes is None:
        return None
    return _through(worker_cache.deletes, [file.deletes], lambda one: _deleted_by(io, one))[0]


def tombstones_of(io: FileIO, file: DataFile) -> Tombstones:
    """The deletes that a file remembers. They must not be changed."""
    if file.deletes is None:
        return NO_TOMBSTONES
    return _through(worker_cache.tombstones, [file.path], lambda path: _load_tombstones(io, path))[0]


def together(items: Sequence[T], size_of: Callable[[T], int], size_max: int) -> Iterator[list[T]]:
    """The items in order, in lists of at most that size; an item that is larger alone."""
    some: list[T] = []
    size = 0
    for item in items:
        if some and size + size_of(item) > size_max:
            yield some
            some, size = [], 0
        some.append(item)
        size += size_of(item)
    if some:
        yield some


def _live(io: FileIO, hits: Sequence[Replaced], remembers: bool) -> Iterator[Replaced]:
    """What is left of the hits without rows that were deleted before; apart, those that are remembered."""
    deletes = [hit.file.deletes for hit in hits if hit.file.deletes is not None]
    read = _through(worker_cache.deletes, deletes, lambda one: _deleted_by(io, one))
    deleted = dict(zip(deletes, read, strict=True))
    for hit in hits:
        before = deleted.get(hit.file.deletes) if hit.file.deletes is not None else None
        if before is None:
            yield hit
            continue
        is_live = ~_are_in(hit.positions, before)
        known = tombstones_of(io, hit.file).positions if remembers else BitMap()
        is_known = _are_in(hit.positions, known) if known else ~is_live & False
        if is_live.any() or is_known.any():  # safety: a-deleted-row-is-not-live
            yield Replaced(
                hit.file,
                hit.positions[is_live],
                hit.key_indexes[is_live],
                before,
                hit.positions[is_known],
                hit.key_indexes[is_known],
            )


def _are_in(positions: Positions, bitmap: BitMap) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.isin(positions, np.asarray(bitmap.to_array(), dtype=np.int64), assume_unique=True)


def _in_young_files(
    io: FileIO, definition: LiveTable, files: Sequence[DataFile], keys: pa.Array
) -> Iterator[list[Replaced]]:
    for some in together(files, lambda file: file.rows, _groups_at_once(keys) * ROW_GROUP_ROWS):
        hits: list[Replaced] = []
        arrays = _through(
            worker_cache.young_keys, [file.path for file in some], lambda path: _keys_of(io, definition, path)
        )
        rows, key_indexes = _hits(pa.chunked_array(arrays, pa.binary()), keys)
        ends = np.cumsum([len(array) for array in arrays])
        edges = np.searchsorted(rows, ends[:-1])
        starts = ends - [len(array) for array in arrays]
        for file, start, found, indexes in zip(
            some, starts, np.split(rows, edges), np.split(key_indexes, edges), strict=True
        ):
            hits.append(Replaced(file, found - start, indexes, None))  # safety: positions-are-the-file's-own
        yield hits


def _in_large_files(
    io: FileIO, definition: LiveTable, files: Sequence[DataFile], keys: pa.Array
) -> Iterator[list[Replaced]]:
    sorted_keys = keys.to_pylist() if files else []
    for some in together(files, lambda _: 1, _READS_AT_ONCE):  # whose deletes are read at once
        hits: list[Replaced] = []
        for file in some:
            index = _index_of(io, definition, file.path)
            groups = index.groups_of(sorted_keys)
            if groups:
                hits.append(_in_row_groups(io, definition, file, index, groups, keys))
        yield hits


def _in_row_groups(
    io: FileIO,
    definition: LiveTable,
    file: DataFile,
    index: SparseIndex,
    groups: list[int],
    keys: pa.Array,
) -> Replaced:
    positions, key_indexes = [], []
    rows_max = _groups_at_once(keys) * ROW_GROUP_ROWS
    for some in together(groups, lambda group: index.rows[group], rows_max):
        places, first = _rows_of(index, some), 0
        if len(places) <= rows_max:
            pieces = iter([_keys_of_groups(io, definition, file.path, index, some)])
        else:
            pieces = _keys_in_pieces(io, definition, file.path, some, rows_max)
        for stored in pieces:
            found, indexes = _hits(stored, keys)
            positions.append(places[first + found])
            key_indexes.append(indexes)
            first += len(stored)
    return Replaced(file, np.concatenate(positions), np.concatenate(key_indexes), None)


def _keys_of_groups(
    io: FileIO, definition: LiveTable, path: str, index: SparseIndex, groups: Sequence[int]
) -> pa.ChunkedArray:
    """The keys of some row groups, in their order; those that are not kept are read."""
    kept = worker_cache.group_keys
    found = {group: stored for group in groups if (stored := kept.get((path, group))) is not None}
    missing = [group for group in groups if group not in found]
    if missing:
        with open_input(io, path) as source:
            parquet = pq.ParquetFile(source, pre_buffer=True)
            rows = parquet.read_row_groups(missing, columns=list(definition.identity), use_threads=False)
        read, start = encode_table(definition, rows), 0
        for group in missing:
            end = start + int(index.rows[group])
            # A copy, since a part of an array would keep all of it.
            found[group] = read.take(pa.array(range(start, end)))
            kept.put((path, group), found[group], found[group].nbytes + _ENTRY_BYTES)
            start = end
    return pa.chunked_array([found[group] for group in groups])  # safety: kept-keys-in-order


def _keys_in_pieces(
    io: FileIO, definition: LiveTable, path: str, groups: list[int], rows_max: int
) -> Iterator[pa.ChunkedArray]:
    """The same of row groups that another writer made large."""
    with open_input(io, path) as source:
        parquet = pq.ParquetFile(source, pre_buffer=True)
        columns = list(definition.identity)
        for rows in parquet.iter_batches(rows_max, row_groups=groups, columns=columns, use_threads=False):
            yield pa.chunked_array([encode_table(definition, rows)])


def _groups_at_once(keys: pa.Array) -> int:
    """Row groups whose keys are held at once, if those of the table are as long as those of the batch."""
    mean_bytes = keys.nbytes / max(len(keys), 1)
    return max(1, int(GROUPS_AT_ONCE * min(1, _KEY_BYTES / max(mean_bytes, 1))))


def _hits(stored: pa.ChunkedArray, keys: pa.Array) -> tuple[Positions, Positions]:
    """Which of the stored keys are among the batch's, ascending, and which of the batch's each one is."""
    found = pc.index_in(stored, value_set=keys)
    rows: Positions = np.flatnonzero(found.is_valid().to_numpy()).astype(np.int64)
    return rows, found.drop_null().to_numpy().astype(np.int64)


def _rows_of(index: SparseIndex, groups: list[int]) -> Positions:
    """The file positions of the rows of some row groups, in reading order."""
    return np.concatenate([np.arange(index.rows[g], dtype=np.int64) + index.row_starts[g] for g in groups])


def _index_of(io: FileIO, definition: LiveTable, path: str) -> SparseIndex:
    index = worker_cache.indexes.get(path)
    if index is None:
        index = load_sparse_index(io, path, definition)
        held = sum(map(len, index.first_keys)) + _ENTRY_BYTES * len(index.first_keys)
        worker_cache.indexes.put(path, index, held)
    return index


def _keys_of(io: FileIO, definition: LiveTable, path: str) -> pa.Array:
    with open_input(io, path) as source:
        parquet = pq.ParquetFile(source, pre_buffer=True)
        keys = encode_table(definition, parquet.read(columns=list(definition.identity), use_threads=False))
    keep_keys(path, keys)
    return keys


def _load_tombstones(io: FileIO, path: str) -> Tombstones:
    found = load_tombstones(io, path)
    worker_cache.tombstones.put(path, found, 2 * len(found.positions) + _ENTRY_BYTES)
    return found


def _deleted_by(io: FileIO, deletes: Deletes) -> BitMap:
    deleted = read_deletes(io, deletes)
    keep_deletes(deletes, deleted)
    return deleted


def _through(kept: Bounded[K, V], names: Sequence[K], read: Callable[[K], V]) -> list[V]:
    """What is kept under the names, in their order; what isn't is read, a few at once."""
    values = {name: value for name in names if (value := kept.get(name)) is not None}
    missing = [name for name in names if name not in values]
    if missing:
        with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
            values.update(zip(missing, pool.map(read, missing), strict=True))
    return [values[name] for name in names]
