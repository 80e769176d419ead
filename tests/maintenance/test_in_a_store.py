"""Maintenance of a table in an S3 store with a REST catalog: each of its steps, against a plain dict."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from embedded.rest_catalog import LocalRestCatalog
from embedded.s3 import LocalS3
from ingest.java import small_jvm
from maintenance.run import OwnedTable
from tests.ingest.small_ingest import NAME, Ingest, settings_of
from tests.maintenance.kept import HOURS, Inline, Kept, upkeep_of
from tests.manual_clock import ManualClock
from thermocline.iceberg.files import plan_files
from thermocline.settings import CatalogSettings, PassThrough, Settings
from verify.structure import structure_findings

pytestmark = [pytest.mark.jvm, pytest.mark.full]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalS3]:
    with LocalS3(tmp_path / "s3") as running:
        yield running


@pytest.fixture(params=[2, 3])
def kept(store: LocalS3, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Kept]:
    with LocalRestCatalog(tmp_path / "rest", store) as catalog:
        settings = _in_store(settings_of(tmp_path, "sqlite:///catalog.db"), catalog, request.param)
        with small_jvm(settings.catalog) as jvm:
            yield from _kept(settings, jvm, request.param)


def _kept(settings: Settings, jvm: Any, format_version: int) -> Iterator[Kept]:
    ingest = Ingest(settings, jvm, seed=format_version)
    clock = ManualClock(int(1000 * time.time()))
    upkeep = upkeep_of(clock)
    yield Kept(ingest, upkeep, OwnedTable.of(ingest.owned, Inline(jvm)), clock)
    upkeep.close()
    ingest.owned.release()


def _in_store(settings: Settings, catalog: LocalRestCatalog, format_version: int) -> Settings:
    lake = CatalogSettings(type="rest", uri=catalog.url, properties=PassThrough(catalog.properties))
    table = settings.tables[NAME].model_copy(update={"format_version": format_version})
    return settings.model_copy(update={"catalog": lake, "tables": {NAME: table}})


def test_rewrites_expiry_sweep_and_orphans_do_in_a_store_what_they_do_on_a_disk(
    kept: Kept, store: LocalS3
) -> None:
    """Method: the store's objects are files here, so that what is left of them can be counted."""
    for _ in range(16):
        kept.batch()
        kept.turn()
        kept.clock.advance(31)
    assert kept.upkeep.done.rewrites > 0
    assert (kept.upkeep.done.dropped, kept.upkeep.done.failures) == (0, 0)
    assert kept.ingest.rows() == kept.ingest.expected

    before = len(kept.ingest.owned.table.snapshots())
    kept.clock.advance(5 * HOURS)
    kept.turn()
    assert kept.upkeep.done.expired > 0
    assert len(kept.ingest.owned.table.snapshots()) < before
    kept.clock.advance(5 * HOURS)
    kept.turn()
    kept.turn()
    assert kept.upkeep.done.swept_files > 0
    assert objects(kept, store) == needed(kept)

    orphan = folder(kept, store) / "data" / "bucket=0" / "left.parquet"
    orphan.write_bytes(b"left")
    for hours in (4 * 24, 25, 25):
        kept.clock.advance(hours * HOURS)
        kept.turn()
        kept.turn()
    assert kept.upkeep.done.orphans == 1
    assert objects(kept, store) == needed(kept)
    assert kept.upkeep.done.failures == 0
    assert not list(structure_findings(kept.ingest.owned.table, kept.ingest.definition, lambda *_: None))
    assert kept.ingest.rows() == kept.ingest.expected


def folder(kept: Kept, store: LocalS3) -> Path:
    """Where the store has the table."""
    place = kept.ingest.owned.table.location().removeprefix(store.location(""))
    return store.folder / "data" / store.bucket / place


def objects(kept: Kept, store: LocalS3) -> set[str]:
    """The table's data files and deletes, as there are."""
    found = (folder(kept, store) / "data").rglob("*")
    return {path.name for path in found if path.suffix in (".parquet", ".puffin")}


def needed(kept: Kept) -> set[str]:
    """Those that its snapshots name."""
    kept.ingest.refresh()
    table = kept.ingest.owned.table
    files = [file for one in table.snapshots() for file in plan_files(table, one.snapshot_id)]
    deletes = [file.deletes.path for file in files if file.deletes is not None]
    return {path.rpartition("/")[2] for path in [*(file.path for file in files), *deletes]}
