"""The driver's list of live files: read once, then carried from commit to commit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa

from thermocline.errors import StorageFailed, first_line
from thermocline.iceberg.files import DataFile, RowOrigin, plan_files
from thermocline.upsert.bucket_task import BucketResult

if TYPE_CHECKING:
    from pyiceberg.table import Table

FilesByBucket = Mapping[int, Sequence[DataFile]]


def live_files(table: Table, snapshot_id: int, name: str) -> FilesByBucket:
    """The live files of a snapshot, as its manifests say; ``name`` is what the configuration calls the table.

    Raises what `plan_files` raises, and `StorageFailed` where a manifest can't be read.
    """
    try:
        return by_bucket(plan_files(table, snapshot_id, name))
    except (OSError, pa.ArrowException) as error:
        raise StorageFailed(table=name, detail=f"{table.location()}/metadata: {first_line(error)}") from error


def by_bucket(files: Iterable[DataFile]) -> FilesByBucket:
    """Group files by their bucket, in the order given."""
    grouped: dict[int, list[DataFile]] = defaultdict(list)
    for file in files:
        grouped[file.bucket].append(file)
    return grouped


def in_buckets(files: FilesByBucket, buckets: int) -> FilesByBucket:
    """The same files by other buckets, each of which has all of a file or nothing."""
    placed = []
    for file in (file for some in files.values() for file in some):
        bucket = file.part.within(buckets)
        assert bucket is not None, f"{file.path} is in {file.part}"
        placed.append(replace(file, bucket=bucket))
    return by_bucket(placed)


def with_held(files: FilesByBucket, paths: frozenset[str]) -> FilesByBucket:
    """The same files; those that are being compacted say so."""
    if not paths:
        return files
    return {
        # safety: held-files-are-marked
        bucket: [replace(file, is_held=True) if file.path in paths else file for file in some]
        for bucket, some in files.items()
    }


def after_commit(
    files: FilesByBucket,
    results: Sequence[BucketResult],
    origins: Mapping[str, RowOrigin] = MappingProxyType({}),
) -> FilesByBucket:
    """The files of the snapshot that a commit of these results made.

    ``origins`` are what it said of files that it added, by path.
    """
    changed = {done.bucket: _after(files.get(done.bucket, ()), done, origins) for done in results}
    return {**files, **changed}


def _after(files: Sequence[DataFile], done: BucketResult, origins: Mapping[str, RowOrigin]) -> list[DataFile]:
    deletes = done.deletes
    removed = {file.path for file in done.removed}
    kept = [
        # safety: files-carried-on-have-their-deletes, merged-files-are-gone
        replace(file, deletes=deletes[file.path]) if file.path in deletes else file
        for file in files
        if file.path not in removed
    ]
    added = [
        # safety: moved-deletes-stay
        DataFile(
            one.path,
            done.bucket,
            one.rows,
            one.file_bytes,
            deletes.get(one.path),
            part=one.part,
            origin=origins.get(one.path, RowOrigin()),  # safety: origins-carried-on
        )
        for one in done.added
    ]
    return kept + added
