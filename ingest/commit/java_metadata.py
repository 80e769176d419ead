"""A table's metadata through Iceberg's Java library: one transaction a commit, published by the operations.

A row delta or a rewrite, and the properties, are built in one Iceberg ``Transaction``, and published with
``table.operations().commit(start, current)``: a compare-and-swap of the metadata pointer. Never
``commitTransaction()``, which refreshes and re-applies on top of whatever landed meanwhile: with it a stale
owner lands, and on a networked JDBC catalog a lost answer makes it delete the manifests of a commit that did.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from thermocline.ingest.commit.content_files import ContentFiles
from thermocline.ingest.commit.java import JAVA_ERRORS, NO_SUCH_TABLE, class_name, first_line
from thermocline.ingest.commit.manifest_order import ManifestOrder
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
    from thermocline.ingest.commit.change import TableChange

LOST_RACE = "org.apache.iceberg.exceptions.CommitFailedException"


class JavaMetadata:
    """A `MetadataStore` of one ``org.apache.iceberg.Table``, over py4j.

    A call takes some 0.2 ms, so a map comes over whole, as JSON.
    """

    def __init__(self, jvm: Any, load: Callable[[], Any]) -> None:
        self.jvm = jvm
        self._load = load
        self.table = load()

    def start(self) -> Start:
        """The newest metadata: opening a transaction refreshes."""
        with _java_errors():
            transaction = self.table.newTransaction()
            base = transaction.startMetadata()
            current = self._stored(base.currentSnapshot())
            schema = self.jvm.org.apache.iceberg.SchemaParser.toJson(base.schema())
            properties = self._mapping(base.properties())
            return Start(current, properties, _OpenTransaction(transaction, base), schema)

    def build(self, start: Start, change: TableChange) -> Built:
        """The metadata as the transaction leaves it."""
        assert start.current is not None
        parent_id = start.current.snapshot_id if change.onto is None else change.onto
        with _java_errors():
            transaction = start.handle.transaction
            if change.onto is not None:
                transaction.manageSnapshots().setCurrentSnapshot(change.onto).commit()
            if change.alter is not None:
                change.alter(transaction)
            self._add_snapshot(transaction, change, parent_id)
            update = transaction.updateProperties()
            for name, value in change.properties.items():
                update.set(name, value)
            update.commit()
            built = self._without(transaction.currentMetadata(), change.expired)
            snapshot = built.currentSnapshot()
            return Built(snapshot.snapshotId(), built, snapshot.manifestListLocation())

    def publish(self, start: Start, built: Built) -> None:
        """The swap of the metadata pointer."""
        try:
            self.table.operations().commit(start.handle.base, built.handle)  # safety: swap
        except JAVA_ERRORS as error:
            # Of a lost race the catalog says so itself; whatever else was met, the swap may have been made.
            # safety: no-answer-is-no-lost-race
            kind = LostRace if class_name(error) == LOST_RACE else NoAnswer
            raise kind(first_line(error)) from error

    def refresh(self) -> None:
        """Read the table again."""
        with _java_errors():
            self.table.refresh()

    def snapshot(self, snapshot_id: int) -> StoredSnapshot | None:
        """A snapshot of the table as it was read last."""
        with _java_errors():
            return self._stored(self.table.snapshot(snapshot_id))

    def renew(self) -> None:
        """An object of Java has its access to the store for as long as it lives."""
        self.table = self._load()

    def is_in_history(self, snapshot_id: int) -> bool:
        """Whether main leads back to it, in the table as it was read last."""
        with _java_errors():
            return bool(self.jvm.org.apache.iceberg.util.SnapshotUtil.isAncestorOf(self.table, snapshot_id))

    def _add_snapshot(self, transaction: Any, change: TableChange, parent_id: int) -> None:
        metadata = transaction.currentMetadata()
        files = ContentFiles(self.jvm, metadata.specsById())
        if change.kind == "manifests":
            update = transaction.rewriteManifests()
            order = ManifestOrder(self.jvm, metadata, self.table.operations())
            order.hand_over(update, change.buckets_together)
        elif change.kind == "rewrite":
            update = transaction.newRewrite()
            update.validateFromSnapshot(parent_id)
        else:
            update = transaction.newRowDelta()
            touched = files.texts(path for part in change.files for path in part.deletes)
            update.validateFromSnapshot(parent_id)
            update.validateDataFilesExist(touched)
            update.validateDeletedFiles()
            update.validateNoConflictingDataFiles()
            update.validateNoConflictingDeleteFiles()
        if change.kind != "manifests":
            files.hand_over(change, update)
        for name, value in change.summary.items():
            update.set(name, value)
        update.commit()

    def _without(self, metadata: Any, snapshot_ids: Sequence[int]) -> Any:
        """The metadata without some snapshots, whose files stay.

        Iceberg's ``ExpireSnapshots`` would also apply each ref's own retention, and so expire more. Raises
        `MetadataError` where a tag or a branch names one of them, which would be lost: it was made meanwhile.
        """
        if not snapshot_ids:
            return metadata
        for name, ref in metadata.refs().items():
            if ref.snapshotId() in snapshot_ids:  # safety: expiry-meets-a-new-ref
                raise MetadataError(f"{name} names snapshot {ref.snapshotId()}, which was to expire")
        ids = self.jvm.java.util.HashSet()
        for snapshot_id in snapshot_ids:
            ids.add(snapshot_id)
        builder = self.jvm.org.apache.iceberg.TableMetadata.buildFrom(metadata)
        return builder.removeSnapshots(ids).build()

    def _stored(self, snapshot: Any) -> StoredSnapshot | None:
        if snapshot is None:
            return None
        summary = self._mapping(snapshot.summary())
        return StoredSnapshot(snapshot.snapshotId(), summary, snapshot.timestampMillis())

    @cached_property
    def _mapper(self) -> Any:
        return self.jvm.org.apache.iceberg.util.JsonUtil.mapper()

    def _mapping(self, java_map: Any) -> dict[str, str]:
        found: dict[str, str] = json.loads(self._mapper.writeValueAsString(java_map))
        return found


@dataclass(frozen=True, slots=True)
class _OpenTransaction:
    """An Iceberg transaction, and the metadata that it started from."""

    transaction: Any
    base: Any


@contextmanager
def _java_errors() -> Iterator[None]:
    try:
        yield
    except JAVA_ERRORS as error:
        kind = NoTable if class_name(error) == NO_SUCH_TABLE else MetadataError
        raise kind(first_line(error)) from error
