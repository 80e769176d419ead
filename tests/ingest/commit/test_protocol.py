"""What a committer says where its store fails at one step or another. Real stores are in test_commit."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchTableError

from thermocline.errors import (
    CatalogUnreachable,
    CommitRejected,
    CommitUnknown,
    DefinitionChanged,
    ForeignSnapshot,
    InternalError,
    OwnerLost,
    TableMissing,
)
from thermocline.iceberg.catalog import BATCH_PROPERTY, DEFINITION_PROPERTY, EPOCH_PROPERTY, SEAM_PROPERTY
from thermocline.iceberg.data_file import WrittenFile
from thermocline.iceberg.files import DataFile, Deletes
from thermocline.ingest.batch.accounting import Accounting
from thermocline.ingest.commit.change import ChangeKind, Onto, TableChange, summary_fields
from thermocline.ingest.commit.commit import (
    ATTEMPTS_MAX,
    Committer,
    Landed,
    Outcome,
    Rejected,
    Unknown,
    landed,
)
from thermocline.ingest.commit.metadata import (
    Built,
    LostRace,
    MetadataError,
    NoAnswer,
    NoTable,
    Start,
    StoredSnapshot,
)
from thermocline.rules.seam import Seam
from thermocline.upsert.bucket_task import BucketResult

SEAM, NEXT = Seam.of({"t": {0: 10}}), Seam.of({"t": {0: 20}})
FIRST = TableChange(SEAM, "c", {"t": "id"}, watermark_ms=1, drained_ms=2)
CHANGE = replace(TableChange.carrying_on(FIRST), seam=NEXT)  # type: ignore[arg-type]
EPOCH = 3


@dataclass
class Scripted:
    """A store of one table in memory; ``script`` says what each publishing meets, after it all goes well."""

    script: list[Callable[[], None]] = field(default_factory=list)
    start_fails: MetadataError | None = None
    build_fails: MetadataError | None = None
    rebuild_fails: MetadataError | None = None
    refresh_fails: MetadataError | None = None
    forgets: bool = False
    is_late: bool = False

    def __post_init__(self) -> None:
        summary = summary_fields(FIRST, EPOCH, 1, {"read": 7})
        self.snapshots = [StoredSnapshot(1, summary, 5)]
        self.properties = {
            EPOCH_PROPERTY: str(EPOCH),
            SEAM_PROPERTY: SEAM.to_json(),
            BATCH_PROPERTY: FIRST.batch_id,
            DEFINITION_PROPERTY: json.dumps({"version": 1}),
        }
        self.built = 1
        self.late: list[Built] = []

    def start(self) -> Start:
        if self.start_fails is not None and self.built > 1:
            raise self.start_fails
        while self.late:
            self.apply(self.late.pop())
        return Start(self.snapshots[-1] if self.snapshots else None, dict(self.properties))

    def build(self, start: Start, change: TableChange) -> Built:
        fails = self.build_fails if self.built == 1 else self.rebuild_fails
        if fails is not None:
            raise fails
        self.built += 1
        return Built(self.built, (StoredSnapshot(self.built, change.summary, 6), dict(change.properties)))

    def publish(self, start: Start, built: Built) -> None:
        if self.script:
            self.late += [built] if self.is_late else []
            self.script.pop(0)()
        self.apply(built)

    def apply(self, built: Built) -> None:
        snapshot, properties = built.handle
        self.snapshots.append(snapshot)
        self.properties |= properties

    def renew(self) -> None:
        pass

    def refresh(self) -> None:
        if self.refresh_fails is not None:
            raise self.refresh_fails

    def snapshot(self, snapshot_id: int) -> StoredSnapshot | None:
        return next((one for one in self.snapshots if one.snapshot_id == snapshot_id), None)

    def is_in_history(self, snapshot_id: int) -> bool:
        return not self.forgets and self.snapshot(snapshot_id) is not None


class Seen:
    """The table through PyIceberg: here it only takes the note of an unknown commit."""

    def __init__(self) -> None:
        self.io = self.catalog = self
        self.properties = {"uri": "memory"}
        self.noted: list[str] = []

    def name(self) -> tuple[str, ...]:
        return ("app", "t")

    def location(self) -> str:
        return "memory://t"

    def new_output(self, path: str) -> Any:
        self.noted.append(path)
        return self

    def load_table(self, identifier: str) -> None:
        raise NoSuchTableError(identifier)

    def create(self, overwrite: bool) -> io.BytesIO:
        return io.BytesIO()


def commit(
    store: Scripted, on: int = 1, seam: Seam = SEAM, change: TableChange = CHANGE
) -> tuple[Outcome, list[str]]:
    """The outcome of a commit to it, and the notes that were left."""
    seen = Seen()
    committer = Committer(store, "t", 1, seen)  # type: ignore[arg-type]
    committer._epoch = EPOCH
    return committer.commit(on, seam, change), seen.noted


def fail(error: Exception) -> Callable[[], None]:
    def raise_it() -> None:
        raise error

    return raise_it


LOSE, SAY_NOTHING = fail(LostRace("somebody was faster")), fail(NoAnswer("reset"))


def test_a_commit_that_meets_nothing_lands_with_the_totals_of_the_snapshot_before() -> None:
    store = Scripted()
    outcome, _ = commit(store)
    assert outcome == Landed(2, NEXT)
    assert store.snapshots[-1].summary["thermocline.total-records-read"] == "7"
    assert store.properties[SEAM_PROPERTY] == NEXT.to_json()


def test_a_commit_carries_on_which_records_were_bad_before_it() -> None:
    store = Scripted()
    for bad_digest, total in ((5, "5"), (0, "5"), (2**64 - 1, "4")):
        at = len(store.snapshots)
        seam = Seam.of({"t": {0: 10 * at}})
        change = replace(CHANGE, seam=Seam.of({"t": {0: 10 * at + 10}}), bad_digest=bad_digest)
        outcome, _ = commit(store, on=at, seam=seam, change=replace(change, batch_id=f"batch {at}"))
        assert isinstance(outcome, Landed)
        assert store.snapshots[-1].summary["thermocline.total-bad-digest"] == total


@pytest.mark.parametrize(
    "more",
    [
        {"seam": NEXT},
        {"accounting": Accounting(read=1, applied=1)},
        {
            "files": [
                BucketResult(0, (WrittenFile("a", 1, 5, {}, {}, {}),), removed=(DataFile("b", 0, 6, 1),))
            ]
        },
    ],
    ids=["seam", "records", "rows"],
)
@pytest.mark.parametrize("kind", ["rewrite", "manifests"])
def test_a_rewrite_that_would_change_what_the_table_says_is_refused(
    more: dict[str, Any], kind: ChangeKind
) -> None:
    store = Scripted()
    outcome, noted = commit(store, change=replace(CHANGE, kind=kind, **{"seam": SEAM, **more}))
    assert isinstance(outcome, Rejected)
    assert isinstance(outcome.error, InternalError)
    assert (len(store.snapshots), noted) == (1, [])


def test_a_rewrite_that_keeps_all_rows_but_the_deleted_ones_lands() -> None:
    deletes = Deletes("d", "puffin", 0, 1, 1, 1)
    part = BucketResult(0, (WrittenFile("a", 1, 5, {}, {}, {}),), removed=(DataFile("b", 0, 6, 1, deletes),))
    assert commit(Scripted(), change=replace(CHANGE, kind="rewrite", seam=SEAM, files=[part])) == (
        Landed(2, SEAM),
        [],
    )


def test_a_race_that_is_always_lost_ends_unknown_after_a_bound() -> None:
    """A rejection would be as true as the store's word for each race, and that may be wrong."""
    store = Scripted([LOSE] * (ATTEMPTS_MAX + 1))
    outcome, noted = commit(store)
    assert isinstance(outcome, Unknown)
    assert len(noted) == len(store.script) == 1


def test_no_answer_is_not_tried_again() -> None:
    store = Scripted([SAY_NOTHING])
    outcome, noted = commit(store)
    assert isinstance(outcome, Unknown)
    assert (len(store.snapshots), len(noted)) == (1, 1)


@pytest.mark.parametrize("what", ["start_fails", "refresh_fails", "rebuild_fails"])
def test_a_catalog_that_goes_away_after_a_lost_race_leaves_the_commit_unknown(what: str) -> None:
    outcome, noted = commit(Scripted([LOSE], **{what: MetadataError("away")}))  # type: ignore[arg-type]
    assert isinstance(outcome, Unknown)
    first, _, then = outcome.error.detail.partition("; then")
    assert first == "somebody was faster"
    assert "away" in then
    assert len(noted) == 1


def test_a_commit_that_took_its_time_is_found_whatever_its_answer_was() -> None:
    for answer in (LostRace("late"), NoAnswer("late")):
        store = Scripted()
        late = Built(2, (StoredSnapshot(2, summary_fields(CHANGE, EPOCH, 1, {}), 6), {}))

        def apply_and_fail(store: Scripted = store, late: Built = late, answer: Exception = answer) -> None:
            store.apply(late)
            raise answer

        store.script.append(apply_and_fail)
        assert commit(store) == (Landed(2, NEXT), [])
        assert len(store.snapshots) == 2


def test_a_swap_that_is_made_after_it_was_looked_for_is_found_by_the_next_attempt() -> None:
    store = Scripted([LOSE], is_late=True)
    assert commit(store) == (Landed(2, NEXT), [])
    assert len(store.snapshots) == 2


def test_a_plan_that_is_not_of_the_table_as_it_is_changes_nothing() -> None:
    plans: list[tuple[Any, dict[str, str], type[Exception]]] = [
        ({"on": 9}, {}, ForeignSnapshot),
        ({"seam": NEXT}, {}, ForeignSnapshot),
        ({}, {DEFINITION_PROPERTY: '{"version": 2}'}, DefinitionChanged),
        ({}, {EPOCH_PROPERTY: str(EPOCH + 1)}, OwnerLost),
        ({}, {EPOCH_PROPERTY: str(EPOCH - 1)}, OwnerLost),
    ]
    for plan, properties, kind in plans:
        store = Scripted()
        store.properties |= properties
        outcome, noted = commit(store, **plan)
        assert isinstance(outcome, Rejected)
        assert isinstance(outcome.error, kind)
        assert (len(store.snapshots), store.built, noted) == (1, 1, [])


def test_absence_from_a_history_that_is_cut_proves_nothing() -> None:
    assert isinstance(commit(Scripted([LOSE], forgets=True))[0], Unknown)


def test_what_was_never_sent_is_rejected_and_leaves_no_note() -> None:
    outcome, noted = commit(Scripted(build_fails=MetadataError("not valid")))
    assert isinstance(outcome, Rejected)
    assert isinstance(outcome.error, CommitRejected)
    assert noted == []
    for error, kind in ((NoTable("gone"), TableMissing), (MetadataError("away"), CatalogUnreachable)):
        store = Scripted(start_fails=error)
        store.built = 2
        outcome, noted = commit(store)
        assert isinstance(outcome, Rejected)
        assert isinstance(outcome.error, kind)
        assert noted == []


def test_ownership_that_was_taken_meanwhile_is_not_taken_again() -> None:
    store = Scripted()
    owner, other = (Committer(store, "t", 1, Seen()) for _ in range(2))  # type: ignore[arg-type]
    landed(owner.take_ownership(EPOCH))
    assert store.properties[EPOCH_PROPERTY] == str(EPOCH + 1)
    with pytest.raises(OwnerLost):
        landed(other.take_ownership(EPOCH))


def test_an_epoch_that_is_known_from_elsewhere_is_not_given_twice() -> None:
    store = Scripted()
    owner = Committer(store, "t", 1, Seen())  # type: ignore[arg-type]
    landed(owner.take_ownership(EPOCH, epoch_floor=9))
    assert (owner.epoch, store.properties[EPOCH_PROPERTY]) == (10, "10")


def test_going_back_to_a_snapshot_gives_up_only_what_was_seen() -> None:
    store = Scripted()
    for snapshot_id in (2, 3):
        store.snapshots.append(StoredSnapshot(snapshot_id, {}, 6))
    owner = Committer(store, "t", 1, Seen())  # type: ignore[arg-type]
    outcome = owner.take_ownership(EPOCH, onto=Onto(1, over=2))
    assert isinstance(outcome, Rejected)
    assert isinstance(outcome.error, ForeignSnapshot)
    assert store.properties[EPOCH_PROPERTY] == str(EPOCH)
    store.built = 3
    assert landed(owner.take_ownership(EPOCH, onto=Onto(1, over=3))) == Landed(4, SEAM)


def test_a_table_without_a_current_snapshot_is_told_from_one_without_the_snapshot_to_go_back_to() -> None:
    store = Scripted()
    owner = Committer(store, "t", 1, Seen())  # type: ignore[arg-type]
    outcomes = [owner.take_ownership(EPOCH, onto=Onto(9, over=1))]
    store.snapshots.clear()
    outcomes.append(owner.take_ownership(EPOCH))
    said = ["the table has no snapshot 9 to go on from", "the table has no snapshot"]
    for outcome, words in zip(outcomes, said, strict=True):
        assert isinstance(outcome, Rejected)
        assert isinstance(outcome.error, ForeignSnapshot)
        assert outcome.error.detail == words
    assert store.built == 1


def test_an_outcome_that_is_not_landed_raises_its_error() -> None:
    error = CommitUnknown(table="t", batch_id="b", ranges="none", detail="reset")
    for outcome in (Unknown(error), Rejected(error)):
        with pytest.raises(CommitUnknown):
            landed(outcome)
    assert landed(Landed(1, SEAM)) == Landed(1, SEAM)
