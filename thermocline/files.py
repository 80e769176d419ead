"""The data files and deletion vectors of one snapshot, read straight from its manifests.

Ingest and serving both work bucket by bucket on this list; neither scans the table to get it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlparse

import pyarrow as pa
from pyiceberg.manifest import DataFile as ManifestDataFile
from pyiceberg.manifest import DataFileContent, FileFormat

from thermocline.errors import TableUnowned

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """Where the deleted positions of one data file stand: a blob of a Puffin file."""

    path: str
    offset: int
    length: int
    cardinality: int
    file_bytes: int


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file of one bucket; ``rows`` counts the deleted ones too."""

    path: str
    bucket: int
    rows: int
    bytes: int
    deletes: DeletionVector | None = None


def plan_files(table: Table, snapshot_id: int) -> tuple[DataFile, ...]:
    """The live data files of a snapshot with their deletion vectors, sorted by bucket and path.

    Raises:
        TableUnowned: the snapshot holds deletes that we never write (equality deletes, position deletes
            that are not bound to one file), so that reading past them would show deleted rows.
    """
    data: list[ManifestDataFile] = []
    vectors: dict[str, DeletionVector] = {}
    for file in _live_files(table, snapshot_id):
        if file.content == DataFileContent.DATA:
            data.append(file)
        elif file.file_format == FileFormat.PUFFIN and file.referenced_data_file:
            vectors[file.referenced_data_file] = _vector(file)
        else:
            raise TableUnowned(
                table=".".join(table.name()),
                snapshot_id=snapshot_id,
                detail=f"{file.file_path} holds {file.content.name.lower().replace('_', ' ')} of another writer",
            )
    files = [
        DataFile(f.file_path, f.partition[0], f.record_count, f.file_size_in_bytes, vectors.get(f.file_path))
        for f in data
    ]
    return tuple(sorted(files, key=lambda file: (file.bucket, file.path)))


def open_input(io: FileIO, path: str) -> pa.NativeFile:
    """A seekable Arrow file: a memory map where the file is local, else the FileIO's own stream."""
    local = local_path(path)
    if local is not None:
        return pa.memory_map(local, "r")
    stream = io.new_input(path).open()
    return stream if isinstance(stream, pa.NativeFile) else pa.PythonFile(stream, "r")


def local_path(path: str) -> str | None:
    """The path on this machine of a file URI or a plain path; None for any other scheme."""
    parsed = urlparse(path)
    if parsed.scheme == "":
        return path
    return parsed.path if parsed.scheme == "file" else None


def _live_files(table: Table, snapshot_id: int) -> Iterator[ManifestDataFile]:
    snapshot = table.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise TableUnowned(
            table=".".join(table.name()), snapshot_id=snapshot_id, detail="the snapshot is not in the table"
        )
    for manifest in snapshot.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            yield entry.data_file


def _vector(file: ManifestDataFile) -> DeletionVector:
    return DeletionVector(
        file.file_path,
        file.content_offset,
        file.content_size_in_bytes,
        file.record_count,
        file.file_size_in_bytes,
    )
