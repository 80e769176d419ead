"""The cold index of a snapshot: its files by bucket, with the sparse index and the footer of each.

`publish` writes it, `ColdIndex.latest` opens it; several processes may do either at the same time. What
belongs to one data file is immutable and written once, in ``files/``; ``manifest.msgpack`` names the files of
the newest snapshot and is replaced atomically. An index never goes back in time.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import time  # only to compare with the file system's own times
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from thermocline.catalog import ACCEPTED_PROPERTY
from thermocline.definition import LiveTable
from thermocline.files import DataFile, open_input, plan_files
from thermocline.seam import Seam
from thermocline.sparse_index import SparseIndex, load_sparse_index

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table

    from thermocline.catalog import SnapshotState

FORMAT: Final = 2
MANIFEST: Final = "manifest.msgpack"
FILES: Final = "files"
# Readers open the footers of a snapshot lazily; the longest extract is over by then, and a footer that is
# missing after all is read from the data file itself.
GRACE_SECONDS: Final = 1_800
# Indexing a file is one or two small reads; more at once than this only queue at an object store.
INDEXING_THREADS: Final = 8

# By folder: the data files of the last snapshot that this process published, whose facts and footers it has
# read or written. Those of an earlier process are read once, since the machine may have crashed since.
_known_whole: dict[Path, frozenset[str]] = {}


class FileFacts(msgspec.Struct, frozen=True):
    """What is kept of one data file: its sparse index, and the columns it has.

    ``types`` names each column's type in the file, which is narrower where the column was widened since.
    ``uuids`` are those columns that Parquet itself calls UUIDs; ours are plain fixed-size binary.
    """

    first_keys: list[bytes]
    rows: list[int]
    is_sorted: bool
    types: dict[str, str]
    uuids: list[str]


class Manifest(msgspec.Struct, frozen=True):
    """One snapshot, as published. ``source`` is as `source_of` gives it."""

    format: int
    table_uuid: str
    location: str
    snapshot_id: int
    sequence_number: int
    timestamp_ms: int
    watermark_ms: int
    seam: str
    source: str
    definition: str
    files: list[DataFile]


@dataclass(frozen=True, slots=True)
class ColdFile:
    """One data file of a bucket, ready to be read. It lacks the columns that were added after it."""

    data: DataFile
    sparse: SparseIndex
    types: Mapping[str, str]
    uuids: frozenset[str]
    footer: Path


@dataclass(frozen=True, slots=True)
class ColdIndex:
    """One snapshot: where its rows are.

    ``source`` names the log that feeds it, as `source_of` does, and ``definition_json`` is the definition as
    the table carries it: hot records come from that log and were decoded by that definition, or don't fit.
    ``fingerprints`` name the data and delete files of each bucket together with the definition's version: as
    long as a bucket's fingerprint is the same, so are its rows.
    """

    table_uuid: str
    location: str
    snapshot_id: int
    sequence_number: int
    timestamp_ms: int
    watermark_ms: int
    seam: Seam
    source: str
    definition: LiveTable
    definition_json: str
    buckets: Mapping[int, tuple[ColdFile, ...]]
    fingerprints: Mapping[int, bytes]

    @classmethod
    def latest(cls, folder: Path, name: str, previous: ColdIndex | None = None) -> ColdIndex | None:
        """The newest published index of the folder; None before the first one.

        What ``previous`` has loaded of the same files is taken over. An index that would be a step back from
        ``previous`` is not taken: the answer is then ``previous`` itself.
        """
        manifest = _read_manifest(folder)
        if manifest is None or not (previous is None or _is_newer(manifest, previous)):
            return previous
        known = (
            {file.data.path: file for files in previous.buckets.values() for file in files}
            if previous
            else {}
        )
        return _assemble(folder, manifest, name, known)

    @property
    def files(self) -> Iterable[ColdFile]:
        """All data files, bucket by bucket."""
        return (file for files in self.buckets.values() for file in files)

    @property
    def rows(self) -> int:
        """Live rows: those of the files, less the deleted ones."""
        return sum(f.data.rows - (f.data.deletes.cardinality if f.data.deletes else 0) for f in self.files)


def source_of(table: Table, state: SnapshotState) -> str:
    """The log that feeds a snapshot: a topic that was deleted and made again is another one.

    So is one whose gap or whose new start was accepted: offsets from before it say nothing of those after it.
    """
    accepted = json.loads(table.properties.get(ACCEPTED_PROPERTY, "[]"))
    last = hashlib.blake2b(json.dumps(accepted[-1:]).encode(), digest_size=16).hexdigest()
    return json.dumps([state.cluster_id, sorted(state.topic_ids.values()), last])


def publish(folder: Path, table: Table, definition: LiveTable, state: SnapshotState) -> bool:
    """Indexes a snapshot of the table and makes it the newest one of the folder.

    Files that the folder knows already are not read again. Files that no snapshot needs any more go after a
    grace period. Returns False, and changes nothing, when the folder already holds this snapshot or a newer.
    """
    (folder / FILES).mkdir(parents=True, exist_ok=True)
    with _exclusive(folder):
        before = _read_manifest(folder)
        sequence_number = _sequence_number(table, state.snapshot_id)
        manifest = Manifest(
            format=FORMAT,
            table_uuid=str(table.metadata.table_uuid),
            location=table.location(),
            snapshot_id=state.snapshot_id,
            sequence_number=sequence_number,
            timestamp_ms=state.timestamp_ms,
            watermark_ms=state.watermark_ms,
            seam=state.seam.to_json(),
            source=source_of(table, state),
            definition=definition.to_json(),
            files=list(plan_files(table, state.snapshot_id)),
        )
        if before is not None and not _is_newer(manifest, before):
            if (
                before.snapshot_id == manifest.snapshot_id
            ):  # a crash of the machine may have cut its files short
                _index_files(folder, table.io, definition, before)
            return False
        _index_files(folder, table.io, definition, manifest)
        _replace(folder / MANIFEST, msgspec.msgpack.encode(manifest))
        _remove_unused(folder, before, manifest)
        return True


def published_snapshot_id(folder: Path) -> int | None:
    """The snapshot whose index is the newest one of the folder; None before the first."""
    manifest = _read_manifest(folder)
    return None if manifest is None else manifest.snapshot_id


def manifest_stamp(folder: Path) -> tuple[int, int] | None:
    """Changes whenever another index is published; None before the first. One ``stat``."""
    try:
        status = (folder / MANIFEST).stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def _is_newer(new: Manifest, old: Manifest | ColdIndex) -> bool:
    if new.table_uuid != old.table_uuid:
        return True  # the table was dropped and created again
    old_seam = old.seam if isinstance(old.seam, Seam) else Seam.from_json(old.seam)
    # Of another log, or of one that was begun again, offsets can't be compared.
    goes_on = new.source != old.source or Seam.from_json(new.seam).at_least(old_seam)
    return new.sequence_number > old.sequence_number and goes_on


def _read_manifest(folder: Path) -> Manifest | None:
    try:
        content = (folder / MANIFEST).read_bytes()
    except FileNotFoundError:
        return None
    try:
        manifest = msgspec.msgpack.decode(content, type=Manifest)
    except msgspec.DecodeError:
        return None  # of another version of ours: as good as none, and about to be replaced
    return manifest if manifest.format == FORMAT else None


def _sequence_number(table: Table, snapshot_id: int) -> int:
    snapshot = table.snapshot_by_id(snapshot_id)
    return (snapshot.sequence_number or 0) if snapshot else 0


def _assemble(folder: Path, manifest: Manifest, name: str, known: Mapping[str, ColdFile]) -> ColdIndex:
    buckets: dict[int, list[ColdFile]] = {}
    for data in manifest.files:
        buckets.setdefault(data.bucket, []).append(_cold_file(folder, data, known.get(data.path)))
    definition = LiveTable.from_json(manifest.definition, name)
    return ColdIndex(
        table_uuid=manifest.table_uuid,
        location=manifest.location,
        snapshot_id=manifest.snapshot_id,
        sequence_number=manifest.sequence_number,
        timestamp_ms=manifest.timestamp_ms,
        watermark_ms=manifest.watermark_ms,
        seam=Seam.from_json(manifest.seam),
        source=manifest.source,
        definition=definition,
        definition_json=manifest.definition,
        buckets={bucket: tuple(files) for bucket, files in sorted(buckets.items())},
        fingerprints={bucket: _fingerprint(definition, files) for bucket, files in buckets.items()},
    )


def _cold_file(folder: Path, data: DataFile, known: ColdFile | None) -> ColdFile:
    if known is not None:
        return ColdFile(data, known.sparse, known.types, known.uuids, known.footer)
    facts = _decode_facts(_facts_path(folder, data.path))
    sparse = SparseIndex(facts.first_keys, np.array(facts.rows, dtype=np.int64), facts.is_sorted)
    return ColdFile(data, sparse, facts.types, frozenset(facts.uuids), _footer_path(folder, data.path))


def _decode_facts(path: Path) -> FileFacts:
    return msgspec.msgpack.decode(path.read_bytes(), type=FileFacts)


def _fingerprint(definition: LiveTable, files: Iterable[ColdFile]) -> bytes:
    digest = hashlib.blake2b(str(definition.version).encode(), digest_size=16)
    for file in files:
        deletes = file.data.deletes
        place = (file.data.path, deletes.path, deletes.offset) if deletes else (file.data.path,)
        digest.update(repr(place).encode())
    return digest.digest()


def _index_files(folder: Path, io: FileIO, definition: LiveTable, manifest: Manifest) -> None:
    whole = _known_whole.get(folder, frozenset())

    def index(path: str) -> None:
        if not _is_indexed(folder, path, path in whole):
            _index_file(folder, io, definition, path)

    paths = [file.path for file in manifest.files]
    with ThreadPoolExecutor(INDEXING_THREADS) as pool:
        list(pool.map(index, paths))
    _known_whole[folder] = frozenset(paths)


def _is_indexed(folder: Path, path: str, is_known_whole: bool) -> bool:
    """Whether both files are there, and, unless that is known, can be read."""
    facts_path, footer_path = _facts_path(folder, path), _footer_path(folder, path)
    if is_known_whole:
        return facts_path.exists() and footer_path.exists()
    try:
        _decode_facts(facts_path)
        pq.read_metadata(footer_path)
    except (OSError, msgspec.DecodeError, pa.ArrowInvalid):
        return False
    return True


def _index_file(folder: Path, io: FileIO, definition: LiveTable, path: str) -> None:
    facts_path, footer_path = _facts_path(folder, path), _footer_path(folder, path)
    with open_input(io, path) as source:
        metadata = pq.read_metadata(source)
    sparse = load_sparse_index(io, path, definition, metadata)
    columns = [metadata.schema.column(i) for i in range(len(metadata.schema))]
    facts = FileFacts(
        first_keys=sparse.first_keys,
        rows=sparse.rows.tolist(),
        is_sorted=sparse.is_sorted,
        types={field.name: str(field.type) for field in metadata.schema.to_arrow_schema()},
        uuids=[column.name for column in columns if column.logical_type.type == "UUID"],
    )
    with tempfile.TemporaryDirectory(dir=folder, prefix="footer-") as scratch:
        written = Path(scratch) / "footer"
        metadata.write_metadata_file(str(written))
        _sync(written)
        written.replace(footer_path)
    _replace(facts_path, msgspec.msgpack.encode(facts))


def _remove_unused(folder: Path, before: Manifest | None, now: Manifest) -> None:
    """Removes what has been unused for the grace period; a file is stamped when it falls out of use."""
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
