"""A catalog in memory: immutable metadata, swapped as a whole; a table as PyIceberg shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType

from tests.partition_spec import partition_spec_of
from tests.simulation.faults import Violation
from tests.simulation.records import DEFINITION, LOCATION
from tests.simulation.store import Edge, FakeIO
from thermocline.iceberg.files import DataFile

SCHEMA = DEFINITION.iceberg_schema()
_SPEC = partition_spec_of(DEFINITION)
# Iceberg takes clocks that differ by this much between writers, and refuses what is older than that.
CLOCK_TOLERANCE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Summary:
    """A snapshot's summary."""

    additional_properties: dict[str, str]
    operation: str = "append"


@dataclass(frozen=True, slots=True, eq=False)
class FakeManifest:
    """The live files of a bucket. It is its own content, too."""

    manifest_path: str
    files: tuple[DataFile, ...]
    manifest_length: int = 100


@dataclass(frozen=True, slots=True, eq=False)
class FakeSnapshot:
    """A snapshot with the live files that `plan_files` would find in its manifests.

    ``manifest_list`` and ``listed`` are files of the store only where it is asked for (`FakeCatalog.listed`).
    """

    snapshot_id: int
    parent_snapshot_id: int | None
    sequence_number: int
    timestamp_ms: int
    summary: Summary
    files: tuple[DataFile, ...]
    manifest_list: str = ""
    listed: tuple[FakeManifest, ...] = ()

    def manifests(self, io: FakeIO) -> list[FakeManifest]:
        """Its manifests, read from their list."""
        return read_list(io, self.manifest_list)

    def model_dump(self, mode: str, by_alias: bool) -> dict[str, Any]:
        """As a document, which PyIceberg reads as one of its own."""
        return {
            "snapshot-id": self.snapshot_id,
            "parent-snapshot-id": self.parent_snapshot_id,
            "sequence-number": self.sequence_number,
            "timestamp-ms": self.timestamp_ms,
            "manifest-list": self.manifest_list,
            "summary": {"operation": self.summary.operation, **self.summary.additional_properties},
        }


def read_list(io: FakeIO, path: str) -> list[FakeManifest]:
    """The manifests of a list. Raises FileNotFoundError."""
    io.ask("store read")
    if path not in io.objects:
        raise FileNotFoundError(path)
    found: list[FakeManifest] = list(io.objects[path])
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Metadata:
    """All that a table is at one moment; a commit swaps it for another."""

    snapshots: Mapping[int, FakeSnapshot]
    current_id: int
    properties: Mapping[str, str]
    tags: Mapping[str, int] = field(default_factory=dict)
    last_updated_ms: int = 0
    last_sequence_number: int = 0
    table_uuid: str = "the table"
    metadata_log: tuple[()] = ()
    statistics: tuple[()] = ()
    partition_statistics: tuple[()] = ()
    schema: Schema = field(default_factory=lambda: SCHEMA)
    last_column_id: int = max(SCHEMA.field_ids)

    @property
    def refs(self) -> dict[str, SnapshotRef]:
        """Main, and the tags."""
        main = _ref(self.current_id, SnapshotRefType.BRANCH)
        tags = {name: _ref(one, SnapshotRefType.TAG) for name, one in self.tags.items()}
        return {MAIN_BRANCH: main, **tags}

    @property
    def current(self) -> FakeSnapshot:
        """The current snapshot."""
        return self.snapshots[self.current_id]

    def snapshot_by_id(self, snapshot_id: int) -> FakeSnapshot | None:
        """The snapshot, where the table has it."""
        return self.snapshots.get(snapshot_id)

    def history(self) -> Iterator[FakeSnapshot]:
        """The current snapshot and its ancestors, as far back as they are there."""
        snapshot: FakeSnapshot | None = self.current
        while snapshot is not None:
            yield snapshot
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self.snapshots.get(parent)

    def paths(self) -> set[str]:
        """Of all files that a snapshot needs."""
        return {path for snapshot in self.snapshots.values() for path in paths_of(snapshot)}

    def with_snapshot(self, snapshot: FakeSnapshot, properties: Mapping[str, str], now_ms: int) -> Metadata:
        """The same with one more snapshot, which is the current one."""
        return replace(
            self,
            snapshots={**self.snapshots, snapshot.snapshot_id: snapshot},
            current_id=snapshot.snapshot_id,
            properties={**self.properties, **properties},
            last_updated_ms=max(now_ms, self.last_updated_ms),
            last_sequence_number=snapshot.sequence_number,
        )

    def with_schema(self, schema: Schema) -> Metadata:
        """The same with other columns, of which Iceberg numbers the new ones on. Raises `Violation`."""
        if schema.fields == self.schema.fields:
            return self
        new = sorted(schema.field_ids - self.schema.field_ids)
        if new != list(range(self.last_column_id + 1, self.last_column_id + 1 + len(new))):
            raise Violation("field-ids-differ", f"{new} after {self.last_column_id}")
        return replace(self, schema=schema, last_column_id=self.last_column_id + len(new))

    def changed(self, **changes: Any) -> Metadata:
        """The same with some things set again."""
        return replace(self, **changes)


def paths_of(snapshot: FakeSnapshot) -> list[str]:
    """Of the files that a snapshot needs."""
    deletes = [file.deletes.path for file in snapshot.files if file.deletes is not None]
    lists = (
        [snapshot.manifest_list, *(one.manifest_path for one in snapshot.listed)]
        if snapshot.manifest_list
        else []
    )
    return [*(file.path for file in snapshot.files), *deletes, *lists]


def _ref(snapshot_id: int, kind: SnapshotRefType) -> SnapshotRef:
    return SnapshotRef.model_construct(snapshot_id=snapshot_id, snapshot_ref_type=kind)


class FakeTable:
    """A table as PyIceberg shows it: as it was when it was loaded."""

    def __init__(self, catalog: FakeCatalog, identifier: str, metadata: Metadata) -> None:
        self.catalog = catalog
        self.identifier = identifier
        self.metadata = metadata

    @property
    def properties(self) -> Mapping[str, str]:
        """The table properties."""
        return self.metadata.properties

    @property
    def io(self) -> FakeIO:
        """The file store."""
        return self.catalog.io

    @property
    def metadata_location(self) -> str:
        """Of a file that the store does not have: a swap is all that metadata needs here."""
        return f"{self.location()}/metadata/0.metadata.json"

    def schema(self) -> Schema:
        """The columns."""
        return self.metadata.schema

    def specs(self) -> dict[int, PartitionSpec]:
        """The one that the table was made with."""
        return {0: _SPEC}

    def name(self) -> tuple[str, ...]:
        """Namespace and name."""
        return tuple(self.identifier.split("."))

    def location(self) -> str:
        """Where its files are."""
        return f"file:///simulated/{self.identifier.rpartition('.')[2]}"

    def current_snapshot(self) -> FakeSnapshot:
        """The current snapshot."""
        return self.metadata.current

    def snapshots(self) -> list[FakeSnapshot]:
        """All snapshots, oldest first."""
        return list(self.metadata.snapshots.values())

    def snapshot_by_id(self, snapshot_id: int) -> FakeSnapshot | None:
        """The snapshot, where the table has it."""
        return self.metadata.snapshots.get(snapshot_id)

    def refresh(self) -> FakeTable:
        """As it is now."""
        self.metadata = self.catalog.load_table(self.identifier).metadata
        return self


class FakeCatalog:
    """The current metadata of each table.

    ``landed`` is called after each swap, with the table, what it was and is, and whose swap it was.
    """

    def __init__(
        self, io: FakeIO, edge: Edge, landed: Callable[[str, Metadata | None, Metadata, str], None]
    ) -> None:
        self.io = io
        self.properties = {"uri": "simulated"}
        self.tables: dict[str, Metadata] = {}
        self.keeps_manifests = False
        self._edge = edge
        self._landed = landed
        self._ids = 0

    def load_table(self, identifier: str) -> FakeTable:
        """The table as it is now."""
        self._edge("catalog load", _away)
        if identifier not in self.tables:
            raise NoSuchTableError(identifier)
        return FakeTable(self, identifier, self.tables[identifier])

    def look(self, identifier: str) -> FakeTable:
        """The same, for who stands outside of the world: nothing can go wrong."""
        return FakeTable(self, identifier, self.tables[identifier])

    def create(self, identifier: str, metadata: Metadata) -> None:
        """A new table."""
        self.tables[identifier] = metadata
        self._landed(identifier, None, metadata, "")

    def swap(self, identifier: str, before: Metadata, after: Metadata, by: str) -> bool:
        """Compare-and-swap: whether the table was as ``before``, and now is as ``after``."""
        if self.tables[identifier] is not before:
            return False
        self.tables[identifier] = after
        self._landed(identifier, before, after, by)
        return True

    def listed(self, snapshot: FakeSnapshot, parent: FakeSnapshot | None) -> FakeSnapshot:
        """The snapshot with a manifest a bucket, its parent's where nothing changed, all in the store."""
        if not self.keeps_manifests:
            return snapshot
        known = {one.files: one for one in parent.listed} if parent is not None else {}
        manifests: list[FakeManifest] = []
        for bucket in range(DEFINITION.buckets):
            files = tuple(file for file in snapshot.files if file.bucket == bucket)
            if files and (one := known.get(files)) is None:
                one = FakeManifest(f"{LOCATION}/metadata/{snapshot.snapshot_id}-m{bucket}.avro", files)
                self.io.objects[one.manifest_path] = one
            if files and one is not None:
                manifests.append(one)
        path = f"{LOCATION}/metadata/snap-{snapshot.snapshot_id}.avro"
        self.io.objects[path] = tuple(manifests)
        return replace(snapshot, manifest_list=path, listed=tuple(manifests))

    def new_id(self) -> int:
        """A new snapshot's id."""
        self._ids += 1
        return self._ids


def _away() -> Exception:
    return OSError("the catalog is unavailable")
