"""Upkeep of the companion table of bad records, on a real catalog and real files."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from tests.maintenance.kept import HOURS, SETTINGS
from tests.manual_clock import ManualClock
from thermocline import failpoints
from thermocline.iceberg.catalog import open_catalog
from thermocline.iceberg.expired import waiting_notes
from thermocline.iceberg.files import local_path
from thermocline.ingest.quarantine import (
    SCHEMA,
    SeenRecords,
    create_quarantine,
    keep_files,
    open_quarantine,
    read_rows,
    remove,
    write_quarantine_file,
)
from thermocline.maintenance.cleaning import Cleaning
from thermocline.maintenance.journal import Journal
from thermocline.maintenance.orphans import remove_orphans
from thermocline.maintenance.quarantine import tend_quarantine
from thermocline.maintenance.sweep import Stopped, sweep
from thermocline.maintenance.upkeep import TableUpkeep
from thermocline.settings import CatalogSettings

Load = Callable[[], Table]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    settings = CatalogSettings(uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse")
    catalog = open_catalog(settings, may_create=True)
    catalog.create_namespace_if_not_exists("app")
    create_quarantine(catalog, "app.profiles")
    return partial(open_quarantine, catalog, "profiles", "app.profiles")


def keep(quarantine: Table, *offsets: int) -> list[str]:
    """Each in a file of its own, all in one commit; the paths of the files."""
    row = {"topic": "profiles", "topic_id": "id", "partition": 0, "stage": "key", "reason": "why"}
    row |= {"timestamp": datetime(2026, 3, 1, tzinfo=UTC)}
    records = [pa.Table.from_pylist([row | {"offset": offset}], SCHEMA) for offset in offsets]
    paths = [write_quarantine_file(quarantine.io, quarantine.location(), [one]) for one in records]
    keep_files(quarantine, paths)
    return paths


def names_of(paths: Iterable[str]) -> set[str]:
    return {Path(path).name for path in paths}


def take_out(quarantine: Table, *offsets: int) -> None:
    gone = SeenRecords()
    for offset in offsets:
        gone.add("id", 0, offset)
    remove(quarantine, gone)


class Watched(PyArrowFileIO):
    """A store in which something happens before each deletion."""

    before: Callable[[str], None]

    def delete(self, location: str | InputFile | OutputFile) -> None:
        self.before(str(location))
        super().delete(location)


def watched(load: Load, before: Callable[[str], None]) -> Load:
    """Gives the table in such a store."""

    def load_watched() -> Table:
        table = load()
        table.io = Watched(table.io.properties)
        table.io.before = before
        return table

    return load_watched


def owner_of(load: Callable[[], Any]) -> Any:
    """One of a table that is loaded like this."""
    catalog = SimpleNamespace(load_table=lambda _: load())
    definition = SimpleNamespace(name="profiles", identifier="app.profiles")
    return SimpleNamespace(table=SimpleNamespace(catalog=catalog), definition=definition)


class InTurn(Executor):
    """Runs what it is given before it says so."""

    def submit(self, task: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(task(*arguments, **named))
        except Exception as error:  # noqa: BLE001  as an executor does
            future.set_exception(error)
        return future


def stored(quarantine: Table, room: str) -> set[str]:
    """The names of the files in a folder of the table."""
    folder = Path(local_path(quarantine.location()) or "") / room
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_what_left_the_quarantine_leaves_the_store_too(load: Load) -> None:
    """Goal: neither metadata nor files grow for ever, and a purge ends in a deletion."""
    clock = ManualClock(int(1000 * time.time()))

    def tend_after(hours: int) -> Table:
        clock.advance(hours * HOURS)
        tend_quarantine(load, 4 * HOURS, 4 * HOURS, clock)
        return load()

    quarantine = load()
    for offset in range(4):
        keep(quarantine, offset)
    # Of a task that died before its file was part of the table.
    write_quarantine_file(quarantine.io, quarantine.location(), [SCHEMA.empty_table()])
    take_out(quarantine, 0, 2)
    files, lists = stored(quarantine, "data"), stored(quarantine, "metadata")
    assert len(files) == 5

    assert len(tend_after(0).snapshots()) == 5
    assert len(tend_after(5).snapshots()) == 1
    assert stored(quarantine, "data") == files, "whoever reads an older snapshot goes on"
    left = tend_after(5)
    live = {Path(task.file.file_path).name for task in left.scan().plan_files()}
    assert len(live) == 2
    assert live < stored(quarantine, "data"), "an orphan stays for days"
    for _ in range(2):
        left = tend_after(4 * 24)
    assert stored(quarantine, "data") == live
    assert len(lists - stored(quarantine, "metadata")) > 4
    assert sorted(row["offset"] for row in read_rows(left, ())) == [1, 3]
    assert stored(quarantine, "thermocline") == {"orphans.json.zlib"}, "no note stays"


def test_a_file_that_the_store_keeps_holds_up_its_own_note_alone(load: Load) -> None:
    """Goal: one file under a hold does not keep all that expires after it. Method: two notes, both due."""
    clock = ManualClock(int(1000 * time.time()))

    def tend_after(hours: int, load: Load = load) -> None:
        clock.advance(hours * HOURS)
        tend_quarantine(load, 4 * HOURS, 4 * HOURS, clock)

    held, *_ = keep(load(), 0, 1, 2)

    def refuse(path: str) -> None:
        if path == held:
            raise PermissionError(f"{path} is under a hold")

    take_out(load(), 0, 1, 2)
    tend_after(5)
    keep(load(), 3)
    take_out(load(), 3)
    left = keep(load(), 4)
    tend_after(3)
    first, _ = waiting_notes(load())
    assert len(stored(load(), "data")) == 5

    with pytest.raises(PermissionError, match="under a hold"):
        tend_after(4, watched(load, refuse))
    assert list(waiting_notes(load())) == [first]
    assert stored(load(), "data") == names_of([held, *left])
    tend_after(0)
    assert list(waiting_notes(load())) == []
    assert stored(load(), "data") == names_of(left)


def test_what_a_sweep_did_and_left_is_noted_though_the_store_keeps_a_file(load: Load) -> None:
    clock = ManualClock(int(1000 * time.time()))
    held, _ = keep(load(), 0, 1)
    take_out(load(), 0, 1)
    clock.advance(HOURS)
    tend_quarantine(load, 1.0, 1.0, clock)
    clock.advance(5 * HOURS)

    def refuse(path: str) -> None:
        if path == held:
            raise PermissionError(f"{path} is under a hold")

    journal = Journal(clock)
    cleaning = Cleaning(SETTINGS, journal, InTurn(), None)
    cleaning.begin(owner_of(watched(load, refuse)), frozenset())
    cleaning.collect()
    assert journal.done.swept_files == 1
    assert journal.seen.waiting_bytes is not None
    assert journal.due["sweep"] - clock.monotonic() == 60
    assert journal.done.failures > 0


@dataclass
class _Stops:
    """Tells to stop at a failpoint."""

    name: str
    stop: threading.Event

    def fire(self, name: str, is_done: bool) -> None:
        if name == self.name:
            self.stop.set()

    def skew_ms(self, name: str) -> int:
        return 0


def test_a_sweep_and_a_search_for_orphans_end_between_two_files_when_they_are_told_to(load: Load) -> None:
    """Goal: a process that stops does not live on until thousands of files are deleted."""
    clock = ManualClock(int(1000 * time.time()))
    stop = threading.Event()
    offsets = range(40)  # more than are deleted at a time
    keep(load(), *offsets)
    take_out(load(), *offsets)
    tend_quarantine(load, 1.0, 1.0, ManualClock(clock.now_ms() + int(1000 * HOURS)))
    clock.advance(3 * HOURS)
    stopping = watched(load, lambda _: stop.set())
    with pytest.raises(Stopped):
        sweep(stopping, 1, clock, stop=stop)
    swept = len(offsets) - len(stored(load(), "data"))
    assert 0 < swept < len(offsets)

    sweep(load, 1, clock)
    assert stored(load(), "data") == set()
    for _ in range(3):
        write_quarantine_file(load().io, load().location(), [SCHEMA.empty_table()])
    later_ms = [clock.now_ms() + int(1000 * days * 24 * HOURS) for days in (4, 6)]
    remove_orphans(load(), later_ms[0])
    with pytest.raises(Stopped):
        remove_orphans(load(), later_ms[1], stop=stop)
    assert len(stored(load(), "data")) == 3
    stop.clear()
    failpoints.hook_in(_Stops("owner.clean-up", stop))
    try:
        with pytest.raises(Stopped):
            remove_orphans(load(), later_ms[1], stop=stop)
    finally:
        failpoints.hook_in(None)
    assert len(stored(load(), "data")) == 2


def test_surprisingly_many_orphans_of_the_quarantine_go_once_somebody_says_how_many(load: Load) -> None:
    """As attempts of a batch leave them whose commit to it failed."""
    clock = ManualClock(int(1000 * time.time()))
    for _ in range(101):
        write_quarantine_file(load().io, load().location(), [SCHEMA.empty_table()])
    for approved, left in ((None, 101), (None, 101), (100, 101), (101, 0)):
        clock.advance(4 * 24 * HOURS)
        tend_quarantine(load, 4 * HOURS, 4 * HOURS, clock, approved)
        assert len(stored(load(), "data")) == left


def test_cleaning_that_fails_waits_twice_as_long_each_time_up_to_its_usual_interval() -> None:
    """Goal: what will fail again does not read a whole table every minute."""
    clock = ManualClock()
    journal = Journal(clock)
    cleaning = Cleaning(SETTINGS, journal, InTurn(), None)
    owner = owner_of(lambda: None)
    cleaning.begin(owner, frozenset())
    for seconds in (60, 120, 240, 480, 960, 1_800, 1_800):
        cleaning.collect()
        assert journal.due["sweep"] - clock.monotonic() == seconds
        clock.advance(seconds)
        cleaning.begin(owner, frozenset())


def test_upkeep_that_is_closed_ends_a_sweep_that_runs(load: Load) -> None:
    gate = threading.Event()

    def load_late() -> Table:
        gate.wait(60)
        return load()

    upkeep = TableUpkeep(SETTINGS, ManualClock())
    upkeep.cleaning.begin(owner_of(load_late), frozenset())
    upkeep.close()
    gate.set()
    assert upkeep.cleaning.sweeping is not None
    with pytest.raises(Stopped):
        upkeep.cleaning.sweeping.result()
