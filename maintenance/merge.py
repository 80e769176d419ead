"""The live rows of several files of a bucket in key order, a piece of each file in memory at a time.

A file that is not in key order, as another writer may leave it, is first sorted in runs that fit into memory,
each in a temporary file; these are merged like any others. So no file is too large.
"""

from __future__ import annotations

import fcntl
import math
import os
from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from tempfile import gettempdir
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import pyarrow as pa

from thermocline.iceberg.data_file import ROW_GROUP_ROWS
from thermocline.iceberg.deletes import read_deletes
from thermocline.iceberg.rows import moved_rows
from thermocline.iceberg.sparse_index import load_sparse_index
from thermocline.process.private_folder import temporary_folder
from thermocline.rules.definition import KEY

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from thermocline.iceberg.files import DataFile
    from thermocline.rules.definition import LiveTable

__all__ = ["FOLDER_PREFIX", "ORIGIN", "merged_rows"]

ROWS_IN_MEMORY: Final = 256 * ROW_GROUP_ROWS
"""Of all files together: a quarter of a million rows, before they are sorted."""
BYTES_IN_MEMORY: Final = 256 << 20
"""The same in bytes, which fewer rows take that are long; what is sorted and written is beside it."""
SORTED_ROWS_MAX: Final = 2_000_000
"""Sorted at once, of a file that is not in key order; also no more than `BYTES_IN_MEMORY`."""
ROWS_READ: Final = 8 * ROW_GROUP_ROWS
"""At once, of a file: rows may be longer than those before them."""
FOLDER_PREFIX: Final = "thermocline-rewrite-"
"""Of the temporary folders."""

ORIGIN: Final = pa.schema([("_source", pa.int32()), ("_position", pa.int64())])
"""Where a row comes from: the index of its file, and its position there."""


def merged_rows(
    io: FileIO, definition: LiveTable, files: Sequence[DataFile]
) -> Generator[pa.Table, None, None]:
    """All live rows in key order, piece by piece, with where each comes from (`ORIGIN`).

    Raises what the store raises, and `OSError` where the temporary folder is full.
    """
    _remove_left_folders()
    sources = [_Source.of(io, definition, number, file) for number, file in enumerate(files)]
    share = 1 / (2 * max(sum(source.runs for source in sources), 1))
    with ExitStack() as until_the_end:
        yield from _merged([run for source in sources for run in source.opened(share, until_the_end)])


def _merged(runs: Sequence[_Run]) -> Iterator[pa.Table]:
    while live := [run for run in runs if run.rows.num_rows]:
        # Beyond the least of the last keys, a run may go on with a key that another one has in memory.
        cutoff = min(run.last_key for run in live)
        parts = [rows for run in live if (rows := run.take(cutoff)).num_rows]
        rows = pa.concat_tables(parts)
        if len(parts) > 1:
            rows = rows.combine_chunks().sort_by(KEY)
        yield rows


@dataclass(frozen=True, slots=True)
class _Source:
    """A file to merge; ``row_bytes`` is about what a row of it takes in memory."""

    io: FileIO
    definition: LiveTable
    number: int
    file: DataFile
    row_bytes: float
    is_sorted: bool

    @classmethod
    def of(cls, io: FileIO, definition: LiveTable, number: int, file: DataFile) -> Self:
        """By the first rows of the file, and its index."""
        _, rows = next(moved_rows(io, definition, file, None, ROW_GROUP_ROWS), (None, None))
        row_bytes = 1.0 if rows is None else float(rows.nbytes / rows.num_rows)
        is_sorted = load_sparse_index(io, file.path, definition).is_sorted
        return cls(io, definition, number, file, row_bytes, is_sorted)

    @property
    def runs(self) -> int:
        """How many it is merged as, at most."""
        return 1 if self.is_sorted else max(math.ceil(self.file.rows / self._sorted_rows), 1)

    @property
    def _sorted_rows(self) -> int:
        return max(int(min(SORTED_ROWS_MAX, BYTES_IN_MEMORY / self.row_bytes)), 1)

    def opened(self, share: float, until_the_end: ExitStack) -> Iterator[_Run]:
        """The runs, each with its share of what may be in memory."""
        if self.is_sorted:
            yield _Run(self._pieces(_rows_read(share, self.row_bytes)), share)
            return
        pieces = self._pieces(min(ROWS_READ, self._sorted_rows))
        folder = until_the_end.enter_context(_folder())
        for number, rows in enumerate(_joined(pieces, self._sorted_rows)):
            path = folder / f"{number}.arrow"
            _write(path, rows.sort_by(KEY), _rows_read(share, rows.nbytes / rows.num_rows))
            yield _Run(_read(path), share)

    def _pieces(self, rows_at_once: int) -> Iterator[pa.Table]:
        deleted = read_deletes(self.io, self.file.deletes) if self.file.deletes is not None else None
        for positions, rows in moved_rows(self.io, self.definition, self.file, deleted, rows_at_once):
            sources = pa.array(np.full(len(positions), self.number, np.int32))
            yield rows.append_column(ORIGIN[0], sources).append_column(ORIGIN[1], pa.array(positions))


class _Run:
    """Rows in key order, some of which are in memory: a share of what may be, and up to a piece more."""

    def __init__(self, pieces: Iterator[pa.Table], share: float) -> None:
        self._pieces = pieces
        self._share = share
        self.rows = pa.table({})
        self._fill()

    @property
    def last_key(self) -> bytes:
        """Of the rows in memory."""
        key: bytes = self.rows.column(KEY)[-1].as_py()
        return key

    def take(self, cutoff: bytes) -> pa.Table:
        """The rows in memory up to a key; more are read where few are left."""
        keys = self.rows.column(KEY)
        end = bisect_right(range(len(keys)), cutoff, key=lambda place: keys[place].as_py())
        taken = self.rows.slice(0, end)
        self.rows = self.rows.slice(end)
        self._fill()
        return taken

    def _fill(self) -> None:
        """Always the whole share, so that a step goes far in all files together."""
        while self._has_room and (rows := next(self._pieces, None)) is not None:
            self.rows = pa.concat_tables([self.rows, rows]) if self.rows.num_rows else rows

    @property
    def _has_room(self) -> bool:
        rows: int = self.rows.num_rows
        size: int = self.rows.nbytes
        return rows < self._share * ROWS_IN_MEMORY and size < self._share * BYTES_IN_MEMORY


def _rows_read(share: float, row_bytes: float) -> int:
    """At once, where rows have about that size: no more than the share of what may be in memory."""
    return max(int(min(ROWS_READ, share * ROWS_IN_MEMORY, share * BYTES_IN_MEMORY / row_bytes)), 1)


def _joined(pieces: Iterator[pa.Table], rows_at_least: int) -> Iterator[pa.Table]:
    """The same rows in pieces of so many; of fewer where they are longer than the first ones let expect."""
    some: list[pa.Table] = []
    count = size = 0
    for piece in pieces:
        some.append(piece)
        count += piece.num_rows
        size += piece.nbytes
        if count >= rows_at_least or size >= BYTES_IN_MEMORY:
            yield pa.concat_tables(some).combine_chunks()
            some, count, size = [], 0, 0
    if some:
        yield pa.concat_tables(some).combine_chunks()


@contextmanager
def _folder() -> Iterator[Path]:
    """A temporary folder, locked for as long as this process is in it: a lock ends with its process."""
    with ExitStack() as until_the_end:
        while (folder := _locked(until_the_end)) is None:
            pass  # another one of us took it for left, before it was locked
        yield folder


def _locked(until_the_end: ExitStack) -> Path | None:
    """A new folder with its lock; None where it is gone again."""
    folder = until_the_end.enter_context(temporary_folder(FOLDER_PREFIX))
    try:
        lock = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return None
    until_the_end.callback(os.close, lock)
    with suppress(OSError):  # on a disk without locks, nobody removes what is left either
        fcntl.flock(lock, fcntl.LOCK_EX)
    return folder if folder.exists() else None


def _remove_left_folders() -> None:
    """Those of processes that were killed, as far as they can be removed: gigabytes each."""
    for folder in Path(gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        with suppress(OSError):  # locked, or another user's, or removed by another one of us
            lock = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                rmtree(folder)
            finally:
                os.close(lock)


def _write(path: Path, rows: pa.Table, rows_at_once: int) -> None:
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema, options=options) as file:
        file.write_table(rows, max_chunksize=rows_at_once)


def _read(path: Path) -> Iterator[pa.Table]:
    with pa.OSFile(str(path)) as source:
        file = pa.ipc.open_file(source)
        for number in range(file.num_record_batches):
            yield pa.Table.from_batches([file.get_batch(number)])
