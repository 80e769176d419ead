"""The compaction task: files of a bucket, less their deletes → the same rows in files of the target size.

The rows are merged in key order, a piece of each file at a time: what is in memory has a bound, however large
the bucket is. Where each row went is written down (`MOVES_SCHEMA`), so that deletes that a batch makes
meanwhile can follow their rows (``landing``).

Where new files have more buckets than the table's unit of work, as while their number is being raised, the
rows go to a file of each of these buckets.

Knows nothing of Spark: it runs in a Spark worker, in a process of its own, or in a test by a plain call.
"""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thermocline.failpoints import failpoint
from thermocline.iceberg.data_file import ROW_GROUP_ROWS, DataFileWriter, WrittenFile
from thermocline.iceberg.deletes import read_deletes
from thermocline.iceberg.file_buckets import FileBucket
from thermocline.iceberg.files import delete_files
from thermocline.iceberg.rows import Positions, moved_rows
from thermocline.iceberg.sparse_index import load_sparse_index
from thermocline.rules.definition import KEY
from thermocline.rules.keys import buckets

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from thermocline.iceberg.files import DataFile
    from thermocline.rules.definition import LiveTable

__all__ = ["MOVES_SCHEMA", "Compacted", "CompactionTask", "rewrite_of"]

ROWS_IN_MEMORY: Final = 256 * ROW_GROUP_ROWS
"""Of all files of a task together: a quarter of a million rows, before they are sorted."""
BYTES_IN_MEMORY: Final = 256 << 20
"""The same in bytes, which fewer rows take that are long; what is sorted and written is beside it."""
_ROWS_WRITTEN: Final = 8 * ROW_GROUP_ROWS
"""Written at once: a file ends so close to its target size."""
UNSORTED_ROWS_MAX: Final = 2_000_000
"""Of a file that is not in key order, as another writer may leave it: it is sorted in memory."""

_ORIGIN: Final = pa.schema([("_source", pa.int32()), ("_position", pa.int64())])
MOVES_SCHEMA: Final = pa.schema([*_ORIGIN, ("_file", pa.int32())])
"""One row for each that was written, of each file in its order: the index of its input, its position there,
and the index of the file that it went to. The rows of a batch went to one file."""

_ENDING: Final = "-rewrite-"


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a task wrote.

    ``inputs`` are the files whose live rows it merged, with the deletes that they had; ``added`` hold them,
    in key order within each bucket. ``moves`` is the path of an Arrow file (`MOVES_SCHEMA`) that says from
    where each row came.
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
        files = max(len(self.files), 1)
        inputs: list[DataFile] = []
        runs: list[_Run] = []
        for file in self.files:
            run = _Run.of(self.io, self.definition, len(runs), file, 1 / (2 * files))
            if run is not None:
                inputs.append(file)
                runs.append(run)
        stem = uuid.uuid4()
        moves = f"{self.moves_location}/{stem}.arrow"
        stem_path = f"{self.data_location}/bucket={self.bucket}/{stem}"
        begun = [moves]
        try:
            with self.io.new_output(moves).create() as sink, pa.ipc.new_file(sink, MOVES_SCHEMA) as placed:
                added = self._written(runs, placed, stem_path, begun)
            failpoint("compact.done")
        except Exception:
            delete_files(self.io, begun)  # nobody else knows of them
            raise
        return Compacted(self.bucket, tuple(inputs), added, moves)

    def _written(
        self, runs: Sequence[_Run], placed: pa.RecordBatchWriter, stem: str, begun: list[str]
    ) -> tuple[WrittenFile, ...]:
        finished: dict[int, WrittenFile] = {}
        with ExitStack() as open_files:
            outputs: dict[FileBucket, _Output] = {}
            for rows in _merged(runs):
                for part, some in self._by_part(rows):
                    if part not in outputs:
                        output = _Output(self, part, placed, stem, begun, finished)
                        outputs[part] = open_files.enter_context(output)
                    outputs[part].write(some)
            for output in outputs.values():
                output.finish()
        return tuple(file for _, file in sorted(finished.items()))

    def _by_part(self, rows: pa.Table) -> Iterator[tuple[FileBucket, pa.Table]]:
        """The rows by the bucket that new files are in, in the same order."""
        definition, of = self.definition, self.definition.buckets_written
        if of == definition.buckets:
            yield FileBucket(self.bucket, of), rows
            return
        numbers = buckets(definition, rows.column(definition.bucket_column.name), of)
        for number in np.unique(numbers).tolist():
            # safety: rewritten-in-place
            yield FileBucket(number, of), rows.filter(pa.array(numbers == number))


class _Output:
    """The files of one bucket, one after the other, of the target size each; moves are written beside."""

    def __init__(
        self,
        task: CompactionTask,
        part: FileBucket,
        placed: pa.RecordBatchWriter,
        stem: str,
        begun: list[str],
        finished: dict[int, WrittenFile],
    ) -> None:
        self._task, self._part, self._placed, self._stem = task, part, placed, stem
        self._begun, self._finished = begun, finished
        self._writer: DataFileWriter | None = None
        self._index = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._writer is not None:
            self._writer.__exit__(*error)

    def write(self, rows: pa.Table) -> None:
        """More rows, in key order."""
        for start in range(0, rows.num_rows, _ROWS_WRITTEN):
            some = rows.slice(start, _ROWS_WRITTEN)
            if self._writer is None:
                self._writer = self._next()
            index = pa.array(np.full(some.num_rows, self._index, np.int32))
            moves = some.select(_ORIGIN.names).append_column(MOVES_SCHEMA.field("_file"), index)
            self._placed.write_batch(moves.combine_chunks().to_batches()[0])
            self._writer.write(some)
            if self._writer.file_bytes >= self._task.target_bytes:
                self.finish()

    def finish(self) -> None:
        """End the file that is open, if one is."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            with writer:
                self._finished[self._index] = writer.finish()

    def _next(self) -> DataFileWriter:
        self._index = len(self._begun) - 1  # the first is the file of moves
        self._begun.append(f"{self._stem}{_ENDING}{self._index:04}.parquet")
        return DataFileWriter(self._task.io, self._begun[-1], self._task.definition, self._part)


def rewrite_of(path: str) -> str:
    """What the names of the files of one rewrite begin with; empty for any other file."""
    name = path.rpartition("/")[2]
    return name.partition(_ENDING)[0] if _ENDING in name else ""


class _Run:
    """The live rows of one file in key order, with where they come from; some are in memory."""

    def __init__(self, source: int, pieces: Iterator[tuple[Positions, pa.Table]], rows_at_once: int) -> None:
        self._source = source
        self._pieces = pieces
        self._rows_at_once = rows_at_once
        self.rows = pa.table({})
        self._fill()

    @classmethod
    def of(cls, io: FileIO, definition: LiveTable, source: int, file: DataFile, share: float) -> _Run | None:
        """With its share of what may be in memory. None for an unsorted file that is too large to sort."""
        row_bytes = _row_bytes(io, definition, file)
        rows_at_once = max(int(share * min(ROWS_IN_MEMORY, BYTES_IN_MEMORY / row_bytes)), 1)
        deleted = read_deletes(io, file.deletes) if file.deletes is not None else None
        pieces = moved_rows(io, definition, file, deleted, rows_at_once)
        if not load_sparse_index(io, file.path, definition).is_sorted:
            if file.rows > UNSORTED_ROWS_MAX or file.rows * row_bytes > BYTES_IN_MEMORY:
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
        keys = self.rows.column(KEY)
        end = bisect_right(range(len(keys)), cutoff, key=lambda place: keys[place].as_py())
        taken = self.rows.slice(0, end)
        self.rows = self.rows.slice(end)
        self._fill()
        return taken

    def _fill(self) -> None:
        """Never fewer rows than are read at once, so that a step goes far in all files together."""
        while self.rows.num_rows < self._rows_at_once and (piece := next(self._pieces, None)) is not None:
            positions, rows = piece
            sources = pa.array(np.full(len(positions), self._source, np.int32))
            placed = pa.Table.from_arrays([sources, pa.array(positions)], schema=_ORIGIN)
            for field in _ORIGIN:
                rows = rows.append_column(field, placed.column(field.name))
            self.rows = pa.concat_tables([self.rows, rows]) if self.rows.num_rows else rows


def _row_bytes(io: FileIO, definition: LiveTable, file: DataFile) -> float:
    """What a row takes in memory, by the first ones of the file."""
    _, rows = next(moved_rows(io, definition, file, None, ROW_GROUP_ROWS), (None, None))
    return 1.0 if rows is None else float(rows.nbytes / rows.num_rows)


def _sorted_whole(pieces: Iterator[tuple[Positions, pa.Table]]) -> Iterator[tuple[Positions, pa.Table]]:
    found = list(pieces)
    if found:
        rows = pa.concat_tables([rows for _, rows in found])
        order = pc.sort_indices(rows, [(KEY, "ascending")])
        yield np.concatenate([positions for positions, _ in found])[order.to_numpy()], rows.take(order)


def _merged(runs: Sequence[_Run]) -> Iterator[pa.Table]:
    """All rows in key order, piece by piece, with where each comes from."""
    while live := [run for run in runs if run.rows.num_rows]:
        # Beyond the least of the last keys, a run may go on with a key that another one has in memory.
        cutoff = min(run.last_key for run in live)
        parts = [rows for run in live if (rows := run.take(cutoff)).num_rows]
        rows = pa.concat_tables(parts)
        if len(parts) > 1:
            rows = rows.combine_chunks().sort_by(KEY)
        yield rows
