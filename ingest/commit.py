"""The commit: rows, seam, accounting and epoch in one metadata swap that a stale owner can't make.

A row delta and the properties are built in one Iceberg ``Transaction``, checked against its start
metadata, and published with ``table.operations().commit(start, current)``: a compare-and-swap of the
metadata pointer. Never ``commitTransaction()``, which refreshes and re-applies on top of whatever landed
meanwhile: with it a stale owner lands, and on a networked JDBC catalog a lost answer makes it delete the
manifests of a commit that did.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from ingest.accounting import Accounting
from ingest.bucket_task import BucketResult
from thermocline.catalog import (
    BATCH_PROPERTY,
    DEFINITION_PROPERTY,
    EPOCH_PROPERTY,
    SEAM_PROPERTY,
    SUMMARY_BATCH,
    SUMMARY_CLUSTER,
    SUMMARY_DEFINITION_VERSION,
    SUMMARY_EPOCH,
    SUMMARY_RECORDS,
    SUMMARY_RECORDS_TOTAL,
    SUMMARY_SEAM,
    SUMMARY_TOPIC_IDS,
    SUMMARY_WATERMARK,
)
from thermocline.data_file import WrittenFile
from thermocline.errors import CommitRejected, CommitUnknown, DefinitionDiffers, OwnerLost, TableUnowned
from thermocline.files import DeletionVector
from thermocline.logs import fields
from thermocline.seam import Seam

# A foreign property or tag costs one attempt (about 60 ms); 39 of 139 were lost with one every 0.2 s.
ATTEMPTS_MAX = 20
# With a Spark session, PySpark turns some of Java's exceptions into its own.
JAVA_ERRORS = (Py4JError, PySparkException)
_LOST_RACE = "org.apache.iceberg.exceptions.CommitFailedException"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Change:
    """What a commit brings. ``ranges`` is for people: what an error says of the batch."""

    seam: Seam
    cluster_id: str
    topic_ids: Mapping[str, str]
    watermark_ms: int
    accounting: Accounting = field(default_factory=Accounting)
    files: Sequence[BucketResult] = ()
    ranges: str = "none"
    batch_id: str = field(default_factory=lambda: str(uuid.uuid4()))


@dataclass(frozen=True, slots=True)
class Landed:
    """The snapshot that a commit made, and its seam."""

    snapshot_id: int
    seam: Seam


class Committer:
    """Commits to one table as one owner. ``table`` is an ``org.apache.iceberg.Table`` over py4j."""

    def __init__(self, jvm: Any, table: Any, name: str, definition_version: int) -> None:
        self._jvm = jvm
        self._table = table
        self._name = name
        self._definition_version = definition_version
        self._epoch = 0

    @property
    def epoch(self) -> int:
        """The epoch that this owner commits under; 0 before ownership was taken."""
        return self._epoch

    def take_ownership(self) -> Landed:
        """Raise the table's epoch by one, in an empty snapshot that carries seam and totals on.

        From then on every earlier owner's commit is impossible.
        Raises `OwnerLost` when another process took the table at the same moment.
        """
        self._table.refresh()
        base = self._table.operations().current()
        found = int(base.properties().get(EPOCH_PROPERTY))
        summary = self._summary_of(base)
        if Seam.from_json(base.properties().get(SEAM_PROPERTY)) != Seam.from_json(summary[SUMMARY_SEAM]):
            raise TableUnowned(
                table=self._name,
                snapshot_id=base.currentSnapshot().snapshotId(),
                detail="the table's copy of the seam is of another snapshot: the table was rolled back",
            )
        self._epoch = found + 1
        change = Change(
            seam=Seam.from_json(summary[SUMMARY_SEAM]),
            cluster_id=summary[SUMMARY_CLUSTER],
            topic_ids=json.loads(summary[SUMMARY_TOPIC_IDS]),
            watermark_ms=int(summary[SUMMARY_WATERMARK]),
        )
        return self._commit(base.currentSnapshot().snapshotId(), change.seam, change, epoch_before=found)

    def commit(self, planned_on: int, planned_seam: Seam, change: Change) -> Landed:
        """Publish a batch that was planned on a snapshot and its seam.

        Raises:
            OwnerLost: another owner has taken the table; nothing landed.
            TableUnowned: the table is on another writer's snapshot, or was rolled back; nothing landed.
            DefinitionDiffers: the definition was altered meanwhile; nothing landed.
            CommitRejected: Iceberg refused the change before anything was published.
            CommitUnknown: nobody can say whether it landed. Its files must be kept.
        """
        return self._commit(planned_on, planned_seam, change, epoch_before=self._epoch)

    def _commit(self, planned_on: int, planned_seam: Seam, change: Change, epoch_before: int) -> Landed:
        detail = ""
        for attempt in range(ATTEMPTS_MAX):
            try:
                # This refreshes: all checks are made on what the transaction starts from.
                transaction = self._table.newTransaction()
                base = transaction.startMetadata()
                self._check(base, planned_on, planned_seam, epoch_before)
                self._build(transaction, base, planned_on, change)
                built = transaction.currentMetadata()
            except (OwnerLost, TableUnowned, DefinitionDiffers):
                # The table has moved on: by an attempt of ours that was thought lost, or by somebody else's.
                landed = self._find(change, detail) if attempt else None
                if landed is not None:
                    return landed
                raise
            except JAVA_ERRORS as error:
                detail = _first_line(error)
                if attempt == 0:  # nothing was sent to the catalog yet
                    raise CommitRejected(table=self._name, batch_id=change.batch_id, detail=detail) from error
                raise self._unknown(change, detail) from error
            try:
                self._table.operations().commit(base, built)
            except JAVA_ERRORS as error:
                detail = _first_line(error)
                _logger.warning(
                    "commit attempt failed",
                    extra=fields(
                        table=self._name, batch_id=change.batch_id, attempt=attempt + 1, detail=detail
                    ),
                )
                landed = self._find(change, detail)
                if landed is not None:
                    return landed
                if not _is_lost_race(error):
                    raise self._unknown(change, detail) from error
                continue
            return Landed(built.currentSnapshot().snapshotId(), change.seam)
        raise self._unknown(change, f"{ATTEMPTS_MAX} attempts: {detail}")

    def _check(self, base: Any, planned_on: int, planned_seam: Seam, epoch_before: int) -> None:
        """What makes a stale owner's commit impossible, read from the very metadata that is swapped out."""
        epoch = int(base.properties().get(EPOCH_PROPERTY))
        if epoch != epoch_before:
            raise OwnerLost(table=self._name, epoch_ours=epoch_before, epoch_found=epoch)
        snapshot_id = base.currentSnapshot().snapshotId()
        seam = Seam.from_json(self._summary_of(base)[SUMMARY_SEAM])
        if snapshot_id != planned_on or seam != planned_seam:
            raise TableUnowned(
                table=self._name,
                snapshot_id=snapshot_id,
                detail=f"planned on snapshot {planned_on} with {planned_seam!r}, found {seam!r}",
            )
        version = json.loads(base.properties().get(DEFINITION_PROPERTY))["version"]
        if version != self._definition_version:
            raise DefinitionDiffers(
                table=self._name, differences=(f"version is {version} now, not {self._definition_version}",)
            )

    def _build(self, transaction: Any, base: Any, planned_on: int, change: Change) -> None:
        delta = transaction.newRowDelta()
        touched = self._jvm.java.util.ArrayList()
        for part in change.files:
            if part.added is not None:
                delta.addRows(self._content_file(data_file_json(part.bucket, part.added)))
            for data_file, vector in part.vectors.items():
                delta.addDeletes(self._content_file(vector_json(part.bucket, data_file, vector)))
                touched.add(data_file)
            for data_file, vector in part.replaced.items():
                delta.removeDeletes(self._content_file(vector_json(part.bucket, data_file, vector)))
        delta.validateFromSnapshot(planned_on)
        delta.validateDataFilesExist(touched)
        delta.validateDeletedFiles()
        delta.validateNoConflictingDataFiles()
        delta.validateNoConflictingDeleteFiles()
        for name, value in self._summary(base, change).items():
            delta.set(name, value)
        delta.commit()
        update = transaction.updateProperties()
        update.set(EPOCH_PROPERTY, str(self._epoch))
        update.set(SEAM_PROPERTY, change.seam.to_json())
        update.set(BATCH_PROPERTY, change.batch_id)
        update.commit()

    def _summary(self, base: Any, change: Change) -> dict[str, str]:
        totals = _totals(self._summary_of(base))
        return summary_fields(change, self._epoch, self._definition_version, totals)

    def _find(self, change: Change, detail: str) -> Landed | None:
        """Our batch in the history of `main` as it is now; None when it is not there, whatever was raised."""
        try:
            self._table.refresh()
            for snapshot in _ancestors(self._jvm, self._table):
                if snapshot.summary().get(SUMMARY_BATCH) == change.batch_id:
                    return Landed(snapshot.snapshotId(), change.seam)
        except JAVA_ERRORS as error:
            raise self._unknown(change, f"{detail}; then, on looking for it: {_first_line(error)}") from error
        return None

    def _unknown(self, change: Change, detail: str) -> CommitUnknown:
        return CommitUnknown(table=self._name, batch_id=change.batch_id, ranges=change.ranges, detail=detail)

    def _summary_of(self, metadata: Any) -> dict[str, str]:
        snapshot = metadata.currentSnapshot()
        summary = dict(snapshot.summary()) if snapshot is not None else {}
        if SUMMARY_SEAM not in summary:
            raise TableUnowned(
                table=self._name,
                snapshot_id=snapshot.snapshotId() if snapshot is not None else -1,
                detail="the current snapshot carries no seam: another writer made it",
            )
        return summary

    def _content_file(self, description: Mapping[str, Any]) -> Any:
        iceberg = self._jvm.org.apache.iceberg
        node = iceberg.util.JsonUtil.mapper().readTree(json.dumps(description))
        return iceberg.ContentFileParser.fromJson(node, self._table.specs())


def summary_fields(
    change: Change, epoch: int, definition_version: int, totals_before: Mapping[str, int]
) -> dict[str, str]:
    """The snapshot summary of a commit of ours: what `thermocline.catalog.state_of` reads back."""
    counts = change.accounting.counts()
    return {
        SUMMARY_SEAM: change.seam.to_json(),
        SUMMARY_EPOCH: str(epoch),
        SUMMARY_BATCH: change.batch_id,
        SUMMARY_CLUSTER: change.cluster_id,
        SUMMARY_TOPIC_IDS: json.dumps(dict(change.topic_ids), sort_keys=True),
        SUMMARY_DEFINITION_VERSION: str(definition_version),
        SUMMARY_WATERMARK: str(change.watermark_ms),
        **{SUMMARY_RECORDS + name: str(count) for name, count in counts.items()},
        **{
            SUMMARY_RECORDS_TOTAL + name: str(totals_before.get(name, 0) + count)
            for name, count in counts.items()
        },
    }


def data_file_json(bucket: int, file: WrittenFile) -> dict[str, Any]:
    """A data file as Iceberg's ``ContentFileParser`` reads it."""
    return {
        "spec-id": 0,
        "content": "data",
        "file-path": file.path,
        "file-format": "parquet",
        "partition": [bucket],
        "file-size-in-bytes": file.file_bytes,
        "record-count": file.rows,
        "value-counts": _pairs(dict.fromkeys(file.null_counts, file.rows)),
        "null-value-counts": _pairs(file.null_counts),
        "lower-bounds": _pairs({field_id: bound.hex() for field_id, bound in file.lower_bounds.items()}),
        "upper-bounds": _pairs({field_id: bound.hex() for field_id, bound in file.upper_bounds.items()}),
        "sort-order-id": 0,
    }


def vector_json(bucket: int, data_file: str, vector: DeletionVector) -> dict[str, Any]:
    """A deletion vector as Iceberg's ``ContentFileParser`` reads it."""
    return {
        "spec-id": 0,
        "content": "position-deletes",
        "file-path": vector.path,
        "file-format": "puffin",
        "partition": [bucket],
        "file-size-in-bytes": vector.file_bytes,
        "record-count": vector.cardinality,
        "referenced-data-file": data_file,
        "content-offset": vector.offset,
        "content-size-in-bytes": vector.length,
    }


def _pairs(values: Mapping[int, Any]) -> dict[str, list[Any]]:
    return {"keys": list(values), "values": list(values.values())}


def _totals(summary: Mapping[str, str]) -> dict[str, int]:
    return {
        name.removeprefix(SUMMARY_RECORDS_TOTAL): int(value)
        for name, value in summary.items()
        if name.startswith(SUMMARY_RECORDS_TOTAL)
    }


def _ancestors(jvm: Any, table: Any) -> Iterator[Any]:
    iterator = jvm.org.apache.iceberg.util.SnapshotUtil.currentAncestors(table).iterator()
    while iterator.hasNext():
        yield iterator.next()


def _is_lost_race(error: Exception) -> bool:
    """Then the same files may be committed on a fresh base: only one of the attempts can ever land."""
    return isinstance(error, Py4JJavaError) and error.java_exception.getClass().getName() == _LOST_RACE


def _first_line(error: Exception) -> str:
    said = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)
    return str(said).partition("\n")[0]
