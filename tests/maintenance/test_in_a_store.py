"""Maintenance of a table in an S3 store with a REST catalog, against a plain dict: rewrites."""

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
from tests.maintenance.kept import Inline, Kept, upkeep_of
from tests.manual_clock import ManualClock
from thermocline.settings import CatalogSettings, PassThrough, Settings

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


def test_rewrites_land_in_a_store_as_they_do_on_a_disk(kept: Kept) -> None:
    for _ in range(30):
        kept.batch()
        kept.turn()
        kept.clock.advance(31)
    assert kept.upkeep.done.rewrites > 5
    assert (kept.upkeep.done.dropped, kept.upkeep.done.failures) == (0, 0)
    assert kept.ingest.rows() == kept.ingest.expected
