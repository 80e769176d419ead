"""The fake metadata store and file store do as Iceberg and PyIceberg's FileIO do."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from tests.ingest.small_ingest import Ingest, java_store, settings_of
from tests.manual_clock import ManualClock
from tests.simulation.catalog import CLOCK_TOLERANCE_MS, FakeCatalog, FakeSnapshot, Metadata, Summary
from tests.simulation.faults import Violation
from tests.simulation.metadata import FakeMetadataStore
from tests.simulation.store import FakeIO
from thermocline.iceberg.catalog import BATCH_PROPERTY, load_table, open_catalog
from thermocline.iceberg.files import listed_folder, local_path, plan_files
from thermocline.ingest.commit.change import ChangeKind, TableChange, summary_fields
from thermocline.ingest.commit.metadata import LostRace, MetadataError, MetadataStore, NoTable
from thermocline.process.clock import SystemClock
from thermocline.upsert.bucket_task import BucketResult

IDENTIFIER = "app.profiles"


def nothing(*_: object) -> None:
    """Nothing goes wrong."""


class Both:
    """One history of commits, made by Iceberg and by the fake: what one says, the other must say."""

    def __init__(self, folder: Path, jvm: Any) -> None:
        self.ingest = Ingest(settings_of(folder, "sqlite:///catalog.db"), jvm, seed=1)
        self.catalog_file = folder / "catalog.db"
        self.real: MetadataStore = java_store(self.ingest.owned.committer)
        io = FakeIO(nothing, nothing)
        self.catalog = FakeCatalog(io, nothing, nothing)
        self.clock = ManualClock(SystemClock().now_ms())
        start = self.real.start()
        assert start.current is not None
        summary = Summary(dict(start.current.summary))
        first = FakeSnapshot(self.catalog.new_id(), None, 2, self.clock.now_ms(), summary, ())
        self.catalog.create(
            IDENTIFIER,
            Metadata(
                {first.snapshot_id: first}, first.snapshot_id, start.properties, {}, first.timestamp_ms, 2
            ),
        )
        self.fake: MetadataStore = FakeMetadataStore(
            self.catalog, IDENTIFIER, self.clock, nothing, lambda: "", [], "the test"
        )
        self.ids = [(start.current.snapshot_id, first.snapshot_id)]

    def both(self, ask: Callable[[MetadataStore, int], Any]) -> tuple[Any, Any]:
        """What each answers: a value, or the kind of error; ``ask`` gets the store, and which it is."""
        return self._answer(ask, self.real, 0), self._answer(ask, self.fake, 1)

    def same(self, ask: Callable[[MetadataStore, int], Any]) -> Any:
        """What both answer."""
        real, fake = self.both(ask)
        assert real == fake
        return real

    def change(self, files: Sequence[BucketResult] = (), kind: ChangeKind = "row-delta") -> TableChange:
        """A change with these files, whole."""
        bare = replace(TableChange.carrying_on(self.ingest.owned.state), kind=kind, files=files)
        properties = {BATCH_PROPERTY: bare.batch_id}
        return replace(bare, summary=summary_fields(bare, 1, 1, {}), properties=properties)

    def commit(self, change: TableChange, onto: int | None = None) -> None:
        """Both publish it, on top of what is there, or of the snapshot with that number."""

        def publish(store: MetadataStore, which: int) -> int:
            current = None if onto is None else self.ids[onto][which]
            start = store.start()
            built = store.build(start, replace(change, onto=current))
            store.publish(start, built)
            return built.snapshot_id

        self.ids.append(self.both(publish))
        self.ingest.refresh()
        self.check()

    def check(self) -> None:
        """Current snapshot, its files, and history are the same."""
        table = load_table(open_catalog(self.ingest.settings.catalog), "profiles", IDENTIFIER)
        current, fake = table.current_snapshot(), self.catalog.tables[IDENTIFIER].current
        assert current is not None
        assert (current.snapshot_id, fake.snapshot_id) in self.ids
        real_files = set(plan_files(table, current.snapshot_id))
        assert real_files == set(fake.files)
        ours = dict(self.ids)
        parent = None if current.parent_snapshot_id is None else ours.get(current.parent_snapshot_id)
        assert parent is None or parent == fake.parent_snapshot_id
        self.same(lambda store, _: store.refresh())
        for pair in self.ids:
            self._check_snapshot(pair)

    def _check_snapshot(self, pair: tuple[int, int]) -> None:
        self.same(lambda store, which: store.is_in_history(pair[which]))
        self.same(lambda store, which: self._ours(store.snapshot(pair[which])))

    def _ours(self, snapshot: Any) -> dict[str, str] | None:
        if snapshot is None:
            return None
        return {name: text for name, text in snapshot.summary.items() if name.startswith("thermocline.")}

    def _answer(self, ask: Callable[[MetadataStore, int], Any], store: MetadataStore, which: int) -> Any:
        try:
            return ask(store, which)
        except MetadataError as error:
            return type(error)


@pytest.fixture
def stores(tmp_path: Path, jvm: Any) -> Iterator[Both]:
    made = Both(tmp_path, jvm)
    yield made
    made.ingest.owned.release()


@pytest.mark.jvm
def test_batches_leave_the_same_files_and_history(stores: Both) -> None:
    for _ in range(6):
        change, _ = stores.ingest.batch()
        stores.commit(stores.change(change.files))
    for kind in ("row-delta", "rewrite"):  # a batch may put old files into the one that it writes, too
        stores.commit(stores.change(stores.ingest.rewrite().files, kind))
    stores.commit(replace(stores.change(kind="manifests"), buckets_together={"data": 1, "deletes": 1}))
    stores.commit(stores.change(), onto=2)
    assert stores.same(lambda store, which: store.is_in_history(stores.ids[2][which]))
    assert not stores.same(lambda store, which: store.is_in_history(stores.ids[3][which]))


@pytest.mark.jvm
def test_snapshots_that_a_change_expires_leave_the_table_and_its_history(stores: Both) -> None:
    for _ in range(4):
        change, _ = stores.ingest.batch()
        stores.commit(stores.change(change.files))
    gone = stores.ids[1:3]
    change = stores.change()

    def publish(store: MetadataStore, which: int) -> int:
        start = store.start()
        built = store.build(start, replace(change, expired=[pair[which] for pair in gone]))
        store.publish(start, built)
        return built.snapshot_id

    stores.ids.append(stores.both(publish))
    stores.ingest.refresh()
    stores.check()
    for pair in gone:
        assert [store.snapshot(id_) for store, id_ in zip((stores.real, stores.fake), pair, strict=True)] == [
            None,
            None,
        ]


@pytest.mark.jvm
def test_what_was_started_before_another_commit_loses_the_race(stores: Both) -> None:
    starts = stores.both(lambda store, _: store.start())
    built = stores.both(lambda store, which: store.build(starts[which], stores.change()))
    stores.commit(stores.change())
    assert stores.same(lambda store, which: store.publish(starts[which], built[which])) is LostRace
    stores.check()
    assert stores.same(lambda store, which: store.snapshot(built[which].snapshot_id)) is None


@pytest.mark.jvm
def test_deletes_for_files_that_are_not_there_are_not_refused_and_so_a_violation(stores: Both) -> None:
    """Iceberg looks for what was removed since the start. That nothing else was, is the product's check."""
    change, _ = stores.ingest.batch()
    stores.commit(stores.change(change.files))
    later = stores.ingest.batch()[0]
    while not any(done.deletes for done in later.files):
        later = stores.ingest.batch()[0]
    stores.commit(stores.change(), onto=0)  # to before there were files

    def build(store: MetadataStore, _: int) -> Any:
        return store.build(store.start(), stores.change(later.files))

    assert build(stores.real, 0)
    with pytest.raises(Violation, match="deletes-for-no-file"):
        build(stores.fake, 1)


@pytest.mark.jvm
def test_a_table_that_was_committed_to_by_a_fast_clock_refuses_others_until_then(stores: Both) -> None:
    """Method: the newest metadata file is rewritten with times an hour ahead, unseen by the catalog."""
    real: Any = stores.real
    ahead_ms = 3_600_000
    location = real.table.operations().current().metadataFileLocation()
    content = json.loads(Path(local_path(location) or "").read_text())
    content["last-updated-ms"] += ahead_ms
    for entry in (content["snapshot-log"][-1], content["snapshots"][-1]):
        entry["timestamp-ms"] += ahead_ms
    path = location.rpartition("/")[0] + f"/{uuid.uuid4()}.metadata.json"
    Path(local_path(path) or "").write_text(json.dumps(content))
    with closing(sqlite3.connect(stores.catalog_file)) as connection:
        connection.execute(
            "UPDATE iceberg_tables SET metadata_location = ? WHERE metadata_location = ?", (path, location)
        )
        connection.commit()
    fake = stores.catalog.tables[IDENTIFIER]
    stores.catalog.tables[IDENTIFIER] = fake.changed(last_updated_ms=fake.last_updated_ms + ahead_ms)
    assert ahead_ms > CLOCK_TOLERANCE_MS

    def build(store: MetadataStore, _: int) -> Any:
        return store.build(store.start(), stores.change())

    assert stores.same(build) is MetadataError


@pytest.mark.jvm
def test_a_table_that_was_dropped_is_said_to_be_missing(stores: Both) -> None:
    open_catalog(stores.ingest.settings.catalog).drop_table(IDENTIFIER)
    del stores.catalog.tables[IDENTIFIER]
    assert stores.same(lambda store, _: store.start()) is NoTable


@pytest.fixture(params=["fake", "real"])
def io(request: pytest.FixtureRequest) -> PyArrowFileIO:
    return FakeIO(nothing, nothing, lambda: 1_000) if request.param == "fake" else PyArrowFileIO()


def test_objects_are_written_read_listed_and_deleted(io: PyArrowFileIO, tmp_path: Path) -> None:
    folder = tmp_path.as_uri()

    def listed(is_recursive: bool = False) -> list[str]:
        found = listed_folder(io, f"{folder}/notes", is_recursive)
        assert all(file.modified_ms for file in found)
        return [file.path.rpartition("/")[2] for file in found]

    assert listed() == []
    for name in ("notes/a.json", "notes/b.json", "notes/deeper/c.json", "other.json"):
        with io.new_output(f"{folder}/{name}").create(overwrite=True) as sink:
            sink.write(name.encode())
    assert listed() == ["a.json", "b.json"]
    assert listed(is_recursive=True) == ["a.json", "b.json", "c.json"]
    with io.new_input(f"{folder}/notes/a.json").open() as source:
        assert source.read() == b"notes/a.json"
    with pytest.raises(FileExistsError):
        io.new_output(f"{folder}/notes/a.json").create(overwrite=False)
    io.delete(f"{folder}/notes/a.json")
    assert listed() == ["b.json"]
    assert not io.new_input(f"{folder}/notes/a.json").exists()
    with pytest.raises(FileNotFoundError):
        io.delete(f"{folder}/notes/a.json")
    with pytest.raises(FileNotFoundError):
        io.new_input(f"{folder}/notes/a.json").open()
