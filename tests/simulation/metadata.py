"""The metadata store of the commit protocol (`MetadataStore`) on the catalog in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tests.simulation.catalog import CLOCK_TOLERANCE_MS, FakeSnapshot, Summary
from tests.simulation.faults import Violation
from thermocline.iceberg.files import DataFile
from thermocline.ingest.commit.metadata import (
    Built,
    LostRace,
    MetadataError,
    NoAnswer,
    NoTable,
    Start,
    StoredSnapshot,
)

if TYPE_CHECKING:
    from tests.simulation.catalog import FakeCatalog, Metadata
    from thermocline.ingest.commit.change import TableChange
    from thermocline.process.clock import Clock

UNDER_WAY_MS_MAX = 86_400_000


@dataclass(frozen=True, slots=True)
class Late:
    """A swap that is under way for long: what of, what for, and since when."""

    swap: Callable[[], bool]
    before: Metadata
    after: Metadata
    asked_ms: int

    def may_land(self, now_ms: int) -> bool:
        """Nothing is under way for days: by then its files may have gone as orphans."""
        return now_ms - self.asked_ms < UNDER_WAY_MS_MAX


class FakeMetadataStore:
    """One table's metadata. ``next_answer`` says how a swap is answered; ``late`` keeps what comes later."""

    def __init__(
        self,
        catalog: FakeCatalog,
        identifier: str,
        clock: Clock,
        edge: Callable[..., None],
        next_answer: Callable[[], str],
        late: list[Late],
        by: str,
    ) -> None:
        self._catalog = catalog
        self._identifier = identifier
        self._clock = clock
        self._edge = edge
        self._next_answer = next_answer
        self._late = late
        self._by = by
        self._seen: Metadata | None = None

    def start(self) -> Start:
        """The newest metadata."""
        metadata = self._load()
        return Start(_stored(metadata.current), metadata.properties, metadata)

    def build(self, start: Start, change: TableChange) -> Built:
        """The metadata that the change makes of its start."""
        self._edge("metadata write", _refused)
        before: Metadata = start.handle
        parent = before.current if change.onto is None else before.snapshots.get(change.onto)
        if parent is None:
            raise MetadataError(f"Cannot roll back to unknown snapshot id: {change.onto}")
        now_ms = self._clock.now_ms()
        if before.last_updated_ms - now_ms > CLOCK_TOLERANCE_MS:
            raise MetadataError(f"Invalid update timestamp {now_ms}: before last snapshot log entry")
        bare = FakeSnapshot(
            self._catalog.new_id(),
            parent.snapshot_id,
            before.last_sequence_number + 1,
            now_ms,
            Summary(dict(change.summary)),
            files_after(parent.files, change),
        )
        snapshot = self._catalog.listed(bare, parent)
        if change.definition is not None:
            before = before.with_schema(change.definition.iceberg_schema())
        left = {key: one for key, one in before.snapshots.items() if key not in change.expired}
        after = before.changed(snapshots=left).with_snapshot(snapshot, change.properties, now_ms)
        return Built(snapshot.snapshot_id, after)

    def publish(self, start: Start, built: Built) -> None:
        """The swap, as well as it is answered."""
        self._edge("publish", _no_answer)
        answer = self._next_answer()

        def swap() -> bool:
            return self._catalog.swap(self._identifier, start.handle, built.handle, self._by)

        match answer:
            case "":
                if not swap():
                    raise LostRace("the metadata location has changed")
            case "applied":
                swap()
            case "raced":
                swap()
                raise LostRace("the metadata location has changed")
            case "late":
                self._late.append(Late(swap, start.handle, built.handle, self._clock.now_ms()))
            case "late-race":
                self._late.append(Late(swap, start.handle, built.handle, self._clock.now_ms()))
                raise LostRace("the metadata location has changed")
        if answer:
            raise NoAnswer("connection reset")

    def renew(self) -> None:
        """Nothing was granted that could end."""

    def refresh(self) -> None:
        """The questions below are about the newest metadata."""
        self._load()

    def snapshot(self, snapshot_id: int) -> StoredSnapshot | None:
        """A snapshot of the table."""
        found = self._known.snapshots.get(snapshot_id)
        return None if found is None else _stored(found)

    def is_in_history(self, snapshot_id: int) -> bool:
        """Whether the current snapshot is that one or follows it."""
        return any(snapshot.snapshot_id == snapshot_id for snapshot in self._known.history())

    @property
    def _known(self) -> Metadata:
        assert self._seen is not None, "asked before anything was loaded"
        return self._seen

    def _load(self) -> Metadata:
        self._edge("metadata load", _refused)
        if self._identifier not in self._catalog.tables:
            raise NoTable(f"Table does not exist: {self._identifier}")
        self._seen = self._catalog.tables[self._identifier]
        return self._seen


def files_after(files: tuple[DataFile, ...], change: TableChange) -> tuple[DataFile, ...]:
    """The live files after a change, as Iceberg makes them.

    Raises `MetadataError` where Iceberg refuses them, and `Violation` where it does not and should.
    """
    by_path = {file.path: file for file in files}
    for done in change.files:
        for path, deletes in done.dropped().items():
            if path not in by_path or by_path[path].deletes != deletes:
                raise MetadataError(f"Missing required files to delete: {deletes.path}")
            by_path[path] = replace(by_path[path], deletes=None)
        for file in done.removed:
            if by_path.pop(file.path, None) is None:
                raise MetadataError(f"Missing required files to delete: {file.path}")
        new = {added.path for added in done.added}
        for path, deletes in ((path, one) for path, one in done.deletes.items() if path not in new):
            if path not in by_path:
                # Iceberg would take them: it only looks for what was removed since the start.
                raise Violation("deletes-for-no-file", path)
            if by_path[path].deletes is not None:
                raise Violation("two-deletes-for-a-file", path)
            by_path[path] = replace(by_path[path], deletes=deletes)
        for added in done.added:
            moved = done.deletes.get(added.path)
            by_path[added.path] = DataFile(
                added.path, done.bucket, added.rows, added.file_bytes, moved, part=added.part
            )
    return tuple(by_path.values())


def _stored(snapshot: FakeSnapshot) -> StoredSnapshot:
    return StoredSnapshot(snapshot.snapshot_id, snapshot.summary.additional_properties, snapshot.timestamp_ms)


def _refused() -> Exception:
    return MetadataError("the catalog is unavailable")


def _no_answer() -> Exception:
    return NoAnswer("connection refused")
