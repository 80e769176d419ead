"""The commit: rows, seam, accounting and epoch in one metadata swap that a stale owner can't make.

The change is built onto the very metadata that was checked, and swapped for that metadata alone. A failed
swap proves nothing: the history is asked for every attempt before anything is said of it. How metadata is
read, built and swapped is the store's (``ingest.commit.metadata``).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyiceberg.schema import Schema

from thermocline.errors import (
    CatalogUnreachable,
    CommitRejected,
    CommitUnknown,
    DefinitionChanged,
    ForeignSchema,
    ForeignSnapshot,
    InternalError,
    OwnerLost,
    TableMissing,
    ThermoclineError,
    first_line,
)
from thermocline.failpoints import failpoint, failstep
from thermocline.iceberg.catalog import (
    BATCH_PROPERTY,
    DEFINITION_PROPERTY,
    EPOCH_PROPERTY,
    NO_SNAPSHOT,
    ROLLED_BACK,
    SEAM_PROPERTY,
    SUMMARY_TAKEN_OVER,
    SnapshotState,
    current_state,
    defined_by,
    epoch_of,
    is_rolled_back,
    load_table,
    state_from,
)
from thermocline.iceberg.files import added_origins
from thermocline.iceberg.foreign_schema import schema_differences
from thermocline.iceberg.rewrite import Rewrite
from thermocline.ingest.commit.change import Onto, TableChange, summary_fields
from thermocline.ingest.commit.metadata import Built, LostRace, MetadataError, NoTable, Start, StoredSnapshot
from thermocline.ingest.commit.unknown import UnknownCommit, write_note
from thermocline.process.logs import fields
from thermocline.rules.definition import LiveTable

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.iceberg.files import RowOrigin
    from thermocline.ingest.commit.metadata import MetadataStore
    from thermocline.rules.seam import Seam

# A foreign property or tag costs one attempt (about 60 ms); 39 of 139 were lost with one every 0.2 s.
ATTEMPTS_MAX = 20

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Landed:
    """The snapshot that a commit made, and its seam.

    ``origins`` are what the rows of the data files inherit that it added, by path; empty in format version 2.
    """

    snapshot_id: int
    seam: Seam
    origins: Mapping[str, RowOrigin] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rejected:
    """The commit certainly did not land, and never will; why not. What it brought may be deleted."""

    error: ThermoclineError


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody can say whether the commit landed, or still will. What it brought must be kept."""

    error: CommitUnknown


Outcome = Landed | Rejected | Unknown


def landed(outcome: Outcome) -> Landed:
    """The outcome, where the commit landed; raises the error of any other."""
    if not isinstance(outcome, Landed):  # safety: landed-or-raised
        raise outcome.error
    return outcome


class Committer:
    """Commits to one table as one owner.

    ``seen`` is the same table as the store's, through PyIceberg: it keeps the note that an unknown commit
    leaves behind, and says from where a table can be continued.
    """

    def __init__(self, store: MetadataStore, name: str, definition_version: int, seen: Table) -> None:
        self._store = store
        self._name = name
        self._definition_version = definition_version
        self._seen = seen
        self._identifier = ".".join(seen.name())
        self._epoch = 0
        self._raised_to = 0
        self._schema_checked = ("", "")

    @property
    def epoch(self) -> int:
        """The epoch that this owner commits under; 0 before ownership was taken."""
        return self._epoch

    def renew(self, seen: Table) -> None:
        """Go on with what the catalog grants of the store by now; ``seen`` is the table loaded again.

        Raises `TableMissing` and `CatalogUnreachable`.
        """
        self._seen = seen
        self._store.renew()

    def take_ownership(
        self, epoch_seen: int, epoch_floor: int = 0, onto: Onto | Rewrite | None = None
    ) -> Outcome:
        """Raise the table's epoch, in an empty snapshot that carries seam and totals on.

        From then on every earlier owner's commit is impossible.

        Args:
            epoch_seen: the table's epoch when nobody was seen to hold it; another one by now is `OwnerLost`.
            epoch_floor: the highest epoch known from elsewhere; a restored catalog may be behind it.
            onto: a snapshot of ours that becomes the current one by this, over the one that was seen; or a
                rewrite by others that was proved, on top of which it carries our newest snapshot on.
        """
        self._epoch = max(epoch_seen, epoch_floor) + 1  # safety: epoch-floor
        for _ in range(ATTEMPTS_MAX):
            try:
                plan, change = self._ownership(epoch_seen, onto)
            except ThermoclineError as error:
                return Rejected(self._resumable(error))
            except MetadataError as error:
                return Rejected(self._unreachable(error))
            outcome = self._commit(plan, change)
            # The owner before may commit until the last moment: then its snapshot is the one to go on from.
            if not (isinstance(outcome, Rejected) and isinstance(outcome.error, ForeignSnapshot)):
                return outcome
            if onto is not None:  # what became current meanwhile is not to be given up unseen
                return Rejected(self._resumable(outcome.error))
        detail = f"its current snapshot changed {ATTEMPTS_MAX} times while ownership was being taken"
        return Rejected(ForeignSnapshot(table=self._name, snapshot_id=-1, detail=detail))

    def take_over(self, rewrite: Rewrite) -> Outcome:
        """Carry our newest snapshot on over a rewrite by others that was proved, as the owner that we are."""
        try:
            self._store.start()
            plan, change = self._over(rewrite, self._epoch)
        except ThermoclineError as error:
            return Rejected(self._resumable(error))
        except MetadataError as error:
            return Rejected(self._unreachable(error))
        outcome = self._commit(plan, change)
        return Rejected(self._resumable(outcome.error)) if isinstance(outcome, Rejected) else outcome

    def commit(self, planned_on: int, planned_seam: Seam, change: TableChange) -> Outcome:
        """Publish a change that was planned on a snapshot and its seam.

        Rejected with `OwnerLost` (another owner has taken the table), `ForeignSnapshot` (it is on another
        writer's snapshot, or was rolled back), `DefinitionChanged` (it was altered meanwhile),
        `ForeignSchema` (another program changed its columns), `TableMissing` (it was dropped),
        `CatalogUnreachable` (it was not even asked to), `CommitRejected` (Iceberg refused the change), or
        `InternalError` (a rewrite that would not keep what the table says).
        An unknown commit leaves a note for `ingest.claim.reconcile`.
        """
        # safety: rewrite-keeps-rows
        if change.kind != "row-delta" and (
            change.rows_gained()
            or change.seam != planned_seam
            or change.accounting.read
            or (change.kind == "manifests" and change.files)
        ):
            detail = f"a rewrite changes the rows by {change.rows_gained()}, the seam to {change.seam}"
            return Rejected(InternalError(detail=detail, where="ingest"))
        outcome = self._commit(_Plan(planned_on, planned_seam, self._epoch), change)
        match outcome:
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

    def _ownership(self, epoch_seen: int, onto: Onto | Rewrite | None) -> tuple[_Plan, TableChange]:
        start = self._store.start()
        if isinstance(onto, Rewrite):
            return self._over(onto, epoch_seen)
        if onto is None:
            if start.current is None:
                raise ForeignSnapshot(table=self._name, snapshot_id=-1, detail=NO_SNAPSHOT)
            state = self._state_of(start.current)
            if is_rolled_back(start.current.summary, start.properties):
                raise ForeignSnapshot(table=self._name, snapshot_id=state.snapshot_id, detail=ROLLED_BACK)
            # safety: epoch-seen
            return _Plan(state.snapshot_id, state.seam, epoch_seen), TableChange.carrying_on(state)
        parent = self._kept(onto.snapshot_id)
        change = replace(
            TableChange.carrying_on(self._state_of(parent)).reading(onto.new),
            summary=onto.summary,
            properties=onto.properties,
            onto=parent.snapshot_id,
            definition=onto.definition,
        )
        return _Plan(onto.over, None, epoch_seen, parent, gives_up=True), change  # safety: onto-over

    def _over(self, rewrite: Rewrite, epoch: int) -> tuple[_Plan, TableChange]:
        """A change that makes a rewrite by others ours: what our newest snapshot says, on top of theirs."""
        ours = self._kept(rewrite.ours)
        change = replace(
            TableChange.carrying_on(self._state_of(ours)),
            summary={SUMMARY_TAKEN_OVER: ",".join(map(str, rewrite.others))},
        )
        return _Plan(rewrite.snapshot_id, None, epoch, ours), change  # safety: rewrite-that-was-proved

    def _kept(self, snapshot_id: int) -> StoredSnapshot:
        snapshot = self._store.snapshot(snapshot_id)
        if snapshot is None:
            detail = f"the table has no snapshot {snapshot_id} to go on from"
            raise ForeignSnapshot(table=self._name, snapshot_id=snapshot_id, detail=detail)
        return snapshot

    def _commit(self, plan: _Plan, change: TableChange) -> Outcome:
        outcome = self._attempt(plan, change)
        if isinstance(outcome, Landed) and change.definition is not None:
            self._definition_version = change.definition.version
            self._raised_to = change.definition.format_version
        return outcome

    def _attempt(self, plan: _Plan, change: TableChange) -> Outcome:
        detail = ""
        tried: list[_Prepared] = []
        for _ in range(ATTEMPTS_MAX):
            prepared = self._prepare(plan, change, tried, detail)
            if not isinstance(prepared, _Prepared):
                return prepared
            tried.append(prepared)
            try:
                with failstep("commit.publish"):
                    self._store.publish(prepared.start, prepared.built)
            except MetadataError as error:
                detail = str(error)
                _logger.warning(
                    "commit attempt failed",
                    extra=fields(
                        table=self._name, batch_id=change.batch_id, attempt=len(tried), detail=detail
                    ),
                )
                known = self._look_for(tried, plan, change, detail)  # safety: look-after-failure
                if known is not None:
                    return known
                # Only after a lost race may the same files be tried on a fresh start: at most one of the
                # attempts can ever land.
                if not isinstance(error, LostRace):
                    return self._unknown(change, detail)  # safety: unknown
                continue
            return prepared.landed(change)
        return self._unknown(change, f"{ATTEMPTS_MAX} attempts: {detail}")  # safety: lost-races-end

    def _prepare(
        self, plan: _Plan, change: TableChange, tried: Sequence[_Prepared], detail: str
    ) -> _Prepared | Outcome:
        """The metadata as it is and as it shall be; or the outcome, where there is nothing to publish."""
        try:
            failpoint("commit.refresh")
            start = self._store.start()
        except MetadataError as error:
            met = self._unreachable(error)
            # safety: unreachable-after-a-try
            return self._unknown(change, f"{detail}; then: {met} ({error})") if tried else Rejected(met)
        try:
            # All checks are made on what the swap takes the place of.
            current = self._check(start, plan)
            with failstep("commit.build"):
                built = self._build(start, plan.parent or current, change)
                return _Prepared(start, built, self._origins(built, change))
        except (OwnerLost, ForeignSnapshot, ForeignSchema, DefinitionChanged) as error:
            # The table has moved on: by an attempt of ours that was thought lost, or by somebody else's.
            # safety: look-before-rejecting
            return self._look_for(tried, plan, change, detail) or Rejected(error)
        except MetadataError as error:
            if tried:  # safety: unbuilt-after-a-try
                return self._unknown(change, f"{detail}; then, on building it again: {error}")
            # Nothing was sent to the catalog yet.
            return Rejected(CommitRejected(table=self._name, batch_id=change.batch_id, detail=str(error)))

    def _check(self, start: Start, plan: _Plan) -> StoredSnapshot:
        """What makes a stale owner's commit impossible, read from the very metadata that is swapped out.

        Gives the current snapshot.
        """
        epoch = epoch_of(start.properties, self._name)
        if epoch != plan.epoch:  # safety: epoch-check
            raise OwnerLost(table=self._name, epoch_ours=plan.epoch, epoch_found=epoch)
        current = start.current
        if current is None or current.snapshot_id != plan.snapshot_id:  # safety: snapshot-check
            raise ForeignSnapshot(
                table=self._name,
                snapshot_id=-1 if current is None else current.snapshot_id,
                detail=f"the current snapshot is not {plan.snapshot_id}, which the commit was planned on",
            )
        # Somebody may have rolled it back, by a commit of another owner's, since it was read for the plan.
        # safety: rollback-before-the-swap
        if not plan.gives_up and is_rolled_back((plan.parent or current).summary, start.properties):
            raise ForeignSnapshot(table=self._name, snapshot_id=current.snapshot_id, detail=ROLLED_BACK)
        if plan.seam is not None:
            seam = self._state_of(current).seam
            if seam != plan.seam:  # safety: seam-check
                raise ForeignSnapshot(
                    table=self._name,
                    snapshot_id=plan.snapshot_id,
                    detail=f"planned with {plan.seam}, found {seam}",
                )
        version = self._version_in(start.properties.get(DEFINITION_PROPERTY))
        if version != self._definition_version:  # safety: definition-check
            raise DefinitionChanged(table=self._name, planned=self._definition_version, found=version)
        self._check_schema(start)
        return current

    def _check_schema(self, start: Start) -> None:
        """Raises `ForeignSchema` where another program changed the table's columns; parsed once for each."""
        definition = start.properties[DEFINITION_PROPERTY]
        if not start.schema or (definition, start.schema) == self._schema_checked:
            return
        live = LiveTable.from_json(definition, self._name)
        differences = schema_differences(live, Schema.model_validate_json(start.schema))
        if differences:  # safety: foreign-schema-commit
            raise ForeignSchema(table=self._name, differences=differences)
        self._schema_checked = (definition, start.schema)

    def _version_in(self, definition: str | None) -> int:
        try:
            return int(json.loads(definition or "")["version"])
        except (ValueError, TypeError, KeyError) as error:
            detail = f"its property {DEFINITION_PROPERTY} was removed or changed"
            raise ForeignSnapshot(table=self._name, snapshot_id=-1, detail=detail) from error

    def _build(self, start: Start, parent: StoredSnapshot, change: TableChange) -> Built:
        definition, version = change.definition, self._definition_version
        if definition is not None:
            version = definition.version
        before = self._state_of(parent)
        whole = replace(
            change,
            summary=summary_fields(
                change, self._epoch, version, before.totals, before.bad_digest or 0
            ),  # safety: bad-digest
            properties={
                EPOCH_PROPERTY: str(self._epoch),
                SEAM_PROPERTY: change.seam.to_json(),
                BATCH_PROPERTY: change.batch_id,
                **({} if definition is None else defined_by(definition)),
                **change.properties,
            },
        )
        return self._store.build(start, whole)

    def _origins(self, built: Built, change: TableChange) -> Mapping[str, RowOrigin]:
        """Of the files that it adds; whoever carries the list of files on needs them to merge these files."""
        if not (built.manifest_list and any(part.added for part in change.files)):
            return {}
        if max(self._seen.format_version, self._raised_to) < 3:
            return {}
        try:
            return added_origins(self._seen.io, built.manifest_list, built.snapshot_id)
        except OSError as error:
            raise MetadataError(f"{built.manifest_list}: {first_line(error)}") from error

    def _look_for(
        self, tried: Sequence[_Prepared], plan: _Plan, change: TableChange, detail: str
    ) -> Landed | Unknown | None:
        """What became of the attempts so far, whatever was raised; None when none of them is in the table.

        Absence proves something only while the history still reaches back to what they were planned on.
        """
        if not tried:
            return None
        try:
            failpoint("commit.look")
            self._store.refresh()
            for one in tried:
                if self._store.snapshot(one.built.snapshot_id) is not None:
                    return one.landed(change)
            if self._store.is_in_history(plan.snapshot_id):  # safety: absence-is-no-proof
                return None
        except MetadataError as error:
            return self._unknown(change, f"{detail}; then, on looking for it: {error}")
        return self._unknown(change, f"{detail}; and snapshot {plan.snapshot_id} before it is gone since")

    def _unknown(self, change: TableChange, detail: str) -> Unknown:
        error = CommitUnknown(table=self._name, batch_id=change.batch_id, ranges=change.ranges, detail=detail)
        return Unknown(error)

    def _unreachable(self, error: MetadataError) -> ThermoclineError:
        if isinstance(error, NoTable):
            return TableMissing(table=self._name, identifier=self._identifier)
        uri = str(self._seen.catalog.properties.get("uri", ""))
        return CatalogUnreachable(uri=uri, detail=str(error))

    def _resumable(self, error: ThermoclineError) -> ThermoclineError:
        """Of a table that cannot be continued, the error that says from where it can, if that is found."""
        if isinstance(error, ForeignSnapshot):
            try:
                table = load_table(self._seen.catalog, self._name, self._identifier)
                current_state(table, self._name)
            except ForeignSnapshot as resumable:
                return resumable
            except ThermoclineError as unread:
                _logger.warning("table not read", extra=fields(table=self._name, detail=str(unread)))
        return error

    def _state_of(self, snapshot: StoredSnapshot) -> SnapshotState:
        return state_from(snapshot.summary, snapshot.snapshot_id, snapshot.timestamp_ms, self._name)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The metadata before a commit, and after it, and what it says of the files that it adds."""

    start: Start
    built: Built
    origins: Mapping[str, RowOrigin]

    def landed(self, change: TableChange) -> Landed:
        """What it comes to, once it is published."""
        return Landed(self.built.snapshot_id, change.seam, self.origins)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a commit was planned on: snapshot, seam (None: any) and the epoch that the table must have.

    ``parent`` is the snapshot of ours that it carries on, where that is not the current one. Then it
    ``gives_up`` what came after it, or comes on top of that.
    """

    snapshot_id: int
    seam: Seam | None
    epoch: int
    parent: StoredSnapshot | None = None
    gives_up: bool = False
