"""The data files of one snapshot and their deletes, read straight from its manifests.

Ingest and serving both work bucket by bucket on this list; neither scans the table to get it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from posixpath import normpath
from typing import TYPE_CHECKING, Final, Literal, TypeVar
from urllib.parse import urlparse
from uuid import uuid4

import pyarrow as pa
from pyarrow.fs import FileSelector, FileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntryStatus,
    ManifestFile,
)

from thermocline.errors import ForeignSnapshot, StorageFailed, first_line
from thermocline.failpoints import failpoint
from thermocline.iceberg.catalog import definition_of
from thermocline.iceberg.file_buckets import UNPLACED, FileBucket, bucket_specs
from thermocline.iceberg.manifests import (
    ListedManifest,
    ManifestedFile,
    live_entries,
    manifests_of,
    referenced_file,
)
from thermocline.iceberg.store_retries import read_whole

if TYPE_CHECKING:
    from pyiceberg.io import FileIO, OutputStream
    from pyiceberg.table import Table


DeletesFormat = Literal["puffin", "parquet"]
Content = Literal["data", "position-deletes", "equality-deletes"]
_Bounds = Mapping[int, bytes]
_Item = TypeVar("_Item")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Deletes:
    """Where the deleted positions of one data file stand.

    In format version 3 a blob of a Puffin file (a deletion vector); in version 2 the whole of a Parquet file
    (a position delete file), whose ``offset`` is 0. ``cardinality`` counts the positions.
    """

    path: str
    format: DeletesFormat
    offset: int
    length: int
    cardinality: int
    file_bytes: int


@dataclass(frozen=True, slots=True)
class RowOrigin:
    """What the rows of a data file inherit from its manifest, in format version 3.

    The first one has the id ``first_row_id``, each other one the id after that of the row before it, and all
    have the sequence number of the commit that added the file. None in version 2.
    """

    first_row_id: int | None = None
    sequence_number: int | None = None


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file of one bucket; ``rows`` counts the deleted ones too.

    ``is_held``: a compaction is reading it. Rows of it may be deleted, but it must stay. ``bucket`` is the
    table's, ``part`` that of the partition spec that the file was written by, which is all of it or a part.
    ``origin`` is what the manifests say, and so the same for as long as the file is part of the table.
    """

    path: str
    bucket: int
    rows: int
    bytes: int
    deletes: Deletes | None = None
    is_held: bool = False
    part: FileBucket = UNPLACED
    origin: RowOrigin = field(default=RowOrigin(), compare=False)


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A live file as a manifest lists it, whoever wrote it.

    ``snapshot_id`` is of the snapshot that added it. ``bucket`` is the number that its partition spec
    (``spec_id``) gives its bucket, -1 where it is in none. ``referenced`` is the data file that position
    deletes are bound to, and ``deletes`` where they stand. ``lower`` and ``upper`` are the bounds of its
    columns, by field id, as Iceberg serializes values.
    """

    path: str
    content: Content
    bucket: int
    rows: int
    bytes: int
    snapshot_id: int
    referenced: str | None = None
    deletes: Deletes | None = None
    lower: _Bounds = field(default_factory=dict, compare=False)
    upper: _Bounds = field(default_factory=dict, compare=False)
    spec_id: int = 0

    def part(self, specs: Mapping[int, int]) -> FileBucket:
        """The bucket that its rows are in; ``specs`` are the buckets of the table's specs, by their ids."""
        return FileBucket(self.bucket, specs[self.spec_id]) if self.spec_id in specs else UNPLACED


def listed_files(io: FileIO, manifest: ManifestFile) -> Iterator[ListedFile]:
    """The live files of one manifest, those that `plan_files` refuses included."""
    for entry, file in live_entries(io, manifest):
        is_deletes = file.content == DataFileContent.POSITION_DELETES
        added_by = manifest.added_snapshot_id if entry.snapshot_id is None else entry.snapshot_id
        yield ListedFile(
            path=file.file_path,
            content=_CONTENTS[file.content],
            bucket=file.partition[0] if len(file.partition) else -1,
            rows=file.record_count,
            bytes=file.file_size_in_bytes,
            snapshot_id=added_by or -1,
            referenced=referenced_file(file) if is_deletes else None,
            deletes=_deletes(file) if is_deletes else None,
            lower=file.lower_bounds or {},
            upper=file.upper_bounds or {},
            spec_id=manifest.partition_spec_id,
        )


def spec_buckets(table: Table) -> dict[int, int]:
    """How many buckets the table's partition specs have, those of ours, by their ids."""
    return {spec.spec_id: count for count, spec in bucket_specs(table.specs().values()).items()}


def plan_files(
    table: Table, snapshot_id: int, name: str = "", buckets: int | None = None
) -> tuple[DataFile, ...]:
    """The live data files of a snapshot with their deletes, sorted by bucket and path.

    ``name`` is what the configuration calls the table, for the commands that errors print. ``buckets`` are
    those that files are sorted into; by default the unit of work of the table's definition.

    Raises:
        ForeignSnapshot: the snapshot holds deletes that we never write (equality deletes, position deletes
            that are not bound to one file, several for one file): reading past them would show deleted
            rows. Or files that are not in one of these buckets.
    """
    data: list[tuple[ManifestedFile, FileBucket, RowOrigin]] = []
    deletes: dict[str, Deletes] = {}
    name = name or ".".join(table.name())
    specs = spec_buckets(table)
    for file, spec_id, origin in _live_files(table, snapshot_id, name):
        if file.content == DataFileContent.DATA:
            is_ours = spec_id in specs
            part = FileBucket(file.partition[0], specs[spec_id]) if is_ours else UNPLACED
            data.append((file, part, origin))
            continue
        referenced = referenced_file(file)
        # A second file of deletes would need to be united with the first one; ours take its place.
        # safety: one-deletes-file, bound-deletes
        if file.content != DataFileContent.POSITION_DELETES or not referenced or referenced in deletes:
            raise ForeignSnapshot(
                table=name,
                snapshot_id=snapshot_id,
                detail=f"{file.file_path} holds {file.content.name.lower()} of another writer",
            )
        deletes[referenced] = _deletes(file)
    buckets = buckets or definition_of(table, name).buckets
    files = []
    for f, part, origin in data:
        bucket = part.within(buckets)  # safety: files-in-units
        if bucket is None:
            place = "no bucket of ours" if part == UNPLACED else f"{part}, and the table has {buckets}"
            raise ForeignSnapshot(table=name, snapshot_id=snapshot_id, detail=f"{f.file_path} is in {place}")
        deleted = deletes.get(f.file_path)
        size = f.file_size_in_bytes
        files.append(DataFile(f.file_path, bucket, f.record_count, size, deleted, part=part, origin=origin))
    return tuple(sorted(files, key=lambda file: (file.bucket, file.path)))


def added_origins(io: FileIO, manifest_list: str, snapshot_id: int) -> dict[str, RowOrigin]:
    """What the rows of the data files inherit that a snapshot added, by path.

    Only the manifests are read that this snapshot wrote with new files in them. Raises `OSError`.
    """
    origins: dict[str, RowOrigin] = {}
    for manifest in manifests_of(io, manifest_list):
        is_new = manifest.added_snapshot_id == snapshot_id and manifest.has_added_files()
        if manifest.content == ManifestContent.DATA and is_new:
            origins |= {file.file_path: origin for file, origin in _placed_files(io, manifest)}
    return origins


def open_input(io: FileIO, path: str) -> pa.NativeFile:
    """A seekable Arrow file: a memory map where the file is local, else the FileIO's own stream."""
    local = local_path(path)
    if local is not None:
        return pa.memory_map(local, "r")
    stream = io.new_input(path).open()
    return stream if isinstance(stream, pa.NativeFile) else pa.PythonFile(stream, "r")


@contextmanager
def store_named(table: str) -> Iterator[None]:
    """What a disk or a store raises in the block comes out as `StorageFailed`."""
    try:
        yield
    except OSError as error:
        raise StorageFailed(table=table, detail=first_line(error)) from error


def beside(location: str, *names: str) -> str:
    """Where Thermocline keeps something about a table: below the table's location."""
    return "/".join((location.rstrip("/"), "thermocline", *names))


def write_file(io: FileIO, path: str, content: bytes) -> None:
    """Write a small file in place of the one before: whoever reads finds the one or the other, whole.

    Raises `OSError`, as on a full disk; then the one before is still there.
    """
    place = local_path(path)
    if place is None:  # an object appears once it is stored
        _write(io, path, content)
        return
    unfinished = f".{uuid4().hex}{UNFINISHED}"
    try:
        _write(io, f"{path}{unfinished}", content)
        with Path(f"{place}{unfinished}").open("rb") as written:
            os.fsync(written.fileno())
        Path(f"{place}{unfinished}").replace(place)
    except BaseException:
        Path(f"{place}{unfinished}").unlink(missing_ok=True)
        raise


def _write(io: FileIO, path: str, content: bytes) -> None:
    with io.new_output(path).create(overwrite=True) as sink:
        sink.write(content)


def read_file(io: FileIO, path: str) -> bytes:
    """The content of a small file, such as a note or a lease; asked for again while the store is busy.

    Raises `OSError`, of which `FileNotFoundError` where there is none.
    """

    def read() -> bytes:
        with io.new_input(path).open() as source:
            return source.read()

    return read_whole(read)


def parts_of(io: FileIO, path: str, start: int = 0) -> Iterator[bytes]:
    """The content of a file from ``start`` on, by parts; each is asked for again while the store is busy.

    Raises `OSError`.
    """

    def read() -> bytes:
        source.seek(start)
        part: bytes = source.read(_PART_BYTES)
        return part

    with open_input(io, path) as source:
        while part := read_whole(read):
            yield part
            start += len(part)


def new_file(io: FileIO, path: str) -> OutputStream:
    """Begin a file whose name nobody else has, and which is closed by whoever is given it.

    A store is not asked whether there is one of that name: each file would take one answer more.
    """
    return io.new_output(path).create(overwrite=True)


def delete_files(io: FileIO, paths: Iterable[str]) -> int:
    """Delete files that are certain to be part of no table, as well as can be; how many went.

    What stays, as when the store does not answer, is a harmless orphan.
    """
    deleted = 0
    for path in paths:
        with suppress(OSError):
            failpoint("owner.clean-up")
            io.delete(path)
            deleted += 1
    return deleted


@contextmanager
def deleted_on_error(io: FileIO, paths: Iterable[str] = ()) -> Iterator[list[str]]:
    """Where the block raises, these files are deleted, and those that it adds to the list that it is given.

    A path is added before its file is begun. Else each attempt would leave some, until the disk is full.
    """
    begun = list(paths)
    try:
        yield begun
    except BaseException:
        delete_files(io, begun)
        raise


def place_of(location: str) -> str:
    """A location without its scheme, of which s3 and s3a, or file: and none, mean the same place."""
    _, netloc, path = PyArrowFileIO.parse_location(location)
    return normpath(f"/{netloc}/{path.removeprefix(netloc)}").strip("/")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as the store lists it; ``modified_ms`` is None where the store does not say."""

    path: str
    bytes: int
    modified_ms: int | None


def can_list(io: FileIO) -> bool:
    """Whether it can be asked for the files of a folder: of PyIceberg's, the one that it takes by itself."""
    return isinstance(io, PyArrowFileIO)


def listed_folder(io: FileIO, folder: str, is_recursive: bool = False) -> list[StoredFile]:
    """The files of a folder, sorted by path; none where there is no such folder. Raises `OSError`.

    With a FileIO that `can_list` nothing, nothing is found. What `write_file` has not finished is left out.
    """
    if not can_list(io):
        return []
    files, path = filesystem_of(io, folder)
    selector = FileSelector(path, recursive=is_recursive, allow_not_found=True)
    try:
        found = files.get_file_info(selector)
    except FileNotFoundError:  # the folder was made, or went, just now
        return []
    return sorted(
        (
            StoredFile(
                f"{folder}{info.path.removeprefix(path)}",
                info.size or 0,
                None if info.mtime_ns is None else info.mtime_ns // 1_000_000,
            )
            for info in found
            if info.is_file and not info.path.endswith(UNFINISHED)
        ),
        key=lambda file: file.path,
    )


def filesystem_of(io: FileIO, location: str) -> tuple[FileSystem, str]:
    """The file system of a location, and the location's path there, without a slash at its end."""
    assert isinstance(io, PyArrowFileIO)
    scheme, netloc, path = io.parse_location(location, io.properties)
    return io.fs_by_scheme(scheme, netloc), path.rstrip("/")


def data_location(table: Table) -> str:
    """The folder of a table's data files, as a URI."""
    return table.properties.get("write.data.path", f"{table.location()}/data")


def local_path(path: str) -> str | None:
    """The path on this machine of a file URI or a plain path; None for any other scheme."""
    parsed = urlparse(path)
    if parsed.scheme == "":
        return path
    return parsed.path if parsed.scheme == "file" else None


def threads_for(location: str, at_once: int) -> int:
    """How many threads read or write files at the location: ``at_once`` where they are in an object store.

    On this machine that takes processor time alone, of which there is no more by threads.
    """
    return 1 if local_path(location) is not None else at_once


def mapped(
    location: str, at_once: int, function: Callable[[_Item], _Value], items: Collection[_Item]
) -> list[_Value]:
    """What a function that reads or writes files at the location gives for each item, in their order.

    Where they are in an object store, it is called for several ``at_once``.
    """
    threads = min(len(items), threads_for(location, at_once))
    if threads < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, items))


UNFINISHED: Final = ".unfinished"
"""How the name of a file ends that `write_file` is writing, or was when its process died."""
_PART_BYTES: Final = 8 << 20
"""Of one request: at 50 MB/s twice as long as the 80 ms that its first byte may take."""
# An object store takes as long to answer as a small manifest takes to decode, twice for each of them.
_MANIFESTS_AT_ONCE: Final = 8
_CONTENTS: dict[DataFileContent, Content] = {
    DataFileContent.DATA: "data",
    DataFileContent.POSITION_DELETES: "position-deletes",
    DataFileContent.EQUALITY_DELETES: "equality-deletes",
}


def _live_files(table: Table, snapshot_id: int, name: str) -> Iterator[tuple[ManifestedFile, int, RowOrigin]]:
    """With the ids of their partition specs, and what their rows inherit."""
    failpoint("catalog.files")
    snapshot = table.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise ForeignSnapshot(table=name, snapshot_id=snapshot_id, detail="the snapshot is not in the table")
    manifests = list(manifests_of(table.io, snapshot.manifest_list))
    with ThreadPoolExecutor(threads_for(snapshot.manifest_list, _MANIFESTS_AT_ONCE)) as pool:
        read = pool.map(lambda manifest: list(_placed_files(table.io, manifest)), manifests)
        for manifest, files in zip(manifests, read, strict=True):
            for file, origin in files:
                yield file, manifest.partition_spec_id, origin


def _placed_files(io: FileIO, manifest: ListedManifest) -> Iterator[tuple[ManifestedFile, RowOrigin]]:
    """The live files of a manifest, with what it has their rows inherit.

    Source: the Iceberg table specification, "First Row ID Inheritance" and "Sequence Number Inheritance".
    """
    next_row_id = manifest.first_row_id
    for entry, file in live_entries(io, manifest):
        sequence_number = entry.sequence_number
        if sequence_number is None and entry.status == ManifestEntryStatus.ADDED:
            sequence_number = manifest.sequence_number
        first_row_id = None if next_row_id is None else file.named("first_row_id")
        if next_row_id is not None and first_row_id is None:
            first_row_id, next_row_id = next_row_id, next_row_id + file.record_count
        yield file, RowOrigin() if first_row_id is None else RowOrigin(first_row_id, sequence_number)


def _deletes(file: ManifestedFile) -> Deletes:
    path, count, file_bytes = file.file_path, file.record_count, file.file_size_in_bytes
    if file.file_format == FileFormat.PUFFIN:
        offset, length = file.named("content_offset"), file.named("content_size_in_bytes")
        return Deletes(path, "puffin", offset, length, count, file_bytes)
    return Deletes(path, "parquet", 0, file_bytes, count, file_bytes)
