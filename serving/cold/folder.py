"""The folder of cold indexes: the newest snapshot's files, with the sparse index and the footer of each.

`publish` writes it, `latest` opens it; several processes may do either at the same time. What
belongs to one data file is immutable and written once, in ``files/``; ``manifest.msgpack`` names the files of
the newest snapshot and is replaced atomically. An index never goes back in time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import time  # only to compare with the file system's own times
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from thermocline.failpoints import failpoint, failstep
from thermocline.iceberg.files import local_path, open_input, plan_files
from thermocline.iceberg.sparse_index import SparseIndex, load_sparse_index
from thermocline.iceberg.store_retries import read_whole
from thermocline.rules.field_ids import Match, matches
from thermocline.serving.cold import entity_filter
from thermocline.serving.cold.entity_filter import EntityFilter
from thermocline.serving.cold.index import ColdFile, assemble
from thermocline.serving.cold.manifest import FORMAT, ColdManifest, is_newer, manifest_of
from thermocline.serving.cold.reader import ColdReader
from thermocline.serving.hot.file_version import file_version

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table

    from thermocline.iceberg.catalog import SnapshotState
    from thermocline.iceberg.files import DataFile
    from thermocline.rules.definition import LiveTable
    from thermocline.serving.cold.index import ColdIndex
    from thermocline.serving.cold.row_store import RowStore

MANIFEST: Final = "manifest.msgpack"
FILES: Final = "files"
# Readers open the footers of a snapshot lazily; the longest extract is over by then, and a footer that is
# missing after all is read from the data file itself.
GRACE_SECONDS: Final = 1_800
# Indexing a file is one or two reads; more at once than this only queue at an object store.
INDEXING_THREADS: Final = 8
# Held by each of these threads. A store takes as long to answer a request as to send a few megabytes.
FETCHED_BYTES_MAX: Final = 32 << 20


class FileFacts(msgspec.Struct, frozen=True):
    """What is kept of one data file: its sparse index, and the columns it has.

    ``schema`` has the columns as the file has them, with their field ids, as Arrow serializes it.
    ``uuids`` are those columns that Parquet itself calls UUIDs; ours are plain fixed-size binary.
    ``entities`` is the filter of a young file, and the bits of its hashes.
    """

    first_keys: list[bytes]
    rows: list[int]
    is_sorted: bool
    schema: bytes
    uuids: list[str]
    entities: tuple[bytes, int] | None = None


class ColdPublisher:
    """Publishes the indexes of one table in a folder, one snapshot after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._whole: set[str] = set()

    def publish(self, table: Table, definition: LiveTable, state: SnapshotState) -> bool:
        """As the function of that name."""
        return publish(self._folder, table, definition, state, self._whole)

    def published_snapshot_id(self) -> int | None:
        """As the function of that name."""
        return published_snapshot_id(self._folder)


class ColdFolder:
    """The published indexes of one table in a folder, for those who read them (`Snapshots`).

    ``open_io`` is asked with each new location of the table. ``store`` keeps rows that were read.
    """

    def __init__(
        self, folder: Path, name: str, open_io: Callable[[], FileIO], store: RowStore | None = None
    ) -> None:
        self._folder = folder
        self._name = name
        self._open_io = open_io
        self._store = store

    def stamp(self) -> tuple[int, int] | None:
        """Changes whenever another index is published; None before the first. One ``stat``."""
        return file_version(self._folder / MANIFEST)

    def rows(self) -> int:
        """How many rows the files of the newest index have, deleted ones too; without loading the index."""
        manifest = _read_manifest(self._folder)
        return 0 if manifest is None else sum(file.rows for file in manifest.files)

    def latest(self, previous: ColdIndex | None) -> ColdIndex | None:
        """As the function of that name."""
        return latest(self._folder, self._name, previous)

    def reader(self) -> ColdReader:
        """A reader of the table's files that has loaded nothing yet."""
        return ColdReader(self._open_io(), self._store, self._name)


def publish(
    folder: Path,
    table: Table,
    definition: LiveTable,
    state: SnapshotState,
    whole: set[str] | None = None,
) -> bool:
    """Indexes a snapshot of the table and makes it the newest one of the folder.

    Files that the folder knows already are not read again. Files that no snapshot needs any more go after a
    grace period. Returns False, and changes nothing, when the folder already holds this snapshot or a newer.

    ``whole`` are the data files of the last snapshot that the caller published, whose facts and footers it
    has read or written; it becomes those of this one. Those of an earlier process are read once, since the
    machine may have crashed since.
    """
    whole = set() if whole is None else whole
    (folder / FILES).mkdir(parents=True, exist_ok=True)
    with _exclusive(folder):
        before = _read_manifest(folder)
        manifest = manifest_of(
            table, definition, state, plan_files(table, state.snapshot_id, definition.name)
        )
        if before is not None and not is_newer(manifest, before):
            if (
                before.snapshot_id == manifest.snapshot_id
            ):  # a crash of the machine may have cut its files short
                _index_files(folder, table.io, definition, before, whole)
            return False
        _index_files(folder, table.io, definition, manifest, whole)
        with failstep("cold.publish"):
            _replace(folder / MANIFEST, msgspec.msgpack.encode(manifest))
        _remove_unused(folder, before, manifest)
        return True


def published_snapshot_id(folder: Path) -> int | None:
    """The snapshot whose index is the newest one of the folder; None before the first."""
    manifest = _read_manifest(folder)
    return None if manifest is None else manifest.snapshot_id


def latest(folder: Path, name: str, previous: ColdIndex | None = None) -> ColdIndex | None:
    """The newest published index of the folder; None before the first one.

    What ``previous`` has loaded of the same files is taken over. An index that would be a step back from
    ``previous`` is not taken: the answer is then ``previous`` itself.
    """
    manifest = _read_manifest(folder)
    if manifest is None or not (previous is None or is_newer(manifest, previous)):
        return previous
    known = {file.data.path: file for file in previous.files} if previous else {}
    is_same = previous is not None and previous.definition_json == manifest.definition
    columns = _Columns()

    def cold_file(data: DataFile, definition: LiveTable) -> ColdFile:
        file = known.get(data.path)
        if file is None:
            return _cold_file(folder, data, definition, columns)
        # safety: columns-of-this-definition
        known_columns = file.columns if is_same else columns.of(file.schema, definition)
        return replace(file, data=data, columns=known_columns)

    return assemble(manifest, name, cold_file)


def _read_manifest(folder: Path) -> ColdManifest | None:
    try:
        content = (folder / MANIFEST).read_bytes()
    except FileNotFoundError:
        return None
    try:
        manifest = msgspec.msgpack.decode(content, type=ColdManifest)
    except msgspec.DecodeError:
        return None  # of another version of ours: as good as none, and about to be replaced
    return manifest if manifest.format == FORMAT else None


class _Columns:
    """What files have of the columns of one definition; most files have the same."""

    def __init__(self) -> None:
        self._schemas: dict[bytes, pa.Schema] = {}
        self._known: dict[int, tuple[pa.Schema, Mapping[str, Match]]] = {}

    def schema(self, serialized: bytes) -> pa.Schema:
        """One for all files that have the same."""
        if serialized not in self._schemas:
            self._schemas[serialized] = pa.ipc.read_schema(pa.py_buffer(serialized))
        return self._schemas[serialized]

    def of(self, schema: pa.Schema, definition: LiveTable) -> Mapping[str, Match]:
        """By their names in the definition."""
        found = self._known.get(id(schema))
        if found is None:
            wanted = definition.table_schema
            found = self._known[id(schema)] = (schema, matches(schema, wanted))
        return found[1]


def _cold_file(folder: Path, data: DataFile, definition: LiveTable, columns: _Columns) -> ColdFile:
    facts = _decode_facts(_facts_path(folder, data.path))
    sparse = SparseIndex(facts.first_keys, np.array(facts.rows, dtype=np.int64), facts.is_sorted)
    footer = _footer_path(folder, data.path)
    entities = None if facts.entities is None else EntityFilter.deserialize(*facts.entities)
    schema = columns.schema(facts.schema)
    known = columns.of(schema, definition)
    return ColdFile(data, sparse, schema, known, frozenset(facts.uuids), footer, entities)


def _decode_facts(path: Path) -> FileFacts:
    return msgspec.msgpack.decode(path.read_bytes(), type=FileFacts)


def _index_files(
    folder: Path, io: FileIO, definition: LiveTable, manifest: ColdManifest, whole: set[str]
) -> None:
    def index(file: DataFile) -> None:
        if not _is_indexed(folder, file.path, file.path in whole):
            _index_file(folder, io, definition, file)

    with ThreadPoolExecutor(INDEXING_THREADS) as pool:
        list(pool.map(index, manifest.files))
    whole.clear()
    whole.update(file.path for file in manifest.files)


def _is_indexed(folder: Path, path: str, is_known_whole: bool) -> bool:
    """Whether both files are there, and, unless that is known, can be read."""
    facts_path, footer_path = _facts_path(folder, path), _footer_path(folder, path)
    if is_known_whole:
        return facts_path.exists() and footer_path.exists()
    try:
        facts = _decode_facts(facts_path)
        pq.read_metadata(footer_path)
    except (OSError, msgspec.DecodeError, pa.ArrowInvalid):
        return False
    return len(facts.first_keys) == len(facts.rows)  # earlier releases believed any index in a footer


def _index_file(folder: Path, io: FileIO, definition: LiveTable, file: DataFile) -> None:
    path = file.path
    facts_path, footer_path = _facts_path(folder, path), _footer_path(folder, path)

    def read() -> tuple[pq.FileMetaData, EntityFilter | None]:
        with _opened(io, file) as source:
            metadata = pq.read_metadata(source)
            return metadata, _entities(source, metadata, definition)

    metadata, entities = read_whole(read)
    sparse = load_sparse_index(io, path, definition, metadata)
    columns = [metadata.schema.column(i) for i in range(len(metadata.schema))]
    facts = FileFacts(
        first_keys=sparse.first_keys,
        rows=sparse.rows.tolist(),
        is_sorted=sparse.is_sorted,
        schema=metadata.schema.to_arrow_schema().serialize().to_pybytes(),
        uuids=[column.name for column in columns if column.logical_type.type == "UUID"],
        entities=None if entities is None else (entities.serialized(), entities.bits),
    )
    with tempfile.TemporaryDirectory(dir=folder, prefix="footer-") as scratch:
        written = Path(scratch) / "footer"
        metadata.write_metadata_file(str(written))
        _sync(written)
        written.replace(footer_path)
    failpoint("cold.index-file")
    _replace(facts_path, msgspec.msgpack.encode(facts))


def _opened(io: FileIO, file: DataFile) -> pa.NativeFile:
    """A young file of a store is fetched: to read the entities of each row group takes a request for each."""
    source = open_input(io, file.path)
    if local_path(file.path) is not None or file.rows > entity_filter.ROWS_MAX:
        return source
    if file.bytes > FETCHED_BYTES_MAX:
        return source
    with source:
        return pa.BufferReader(source.read_buffer())


def _entities(source: pa.NativeFile, metadata: pq.FileMetaData, definition: LiveTable) -> EntityFilter | None:
    """The filter of a young file, for which its entity columns are read once."""
    if not definition.entity or not 0 < metadata.num_rows <= entity_filter.ROWS_MAX:
        return None
    rows = pq.ParquetFile(source, metadata=metadata, pre_buffer=True).read(list(definition.entity))
    return EntityFilter.of(definition, rows)


def _remove_unused(folder: Path, before: ColdManifest | None, now: ColdManifest) -> None:
    """Removes what has been unused for the grace period; a file is stamped when it falls out of use."""
    failpoint("cold.remove")
    wanted = {_stem(file.path) for file in now.files}
    for file in before.files if before else []:
        if _stem(file.path) not in wanted:
            for path in (_facts_path(folder, file.path), _footer_path(folder, file.path)):
                with suppress(FileNotFoundError):
                    os.utime(path)
    too_old = time() - GRACE_SECONDS
    for path in (folder / FILES).iterdir():
        if path.stem not in wanted and path.stat().st_mtime < too_old:
            path.unlink(missing_ok=True)


def _stem(path: str) -> str:
    return hashlib.blake2b(path.encode(), digest_size=16).hexdigest()


def _facts_path(folder: Path, path: str) -> Path:
    return folder / FILES / f"{_stem(path)}.facts"


def _footer_path(folder: Path, path: str) -> Path:
    return folder / FILES / f"{_stem(path)}.footer"


def _replace(path: Path, content: bytes) -> None:
    scratch = path.with_name(f"{path.name}.{os.getpid()}.new")
    scratch.write_bytes(content)
    _sync(scratch)
    scratch.replace(path)


def _sync(path: Path) -> None:
    """Has the content on disk before a name points to it: a power cut must not leave an empty file."""
    with path.open("rb") as written:
        os.fsync(written.fileno())


@contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
