"""The compaction task: files of a bucket, less their deletes → the same rows in files of the target size.

The rows are merged in key order (``merge``), a piece of each file at a time: what is in memory has a bound,
however large the bucket is. Where each row went is written down (`MOVES_SCHEMA`), so that deletes of batches
meanwhile can follow their rows (``landing``).

Where new files have more buckets than the table's unit of work, as while their number is being raised, the
rows go to a file of each of these buckets.

Knows nothing of Spark: it runs in a Spark worker, in a process of its own, or in a test by a plain call.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import pyarrow as pa

from thermocline.failpoints import failpoint
from thermocline.iceberg.data_file import ROW_GROUP_ROWS, DataFileWriter, WrittenFile
from thermocline.iceberg.file_buckets import FileBucket
from thermocline.iceberg.files import deleted_on_error, new_file
from thermocline.maintenance.merge import ORIGIN, merged_rows
from thermocline.rules.keys import buckets

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from thermocline.iceberg.files import DataFile
    from thermocline.rules.definition import LiveTable

__all__ = ["MOVES_SCHEMA", "Compacted", "CompactionTask", "rewrite_of"]

_SLICES: Final = 8
"""In which a file of the target size is written, at least: it ends so close to it. Fewer take less CPU."""
_SLICE_ROWS_MIN: Final = ROW_GROUP_ROWS

MOVES_SCHEMA: Final = pa.schema([*ORIGIN, ("_file", pa.int32())])
"""One row for each that was written, of each file in its order: the index of its input, its position there,
and the index of the file that it went to. The rows of a batch went to one file."""

_ENDING: Final = "-rewrite-"


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a task wrote.

    ``inputs`` are the files whose live rows it merged, with the deletes that they had; ``added`` hold these,
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
        stem = uuid.uuid4()
        moves = f"{self.moves_location}/{stem}.arrow"
        stem_path = f"{self.data_location}/bucket={self.bucket}/{stem}"
        with deleted_on_error(self.io, [moves]) as begun:
            with new_file(self.io, moves) as sink, pa.ipc.new_file(sink, MOVES_SCHEMA) as placed:
                added = self._written(placed, stem_path, begun)
            failpoint("compact.done")
        return Compacted(self.bucket, self.files, added, moves)

    def _written(self, placed: pa.RecordBatchWriter, stem: str, begun: list[str]) -> tuple[WrittenFile, ...]:
        finished: dict[int, WrittenFile] = {}
        with ExitStack() as opened:
            outputs: dict[FileBucket, _Output] = {}
            merged = opened.enter_context(closing(merged_rows(self.io, self.definition, self.files)))
            for rows in merged:
                for part, some in self._by_part(rows):
                    if part not in outputs:
                        output = _Output(self, part, placed, stem, begun, finished)
                        outputs[part] = opened.enter_context(output)
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
        """More rows, in key order; at least one."""
        slice_bytes, row_bytes = self._task.target_bytes / _SLICES, rows.nbytes / rows.num_rows
        slice_rows = max(int(slice_bytes / row_bytes), _SLICE_ROWS_MIN)
        for start in range(0, rows.num_rows, slice_rows):
            some = rows.slice(start, slice_rows)
            if self._writer is None:
                self._writer = self._next()
            index = pa.array(np.full(some.num_rows, self._index, np.int32))
            moves = some.select(ORIGIN.names).append_column(MOVES_SCHEMA.field("_file"), index)
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
