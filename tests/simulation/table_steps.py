"""Steps in which the table is written to: by ingest, by the commands that resume it, and by others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tests.simulation.catalog import FakeSnapshot, Metadata, Summary, paths_of
from tests.simulation.faults import Answer, Fault
from tests.simulation.owners import Process
from tests.simulation.records import IDENTIFIER, KEYS, LOCATION, Stored, bucket_of
from thermocline.iceberg.files import DataFile

if TYPE_CHECKING:
    from tests.simulation.world import World


@dataclass(frozen=True, slots=True)
class Ingest:
    """An owner takes the table, if it does not have it, and runs a batch."""

    owner: int
    fault: Fault | None = None
    answer: Answer | None = None

    def run(self, world: World) -> None:
        """As far as it comes."""
        Process.of(world, f"owner {self.owner}").ingest(self.fault, self.answer)


@dataclass(frozen=True, slots=True)
class Kill:
    """An owner dies between two batches."""

    owner: int

    def run(self, world: World) -> None:
        """It knows nothing any more."""
        process = Process.of(world, f"owner {self.owner}")
        if not world.frames.is_busy(process.name):
            process.owner = None


@dataclass(frozen=True, slots=True)
class Resume:
    """Somebody runs the command that an owner's stop named."""

    owner: int
    to: str = "earliest"
    fault: Fault | None = None
    answer: Answer | None = None

    def run(self, world: World) -> None:
        """With the facts that it named."""
        Process.of(world, f"owner {self.owner}").resume(self.to, self.fault, self.answer)


@dataclass(frozen=True, slots=True)
class DeliverLate:
    """A swap that was under way for long is carried out, where the table is still as it began."""

    which: int

    def run(self, world: World) -> None:
        """It may never be."""
        if world.late:
            one = world.late.pop(self.which % len(world.late))
            is_done = one.may_land(world.now_ms) and one.swap()
            world.counts["late swap landed" if is_done else "late swap refused"] += 1


@dataclass(frozen=True, slots=True)
class Append:
    """Somebody else appends a row."""

    key: int

    def run(self, world: World) -> None:
        """A key of its own making, live in the table or not."""
        metadata, key = world.table(), KEYS[self.key % len(KEYS)]
        path = f"{LOCATION}/data/foreign-{metadata.last_sequence_number}.parquet"
        if key in world.rows_of(metadata.current):
            return
        world.io.objects[path] = (Stored(key, -1, "elsewhere", 0, 0, 0),)
        added = DataFile(path, bucket_of(key), 1, 1000)
        _snapshot(world, metadata, (*metadata.current.files, added), "append")


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Somebody else compacts the table's files: the same rows in one file a bucket."""

    def run(self, world: World) -> None:
        """A snapshot that carries no seam."""
        metadata = world.table()
        files = []
        for bucket in range(2):
            rows: list[Stored] = []
            for file in metadata.current.files:
                if file.bucket == bucket:
                    gone = world.io.objects[file.deletes.path][file.path] if file.deletes else ()
                    rows += [row for at, row in enumerate(world.io.objects[file.path]) if at not in gone]
            if rows:
                path = f"{LOCATION}/data/rewritten-{metadata.last_sequence_number}-{bucket}.parquet"
                world.io.objects[path] = tuple(sorted(rows))
                files.append(DataFile(path, bucket, len(rows), 1000))
        _snapshot(world, metadata, tuple(files), "replace")


@dataclass(frozen=True, slots=True)
class SetProperty:
    """Somebody sets a property of the table."""

    value: int

    def run(self, world: World) -> None:
        """No snapshot."""
        metadata = world.table()
        _swap(world, metadata.changed(properties={**metadata.properties, "owner.note": str(self.value)}))


@dataclass(frozen=True, slots=True)
class Tag:
    """Somebody tags the current snapshot, which keeps it from expiring."""

    name: str

    def run(self, world: World) -> None:
        """No snapshot."""
        metadata = world.table()
        _swap(world, metadata.changed(tags={**metadata.tags, self.name: metadata.current_id}))


@dataclass(frozen=True, slots=True)
class Expire:
    """Somebody expires all but the newest snapshots, and deletes the files that no other needs."""

    kept: int

    def run(self, world: World) -> None:
        """Tagged ones stay."""
        metadata = world.table()
        stay = {one.snapshot_id for one in list(metadata.history())[: max(self.kept, 1)]}
        stay |= set(metadata.tags.values())
        left = {key: one for key, one in metadata.snapshots.items() if key in stay}
        if len(left) == len(metadata.snapshots):
            return
        gone = {path for key, one in metadata.snapshots.items() if key not in stay for path in paths_of(one)}
        after = metadata.changed(snapshots=left)
        _swap(world, after)
        for path in gone - after.paths():
            del world.io.objects[path]
        world.counts["expired"] += len(metadata.snapshots) - len(left)


@dataclass(frozen=True, slots=True)
class Rollback:
    """Somebody makes an older snapshot of main's history the current one."""

    back: int

    def run(self, world: World) -> None:
        """Properties stay as they are."""
        metadata = world.table()
        older = list(metadata.history())[1:]
        if older:
            _swap(world, metadata.changed(current_id=older[self.back % len(older)].snapshot_id))
            world.counts["rolled back"] += 1


def _snapshot(world: World, metadata: Metadata, files: tuple[DataFile, ...], operation: str) -> None:
    bare = FakeSnapshot(
        world.catalog.new_id(),
        metadata.current_id,
        metadata.last_sequence_number + 1,
        max(world.now_ms, metadata.last_updated_ms),
        Summary({}, operation),
        files,
    )
    snapshot = world.catalog.listed(bare, metadata.current)
    _swap(world, metadata.with_snapshot(snapshot, {}, snapshot.timestamp_ms))
    world.counts[f"foreign {operation}"] += 1


def _swap(world: World, after: Metadata) -> None:
    """At once, by somebody who asks again until it is done. Each swap is of a metadata of its own."""
    is_done = world.catalog.swap(IDENTIFIER, world.table(), replace(after), "foreign")
    assert is_done
