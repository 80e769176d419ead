"""The compaction task: files of a bucket, less their deletes → the same rows in files of the target size.

The rows are merged in key order, a piece of each file at a time: what is in memory has a bound, however large
the bucket is. Where each row went is written down (`MOVES_SCHEMA`), so that deletes that a batch makes
meanwhile can follow their rows (``landing``).

Knows nothing of Spark: it runs in a Spark worker, in a process of its own, or in a test by a plain call.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thermocline.failpoints import failpoint
from thermocline.iceberg.data_file import ROW_GROUP_ROWS, DataFileWriter, WrittenFile
from thermocline.iceberg.deletes import read_deletes
from thermocline.iceberg.rows import Positions, placed_rows
from thermocline.iceberg.sparse_index import load_sparse_index
from thermocline.rules.definition import KEY

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from thermocline.iceberg.files import DataFile
    from thermocline.rules.definition import LiveTable

__all__ = ["MOVES_SCHEMA", "Compacted", "CompactionTask", "rewrite_of"]

ROWS_IN_MEMORY: Final = 256 * ROW_GROUP_ROWS
"""Of all files of a task together: a quarter of a million rows, before they are sorted."""
_ROWS_WRITTEN: Final = 8 * ROW_GROUP_ROWS
"""Written at once: a file ends so close to its target size."""
UNSORTED_ROWS_MAX: Final = 2_000_000
"""Of a file that is not in key order, as another writer may leave it: it is sorted in memory."""

MOVES_SCHEMA: Final = pa.schema([("source", pa.int32()), ("position", pa.int64())])
"""One row for each that was written, in that order: the index of its input, and its position there."""

_ENDING: Final = "-rewrite-"
_NO_PIECE: Final = (np.zeros(0, np.int64), pa.table({}))


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a task wrote.

    ``inputs`` are the files whose live rows it merged, with the deletes that they had; ``added`` hold them,
    in key order. ``moves`` is the path of an Arrow file (`MOVES_SCHEMA`) that says from where each row came,
    through all files of ``added``.
    """

    bucket: int
    inputs: tuple[DataFile, ...]
    added: tuple[WrittenFile, ...]
    moves: str

    def paths(self) -> list[str]:
        """All files that it wrote."""
        return [self.moves, *(file.path for file in self.added)]


@dataclass(frozen=True, slots=True)
class CompactionTask:
    """Files of one bucket that shall be merged.

    ``data_location`` is the folder of the table's data files, ``moves_location`` that of what is only needed
    until the task has landed; both are URIs.
    """

    io: FileIO
    definition: LiveTable
    data_location: str
    moves_location: str
    bucket: int
    files: tuple[DataFile, ...]
    target_bytes: int

    def run(self) -> Compacted:
        """Merge. What an error leaves behind is named by no commit."""
        failpoint("compact.start")
        rows_at_once = max(ROW_GROUP_ROWS, ROWS_IN_MEMORY // max(len(self.files), 1))
        inputs: list[DataFile] = []
        runs: list[_Run] = []
        for file in self.files:
            run = _Run.of(self.io, self.definition, len(runs), file, rows_at_once)
            if run is not None:
                inputs.append(file)
                runs.append(run)
        stem = uuid.uuid4()
        moves = f"{self.moves_location}/{stem}.arrow"
        with self.io.new_output(moves).create() as sink, pa.ipc.new_file(sink, MOVES_SCHEMA) as placed:
            added = tuple(self._written(runs, placed, f"{self.data_location}/bucket={self.bucket}/{stem}"))
        failpoint("compact.done")
        return Compacted(self.bucket, tuple(inputs), added, moves)

    def _written(
        self, runs: Sequence[_Run], placed: pa.RecordBatchWriter, stem: str
    ) -> Iterator[WrittenFile]:
        writer: DataFileWriter | None = None
        count = 0
        for rows, moved in _merged(runs):
            placed.write_table(moved)
            for start in range(0, rows.num_rows, _ROWS_WRITTEN):
                if writer is None:
                    writer = DataFileWriter(self.io, f"{stem}{_ENDING}{count:04}.parquet", self.definition)
                    count += 1
                writer.write(rows.slice(start, _ROWS_WRITTEN))
                if writer.file_bytes >= self.target_bytes:
                    yield _finished(writer)
                    writer = None
        if writer is not None:
            yield _finished(writer)


def rewrite_of(path: str) -> str:
    """What the names of the files of one rewrite begin with; empty for any other file."""
    name = path.rpartition("/")[2]
    return name.partition(_ENDING)[0] if _ENDING in name else ""


def _finished(writer: DataFileWriter) -> WrittenFile:
    with writer:
        return writer.finish()


class _Run:
    """The live rows of one file in key order, of which a piece is in memory."""

    def __init__(self, source: int, pieces: Iterator[tuple[Positions, pa.Table]]) -> None:
        self.source = source
        self._pieces = pieces
        self.positions, self.rows = next(pieces, _NO_PIECE)

    @classmethod
    def of(
        cls, io: FileIO, definition: LiveTable, source: int, file: DataFile, rows_at_once: int
    ) -> _Run | None:
        """None for a file that would have to be sorted, and is too large for it."""
        deleted = read_deletes(io, file.deletes) if file.deletes is not None else None
        pieces = placed_rows(io, definition, file.path, deleted, rows_at_once)
        if load_sparse_index(io, file.path, definition).is_sorted:
            return cls(source, pieces)
        return cls(source, _sorted_whole(pieces)) if file.rows <= UNSORTED_ROWS_MAX else None

    @property
    def last_key(self) -> pa.Scalar:
        """Of the piece in memory."""
        return self.rows.column(KEY)[-1]

    def take(self, cutoff: pa.Scalar) -> Iterator[tuple[pa.Table, pa.Table]]:
        """The rows in memory up to a key, with where they come from; where none is left, more are read."""
        end = pc.sum(pc.less_equal(self.rows.column(KEY), cutoff)).as_py()
        if not end:
            return
        sources = pa.array(np.full(end, self.source, np.int32))
        yield (
            self.rows.slice(0, end),
            pa.Table.from_arrays([sources, pa.array(self.positions[:end])], schema=MOVES_SCHEMA),
        )
        self.positions, self.rows = self.positions[end:], self.rows.slice(end)
        if not self.rows.num_rows:
            self.positions, self.rows = next(self._pieces, _NO_PIECE)


def _sorted_whole(pieces: Iterator[tuple[Positions, pa.Table]]) -> Iterator[tuple[Positions, pa.Table]]:
    found = list(pieces)
    if found:
        rows = pa.concat_tables([rows for _, rows in found])
        order = pc.sort_indices(rows, [(KEY, "ascending")])
        yield np.concatenate([positions for positions, _ in found])[order.to_numpy()], rows.take(order)


def _merged(runs: Sequence[_Run]) -> Iterator[tuple[pa.Table, pa.Table]]:
    """All rows in key order, piece by piece, each with where its rows come from."""
    while live := [run for run in runs if run.rows.num_rows]:
        # Beyond the least of the last keys, a run may go on with a key that another one has in memory.
        cutoff = reduce(
            lambda one, other: other if other.as_py() < one.as_py() else one, map(_last_key, live)
        )
        parts = [part for run in live for part in run.take(cutoff)]
        rows = pa.concat_tables([rows for rows, _ in parts])
        moved = pa.concat_tables([moved for _, moved in parts])
        if len(parts) > 1:
            order = pc.sort_indices(rows.column(KEY).combine_chunks())
            rows, moved = rows.take(order), moved.take(order)
        yield rows, moved


def _last_key(run: _Run) -> pa.Scalar:
    return run.last_key
