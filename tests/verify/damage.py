"""Damage done to a real table on purpose, and taken back: what `verify` must name."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table
from pyroaring import BitMap

from thermocline.iceberg.catalog import current_state
from thermocline.iceberg.data_file import WrittenFile, write_data_file
from thermocline.iceberg.deletes import read_deletes, write_deletes
from thermocline.iceberg.file_buckets import FileBucket
from thermocline.iceberg.files import DataFile, Deletes, local_path, plan_files
from thermocline.ingest.batch.accounting import Accounting
from thermocline.ingest.commit.change import TableChange
from thermocline.ingest.commit.commit import Committer, Landed
from thermocline.rules.definition import TOMBSTONE, LiveTable
from thermocline.rules.keys import encode_table
from thermocline.upsert.bucket_task import BucketResult

Json = dict[str, Any]


class Damage:
    """A table that is damaged by commits of ours, or behind everybody's back.

    ``load`` gives it as it is now. ``catalog`` is the SQLite file that its metadata's place is written in.
    """

    def __init__(self, load: Callable[[], Table], definition: LiveTable, catalog: Path) -> None:
        self.load = load
        self.definition = definition
        self._catalog = catalog

    @contextmanager
    def undone(self) -> Iterator[None]:
        """What is committed within the block was never committed after it; files that were changed stay."""
        before = self.load().metadata_location
        try:
            yield
        finally:
            self._point_to(before)

    def files(self) -> list[DataFile]:
        table = self.load()
        snapshot = table.current_snapshot()
        assert snapshot is not None
        return list(plan_files(table, snapshot.snapshot_id))

    def deleted(self, file: DataFile) -> BitMap:
        return read_deletes(self.load().io, file.deletes) if file.deletes else BitMap()

    def rows(self, file: DataFile, positions: Sequence[int] | None = None) -> pa.Table:
        """Rows of a data file, live or not, as a bucket task would write them."""
        rows = pq.read_table(local_path(file.path), partitioning=None)
        if positions is not None:
            rows = rows.take(pa.array(positions, pa.int64()))
        rows = rows.append_column(TOMBSTONE, pa.array(np.zeros(rows.num_rows, np.bool_)))
        rows = rows.append_column("_key", encode_table(self.definition, rows))
        schema = self.definition.records_schema
        for name in set(schema.names) - set(rows.column_names):  # which an alteration added later
            rows = rows.append_column(name, pa.nulls(rows.num_rows, schema.field(name).type))
        return rows.select(schema.names).cast(schema)

    def keys(self, file: DataFile) -> list[bytes]:
        keys: list[bytes] = self.rows(file).column("_key").to_pylist()
        return keys

    def live_keys(self) -> dict[bytes, tuple[DataFile, int]]:
        """Where each key is live."""
        found = {}
        for file in self.files():
            gone = self.deleted(file)
            found.update({key: (file, at) for at, key in enumerate(self.keys(file)) if at not in gone})
        return found

    def written(self, bucket: int, rows: pa.Table) -> WrittenFile:
        table = self.load()
        path = f"{table.location()}/data/bucket={bucket}/{uuid.uuid4()}.parquet"
        return write_data_file(table.io, path, self.definition, rows, self._place(bucket))

    def _place(self, bucket: int) -> FileBucket:
        return FileBucket(bucket, self.definition.buckets)

    def deletes(self, positions: dict[str, BitMap]) -> dict[str, Deletes]:
        table = self.load()
        stem = f"{table.location()}/data/{uuid.uuid4()}"
        return write_deletes(table.io, stem, self.definition.format_version, positions)

    def change(
        self,
        *parts: BucketResult,
        accounting: Accounting | None = None,
        seam: Any = None,
        **changes: Any,
    ) -> TableChange:
        """A commit that looks like one of ours; without more words, it says that it read nothing."""
        state = current_state(self.load(), self.definition.name)
        return TableChange(
            seam=seam or state.seam,
            cluster_id=state.cluster_id,
            topic_ids=state.topic_ids,
            watermark_ms=state.watermark_ms,
            drained_ms=state.drained_ms,
            accounting=accounting or Accounting(),
            files=[
                replace(one, parts=dict.fromkeys([*one.deletes, *one.replaced], self._place(one.bucket)))
                for one in parts
            ],
            **changes,
        )

    def commit(self, committer: Committer, change: TableChange) -> None:
        state = current_state(self.load(), self.definition.name)
        outcome = committer.commit(state.snapshot_id, state.seam, change)
        assert isinstance(outcome, Landed), outcome

    def edit_metadata(self, edit: Callable[[Json], None]) -> None:
        """Another metadata file, in which something is different."""
        before = self.load().metadata_location
        path = Path(local_path(before) or "")
        metadata = json.loads(path.read_text())
        edit(metadata)
        after = path.with_name(f"99999-{uuid.uuid4()}.metadata.json")
        after.write_text(json.dumps(metadata))
        self._point_to(after.as_uri())

    def edit_summaries(self, edit: Callable[[list[Json]], None]) -> None:
        """The same of the summaries of all snapshots, oldest first."""
        self.edit_metadata(lambda metadata: edit([one["summary"] for one in metadata["snapshots"]]))

    def _point_to(self, location: str) -> None:
        with closing(sqlite3.connect(self._catalog)) as connection:
            name = self.definition.identifier.rpartition(".")[2]
            changed = connection.execute(
                "UPDATE iceberg_tables SET metadata_location = ? WHERE table_name = ?", (location, name)
            )
            assert changed.rowcount == 1
            connection.commit()


@contextmanager
def kept_as_it_was(path: str) -> Iterator[Path]:
    """A file that may be damaged or deleted within the block, and is as before after it."""
    local = Path(local_path(path) or "")
    content = local.read_bytes()
    try:
        yield local
    finally:
        local.write_bytes(content)


def part(
    bucket: int,
    added: WrittenFile | None = None,
    deletes: dict[str, Deletes] | None = None,
    replaced: dict[str, Deletes] | None = None,
) -> BucketResult:
    """What a bucket task would have done, its counts aside."""
    return BucketResult(bucket, () if added is None else (added,), deletes or {}, replaced or {})
