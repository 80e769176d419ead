"""What a commit checks, and what it leaves behind: each rule on a real catalog, with a small JVM."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table.snapshots import Operation

from tests.failpoints.meanwhile import meanwhile
from tests.ingest.postgres import Loss
from tests.ingest.small_ingest import NAME, Ingest, SqliteThatLosesAnswers, java_store, settings_of
from thermocline.errors import (
    CatalogUnreachable,
    CommitRejected,
    DefinitionChanged,
    ForeignSnapshot,
    InternalError,
    OwnerLost,
    TableHeld,
    TableMissing,
)
from thermocline.iceberg.catalog import (
    BATCH_PROPERTY,
    DEFINITION_PROPERTY,
    EPOCH_PROPERTY,
    SEAM_PROPERTY,
    SUMMARY_ACCEPTED,
    load_table,
    open_catalog,
)
from thermocline.iceberg.files import local_path
from thermocline.ingest.claim.ownership import Claim, own_table
from thermocline.ingest.claim.reconcile import Resolution, settle_unknown
from thermocline.ingest.commit.change import Onto, TableChange
from thermocline.ingest.commit.commit import Landed, Outcome, Rejected, Unknown
from thermocline.ingest.commit.java import JavaCatalog
from thermocline.ingest.commit.unknown import UnknownCommit, notes
from thermocline.ingest.owner.position import Position
from thermocline.ingest.table.create import create_java_table
from thermocline.process.clock import SystemClock
from thermocline.rules.seam import Seam
from thermocline.upsert.files_by_bucket import by_bucket

pytestmark = pytest.mark.jvm


@pytest.fixture
def ingest(tmp_path: Path, jvm: Any) -> Iterator[Ingest]:
    made = Ingest(settings_of(tmp_path, "sqlite:///catalog.db"), jvm, seed=1)
    yield made
    made.owned.release()


@pytest.fixture
def sqlite(ingest: Ingest, tmp_path: Path) -> SqliteThatLosesAnswers:
    return SqliteThatLosesAnswers(ingest, tmp_path / "catalog.db")


def commit(ingest: Ingest) -> Outcome:
    change, after = ingest.batch()
    outcome = ingest.owned.committer.commit(*ingest.planned, change)
    if isinstance(outcome, Landed):
        ingest.expected = after
        ingest.refresh()
    return outcome


def error_of(outcome: Outcome) -> Exception:
    assert isinstance(outcome, Rejected), outcome
    return outcome.error


def exists(path: str) -> bool:
    return Path(local_path(path) or "").exists()


def empty(seam: Seam, **more: Any) -> TableChange:
    return TableChange(seam, "cluster", {NAME: "topic"}, watermark_ms=1, drained_ms=1, **more)


def test_a_commit_says_what_the_next_one_is_planned_on(ingest: Ingest) -> None:
    landed = commit(ingest)
    assert isinstance(landed, Landed)
    assert (landed.snapshot_id, landed.seam) == ingest.planned
    assert ingest.rows() == ingest.expected


def test_a_commit_leaves_no_checksum_files_that_nobody_would_delete(ingest: Ingest) -> None:
    assert isinstance(commit(ingest), Landed)
    folder = Path(local_path(ingest.owned.table.location()) or "")
    assert [*folder.rglob("*.metadata.json")]
    assert not [*folder.rglob("*.crc")]


def test_a_stale_owner_is_told_so(ingest: Ingest) -> None:
    stale, planned = ingest.owned.committer, ingest.planned
    newer = ingest.take_over()
    change, _ = ingest.batch()

    error = error_of(stale.commit(*planned, change))

    assert isinstance(error, OwnerLost)
    assert (error.epoch_ours, error.epoch_found) == (stale.epoch, newer.committer.epoch)
    assert ingest.rows() == {}


def test_a_commit_prepared_before_a_takeover_is_refused_by_the_catalog_itself(
    ingest: Ingest,
) -> None:
    """Goal: the swap, not only the check before it, stops a stale owner.

    Method: the rival takes ownership between the stale owner's checks and its swap.
    """
    stale, planned = ingest.owned.committer, ingest.planned
    change, _ = ingest.batch()
    with meanwhile("commit.publish", ingest.take_over, times=1):
        outcome = stale.commit(*planned, change)
    assert isinstance(error_of(outcome), OwnerLost)
    assert ingest.owned.committer is not stale

    ingest.refresh()
    assert ingest.owned.state.batch_id != change.batch_id
    assert ingest.owned.state.epoch == ingest.owned.committer.epoch


def test_a_commit_planned_on_another_snapshot_of_the_same_seam_is_refused(ingest: Ingest) -> None:
    """One that reads nothing of the log, as a replay, may have come in between."""
    change, _ = ingest.batch()
    planned = ingest.planned
    assert isinstance(ingest.owned.committer.commit(*planned, empty(planned[1])), Landed)
    newest = ingest.java_table().currentSnapshot().snapshotId()

    assert isinstance(error_of(ingest.owned.committer.commit(*planned, change)), ForeignSnapshot)
    assert ingest.java_table().currentSnapshot().snapshotId() == newest


def test_a_commit_on_a_table_that_was_rolled_back_meanwhile_is_refused(ingest: Ingest) -> None:
    change, _ = ingest.batch()
    table = ingest.java_table()
    first = table.currentSnapshot().parentId()
    table.manageSnapshots().rollbackTo(first).commit()

    assert isinstance(error_of(ingest.owned.committer.commit(*ingest.planned, change)), ForeignSnapshot)
    assert ingest.java_table().currentSnapshot().snapshotId() == first


def test_a_commit_planned_from_another_seam_is_refused(ingest: Ingest) -> None:
    change, _ = ingest.batch()
    snapshot_id, _ = ingest.planned
    another = Seam({(NAME, 0): 1})
    assert isinstance(error_of(ingest.owned.committer.commit(snapshot_id, another, change)), ForeignSnapshot)
    assert ingest.rows() == {}


def test_a_commit_on_a_table_that_others_wrote_to_is_refused(ingest: Ingest) -> None:
    ingest.java_table().newAppend().commit()
    change, _ = ingest.batch()
    error = error_of(ingest.owned.committer.commit(*ingest.planned, change))
    assert isinstance(error, ForeignSnapshot)
    assert error.onto == ingest.planned[0], "it says from where the table can be continued"


def test_a_rollback_behind_a_commit_of_the_same_seam_is_noticed(ingest: Ingest) -> None:
    """Goal: what a commit brought that read nothing of the log, as a replay, is not given up in silence."""
    assert isinstance(commit(ingest), Landed)
    before, rows = ingest.planned, dict(ingest.expected)
    assert isinstance(ingest.owned.committer.commit(*before, empty(before[1])), Landed)
    ingest.java_table().manageSnapshots().rollbackTo(before[0]).commit()

    epoch = ingest.owned.committer.epoch
    assert isinstance(error_of(ingest.owned.committer.take_ownership(epoch)), ForeignSnapshot)
    ingest.owned.release()
    with pytest.raises(ForeignSnapshot) as foreign, own_table(ingest.settings, NAME, SystemClock()):
        pass
    assert foreign.value.onto == before[0]

    onto = Onto(before[0], over=before[0])
    with own_table(ingest.settings, NAME, SystemClock(), onto) as owned:
        assert owned.state.seam == before[1]
    with own_table(ingest.settings, NAME, SystemClock()):
        pass
    assert ingest.rows() == rows


def test_a_table_without_copies_of_what_its_snapshots_say_is_taken(ingest: Ingest) -> None:
    update = ingest.java_table().updateProperties()
    update.remove(SEAM_PROPERTY).remove(BATCH_PROPERTY).commit()
    ingest.take_over()
    assert isinstance(commit(ingest), Landed)


@pytest.mark.parametrize("name", [EPOCH_PROPERTY, DEFINITION_PROPERTY])
def test_a_table_that_lost_a_property_of_ours_stops_with_its_name(ingest: Ingest, name: str) -> None:
    ingest.java_table().updateProperties().remove(name).commit()
    change, _ = ingest.batch()
    error = error_of(ingest.owned.committer.commit(*ingest.planned, change))
    assert isinstance(error, ForeignSnapshot)
    assert name in error.detail
    with pytest.raises(ForeignSnapshot, match=name):
        Claim.of(ingest.settings, NAME, SystemClock())


def test_a_catalog_that_java_cannot_reach_is_named(ingest: Ingest, jvm: Any, tmp_path: Path) -> None:
    with pytest.raises(TableMissing) as missing:
        JavaCatalog(jvm, ingest.settings.catalog).load("app.other", "other")
    assert missing.value.next == "thermocline table create other"
    catalog = JavaCatalog(jvm, ingest.settings.catalog)
    (tmp_path / "catalog.db").write_bytes(b"not a database" * 1000)
    with pytest.raises(CatalogUnreachable):
        JavaCatalog(jvm, ingest.settings.catalog)
    with pytest.raises(CatalogUnreachable):
        catalog.load("app.profiles")
    with pytest.raises(CatalogUnreachable):
        create_java_table(catalog, ingest.definition, empty(Seam()))


def test_a_batch_of_another_definition_is_refused(ingest: Ingest) -> None:
    definition = json.loads(ingest.owned.table.properties[DEFINITION_PROPERTY])
    table = ingest.java_table()
    text = json.dumps(definition | {"version": definition["version"] + 1})
    table.updateProperties().set(DEFINITION_PROPERTY, text).commit()
    error = error_of(commit(ingest))
    assert isinstance(error, DefinitionChanged)
    assert (error.planned, error.found) == (1, 2)


def test_properties_of_others_only_cost_an_attempt(ingest: Ingest) -> None:
    table = ingest.java_table()
    races: list[Any] = []

    def win_a_race() -> None:
        races.append(table.updateProperties().set("somebody", str(len(races))).commit())

    with meanwhile("commit.publish", win_a_race, times=3):
        assert isinstance(commit(ingest), Landed)
    assert len(races) == 3
    assert ingest.rows() == ingest.expected


def test_a_commit_that_appears_after_its_race_was_thought_lost_counts_once(
    ingest: Ingest, sqlite: SqliteThatLosesAnswers
) -> None:
    """Method: the swap fails as a lost race does, is not there when looked for, and is made after that."""
    before = len(ingest.owned.table.snapshots())
    sqlite.lose_race()

    assert isinstance(commit(ingest), Landed)

    assert len(ingest.owned.table.snapshots()) == before + 1
    assert ingest.rows() == ingest.expected


def test_a_lost_race_that_the_history_no_longer_tells_of_is_unknown_and_keeps_its_files(
    ingest: Ingest,
) -> None:
    """Goal: absence proves nothing once what the commit was planned on has been expired.

    Method: between check and swap another owner takes the table, and the snapshots before its own expire.
    """
    stale, planned = ingest.owned.committer, ingest.planned
    change, _ = ingest.batch()

    def take_over_and_expire() -> None:
        ingest.take_over()
        ingest.java_table().expireSnapshots().expireSnapshotId(planned[0]).commit()

    with meanwhile("commit.publish", take_over_and_expire, times=1):
        outcome = stale.commit(*planned, change)

    assert isinstance(outcome, Unknown)
    assert all(exists(path) for path in change.paths())
    (settled,) = ingest.take_over().settled
    assert settled.verdict == Resolution.UNPROVEN
    assert all(exists(path) for path in change.paths())
    assert ingest.take_over().settled == ()


def unknown(ingest: Ingest, sqlite: SqliteThatLosesAnswers, loss: Loss) -> TableChange:
    change, _ = ingest.batch()
    sqlite.lose_next_commit(loss)
    outcome = ingest.owned.committer.commit(*ingest.planned, change)
    assert isinstance(outcome, Unknown), outcome
    return change


def test_an_unknown_commit_leaves_a_note_of_what_it_was_and_all_its_files(
    ingest: Ingest, sqlite: SqliteThatLosesAnswers
) -> None:
    change = unknown(ingest, sqlite, Loss.DROPPED)
    (note,) = notes(ingest.owned.table.io, ingest.owned.table.location())
    assert isinstance(note, UnknownCommit)
    assert (note.batch_id, note.ranges, note.planned_on) == (
        change.batch_id,
        change.ranges,
        ingest.owned.state.snapshot_id,
    )
    assert list(note.files) == change.paths() != []
    assert all(exists(path) for path in note.files)


class DeadJvm:
    """A committer's table whose JVM dies during the swap, as Spark's gateway shows it: connections break."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self._is_dead = False

    def operations(self) -> Any:
        self._is_dead = True
        return self

    def commit(self, *_: Any) -> None:
        raise ConnectionResetError(104, "Connection reset by peer")

    def __getattr__(self, name: str) -> Any:
        if self._is_dead:
            raise ConnectionRefusedError(111, "Connection refused")
        return getattr(self._table, name)


def test_a_commit_whose_jvm_dies_is_unknown_and_noted(ingest: Ingest) -> None:
    change, _ = ingest.batch()
    committer = ingest.owned.committer
    store = java_store(committer)
    store.table = DeadJvm(store.table)

    outcome = committer.commit(*ingest.planned, change)

    assert isinstance(outcome, Unknown)
    assert [note.batch_id for note in notes(ingest.owned.table.io, ingest.owned.table.location())] == [
        change.batch_id
    ]
    assert all(exists(path) for path in change.paths())
    outcome = committer.commit(*ingest.planned, change)
    assert isinstance(error_of(outcome), CatalogUnreachable), "nothing can be sent any more"


def test_a_commit_is_unknown_also_where_it_cannot_be_noted(
    ingest: Ingest, sqlite: SqliteThatLosesAnswers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("a client's own error")

    change, _ = ingest.batch()
    sqlite.lose_next_commit(Loss.DROPPED)
    monkeypatch.setattr(PyArrowFileIO, "new_output", refuse)
    assert isinstance(ingest.owned.committer.commit(*ingest.planned, change), Unknown)


def test_a_file_that_cannot_be_deleted_keeps_its_note_and_stops_nobody(
    ingest: Ingest, sqlite: SqliteThatLosesAnswers, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = unknown(ingest, sqlite, Loss.DROPPED)
    kept = change.paths()[-1]
    delete = PyArrowFileIO.delete

    def refuse_one(io: PyArrowFileIO, location: str) -> None:
        if location == kept:
            raise PermissionError(13, "object lock", location)
        delete(io, location)

    monkeypatch.setattr(PyArrowFileIO, "delete", refuse_one)
    (settled,) = ingest.take_over().settled
    assert (settled.verdict, settled.files_deleted) == (Resolution.NOT_LANDED, len(change.paths()) - 1)
    monkeypatch.undo()
    assert exists(kept)
    (settled,) = ingest.take_over().settled
    assert settled.files_deleted == 1
    assert not exists(kept)
    assert ingest.take_over().settled == ()


def test_a_note_that_cannot_be_read_stops_nobody_and_stays(
    ingest: Ingest, sqlite: SqliteThatLosesAnswers, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown(ingest, sqlite, Loss.DROPPED)
    new_input = PyArrowFileIO.new_input

    def refuse_notes(io: PyArrowFileIO, location: str) -> Any:
        if "/unknown/" in location:
            raise PermissionError(13, "not ours", location)
        return new_input(io, location)

    monkeypatch.setattr(PyArrowFileIO, "new_input", refuse_notes)
    assert ingest.take_over().settled == ()
    monkeypatch.undo()
    assert len(ingest.take_over().settled) == 1


def test_a_commit_that_can_still_land_is_not_settled(ingest: Ingest, sqlite: SqliteThatLosesAnswers) -> None:
    """Goal: files go only once main has moved past what the commit was planned on."""
    change = unknown(ingest, sqlite, Loss.LATE)
    ingest.refresh()
    (settled,) = settle_unknown(ingest.owned.table, NAME)
    assert settled.verdict == Resolution.OPEN
    assert all(exists(path) for path in change.paths())

    sqlite.deliver_late()
    (settled,) = ingest.take_over().settled
    assert settled.verdict == Resolution.LANDED
    assert ingest.owned.state.seam == change.seam
    assert all(exists(path) for path in change.paths())


def test_a_commit_that_landed_and_was_rolled_back_keeps_its_files(
    ingest: Ingest, sqlite: SqliteThatLosesAnswers
) -> None:
    before = ingest.owned.state.snapshot_id
    change = unknown(ingest, sqlite, Loss.LATE)
    sqlite.deliver_late()
    table = ingest.java_table()
    table.manageSnapshots().rollbackTo(before).commit()
    ingest.owned.release()
    with own_table(ingest.settings, NAME, SystemClock(), Onto(before, over=before)) as owned:
        (settled,) = owned.settled
    assert settled.verdict == Resolution.LANDED
    assert all(exists(path) for path in change.paths())


def test_two_that_found_the_table_free_do_not_both_own_it(ingest: Ingest) -> None:
    ingest.owned.release()
    claims = [Claim.of(ingest.settings, NAME, SystemClock()) for _ in range(2)]
    for claim in claims:
        claim.wait_until_free()
    first = claims[0].take(ingest.jvm)
    first.release()  # so that the epoch alone tells
    with pytest.raises(OwnerLost):
        claims[1].take(ingest.jvm)


@pytest.mark.full
def test_an_owner_that_lives_is_not_taken_over(ingest: Ingest) -> None:
    with pytest.raises(TableHeld):
        Claim.of(ingest.settings, NAME, SystemClock()).wait_until_free()


def test_the_epoch_of_a_restored_catalog_goes_on_from_the_lease(ingest: Ingest, tmp_path: Path) -> None:
    """Goal: no epoch is given twice, also where the catalog was restored from an older copy.

    Method: the copy is from before two takeovers; the owner since is gone without a clean end.
    """
    shutil.copy(tmp_path / "catalog.db", tmp_path / "older.db")
    for _ in range(2):
        ingest.take_over()
    assert ingest.owned.committer.epoch == 3
    lease = tmp_path / "warehouse" / "app" / NAME / "thermocline" / "owner.json"
    left = lease.read_text()
    ingest.owned.release()
    lease.write_text(left.replace('"process_started": "', '"process_started": "1'))
    shutil.copy(tmp_path / "older.db", tmp_path / "catalog.db")
    assert (
        load_table(open_catalog(ingest.settings.catalog), NAME, f"app.{NAME}").properties[EPOCH_PROPERTY]
        == "1"
    )

    with own_table(ingest.settings, NAME, SystemClock()) as owned:
        assert owned.committer.epoch == owned.state.epoch == 4


def test_the_epoch_of_a_restored_catalog_goes_on_from_a_lease_that_was_released(
    ingest: Ingest, tmp_path: Path
) -> None:
    shutil.copy(tmp_path / "catalog.db", tmp_path / "older.db")
    ingest.take_over()
    ingest.owned.release()
    shutil.copy(tmp_path / "older.db", tmp_path / "catalog.db")

    with own_table(ingest.settings, NAME, SystemClock()) as owned:
        assert owned.committer.epoch == owned.state.epoch == 3


def test_the_owner_before_may_commit_until_it_is_overtaken(ingest: Ingest) -> None:
    """Method: it commits between the new owner's look at the table and its swap."""
    before = ingest.owned.committer
    ingest.owned.release()
    claim = Claim.of(ingest.settings, NAME, SystemClock())
    claim.wait_until_free()
    landed: list[Outcome] = []
    with meanwhile("commit.refresh", lambda: landed.append(commit(ingest)), times=1):
        newer = claim.take(ingest.jvm)
    newer.release()
    assert isinstance(landed[0], Landed)
    assert newer.state.seam == landed[0].seam
    assert newer.committer.epoch == before.epoch + 1


def test_taking_a_table_onto_an_older_snapshot_gives_up_what_came_after(ingest: Ingest) -> None:
    assert isinstance(commit(ingest), Landed)
    onto, rows = ingest.owned.state, dict(ingest.expected)
    assert isinstance(commit(ingest), Landed)
    ingest.java_table().newAppend().commit()
    over = ingest.java_table().currentSnapshot().snapshotId()
    ingest.owned.release()
    with pytest.raises(ForeignSnapshot), own_table(ingest.settings, NAME, SystemClock()):
        pass

    with own_table(ingest.settings, NAME, SystemClock(), Onto(onto.snapshot_id, over)) as owned:
        assert (owned.state.seam, owned.state.totals) == (onto.seam, onto.totals)

    assert ingest.rows() == rows


def test_a_change_may_alter_the_table_in_the_same_commit(ingest: Ingest) -> None:
    def add_a_column(transaction: Any) -> None:
        kind = ingest.jvm.org.apache.iceberg.types.Types.LongType.get()
        transaction.updateSchema().addColumn("added", kind).commit()

    change = empty(
        ingest.owned.state.seam,
        alter=add_a_column,
        summary={SUMMARY_ACCEPTED: "{}"},
        definition=replace(ingest.definition, version=2),
    )
    before = ingest.owned.state.totals

    assert isinstance(ingest.owned.committer.commit(*ingest.planned, change), Landed)

    ingest.refresh()
    snapshot = ingest.owned.table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.additional_properties[SUMMARY_ACCEPTED] == "{}"
    assert (ingest.owned.state.definition_version, ingest.owned.state.totals) == (2, before)
    assert "added" in [field.name for field in ingest.owned.table.schema().fields]
    again = empty(ingest.owned.state.seam)
    assert isinstance(ingest.owned.committer.commit(*ingest.planned, again), Landed)


def test_a_rewrite_puts_a_bucket_into_one_file_and_changes_nothing_that_the_table_says(
    ingest: Ingest,
) -> None:
    """Method: files are rewritten behind batches that deleted rows of them; then batches go on from there."""
    while sum(file.deletes is not None for file in ingest.files()) < 2:
        assert isinstance(commit(ingest), Landed)
    position = Position.of(ingest.owned.state, by_bucket(ingest.files()))
    rewrite = ingest.rewrite()
    stale = ingest.owned.committer
    assert isinstance(error_of(stale.commit(*ingest.planned, replace(rewrite, seam=Seam()))), InternalError)
    assert isinstance(commit(ingest), Landed)
    assert isinstance(error_of(stale.commit(position.snapshot_id, position.seam, rewrite)), ForeignSnapshot)
    planned, rewrite = ingest.planned, ingest.rewrite()
    ingest.take_over()
    assert isinstance(error_of(stale.commit(*planned, rewrite)), OwnerLost)

    ingest.refresh()
    before, files = ingest.owned.state, by_bucket(ingest.files())
    rewrite = ingest.rewrite()
    done = ingest.owned.committer.commit(*ingest.planned, rewrite)

    assert isinstance(done, Landed)
    assert ingest.rows() == ingest.expected
    after = ingest.owned.state
    assert (after.seam, after.totals, after.counts["read"]) == (before.seam, before.totals, 0)
    snapshot = ingest.owned.table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation is Operation.REPLACE
    left = ingest.files()
    assert [file.deletes for file in left] == [None] * len({file.bucket for file in left})
    carried_on = Position.of(before, files).after(done, rewrite)
    assert {bucket: list(some) for bucket, some in carried_on.files.items() if some} == by_bucket(left)
    for _ in range(3):
        assert isinstance(commit(ingest), Landed)
        assert ingest.rows() == ingest.expected


def test_a_rewrite_of_a_file_that_is_not_there_is_refused(ingest: Ingest) -> None:
    while len(ingest.files()) < 2:
        assert isinstance(commit(ingest), Landed)
    rewrite = ingest.rewrite()
    assert isinstance(ingest.owned.committer.commit(*ingest.planned, rewrite), Landed)
    ingest.refresh()
    assert isinstance(error_of(ingest.owned.committer.commit(*ingest.planned, rewrite)), CommitRejected)
    assert ingest.rows() == ingest.expected


@pytest.mark.full
def test_reconcile_says_once_what_became_of_an_unknown_commit(
    ingest: Ingest, sqlite: SqliteThatLosesAnswers, tmp_path: Path
) -> None:
    change = unknown(ingest, sqlite, Loss.DROPPED)
    config = tmp_path / "thermocline.toml"
    config.write_text(config.read_text() + "\n[ingest]\nlease_seconds = 2\n")
    assert reconcile(config)[0] == TableHeld.exit_code, "its owner lives"
    ingest.owned.release()

    code, said = reconcile(config)

    assert code == 0
    (settled,) = said["settled"]
    assert settled == {
        "batch_id": change.batch_id,
        "ranges": change.ranges,
        "verdict": "not landed",
        "files_deleted": len(change.paths()),
        "note": "",  # of one that can't be read
    }
    assert not any(exists(path) for path in change.paths())
    code, said = reconcile(config)
    assert (code, said["settled"]) == (10, [])


def reconcile(config: Path) -> tuple[int, dict[str, Any]]:
    command = [
        sys.executable,
        "-m",
        "thermocline",
        "--config",
        str(config),
        "ingest",
        "reconcile",
        NAME,
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else {}
