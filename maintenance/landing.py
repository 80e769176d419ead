"""Fits what a compaction task wrote to the table as it is by then.

While the task ran, batches went on: they deleted rows of its inputs, and must not have removed any of them
(`ingest` leaves files alone that it is told are being compacted). Deletes that the task did not know follow
their rows into the new files, by position, so no work is thrown away and no row comes back.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from thermocline.iceberg.deletes import read_deletes, write_deletes
from thermocline.iceberg.files import DataFile, open_input
from thermocline.upsert.bucket_task import BucketResult

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from thermocline.maintenance.compact import Compacted
    from thermocline.rules.definition import LiveTable

__all__ = ["landing"]


def landing(
    io: FileIO, definition: LiveTable, data_location: str, done: Compacted, files: Sequence[DataFile]
) -> BucketResult | None:
    """What a commit has to name, with the files of the bucket as they are now; new deletes are written.

    None where the task can't land: an input is not part of the table any more.
    """
    now = {file.path: file for file in files}
    if any(file.path not in now for file in done.inputs):  # safety: compacted-inputs-are-live
        return None
    inputs = [now[file.path] for file in done.inputs]
    late = {
        number: deleted
        for number, (was, is_now) in enumerate(zip(done.inputs, inputs, strict=True))
        if (deleted := _deleted_since(io, was, is_now))
    }
    by_file = _moved(io, done, late) if late else {}
    stem = f"{data_location}/bucket={done.bucket}/{uuid.uuid4()}"
    return BucketResult(
        bucket=done.bucket,
        added=done.added,
        deletes=write_deletes(io, stem, definition.format_version, by_file),
        removed=tuple(inputs),
        parts={file.path: file.part for file in done.added},
    )


def _deleted_since(io: FileIO, was: DataFile, is_now: DataFile) -> BitMap | None:
    if is_now.deletes == was.deletes or is_now.deletes is None:
        return None
    before = read_deletes(io, was.deletes) if was.deletes is not None else BitMap()
    return read_deletes(io, is_now.deletes) - before


def _moved(io: FileIO, done: Compacted, late: Mapping[int, BitMap]) -> dict[str, BitMap]:
    """Where rows are now that were deleted meanwhile, by the new file's path."""
    is_late = {}
    for number, deleted in late.items():
        is_late[number] = np.zeros(done.inputs[number].rows, bool)
        is_late[number][np.asarray(deleted.to_array(), np.int64)] = True
    by_file: dict[str, BitMap] = {}
    for index, start, moved in _moves(io, done.moves):
        path = done.added[index].path
        sources, positions = moved.column("_source").to_numpy(), moved.column("_position").to_numpy()
        for number, mask in is_late.items():
            rows = np.flatnonzero(sources == number)
            hits = rows[mask[positions[rows]]] + start  # safety: late-deletes-follow-their-rows
            if len(hits):
                by_file[path] = by_file.get(path, BitMap()) | BitMap(hits.astype(np.uint32))
    return by_file


def _moves(io: FileIO, path: str) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """The file of moves, piece by piece: the index of a new file, and from which of its rows on it is."""
    written: Counter[int] = Counter()
    with open_input(io, path) as source:
        reader = pa.ipc.open_file(source)
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            index = batch.column("_file")[0].as_py()
            yield index, written[index], batch
            written[index] += batch.num_rows
