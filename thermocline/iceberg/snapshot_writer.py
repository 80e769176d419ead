"""Makes a snapshot that no catalog names: a snapshot of the table with other files laid over it.

The manifests of the snapshot below stay as they are; only those that list deletes which others take the place
of are written again without them. All that is new has a name in one folder, and nothing that the table has is
touched.

Source: the Iceberg table specification, "Manifests", "Manifest Lists", "Sequence Number Inheritance" and
"First Row ID Assignment".
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.table.metadata import TableMetadataV1
from pyiceberg.typedef import Record

from thermocline.errors import ForeignSnapshot
from thermocline.failpoints import failstep
from thermocline.iceberg.avro import AvroForm
from thermocline.iceberg.file_buckets import FileBucket, bucket_specs
from thermocline.iceberg.files import deleted_on_error, mapped, new_file
from thermocline.iceberg.manifests import DELETED_PATH_FIELD_ID, live_entries, manifests_of, referenced_file

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.typedef import TableVersion

    from thermocline.iceberg.data_file import WrittenFile
    from thermocline.iceberg.files import Deletes

__all__ = ["LaidOver", "NewSnapshot", "SnapshotWriter", "write_files"]

_WRITES_AT_ONCE: Final = 8
"""On an object store each takes the time of an answer, whatever its size."""
_RECORDS: Final[TableVersion] = 3
"""The format version by whose fields entries are held here; a file has those of its own."""


@dataclass(frozen=True, slots=True)
class LaidOver:
    """What a snapshot has that the one below has not.

    ``added`` are its data files. ``deletes`` are those of data files of both, by path, with the bucket of the
    data file; where the snapshot below has deletes of the same data file, they no longer count.
    """

    added: Sequence[WrittenFile] = ()
    deletes: Mapping[str, tuple[FileBucket, Deletes]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewSnapshot:
    """A snapshot whose files are still to be written; ``contents`` are these, by path.

    ``rows`` are those of its added data files, which have new row ids.
    """

    snapshot_id: int
    sequence_number: int
    manifest_list: str
    rows: int
    contents: Mapping[str, bytes]


def write_files(io: FileIO, contents: Mapping[str, bytes]) -> None:
    """Write new files, several at once. Raises `OSError`; then none of them is left."""

    def write(path: str) -> None:
        with failstep("snapshot.write"), new_file(io, path) as sink:
            sink.write(contents[path])

    with deleted_on_error(io, contents):
        mapped(next(iter(contents), ""), _WRITES_AT_ONCE, write, contents)


class SnapshotWriter:
    """Makes snapshots over one snapshot of a table. What it has read of that one's manifests is kept."""

    def __init__(self, io: FileIO, metadata: TableMetadata, below: Snapshot, table: str) -> None:
        """``below`` is a snapshot of the table, ``table`` what the configuration calls the table.

        Raises `OSError` where its list of manifests can't be read.
        """
        self._io = io
        self._table = table
        self._below = below
        assert not isinstance(metadata, TableMetadataV1), "no table of ours"
        self._version: TableVersion = metadata.format_version
        self._sequence_number = metadata.last_sequence_number + 1
        self._next_row_id: int = getattr(metadata, "next_row_id", None) or 0
        self._schemas = {schema.schema_id: schema for schema in metadata.schemas}
        self._schema = self._schemas[
            below.schema_id if below.schema_id is not None else metadata.current_schema_id
        ]
        self._specs = bucket_specs(metadata.partition_specs)
        self._manifests: list[ManifestFile] = list(manifests_of(io, below.manifest_list))
        self._deletes: dict[str, list[tuple[str | None, ManifestEntry]]] = {}
        self._forms: dict[tuple[int, ManifestContent], _Form] = {}

    def snapshot(self, folder: str, snapshot_id: int, over: LaidOver) -> NewSnapshot:
        """The manifests and the list of a snapshot in a folder; nothing of what was there before.

        Raises:
            ForeignSnapshot: the table has no partition spec with a file's number of buckets.
            OSError: a manifest of the snapshot below can't be read.
        """
        done = _Writing(f"{folder}/{snapshot_id}", snapshot_id, self._sequence_number)
        manifests, rows = self._data_manifests(done, over.added)
        manifests += self._delete_manifests(done, over.deletes)
        path = done.manifest_list(self._version, self._below.snapshot_id, manifests)
        return NewSnapshot(snapshot_id, self._sequence_number, path, rows, done.contents)

    def _data_manifests(self, done: _Writing, added: Sequence[WrittenFile]) -> tuple[list[ManifestFile], int]:
        """Those of ours, then those below; and how many rows of ours have new ids."""
        manifests, rows = [], 0
        for spec, files in self._by_spec((file.part, file) for file in added):
            entries = [_entry(ManifestEntryStatus.ADDED, _data_file(file)) for file in files]
            form = self._form(spec, ManifestContent.DATA)
            manifests.append(done.manifest(form, entries, self._next_row_id + rows))
            rows += sum(file.rows for file in files)
        below = [one for one in self._manifests if one.content == ManifestContent.DATA]
        return [*manifests, *below], rows

    def _delete_manifests(
        self, done: _Writing, deletes: Mapping[str, tuple[FileBucket, Deletes]]
    ) -> Iterator[ManifestFile]:
        """Those of ours, then those below without what ours take the place of."""
        for spec, files in self._by_spec((part, (path, part, one)) for path, (part, one) in deletes.items()):
            entries = [_entry(ManifestEntryStatus.ADDED, _delete_file(*one)) for one in files]
            yield done.manifest(self._form(spec, ManifestContent.DELETES), entries)
        yield from self._kept_deletes(done, deletes.keys())

    def _by_spec(self, files: Iterable[tuple[FileBucket, Any]]) -> Iterator[tuple[PartitionSpec, list[Any]]]:
        by_count: dict[int, list[Any]] = defaultdict(list)
        for part, file in files:
            by_count[part.of].append(file)
        for count, some in sorted(by_count.items()):
            if count not in self._specs:
                detail = f"the table has no partition spec with {count} buckets"
                raise ForeignSnapshot(table=self._table, snapshot_id=self._below.snapshot_id, detail=detail)
            yield self._specs[count], some

    def _form(self, spec: PartitionSpec, content: ManifestContent) -> _Form:
        form = self._forms.get((spec.spec_id, content))
        if form is None:
            form = _Form(self._version, self._schema, spec, content)
            self._forms[spec.spec_id, content] = form
        return form

    def _kept_deletes(self, done: _Writing, replaced: Iterable[str]) -> Iterator[ManifestFile]:
        """The manifests of deletes below, of which those of the ``replaced`` data files are left out."""
        gone = frozenset(replaced)
        specs = {spec.spec_id: spec for spec in self._specs.values()}
        for manifest in self._manifests:
            if manifest.content != ManifestContent.DELETES:
                continue
            listed = self._listed_deletes(manifest)
            kept = [entry for path, entry in listed if path not in gone]
            if kept and len(kept) == len(listed):
                yield manifest
            elif kept:  # safety: live-replaced-deletes-go
                form = self._form(specs[manifest.partition_spec_id], ManifestContent.DELETES)
                yield done.manifest(form, kept)

    def _listed_deletes(self, manifest: ManifestFile) -> list[tuple[str | None, ManifestEntry]]:
        """The entries of a manifest below, as those that existed before, by the data file they are about."""
        listed = self._deletes.get(manifest.manifest_path)
        if listed is None:
            listed = self._deletes[manifest.manifest_path] = [
                (referenced_file(file), _existing(entry, manifest))
                for entry, file in live_entries(self._io, manifest)
            ]
        return listed


class _Form:
    """What manifests of one partition spec and content have in common."""

    def __init__(
        self, version: TableVersion, schema: Schema, spec: PartitionSpec, content: ManifestContent
    ) -> None:
        self.version = version
        self.spec = spec
        self.content = content
        self.header = {
            "schema": schema.model_dump_json(),
            "partition-spec": json.dumps([one.model_dump(by_alias=True) for one in spec.fields], default=str),
            "partition-spec-id": str(spec.spec_id),
            "format-version": str(version),
            "content": "data" if content == ManifestContent.DATA else "deletes",
        }
        """The file's own metadata."""
        partition = spec.partition_type(schema)
        # The fields of an entry in the file, and as they are held here.
        of_file, held = (
            manifest_entry_schema_with_data_file(one, data_file_with_partition(partition, one))
            for one in (version, _RECORDS)
        )
        self.avro = AvroForm("manifest_entry", of_file, held)


class _Writing:
    """The files of one snapshot, as they come."""

    def __init__(self, stem: str, snapshot_id: int, sequence_number: int) -> None:
        self.contents: dict[str, bytes] = {}
        self._stem = stem
        self._snapshot_id = snapshot_id
        self._sequence_number = sequence_number

    def manifest(
        self, form: _Form, entries: Sequence[ManifestEntry], first_row_id: int | None = None
    ) -> ManifestFile:
        """A manifest, as a list has it. ``first_row_id`` is of the first row of its data files."""
        for entry in entries:
            if entry.status == ManifestEntryStatus.ADDED:
                entry.snapshot_id = self._snapshot_id
        path = f"{self._stem}-{len(self.contents)}.avro"
        content = form.avro.file(form.header, entries)
        self.contents[path] = content
        added = [entry for entry in entries if entry.status == ManifestEntryStatus.ADDED]
        existing = [entry for entry in entries if entry.status == ManifestEntryStatus.EXISTING]
        numbers = [entry.sequence_number for entry in existing if entry.sequence_number is not None]
        of_buckets = [entry.data_file.partition[0] for entry in entries]
        return ManifestFile.from_args(
            _table_format_version=_RECORDS,
            manifest_path=path,
            manifest_length=len(content),
            partition_spec_id=form.spec.spec_id,
            content=form.content,
            sequence_number=self._sequence_number,
            min_sequence_number=min([self._sequence_number, *numbers]),
            added_snapshot_id=self._snapshot_id,
            added_files_count=len(added),
            existing_files_count=len(existing),
            deleted_files_count=0,
            added_rows_count=sum(entry.data_file.record_count for entry in added),
            existing_rows_count=sum(entry.data_file.record_count for entry in existing),
            deleted_rows_count=0,
            partitions=[_summary(of_buckets)],
            key_metadata=None,
            first_row_id=first_row_id if form.version >= _RECORDS else None,
        )

    def manifest_list(self, version: TableVersion, below: int, manifests: Sequence[ManifestFile]) -> str:
        """The list, which makes it a snapshot; its path."""
        header = {
            "snapshot-id": str(self._snapshot_id),
            "parent-snapshot-id": str(below),
            "sequence-number": str(self._sequence_number),
            "format-version": str(version),
        }
        path = f"{self._stem}.avro"
        self.contents[path] = _list_form(version).file(header, manifests)
        return path


def _data_file(file: WrittenFile) -> DataFile:
    return DataFile.from_args(
        _table_format_version=_RECORDS,
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=Record(file.part.number),
        record_count=file.rows,
        file_size_in_bytes=file.file_bytes,
        value_counts=dict.fromkeys(file.null_counts, file.rows),
        null_value_counts=file.null_counts,
        lower_bounds=file.lower_bounds,
        upper_bounds=file.upper_bounds,
        sort_order_id=0,
    )


def _delete_file(data_file: str, part: FileBucket, deletes: Deletes) -> DataFile:
    """The deletes of a data file, in the data file's own bucket, as the specification wants them."""
    bound = {DELETED_PATH_FIELD_ID: data_file.encode()}
    is_vector = deletes.format == "puffin"
    return DataFile.from_args(
        _table_format_version=_RECORDS,
        content=DataFileContent.POSITION_DELETES,
        file_path=deletes.path,
        file_format=FileFormat.PUFFIN if is_vector else FileFormat.PARQUET,
        partition=Record(part.number),
        record_count=deletes.cardinality,
        file_size_in_bytes=deletes.file_bytes,
        lower_bounds=bound,
        upper_bounds=bound,
        referenced_data_file=data_file,
        content_offset=deletes.offset if is_vector else None,
        content_size_in_bytes=deletes.length if is_vector else None,
    )


def _entry(status: ManifestEntryStatus, file: DataFile) -> ManifestEntry:
    """An entry that inherits its sequence number."""
    return ManifestEntry.from_args(_table_format_version=_RECORDS, status=status, data_file=file)


def _existing(entry: ManifestEntry, manifest: ManifestFile) -> ManifestEntry:
    """An entry of a manifest for another one, with what it inherited from the first."""
    sequence_number, file_sequence_number = entry.sequence_number, entry.file_sequence_number
    return ManifestEntry.from_args(
        _table_format_version=_RECORDS,
        status=ManifestEntryStatus.EXISTING,
        snapshot_id=manifest.added_snapshot_id if entry.snapshot_id is None else entry.snapshot_id,
        sequence_number=manifest.sequence_number if sequence_number is None else sequence_number,
        file_sequence_number=(
            manifest.sequence_number if file_sequence_number is None else file_sequence_number
        ),
        data_file=entry.data_file,
    )


def _summary(buckets: Sequence[int]) -> PartitionFieldSummary:
    low, high = (bucket.to_bytes(4, "little", signed=True) for bucket in (min(buckets), max(buckets)))
    return PartitionFieldSummary.from_args(
        contains_null=False, contains_nan=False, lower_bound=low, upper_bound=high
    )


@lru_cache
def _list_form(version: TableVersion) -> AvroForm:
    schemas = MANIFEST_LIST_FILE_SCHEMAS
    return AvroForm("manifest_file", schemas[version], schemas[_RECORDS])
