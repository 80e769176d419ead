"""Upkeep of the companion table of bad records, on a real catalog and real files."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from ingest.quarantine import (
    SCHEMA,
    SeenRecords,
    create_quarantine,
    keep_files,
    open_quarantine,
    read_rows,
    remove,
    write_quarantine_file,
)
from maintenance.quarantine import tend_quarantine
from tests.maintenance.kept import HOURS
from tests.manual_clock import ManualClock
from thermocline.iceberg.catalog import open_catalog
from thermocline.iceberg.files import local_path
from thermocline.settings import CatalogSettings

Load = Callable[[], Table]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    settings = CatalogSettings(uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"{tmp_path}/warehouse")
    catalog = open_catalog(settings, may_create=True)
    catalog.create_namespace_if_not_exists("app")
    create_quarantine(catalog, "app.profiles")
    return partial(open_quarantine, catalog, "profiles", "app.profiles")


def keep(quarantine: Table, offset: int) -> None:
    row = {"topic": "profiles", "topic_id": "id", "partition": 0, "stage": "key", "reason": "why"}
    row |= {"offset": offset, "timestamp": datetime(2026, 3, 1, tzinfo=UTC)}
    records = [pa.Table.from_pylist([row], SCHEMA)]
    keep_files(quarantine, [write_quarantine_file(quarantine.io, quarantine.location(), records)])


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
    gone = SeenRecords()
    for offset in (0, 2):
        gone.add("id", 0, offset)
    remove(quarantine, gone)
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
