"""Maintenance of a table in an S3 store with a REST catalog, against a plain dict and the store's folder."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.http_proxy import OF_A_STORE, HttpProxy, RandomFaults
from tests.ingest.small_ingest import NAME, Ingest, settings_of
from tests.maintenance.kept import HOURS, SETTINGS, Inline, Kept, upkeep_of
from tests.manual_clock import ManualClock
from thermocline.dev.rest_catalog import LocalRestCatalog
from thermocline.dev.s3 import LocalS3
from thermocline.errors import ThermoclineError
from thermocline.iceberg.expired import expired_snapshots, waiting_notes
from thermocline.iceberg.files import place_of
from thermocline.ingest.commit.java import small_jvm
from thermocline.ingest.commit.unknown import UnknownCommit, write_note
from thermocline.maintenance.run import OwnedTable
from thermocline.maintenance.sweep import reachable_from
from thermocline.settings import CatalogSettings, PassThrough, Settings

pytestmark = [pytest.mark.jvm, pytest.mark.full]

SHARE = 0.1
"""Of requests that are spoilt."""


@dataclass
class InStore(Kept):
    """A kept table in a store, asked through a proxy."""

    store: LocalS3
    proxy: HttpProxy

    def stored(self) -> set[str]:
        """The places of the table's files, by the folder behind the store."""
        root = self.store.folder / "data"
        rooms = [root / place_of(self.ingest.owned.table.location()) / room for room in ("data", "metadata")]
        files = (path for room in rooms for path in room.rglob("*") if path.is_file())
        return {str(path.relative_to(root)) for path in files if path.suffix != ".json"}

    def needed(self) -> set[str]:
        """The places of what the table's snapshots name, and of those expired whose files wait."""
        table = self.ingest.owned.table
        named = reachable_from(table.io, table.snapshots()).places()
        waiting = expired_snapshots(waiting_notes(table)).values()
        return named | reachable_from(table.io, waiting, may_be_gone=True).places()

    def put(self, name: str) -> str:
        """A file below the table's location that nothing names; its place."""
        path = f"{self.ingest.owned.table.location()}/{name}"
        with self.ingest.owned.table.io.new_output(path).create() as sink:
            sink.write(b"left")
        return place_of(path)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalS3]:
    with LocalS3(tmp_path / "s3") as running:
        yield running


@pytest.fixture(params=[2, 3])
def kept(store: LocalS3, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[InStore]:
    with LocalRestCatalog(tmp_path / "rest", store) as catalog, HttpProxy(store.port) as proxy:
        properties = {**catalog.properties, "s3.endpoint": proxy.url}
        settings = _in_store(
            settings_of(tmp_path, "sqlite:///catalog.db"), catalog, properties, request.param
        )
        with small_jvm(settings.catalog) as jvm:
            yield from _kept(settings, jvm, store, proxy)


def _kept(settings: Settings, jvm: Any, store: LocalS3, proxy: HttpProxy) -> Iterator[InStore]:
    ingest = Ingest(settings, jvm, seed=random.randrange(1_000_000))
    clock = ManualClock(int(1000 * time.time()))
    kept = InStore(ingest, upkeep_of(clock), OwnedTable.of(ingest.owned, Inline(jvm)), clock, store, proxy)
    yield kept
    kept.upkeep.close()
    ingest.owned.release()


def _in_store(
    settings: Settings, catalog: LocalRestCatalog, properties: dict[str, str], format_version: int
) -> Settings:
    lake = CatalogSettings(type="rest", uri=catalog.url, properties=PassThrough(properties))
    table = settings.tables[NAME].model_copy(update={"format_version": format_version})
    return settings.model_copy(update={"catalog": lake, "tables": {NAME: table}})


def test_rewrites_land_in_a_store_as_they_do_on_a_disk(kept: InStore) -> None:
    for _ in range(40):
        kept.batch()
        kept.turn()
        kept.clock.advance(31)
    assert kept.upkeep.done.rewrites > 5
    assert (kept.upkeep.done.dropped, kept.upkeep.done.failures) == (0, 0)
    assert kept.ingest.rows() == kept.ingest.expected


@pytest.mark.timeout(1_800)  # requests that are never answered end after a minute each
def test_what_nothing_needs_goes_from_a_store_that_fails_now_and_then_and_nothing_else(kept: InStore) -> None:
    """Goal: snapshots expire, their files and orphans are deleted in time, and no file that is needed.

    Method: a share of all requests is spoilt while maintenance has its turns, and none while it is checked.
    Where a turn ends the owner, another one takes over, as it does after a crash. Then days without faults.
    """
    faults = RandomFaults(kept.ingest.random.randrange(1_000_000), SHARE, OF_A_STORE)
    kept_for = KeptFor(kept)
    orphans = {kept.put(name) for name in ("data/bucket=0/left.parquet", "metadata/left.avro")}
    of_unknown = kept.put("data/bucket=1/of-an-unknown-commit.parquet")
    for _ in range(4):
        kept.batches(12)
        for _ in range(3):
            kept_for.check()
            kept.proxy.decide = faults
            _turn(kept)
            kept.proxy.decide = lambda request: None
            kept.clock.advance(1.5 * HOURS)
        kept_for.check()
        assert kept.ingest.rows() == kept.ingest.expected
    print(kept.upkeep.done, kept.proxy.spoilt, len(kept.proxy.exchanges))
    assert set(kept.proxy.spoilt) == set(OF_A_STORE)
    assert kept.upkeep.done.swept_files > 0

    io, location = kept.ingest.owned.table.io, kept.ingest.owned.table.location()
    write_note(io, location, UnknownCommit("batch", 1, 1, "none", (f"s3://{of_unknown}",), "no answer"))
    for _ in range(6):
        kept.clock.advance(24 * HOURS)
        for _ in range(2):
            kept.turn()
            kept_for.check()
    assert kept.stored() == kept.needed() | {of_unknown}
    assert not kept.stored() & orphans
    assert kept.ingest.rows() == kept.ingest.expected


class KeptFor:
    """What snapshots named, and when last: so long after that their files stay."""

    def __init__(self, kept: InStore) -> None:
        self._kept = kept
        self._last_ms: dict[str, int] = {}

    def check(self) -> None:
        self._kept.ingest.refresh()
        table, now_ms = self._kept.ingest.owned.table, self._kept.clock.now_ms()
        self._last_ms |= dict.fromkeys(reachable_from(table.io, table.snapshots()).places(), now_ms)
        until_ms = now_ms - int(1000 * SETTINGS.files_seconds)
        lately = {place for place, last_ms in self._last_ms.items() if last_ms > until_ms}
        assert lately <= self._kept.stored()


def _turn(kept: InStore) -> None:
    try:
        kept.turn()
    except ThermoclineError as error:
        print(f"taken over: {error.code}")
        kept.proxy.decide = lambda request: None
        kept.site = OwnedTable.of(kept.ingest.take_over(), Inline(kept.ingest.jvm))
