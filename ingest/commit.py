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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ingest.accounting import Accounting
from ingest.bucket_task import BucketResult
from ingest.content_files import ContentFiles, data_file_json, deletes_json
from ingest.java import JAVA_ERRORS, NO_SUCH_TABLE, class_name, first_line
from ingest.unknown import UnknownCommit, write_note
from thermocline.catalog import (
    BATCH_PROPERTY,
    DEFINITION_PROPERTY,
    EPOCH_PROPERTY,
    ROLLED_BACK,
    SEAM_PROPERTY,
    SUMMARY_BATCH,
    SUMMARY_CLUSTER,
    SUMMARY_DEFINITION_VERSION,
    SUMMARY_DRAINED,
    SUMMARY_EPOCH,
    SUMMARY_RECORDS,
    SUMMARY_RECORDS_TOTAL,
    SUMMARY_SEAM,
    SUMMARY_TOPIC_IDS,
    SUMMARY_WATERMARK,
    current_state,
    epoch_of,
    is_rolled_back,
    load_table,
)
from thermocline.errors import (
    CatalogUnreachable,
    CommitRejected,
    CommitUnknown,
    DefinitionChanged,
    OwnerLost,
    TableMissing,
    TableUnowned,
    ThermoclineError,
)
from thermocline.logs import fields
from thermocline.seam import Seam

if TYPE_CHECKING:
    from pyiceberg.table import Table

# A foreign property or tag costs one attempt (about 60 ms); 39 of 139 were lost with one every 0.2 s.
ATTEMPTS_MAX = 20
_LOST_RACE = "org.apache.iceberg.exceptions.CommitFailedException"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Change:
    """What a commit brings.

    ``ranges`` is for people: what an error says of the batch. ``alter`` runs first on the Iceberg transaction
    (schema changes, another current snapshot); ``properties`` and ``extra_summary`` are set beside our own.
    ``definition_version`` is what the table has afterwards; None leaves it.
    """

    seam: Seam
    cluster_id: str
    topic_ids: Mapping[str, str]
    watermark_ms: int
    drained_ms: int
    accounting: Accounting = field(default_factory=Accounting)
    files: Sequence[BucketResult] = ()
    ranges: str = "none"
    extra_summary: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    alter: Callable[[Any], None] | None = None
    definition_version: int | None = None
    batch_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def paths(self) -> list[str]:
        """The files that were written for it, each once."""
        return written_paths(self.files)


@dataclass(frozen=True, slots=True)
class Onto:
    """A snapshot of ours that shall be the current one again, ``over`` the one that is, and notes of that."""

    snapshot_id: int
    over: int
    extra_summary: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Landed:
    """The snapshot that a commit made, and its seam."""

    snapshot_id: int
    seam: Seam


@dataclass(frozen=True, slots=True)
class Rejected:
    """The commit certainly did not land, and never will; why not. What it brought may be deleted."""

    error: ThermoclineError


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody can say whether the commit landed, or still will. What it brought must be kept."""

    error: CommitUnknown


Outcome = Landed | Rejected | Unknown


class Committer:
    """Commits to one table as one owner.

    ``table`` is an ``org.apache.iceberg.Table`` over py4j. ``seen`` is the same table through PyIceberg: it
    keeps the note that an unknown commit leaves behind, and says from where a table can be continued.
    """

    def __init__(self, jvm: Any, table: Any, name: str, definition_version: int, seen: Table) -> None:
        self._jvm = jvm
        self._table = table
        self._name = name
        self._definition_version = definition_version
        self._seen = seen
        self._identifier = ".".join(seen.name())
        self._epoch = 0

    @property
    def epoch(self) -> int:
        """The epoch that this owner commits under; 0 before ownership was taken."""
        return self._epoch

    def take_ownership(self, epoch_seen: int, epoch_floor: int = 0, onto: Onto | None = None) -> Outcome:
        """Raise the table's epoch, in an empty snapshot that carries seam and totals on.

        From then on every earlier owner's commit is impossible.

        Args:
            epoch_seen: the table's epoch when nobody was seen to hold it; another one by now is `OwnerLost`.
            epoch_floor: the highest epoch known from elsewhere; a restored catalog may be behind it.
            onto: a snapshot of ours that becomes the current one by this, over the one that was seen.
        """
        self._epoch = max(epoch_seen, epoch_floor) + 1
        for _ in range(ATTEMPTS_MAX):
            try:
                plan, change = self._ownership(epoch_seen, onto)
            except ThermoclineError as error:
                return Rejected(self._resumable(error))
            except JAVA_ERRORS as error:
                return Rejected(self._unreachable(error))
            outcome = self._commit(plan, change)
            # The owner before may commit until the last moment: then its snapshot is the one to go on from.
            if not (isinstance(outcome, Rejected) and isinstance(outcome.error, TableUnowned)):
                return outcome
            if onto is not None:  # what became current meanwhile is not to be given up unseen
                return Rejected(self._resumable(outcome.error))
        detail = f"its current snapshot changed {ATTEMPTS_MAX} times while ownership was being taken"
        return Rejected(TableUnowned(table=self._name, snapshot_id=-1, detail=detail))

    def commit(self, planned_on: int, planned_seam: Seam, change: Change) -> Outcome:
        """Publish a batch that was planned on a snapshot and its seam.

        Rejected with `OwnerLost` (another owner has taken the table), `TableUnowned` (it is on another
        writer's snapshot, or was rolled back), `DefinitionChanged` (it was altered meanwhile),
        `CatalogUnreachable` (it was not even asked to), or `CommitRejected` (Iceberg refused the change).
        An unknown commit leaves a note for `ingest.reconcile`.
        """
        outcome = self._commit(_Plan(planned_on, planned_seam, self._epoch), change)
        match outcome:
            case Landed() if change.definition_version is not None:
                self._definition_version = change.definition_version
            case Rejected(error):
                return Rejected(self._resumable(error))
            case Unknown(error):
                note = UnknownCommit(
                    batch_id=change.batch_id,
                    epoch=self._epoch,
                    planned_on=planned_on,
                    ranges=change.ranges,
                    files=tuple(change.paths()),
                    detail=error.detail,
                )
                write_note(self._seen.io, self._seen.location(), note)
        return outcome

    def _ownership(self, epoch_seen: int, onto: Onto | None) -> tuple[_Plan, Change]:
        self._table.refresh()
        base = self._table.operations().current()
        current = base.currentSnapshot()
        start = current if onto is None else self._table.snapshot(onto.snapshot_id)
        summary = self._summary_of(start)
        seam = Seam.from_json(summary[SUMMARY_SEAM])
        copies = {name: base.properties().get(name) for name in (SEAM_PROPERTY, BATCH_PROPERTY)}
        if onto is None and is_rolled_back(summary, copies):
            raise TableUnowned(table=self._name, snapshot_id=current.snapshotId(), detail=ROLLED_BACK)
        change = Change(
            seam=seam,
            cluster_id=summary[SUMMARY_CLUSTER],
            topic_ids=json.loads(summary[SUMMARY_TOPIC_IDS]),
            watermark_ms=int(summary[SUMMARY_WATERMARK]),
            drained_ms=int(summary.get(SUMMARY_DRAINED, start.timestampMillis())),
        )
        if onto is None:
            return _Plan(current.snapshotId(), seam, epoch_seen), change
        change = replace(
            change,
            extra_summary=onto.extra_summary,
            properties=onto.properties,
            alter=_setting_current(onto.snapshot_id),
        )
        return _Plan(onto.over, None, epoch_seen), change

    def _commit(self, plan: _Plan, change: Change) -> Outcome:
        detail = ""
        tried: list[int] = []  # the snapshots that attempts asked for
        for _ in range(ATTEMPTS_MAX):
            prepared = self._prepare(plan, change, tried, detail)
            if not isinstance(prepared, _Prepared):
                return prepared
            tried.append(prepared.snapshot_id)
            try:
                self._table.operations().commit(prepared.base, prepared.built)
            except JAVA_ERRORS as error:
                detail = first_line(error)
                _logger.warning(
                    "commit attempt failed",
                    extra=fields(
                        table=self._name, batch_id=change.batch_id, attempt=len(tried), detail=detail
                    ),
                )
                known = self._look_for(tried, plan, change, detail)
                if known is not None:
                    return known
                if not _is_lost_race(error):
                    return self._unknown(change, detail)
                continue
            return Landed(prepared.snapshot_id, change.seam)
        return self._unknown(change, f"{ATTEMPTS_MAX} attempts: {detail}")

    def _prepare(self, plan: _Plan, change: Change, tried: Sequence[int], detail: str) -> _Prepared | Outcome:
        """The metadata as it is and as it shall be; or the outcome, where there is nothing to publish."""
        try:
            transaction = self._table.newTransaction()
        except JAVA_ERRORS as error:
            unreachable = self._unreachable(error)
            return Rejected(unreachable) if not tried else self._unknown(change, str(unreachable))
        try:
            # All checks are made on what the transaction starts from: opening it has refreshed.
            base = transaction.startMetadata()
            self._check(base, plan)
            self._build(transaction, change)
            built = transaction.currentMetadata()
            return _Prepared(base, built, built.currentSnapshot().snapshotId())
        except (OwnerLost, TableUnowned, DefinitionChanged) as error:
            # The table has moved on: by an attempt of ours that was thought lost, or by somebody else's.
            return self._look_for(tried, plan, change, detail) or Rejected(error)
        except JAVA_ERRORS as error:
            if tried:
                return self._unknown(change, first_line(error))
            detail = first_line(error)  # nothing was sent to the catalog yet
            return Rejected(CommitRejected(table=self._name, batch_id=change.batch_id, detail=detail))

    def _check(self, base: Any, plan: _Plan) -> None:
        """What makes a stale owner's commit impossible, read from the very metadata that is swapped out."""
        epoch = epoch_of({EPOCH_PROPERTY: base.properties().get(EPOCH_PROPERTY)}, self._name)
        if epoch != plan.epoch:
            raise OwnerLost(table=self._name, epoch_ours=plan.epoch, epoch_found=epoch)
        current = base.currentSnapshot()
        if current is None or current.snapshotId() != plan.snapshot_id:
            raise TableUnowned(
                table=self._name,
                snapshot_id=-1 if current is None else current.snapshotId(),
                detail=f"the current snapshot is not {plan.snapshot_id}, which the commit was planned on",
            )
        if plan.seam is not None:
            seam = Seam.from_json(self._summary_of(current)[SUMMARY_SEAM])
            if seam != plan.seam:
                raise TableUnowned(
                    table=self._name,
                    snapshot_id=plan.snapshot_id,
                    detail=f"planned with {plan.seam!r}, found {seam!r}",
                )
        version = self._version_in(base.properties().get(DEFINITION_PROPERTY))
        if version != self._definition_version:
            raise DefinitionChanged(table=self._name, planned=self._definition_version, found=version)

    def _version_in(self, definition: str | None) -> int:
        try:
            return int(json.loads(definition or "")["version"])
        except (ValueError, TypeError, KeyError) as error:
            detail = f"its property {DEFINITION_PROPERTY} was removed or changed"
            raise TableUnowned(table=self._name, snapshot_id=-1, detail=detail) from error

    def _build(self, transaction: Any, change: Change) -> None:
        if change.alter is not None:
            change.alter(transaction)
        parent = transaction.currentMetadata().currentSnapshot()
        delta = transaction.newRowDelta()
        files = ContentFiles(self._jvm, self._table.specs())
        files.add_rows(
            delta,
            [data_file_json(part.bucket, part.added) for part in change.files if part.added is not None],
        )
        files.add_deletes(
            delta, [deletes_json(part.bucket, *one) for part in change.files for one in part.deletes.items()]
        )
        files.remove_deletes(
            delta, [deletes_json(part.bucket, *one) for part in change.files for one in part.replaced.items()]
        )
        touched = files.texts(path for part in change.files for path in part.deletes)
        delta.validateFromSnapshot(parent.snapshotId())
        delta.validateDataFilesExist(touched)
        delta.validateDeletedFiles()
        delta.validateNoConflictingDataFiles()
        delta.validateNoConflictingDeleteFiles()
        for name, value in self._summary(parent, change).items():
            delta.set(name, value)
        delta.commit()
        update = transaction.updateProperties()
        update.set(EPOCH_PROPERTY, str(self._epoch))
        update.set(SEAM_PROPERTY, change.seam.to_json())
        update.set(BATCH_PROPERTY, change.batch_id)
        for name, value in change.properties.items():
            update.set(name, value)
        update.commit()

    def _summary(self, parent: Any, change: Change) -> dict[str, str]:
        version = change.definition_version or self._definition_version
        return summary_fields(change, self._epoch, version, _totals(self._summary_of(parent)))

    def _look_for(
        self, tried: Sequence[int], plan: _Plan, change: Change, detail: str
    ) -> Landed | Unknown | None:
        """What became of the attempts so far, whatever was raised; None when none of them is in the table.

        Absence proves something only while the history still reaches back to what they were planned on.
        """
        if not tried:
            return None
        try:
            self._table.refresh()
            for snapshot_id in tried:
                if self._table.snapshot(snapshot_id) is not None:
                    return Landed(snapshot_id, change.seam)
            if self._is_in_history(plan.snapshot_id):
                return None
        except JAVA_ERRORS as error:
            return self._unknown(change, f"{detail}; then, on looking for it: {first_line(error)}")
        return self._unknown(change, f"{detail}; and snapshot {plan.snapshot_id} before it is gone since")

    def _is_in_history(self, snapshot_id: int) -> bool:
        util = self._jvm.org.apache.iceberg.util.SnapshotUtil
        return bool(util.isAncestorOf(self._table, snapshot_id))

    def _unknown(self, change: Change, detail: str) -> Unknown:
        error = CommitUnknown(table=self._name, batch_id=change.batch_id, ranges=change.ranges, detail=detail)
        return Unknown(error)

    def _unreachable(self, error: Exception) -> ThermoclineError:
        if class_name(error) == NO_SUCH_TABLE:
            return TableMissing(table=self._name, identifier=self._identifier)
        uri = str(self._seen.catalog.properties.get("uri", ""))
        return CatalogUnreachable(uri=uri, detail=first_line(error))

    def _resumable(self, error: ThermoclineError) -> ThermoclineError:
        """Of a table that cannot be continued, the error that says from where it can, if that is found."""
        if isinstance(error, TableUnowned):
            try:
                table = load_table(self._seen.catalog, self._name, self._identifier)
                current_state(table, self._name)
            except TableUnowned as resumable:
                return resumable
            except ThermoclineError as unread:
                _logger.warning("table not read", extra=fields(table=self._name, detail=str(unread)))
        return error

    def _summary_of(self, snapshot: Any) -> dict[str, str]:
        summary = dict(snapshot.summary()) if snapshot is not None else {}
        if SUMMARY_SEAM not in summary:
            raise TableUnowned(
                table=self._name,
                snapshot_id=snapshot.snapshotId() if snapshot is not None else -1,
                detail="the current snapshot carries no seam: another writer made it",
            )
        return summary


@dataclass(frozen=True, slots=True)
class _Prepared:
    """Iceberg's metadata before and after a commit, and the snapshot that it makes."""

    base: Any
    built: Any
    snapshot_id: int


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a commit was planned on: snapshot, seam (None: any) and the epoch that the table must have."""

    snapshot_id: int
    seam: Seam | None
    epoch: int


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
        SUMMARY_DRAINED: str(change.drained_ms),
        **{SUMMARY_RECORDS + name: str(count) for name, count in counts.items()},
        **{
            SUMMARY_RECORDS_TOTAL + name: str(totals_before.get(name, 0) + count)
            for name, count in counts.items()
        },
        **change.extra_summary,
    }


def written_paths(files: Iterable[BucketResult]) -> list[str]:
    """The files that bucket tasks wrote, each once."""
    paths = [done.added.path for done in files if done.added is not None]
    paths += [deletes.path for done in files for deletes in done.deletes.values()]
    return list(dict.fromkeys(paths))


def _totals(summary: Mapping[str, str]) -> dict[str, int]:
    return {
        name.removeprefix(SUMMARY_RECORDS_TOTAL): int(value)
        for name, value in summary.items()
        if name.startswith(SUMMARY_RECORDS_TOTAL)
    }


def _setting_current(snapshot_id: int) -> Callable[[Any], None]:
    return lambda transaction: transaction.manageSnapshots().setCurrentSnapshot(snapshot_id).commit()


def _is_lost_race(error: Exception) -> bool:
    """Then the same files may be committed on a fresh base: only one of the attempts can ever land."""
    return class_name(error) == _LOST_RACE
