"""The bucket task: (a bucket, its files and deletes, new records) → the files it wrote.

Knows nothing of Spark: it runs in a Spark worker, and in a test by a plain call.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from ingest.probe import probe
from thermocline.data_file import WrittenFile, write_data_file
from thermocline.definition import KEY, TOMBSTONE
from thermocline.deletes import write_vectors
from thermocline.files import DataFile, DeletionVector
from thermocline.fold import fold

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from thermocline.definition import LiveTable


@dataclass(frozen=True, slots=True)
class BucketResult:
    """What a bucket task did.

    ``added`` is None when no row is left to write. ``vectors`` are the deletion vectors written, by data
    file; ``replaced`` those of before, which the commit removes. The counts add up to the records that came
    in: applied + superseded + unchanged.
    """

    bucket: int
    added: WrittenFile | None
    vectors: dict[str, DeletionVector]
    replaced: dict[str, DeletionVector]
    applied: int
    superseded: int
    unchanged: int
    keys_in_several_partitions: int
    conflict_example: bytes | None = None


def run_bucket_task(
    io: FileIO,
    definition: LiveTable,
    data_location: str,
    bucket: int,
    files: Sequence[DataFile],
    records: pa.Table,
) -> BucketResult:
    """Fold the records, find the rows that they replace, write one sorted data file and the deletes.

    Args:
        data_location: the folder of the table's data files, as a URI.
        files: the bucket's live data files in the snapshot that the batch was planned on.
        records: ``definition.records_schema``, at least one, all of this bucket.
    """
    folded = fold(records)
    winners = folded.winners
    keys = winners.column(KEY).combine_chunks()
    vectors: dict[str, BitMap] = {}
    replaced: dict[str, DeletionVector] = {}
    was_live = np.zeros(len(keys), dtype=bool)
    for hit in probe(io, definition, files, keys):
        was_live[hit.key_indexes] = True
        vectors[hit.file.path] = BitMap(hit.positions.astype(np.uint32)) | (hit.deleted_before or BitMap())
        if hit.file.deletes is not None:
            replaced[hit.file.path] = hit.file.deletes

    is_tombstone = winners.column(TOMBSTONE).combine_chunks().to_numpy(zero_copy_only=False)
    unchanged = int(np.count_nonzero(is_tombstone & ~was_live))
    rows = winners.filter(pc.invert(winners.column(TOMBSTONE)))
    # One name for the files of one run: a second attempt of the task writes others.
    stem = f"{data_location}/bucket={bucket}/{uuid.uuid4()}"
    written_vectors = write_vectors(io, f"{stem}-deletes.puffin", vectors) if vectors else {}
    added = write_data_file(io, f"{stem}.parquet", definition, rows) if rows.num_rows else None
    return BucketResult(
        bucket=bucket,
        added=added,
        vectors=written_vectors,
        replaced=replaced,
        applied=len(keys) - unchanged,
        superseded=folded.superseded,
        unchanged=unchanged,
        keys_in_several_partitions=folded.conflicts,
        conflict_example=folded.conflict_example,
    )
