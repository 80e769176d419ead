"""Upkeep between the batches of an owner, on a real catalog and real files, against a plain dict."""

from __future__ import annotations

import copy
import math
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from tests.ingest.small_ingest import NAME, Ingest, settings_of
from tests.maintenance.kept import HOURS, SETTINGS, Inline, Kept, kept_up, wait_for
from thermocline.errors import ForeignSnapshot, MaintenanceBehind
from thermocline.iceberg.catalog import SUMMARY_BEGAN
from thermocline.iceberg.expired import ExpiryNote, expired_snapshots, known_notes, waiting_notes
from thermocline.iceberg.expired import write_note as write_expiry
from thermocline.iceberg.files import Deletes, listed_files, local_path
from thermocline.iceberg.lineage import lineage, whole_lineage
from thermocline.ingest.commit.change import TableChange
from thermocline.ingest.commit.commit import Landed
from thermocline.ingest.commit.unknown import UnknownCommit, remove_note, write_note
from thermocline.maintenance import manifests
from thermocline.maintenance.journal import Step
from thermocline.maintenance.plan import Plan, PlannedTask
from thermocline.maintenance.planning import BEHIND_PLANS
from thermocline.maintenance.run import OwnedTable
from thermocline.maintenance.sweep import sweep
from thermocline.maintenance.upkeep import TableUpkeep
from thermocline.process.metrics import REGISTRY
from thermocline.upsert.files_by_bucket import by_bucket
from thermocline.verify.structure import structure_findings

pytestmark = pytest.mark.jvm

MANY = 15
_DELETES = "position-deletes"


@pytest.fixture
def kept(tmp_path: Path, jvm: Any, request: pytest.FixtureRequest) -> Iterator[Kept]:
    """An empty table, of the third format version unless a test says another one."""
    format_version = getattr(request, "param", 3)
    settings = settings_of(tmp_path, "sqlite:///catalog.db", format_version)
    with kept_up(Ingest(settings, jvm, seed=format_version)) as kept:
        yield kept


@dataclass(frozen=True)
class _Grown:
    """A table after `MANY` batches without a turn, its folder, and a copy of that."""

    ingest: Ingest
    folder: Path
    copied: Path


@pytest.fixture(scope="module")
def of_many(tmp_path_factory: pytest.TempPathFactory, jvm: Any) -> _Grown:
    folder, copied = tmp_path_factory.mktemp("many"), tmp_path_factory.mktemp("copied")
    with kept_up(Ingest(settings_of(folder, "sqlite:///catalog.db"), jvm, seed=3)) as kept:
        kept.batches(MANY)
    shutil.copytree(folder, copied, dirs_exist_ok=True)
    return _Grown(kept.ingest, folder, copied)


@pytest.fixture
def grown(of_many: _Grown) -> Iterator[Kept]:
    """A table after `MANY` batches, where it was made: its files name each other by their paths."""
    shutil.rmtree(of_many.folder)
    shutil.copytree(of_many.copied, of_many.folder)
    ingest = copy.copy(of_many.ingest)
    ingest.random = copy.copy(ingest.random)
    ingest.take_over()
    with kept_up(ingest) as kept:
        yield kept


@pytest.mark.parametrize("kept", [pytest.param(2, marks=pytest.mark.full), 3], indirect=True)
def test_rewrites_land_between_batches_and_the_table_says_the_same(kept: Kept) -> None:
    for _ in range(30):
        kept.batch()
        kept.turn()
        kept.clock.advance(31)
    done = kept.upkeep.done
    assert done.rewrites > 5
    assert done.dropped == 0
    assert kept.ingest.rows() == kept.ingest.expected
    assert {
        bucket: sorted(files, key=lambda file: file.path)
        for bucket, files in kept.site.position.files.items()
        if files
    } == by_bucket(kept.ingest.files())
    origins = {file.path: file.origin for file in kept.ingest.files()}
    for file in (file for files in kept.site.position.files.values() for file in files):
        assert file.origin == origins[file.path]
        assert (file.origin.first_row_id is None) == (kept.ingest.definition.format_version == 2)
    links = lineage(kept.ingest.owned.table)
    rewrites = [link.summary for link in links if link.is_rewrite and int(link.summary["deleted-data-files"])]
    assert rewrites
    assert all(int(one["removed-files-size"]) > 0 for one in rewrites), "what it read, and since when"
    assert all(one[SUMMARY_BEGAN].isdecimal() for one in rewrites)
    seams = [link.state.seam for link in links if link.state is not None]
    assert len(seams) == len(kept.ingest.owned.table.snapshots())
    assert seams == sorted(seams, key=lambda seam: seam[NAME, 0])


@pytest.mark.parametrize("kept", [pytest.param(2, marks=pytest.mark.full), 3], indirect=True)
def test_manifests_are_put_in_order_of_buckets_and_the_table_says_the_same(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a plan of one entity's rows then reads half the manifests, and nothing that they list changes.

    Method: no batch merges files, so that many have deletes.
    """
    monkeypatch.setattr(TableUpkeep, "held", lambda _: {file.path for file in kept.ingest.files()})
    monkeypatch.setattr(manifests, "MANIFESTS_ADDED", 0)
    monkeypatch.setattr(manifests, "MANIFEST_BYTES_MIN", 1)
    monkeypatch.setattr("thermocline.maintenance.plan.FORCED_DEAD_RATIO", 2.0)  # nothing else is rewritten
    kept.upkeep.planning.settings = SETTINGS.model_copy(update={"lookups_per_second": 0, "scans_per_hour": 0})
    kept.batches(12)
    before = kept.ingest.owned.table
    data, deletes = _manifests_planned(kept, "u1")
    assert min(data, deletes) > 1
    kept.turn()
    kept.turn()
    table = kept.ingest.owned.table
    newest = lineage(table)[-1]
    assert newest.is_rewrite
    assert newest.state is not None
    assert newest.state.seam == kept.site.position.seam
    rewritten = [list(_entries(table, one)) for one in newest.snapshot.manifests(table.io)]
    assert {entry for some in rewritten for entry in some} == {
        entry for one in _current(before).manifests(before.io) for entry in _entries(before, one)
    }
    listed = [{(entry.content, entry.bucket) for entry in some} for some in rewritten]
    assert sorted(map(sorted, listed)) == [[("data", 0)], [("data", 1)], [(_DELETES, 0)], [(_DELETES, 1)]]
    assert _manifests_planned(kept, "u1") == (1, 1)
    assert not list(structure_findings(table, kept.ingest.definition, lambda *_: None))
    for _ in range(3):
        kept.batch()
        assert kept.ingest.rows() == kept.ingest.expected
    assert kept.upkeep.done.rewrites == 0
    assert kept.upkeep.done.failures == 0


def test_manifests_are_put_in_order_though_another_engine_added_a_partition_field(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table's own partition spec is none of ours then; our files go on to have the one that they had."""
    monkeypatch.setattr(TableUpkeep, "held", lambda _: {file.path for file in kept.ingest.files()})
    kept.batches(6)
    kept.ingest.java_table().updateSpec().addField("value").commit()
    kept.batches(2)
    change = TableChange.carrying_on(kept.site.position)
    outcome = kept.site.land(replace(change, kind="manifests", buckets_together={"data": 1, "deletes": 1}))
    assert isinstance(outcome, Landed)
    kept.ingest.refresh()
    table = kept.ingest.owned.table
    rewritten = [list(_entries(table, one)) for one in _current(table).manifests(table.io)]
    listed = [{(entry.content, entry.bucket) for entry in some} for some in rewritten]
    assert sorted(map(sorted, listed)) == [[("data", 0)], [("data", 1)], [(_DELETES, 0)], [(_DELETES, 1)]]
    kept.batch()
    assert kept.ingest.rows() == kept.ingest.expected


@dataclass(frozen=True)
class _Entry:
    """What a manifest says of a file, with what it inherits."""

    content: str
    bucket: int
    path: str
    offset: int
    deletes: Deletes | None
    snapshot_id: int
    sequence_numbers: tuple[int, int]


def _entries(table: Table, manifest: ManifestFile) -> Iterator[_Entry]:
    entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    for file, entry in zip(listed_files(table.io, manifest), entries, strict=True):
        assert entry.sequence_number is not None
        numbers = (entry.sequence_number, entry.file_sequence_number or manifest.sequence_number)
        offset = file.deletes.offset if file.deletes is not None else 0
        yield _Entry(file.content, file.bucket, file.path, offset, file.deletes, file.snapshot_id, numbers)


def _current(table: Table) -> Snapshot:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot


def _manifests_planned(kept: Kept, user_id: str) -> tuple[int, int]:
    """How many manifests of data and of deletes a plan of an entity's rows reads."""
    iceberg = kept.ingest.jvm.org.apache.iceberg
    reporter = iceberg.metrics.InMemoryMetricsReporter()
    scan = kept.ingest.java_table().newScan().metricsReporter(reporter)
    with_filter = scan.filter(iceberg.expressions.Expressions.equal("user_id", user_id))
    files = with_filter.planFiles()
    found = files.iterator()
    while found.hasNext():
        found.next()
    files.close()
    metrics = reporter.scanReport().scanMetrics()
    return metrics.scannedDataManifests().value(), metrics.scannedDeleteManifests().value()


def test_a_rewrite_whose_input_left_the_table_is_dropped_and_the_next_one_lands(kept: Kept) -> None:
    while kept.upkeep.now_at is None:
        kept.batch()
        kept.turn()
        kept.clock.advance(31)
    change = kept.ingest.rewrite()
    assert isinstance(kept.site.land(change), Landed)
    kept.turn()
    assert kept.upkeep.done.rewrites == 0
    for _ in range(8):
        kept.batch()
        kept.clock.advance(61)
        kept.turn()
    assert kept.upkeep.done.rewrites > 0
    assert kept.ingest.rows() == kept.ingest.expected


class Ended(PyArrowFileIO):
    """What a catalog granted of the store, and does not any more."""

    def new_input(self, location: str) -> PyArrowFile:
        raise PermissionError(f"{location}: the token has expired")

    new_output = new_input


def test_rewrites_go_on_when_what_the_catalog_granted_with_the_owners_table_has_ended(grown: Kept) -> None:
    """Method: the owner has loaded the table long ago, as `maintain run` does for as long as it runs."""
    grown.ingest.owned.table.io = Ended()
    for _ in range(8):
        grown.upkeep.turn(grown.site)
        wait_for(lambda: grown.upkeep.is_settled)
        grown.clock.advance(61)
    assert (grown.upkeep.done.rewrites > 0, grown.upkeep.done.failures) == (True, 0)
    assert grown.ingest.rows() == grown.ingest.expected


def test_files_whose_rewrites_failed_are_rewritten_after_the_owner_has_loaded_the_table_again(
    grown: Kept,
) -> None:
    """As after an outage of the store, which failed batches, too."""

    def turns(count: int) -> None:
        for _ in range(count):
            grown.upkeep.turn(grown.site)
            wait_for(lambda: grown.upkeep.is_settled)
            grown.clock.advance(HOURS)

    engine, grown.site.engine = grown.site.engine, Failing(grown.ingest.jvm)
    turns(20)
    assert grown.upkeep.rewriting.waiting.left_out
    grown.site.engine = engine
    turns(2)
    assert grown.upkeep.done.rewrites == 0
    grown.ingest.refresh()
    turns(6)
    assert grown.upkeep.done.rewrites > 0


class Failing(Inline):
    """An engine that starts nothing."""

    def start(self, task: Callable[[], Any]) -> Any:
        raise OSError("no answer")


def test_snapshots_leave_first_their_files_much_later_and_what_they_said_stays(grown: Kept) -> None:
    """Goal: whoever reads an expired snapshot finds its files for as long as the settings promise."""
    before = grown.ingest.owned.table
    ids = [link.snapshot_id for link in lineage(before)]
    ever = grown.ingest.files_ever_in_the_table()

    grown.clock.advance(5 * HOURS)
    grown.turn()
    after = grown.ingest.owned.table
    assert len(after.snapshots()) == 11  # the newest ten, and the one that expired the others
    assert grown.data_files() >= ever, "whoever reads an older snapshot needs its files"
    assert [link.snapshot_id for link in whole_lineage(after)[: len(ids)]] == ids
    rows = before.scan(snapshot_id=ids[4]).to_arrow().num_rows  # as one that planned before

    grown.upkeep.journal.due["expire"] = grown.clock.monotonic() + 9 * HOURS
    grown.clock.advance(3 * HOURS)
    grown.turn()
    grown.turn()
    assert before.scan(snapshot_id=ids[4]).to_arrow().num_rows == rows
    # Of a Puffin file, Iceberg counts the blobs that a snapshot has.
    gone = [Path(path).stat().st_size for path in ever - grown.ingest.files_ever_in_the_table()]
    waiting_bytes = grown.upkeep.seen.waiting_bytes
    assert waiting_bytes is not None
    assert sum(gone) / 2 < waiting_bytes <= sum(gone)

    grown.clock.advance(2 * HOURS)
    grown.turn()
    grown.turn()
    assert grown.upkeep.done.swept_files > 0
    assert grown.upkeep.seen.waiting_bytes == 0
    needed = grown.ingest.files_ever_in_the_table()
    assert needed <= grown.data_files()
    assert grown.data_files() == needed
    with pytest.raises(FileNotFoundError):
        before.scan(snapshot_id=ids[4]).to_arrow()
    assert [link.snapshot_id for link in whole_lineage(grown.ingest.owned.table)[: len(ids)]] == ids
    for snapshot in grown.ingest.owned.table.snapshots():
        grown.ingest.owned.table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
    assert grown.ingest.rows() == grown.ingest.expected


def test_a_round_of_maintenance_goes_on_until_no_more_snapshots_expire(
    grown: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: `maintain run` does not call a neglected table done. Method: few snapshots expire in a commit."""
    for module in ("expiry", "expiring"):
        monkeypatch.setattr(f"thermocline.maintenance.{module}.EXPIRED_AT_ONCE_MAX", 2)
    grown.clock.advance(5 * HOURS)
    grown.turn()
    while grown.upkeep.is_busy:
        grown.turn()
    assert grown.upkeep.done.expired > 4
    assert len(grown.ingest.owned.table.snapshots()) <= 12  # the newest ten, and fewer than expire at once


@pytest.mark.full
def test_a_snapshot_that_a_view_a_tag_or_another_branch_reads_stays(grown: Kept) -> None:
    table = grown.ingest.owned.table
    ids = [link.snapshot_id for link in lineage(table)]
    refs = grown.ingest.java_table().manageSnapshots()
    refs.createTag("month-end", ids[2]).createBranch("audit", ids[4])
    # What others would expire by.
    refs.setMinSnapshotsToKeep("main", 1).setMaxSnapshotAgeMs("main", 1).commit()
    now_ms = grown.clock.now_ms()
    lease = Path(local_path(table.location()) or "") / "thermocline" / "views" / "app.live.json"
    lease.parent.mkdir(parents=True, exist_ok=True)
    until = {str(ids[6]): now_ms + int(9 * HOURS * 1000), str(ids[7]): now_ms}
    lease.write_text(f'{{"view": "app.live", "snapshots": {str(until).replace(chr(39), chr(34))}}}')

    grown.clock.advance(5 * HOURS)
    grown.turn()
    left = {snapshot.snapshot_id for snapshot in grown.ingest.owned.table.snapshots()}
    # With the branch, all that leads to its snapshot.
    assert left & set(ids) == {*ids[:5], ids[6], *ids[-10:]}
    # The history is known past the ones that stay, of which no note says anything.
    assert [link.snapshot_id for link in whole_lineage(grown.ingest.owned.table)][: len(ids)] == ids


def test_a_tag_that_is_made_while_its_snapshot_is_about_to_expire_stays(
    grown: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    oldest = lineage(grown.ingest.owned.table)[0].snapshot_id

    def tag_and_write(table: Table, note: ExpiryNote) -> None:
        grown.ingest.java_table().manageSnapshots().createTag("audit", oldest).commit()
        write_expiry(table, note)

    count = len(grown.ingest.owned.table.snapshots())
    grown.clock.advance(5 * HOURS)
    with monkeypatch.context() as patch:
        patch.setattr("thermocline.maintenance.expiring.write_note", tag_and_write)
        grown.turn()
    assert len(grown.ingest.owned.table.snapshots()) == count
    grown.clock.advance(601)
    grown.turn()
    left = [snapshot.snapshot_id for snapshot in grown.ingest.owned.table.snapshots()]
    assert oldest in left
    assert len(left) < count


def test_where_files_can_not_be_listed_nothing_expires(grown: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: leases and unknown commits, which keep snapshots, are found or nothing goes."""
    count = len(grown.ingest.owned.table.snapshots())
    grown.clock.advance(5 * HOURS)
    with monkeypatch.context() as patch:
        patch.setattr("thermocline.maintenance.sweep.can_list", lambda _: False)
        grown.turn()
        assert len(grown.ingest.owned.table.snapshots()) == count
    grown.clock.advance(601)
    grown.turn()
    assert len(grown.ingest.owned.table.snapshots()) < count


def test_where_a_lease_can_not_be_read_nothing_expires(grown: Kept) -> None:
    lease = Path(local_path(grown.ingest.owned.table.location()) or "") / "thermocline" / "leases" / "x.json"
    lease.parent.mkdir(parents=True, exist_ok=True)
    lease.write_text("{")
    grown.clock.advance(5 * HOURS)
    count = len(grown.ingest.owned.table.snapshots())
    grown.turn()
    assert len(grown.ingest.owned.table.snapshots()) == count
    lease.unlink()
    grown.clock.advance(61)
    grown.turn()
    assert len(grown.ingest.owned.table.snapshots()) < count


def test_the_files_of_an_expired_snapshot_stay_while_it_is_leased(grown: Kept) -> None:
    """As of a reader that takes long, and came when the snapshot had left the metadata already."""
    location = Path(local_path(grown.ingest.owned.table.location()) or "")
    oldest = lineage(grown.ingest.owned.table)[0].snapshot_id
    grown.clock.advance(5 * HOURS)
    grown.turn()
    lease = location / "thermocline" / "leases" / "reader-1.json"
    lease.parent.mkdir(parents=True)
    until_ms = grown.clock.now_ms() + int(24 * HOURS * 1000)
    lease.write_text(f'{{"snapshots": {{"{oldest}": {until_ms}}}}}')
    for hours in (1, 10, 1):
        grown.clock.advance(hours * HOURS)
        grown.turn()
        grown.turn()
    assert grown.upkeep.done.swept_files == 0
    grown.clock.advance(13 * HOURS)
    grown.turn()
    grown.turn()
    assert grown.upkeep.done.swept_files > 0


@pytest.mark.full
def test_an_expiry_that_did_not_land_deletes_nothing(grown: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = {snapshot.snapshot_id for snapshot in grown.ingest.owned.table.snapshots()}
    grown.clock.advance(5 * HOURS)
    stale = replace(grown.site.position, snapshot_id=1)
    current, grown.site.position = grown.site.position, stale
    grown.turn()  # not even noted: what it would follow is not current
    assert not list(waiting_notes(grown.ingest.owned.table))
    grown.site.position = current

    def fails(_: TableChange) -> Any:
        raise SystemExit

    grown.clock.advance(601)
    with monkeypatch.context() as patched:
        patched.setattr(OwnedTable, "land", lambda _self, change: fails(change))
        with pytest.raises(SystemExit):
            grown.upkeep.turn(grown.site)
    ever = grown.ingest.files_ever_in_the_table()
    grown.clock.advance(599)  # no other expiry is due
    upkeep = grown.upkeep
    upkeep.journal.due["expire"] = grown.clock.monotonic() + 10 * HOURS
    grown.clock.advance(5 * HOURS)
    grown.turn()
    grown.turn()
    assert {snapshot.snapshot_id for snapshot in grown.ingest.owned.table.snapshots()} >= ids
    assert grown.data_files() >= ever


def test_files_of_snapshots_that_expired_lately_stay(grown: Kept) -> None:
    """Method: a first expiry is due to be swept, and a second one, of snapshots that share files, is not."""
    grown.clock.advance(5 * HOURS)
    grown.turn()
    first = grown.ingest.owned.table
    second_ids = [snapshot.snapshot_id for snapshot in first.snapshots()]
    grown.batches(12)
    grown.clock.advance(3.9 * HOURS)
    grown.upkeep.journal.due["sweep"] = grown.clock.monotonic() + HOURS
    grown.turn()
    assert second_ids[0] not in {one.snapshot_id for one in grown.ingest.owned.table.snapshots()}
    grown.clock.advance(HOURS)
    grown.turn()
    grown.turn()
    assert set(expired_snapshots(known_notes(first))) > set(expired_snapshots(waiting_notes(first))), (
        "the first was swept"
    )
    for snapshot_id in second_ids:
        first.scan(snapshot_id=snapshot_id).to_arrow()


def test_deletes_that_a_rewrite_reads_stay_though_a_batch_replaced_them_and_they_are_due(grown: Kept) -> None:
    """Method: while a rewrite takes ten hours, the snapshots that have its deletes expire and are swept."""

    def turns() -> None:
        """One in which a sweep begins, and one in which it is done; neither waits for the rewrite."""
        cleaning = grown.upkeep.cleaning
        for _ in range(2):
            grown.upkeep.turn(grown.site)
            wait_for(lambda: cleaning.sweeping is None or cleaning.sweeping.done())
        grown.ingest.refresh()

    grown.site.engine = engine = Slow(grown.ingest.jvm)
    turns()
    running = grown.upkeep.rewriting.running
    assert running is not None
    grown.batches(12)  # more than the newest ten, which do not expire
    grown.clock.advance(5 * HOURS)
    turns()
    replaced = {local_path(path) for path in running.in_use} - grown.ingest.files_ever_in_the_table()
    assert replaced, "the rewrite began with deletes that no snapshot has any more"
    grown.clock.advance(5 * HOURS)
    turns()
    assert grown.upkeep.done.swept_files > 0
    assert replaced <= grown.data_files()
    engine.finish()
    turns()
    assert (grown.upkeep.done.rewrites, grown.upkeep.done.failures) == (1, 0)
    assert grown.ingest.rows() == grown.ingest.expected


class Slow(Inline):
    """An engine that runs its task when it is told to."""

    def start(self, task: Callable[[], Any]) -> Future[Any]:
        self._task, self._future = task, Future[Any]()
        return self._future

    def finish(self) -> None:
        self._future.set_result(self._task())


def test_files_stay_as_long_where_the_expiry_landed_long_after_it_was_noted(
    grown: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: the owner is frozen between the note and its commit, for longer than files are to stay."""
    before = grown.ingest.owned.table
    ids = [link.snapshot_id for link in lineage(before)]
    land = OwnedTable.land

    def frozen(site: OwnedTable, change: TableChange) -> Any:
        grown.clock.advance(5 * HOURS)
        return land(site, change)

    grown.clock.advance(5 * HOURS)
    with monkeypatch.context() as patched:
        patched.setattr(OwnedTable, "land", frozen)
        grown.turn()
    assert ids[0] not in {one.snapshot_id for one in grown.ingest.owned.table.snapshots()}
    grown.clock.advance(3.9 * HOURS)
    grown.turn()
    grown.turn()
    assert grown.upkeep.done.swept_files == 0
    before.scan(snapshot_id=ids[4]).to_arrow()
    grown.clock.advance(HOURS)
    grown.turn()
    grown.turn()
    assert grown.upkeep.done.swept_files > 0


@pytest.mark.full
def test_a_sweep_that_waited_for_its_turn_counts_from_when_it_saw_what_was_gone(grown: Kept) -> None:
    before = grown.ingest.owned.table
    ids = [link.snapshot_id for link in lineage(before)]

    def swept(asleep_hours: float) -> int:
        def load() -> Any:
            nonlocal asleep_hours
            grown.clock.advance(asleep_hours * HOURS)
            asleep_hours = 0.0
            return grown.ingest.owned.table

        return sweep(load, int(4 * HOURS * 1000), grown.clock).files

    grown.upkeep.journal.due["sweep"] = grown.clock.monotonic() + 99 * HOURS
    grown.clock.advance(5 * HOURS)
    grown.turn()
    assert swept(asleep_hours=9) == 0
    grown.clock.advance(3.9 * HOURS)
    assert swept(asleep_hours=0) == 0
    before.scan(snapshot_id=ids[4]).to_arrow()
    assert swept(asleep_hours=0.2) > 0


@pytest.mark.parametrize("between", ["load", "notes"])
def test_files_stay_of_snapshots_that_expire_while_a_sweep_begins(
    grown: Kept, monkeypatch: pytest.MonkeyPatch, between: str
) -> None:
    """Method: files of a first expiry are due, and a second one lands just before metadata or after notes."""
    grown.clock.advance(5 * HOURS)
    grown.turn()
    first = grown.ingest.owned.table
    second_ids = [snapshot.snapshot_id for snapshot in first.snapshots()]
    grown.batches(12)
    grown.upkeep.journal.due["sweep"] = grown.clock.monotonic() + 99 * HOURS
    grown.clock.advance(5 * HOURS)
    read_notes = waiting_notes

    def load() -> Any:
        if between == "load":
            grown.turn()
        return grown.ingest.owned.table

    def notes(table: Any) -> Any:
        found = list(read_notes(table))
        if between == "notes":
            grown.turn()
        return iter(found)

    monkeypatch.setattr("thermocline.maintenance.sweep.waiting_notes", notes)
    assert sweep(load, int(4 * HOURS * 1000), grown.clock).files > 0
    assert second_ids[0] not in {one.snapshot_id for one in grown.ingest.owned.table.snapshots()}
    for snapshot_id in second_ids:
        first.scan(snapshot_id=snapshot_id).to_arrow()


@pytest.mark.full
def test_a_note_whose_expiry_did_not_land_is_forgotten_after_a_day(grown: Kept) -> None:
    table = grown.ingest.owned.table
    write_expiry(table, ExpiryNote.of(grown.clock.now_ms(), "left", table.snapshots()[:3]))
    ever = grown.ingest.files_ever_in_the_table()
    for hours, left in ((23, 1), (2, 0)):
        grown.clock.advance(hours * HOURS)
        assert sweep(lambda: table, 1, grown.clock).files == 0
        assert len(list(waiting_notes(table))) == left
    assert grown.data_files() >= ever
    assert expired_snapshots(known_notes(table)) == {}


def test_nothing_expires_while_a_commit_is_unknown(grown: Kept) -> None:
    table = grown.ingest.owned.table
    note = UnknownCommit("batch", 1, 1, "none", (), "no answer")
    write_note(table.io, table.location(), note)
    grown.clock.advance(5 * HOURS)
    count = len(table.snapshots())
    grown.turn()
    assert len(grown.ingest.owned.table.snapshots()) == count
    remove_note(table.io, table.location(), "batch")
    grown.clock.advance(601)
    grown.turn()
    assert len(grown.ingest.owned.table.snapshots()) < count


def test_debt_slows_commits_then_stops_them_with_the_command_that_helps(kept: Kept) -> None:
    task = PlannedTask(0, (), "small", 1.0, 1.0, 3_600_000.0, 2.0)
    slowdowns = []
    for hours in (5, 13, 25):
        kept.upkeep.planning.plan = Plan((), (task,) * hours)
        slowdowns.append(kept.upkeep.slowdown)
        steps: tuple[Step, ...] = ("plan", "expire", "sweep", "orphans", "quarantine")
        kept.upkeep.journal.due = dict.fromkeys(steps, math.inf)
        kept.upkeep.turn(kept.site)
    assert slowdowns == [1, 4, 4]
    kept.upkeep.planning.behind_plans = BEHIND_PLANS
    with pytest.raises(MaintenanceBehind) as behind:
        kept.upkeep.turn(kept.site)
    assert "maintain run profiles" in behind.value.next
    metrics = REGISTRY.get_sample_value("thermocline_maintenance_debt_seconds", {"table": NAME})
    assert metrics == 25 * 3_600
    kept.upkeep.close()
    shown = [one for found in REGISTRY.collect() for one in found.samples if one.labels.get("table") == NAME]
    assert not [one for one in shown if one.name.startswith("thermocline_maintenance_")]


def test_what_others_committed_is_not_planned_for(kept: Kept) -> None:
    kept.batches(2)
    kept.ingest.java_table().newAppend().commit()
    kept.upkeep.turn(kept.site)
    wait_for(lambda: kept.upkeep.is_settled)
    with pytest.raises(ForeignSnapshot):
        kept.upkeep.turn(kept.site)
