"""A table of one bucket on real files, changed by bucket tasks alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import PyArrowFileIO

from thermocline.iceberg.deletes import read_deletes
from thermocline.iceberg.files import RowOrigin, local_path
from thermocline.rules.definition import LiveTable
from thermocline.rules.keys import encode_table
from thermocline.upsert.bucket_task import BucketResult, run_bucket_task
from thermocline.upsert.files_by_bucket import FilesByBucket, after_commit, by_bucket
from thermocline.upsert.tiers import MERGED_BYTES_MAX

DEFINITION = LiveTable.build(
    name="profiles",
    identifier="app.profiles",
    topics=["profiles"],
    key=["app_id", "user_id", "key"],
    entity=["app_id", "user_id"],
    buckets=2,
    columns={"app_id": "int", "user_id": "string", "key": "string", "value": "string"},
)
IO = PyArrowFileIO()
Key = tuple[int, str, str]
Record = tuple[int, Key, str | None]


def records_of(batch: Sequence[Record], partition: int = 0) -> pa.Table:
    """Records (offset, key, value or None for a tombstone) as decoding gives them."""
    keys = [key for _, key, _ in batch]
    table = pa.table(
        {
            "app_id": pa.array([k[0] for k in keys], pa.int32()),
            "user_id": pa.array([k[1] for k in keys], pa.string()),
            "key": pa.array([k[2] for k in keys], pa.string()),
            "value": pa.array([value for _, _, value in batch], pa.string()),
            "_kafka_topic": pa.array(["profiles"] * len(batch), pa.string()),
            "_kafka_partition": pa.array([partition] * len(batch), pa.int32()),
            "_kafka_offset": pa.array([offset for offset, _, _ in batch], pa.int64()),
            "_kafka_timestamp": pa.array([0] * len(batch), pa.timestamp("us", "UTC")),
            "_tombstone": pa.array([value is None for _, _, value in batch], pa.bool_()),
        }
    )
    return table.append_column("_key", encode_table(DEFINITION, table)).cast(DEFINITION.records_schema)


def live_rows(files: FilesByBucket) -> list[tuple[Key, str]]:
    rows = []
    for file in (file for some in files.values() for file in some):
        deleted = read_deletes(IO, file.deletes) if file.deletes else ()
        for position, row in enumerate(pq.read_table(local_path(file.path), partitioning=None).to_pylist()):
            if position not in deleted:
                rows.append(((row["app_id"], row["user_id"], row["key"]), row["value"]))
    return rows


def merge_by_row_groups(target: Path, sources: Sequence[str]) -> None:
    """As other writers merge files: their row groups one after the other, with the first one's metadata."""
    files = [pq.ParquetFile(local_path(source)) for source in sources]
    with pq.ParquetWriter(target, files[0].schema_arrow) as writer:
        for file in files:
            for group in range(file.num_row_groups):
                writer.write_table(file.read_row_group(group))
        kept = {key: value for key, value in files[0].metadata.metadata.items() if key != b"ARROW:schema"}
        writer.add_key_value_metadata(kept)


class OneBucketTable:
    """A table of one bucket that is only ever changed by bucket tasks.

    Where it ``merges`` no files, they are all said to be too large for that.
    """

    def __init__(self, folder: Path, definition: LiveTable = DEFINITION, merges: bool = True) -> None:
        self.definition = definition
        self.merges = merges
        self.location = folder.as_uri()
        self.files: FilesByBucket = by_bucket(())
        self.held: frozenset[str] = frozenset()

        self.commits = 0
        self.next_row_id = 0

    def upsert(self, batch: Sequence[Record]) -> BucketResult:
        return self.run(records_of(batch))

    def run(self, records: pa.Table) -> BucketResult:
        files = self.files.get(0, ())
        if not self.merges:
            files = [replace(file, bytes=MERGED_BYTES_MAX + 1) for file in files]
        files = [replace(file, is_held=file.path in self.held) for file in files]
        done = run_bucket_task(IO, self.definition, self.location, 0, files, records)
        self.commit(done)
        return done

    def commit(self, done: BucketResult) -> None:
        """The files as they are after it; their rows get ids as Iceberg gives them."""
        self.commits += 1
        origins = {}
        for added in done.added:
            origins[added.path] = RowOrigin(self.next_row_id, self.commits)
            self.next_row_id += added.rows
        self.files = after_commit(self.files, [done], origins)
