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

MOVES_SCHEMA: Final = pa.schema([("_source", pa.int32()), ("_position", pa.int64())])
"""One row for each that was written, in that order: the index of its input, and its position there."""

_ENDING: Final = "-rewrite-"


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
        rows_at_once = max(ROW_GROUP_ROWS, ROWS_IN_MEMORY // max(2 * len(self.files), 1))
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
        for rows in _merged(runs):
            placed.write_table(rows.select(MOVES_SCHEMA.names))
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
    """The live rows of one file in key order, with where they come from; some are in memory."""

    def __init__(self, source: int, pieces: Iterator[tuple[Positions, pa.Table]], rows_at_once: int) -> None:
        self._source = source
        self._pieces = pieces
        self._rows_at_once = rows_at_once
        self.rows = pa.table({})
        self._fill()

    @classmethod
    def of(
        cls, io: FileIO, definition: LiveTable, source: int, file: DataFile, rows_at_once: int
    ) -> _Run | None:
        """None for a file that would have to be sorted, and is too large for it."""
        deleted = read_deletes(io, file.deletes) if file.deletes is not None else None
        pieces = placed_rows(io, definition, file.path, deleted, rows_at_once)
        if not load_sparse_index(io, file.path, definition).is_sorted:
            if file.rows > UNSORTED_ROWS_MAX:
                return None
            pieces = _sorted_whole(pieces)
        return cls(source, pieces, rows_at_once)

    @property
    def last_key(self) -> bytes:
        """Of the rows in memory."""
        key: bytes = self.rows.column(KEY)[-1].as_py()
        return key

    def take(self, cutoff: bytes) -> pa.Table:
        """The rows in memory up to a key; more are read where few are left."""
        end = pc.sum(pc.less_equal(self.rows.column(KEY), pa.scalar(cutoff, pa.binary()))).as_py()
        taken = self.rows.slice(0, end)
        self.rows = self.rows.slice(end)
        self._fill()
        return taken

    def _fill(self) -> None:
        """Never fewer rows than are read at once, so that a step goes far in all files together."""
        while self.rows.num_rows < self._rows_at_once and (piece := next(self._pieces, None)) is not None:
            positions, rows = piece
            sources = pa.array(np.full(len(positions), self._source, np.int32))
            placed = pa.Table.from_arrays([sources, pa.array(positions)], schema=MOVES_SCHEMA)
            for field in MOVES_SCHEMA:
                rows = rows.append_column(field, placed.column(field.name))
            self.rows = pa.concat_tables([self.rows, rows]) if self.rows.num_rows else rows


def _sorted_whole(pieces: Iterator[tuple[Positions, pa.Table]]) -> Iterator[tuple[Positions, pa.Table]]:
    found = list(pieces)
    if found:
        rows = pa.concat_tables([rows for _, rows in found])
        order = pc.sort_indices(rows, [(KEY, "ascending")])
        yield np.concatenate([positions for positions, _ in found])[order.to_numpy()], rows.take(order)


def _merged(runs: Sequence[_Run]) -> Iterator[pa.Table]:
    """All rows in key order, piece by piece, each with where it comes from."""
    while live := [run for run in runs if run.rows.num_rows]:
        # Beyond the least of the last keys, a run may go on with a key that another one has in memory.
        cutoff = min(run.last_key for run in live)
        parts = [rows for run in live if (rows := run.take(cutoff)).num_rows]
        rows = pa.concat_tables(parts)
        yield rows.sort_by(KEY) if len(parts) > 1 else rows
