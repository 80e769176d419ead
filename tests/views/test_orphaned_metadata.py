"""Of what replaced views leave, only that goes which is certainly theirs, old, and in nobody's use."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from sqlalchemy import update
from sqlalchemy.orm import Session

from thermocline.iceberg.catalog import open_catalog
from thermocline.settings import CatalogSettings
from thermocline.views import orphaned_metadata
from thermocline.views.orphaned_metadata import KEPT_MS, remove_leftovers

NOW_MS = 1_700_000_000_000
OLD_MS = NOW_MS - KEPT_MS - 1
OURS, ANOTHER = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "warehouse" / "app"


@pytest.fixture
def catalog(tmp_path: Path, place: Path) -> SqlCatalog:
    """With the view `t_live`, whose metadata is in the folder `c`, and was in `b` before."""
    uri = f"sqlite:///{tmp_path / 'catalog.db'}"
    settings = CatalogSettings(uri=uri, warehouse=str(tmp_path / "warehouse"))
    made = open_catalog(settings, may_create=True)
    assert isinstance(made, SqlCatalog)
    current, before = (write(place, number) for number in "cb")
    with Session(made.engine) as session:
        session.add(
            IcebergTables(
                catalog_name=made.name,
                table_namespace="app",
                table_name="t_live",
                metadata_location=current.as_uri(),
                previous_metadata_location=before.as_uri(),
            )
        )
        session.execute(update(IcebergTables).values(iceberg_type="VIEW"))
        session.commit()
    return made


def write(place: Path, letter: str, view: str = "t_live", uuid: str = OURS, at_ms: int = OLD_MS) -> Path:
    """A view's metadata as Trino writes it, in the folder of that letter."""
    file = place / f"{view}-{letter * 32}" / "metadata" / "00001-x.gz.metadata.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(gzip.compress(json.dumps({"view-uuid": uuid}).encode()))
    os.utime(file, ns=(at_ms * 1_000_000, at_ms * 1_000_000))
    return file


def test_only_old_folders_of_the_views_own_go(catalog: Catalog, place: Path) -> None:
    """One of each kind that must stay, beside one that must go."""
    gone = write(place, "a")
    young = write(place, "d", at_ms=NOW_MS - KEPT_MS + 1)
    another = write(place, "e", uuid=ANOTHER)
    longer = write(place, "f", view="t_live_by_key")
    shared, elsewhere = write(place, "0"), write(place, "1")
    (shared.parent / "rows.parquet").write_bytes(b"PAR1")
    moved = elsewhere.parent.parent / elsewhere.name  # beside `metadata`, not in it
    elsewhere.rename(moved)
    broken = write(place, "2")
    broken.write_bytes(b"\x1f\x8bnot gzip")
    os.utime(broken, ns=(OLD_MS * 1_000_000, OLD_MS * 1_000_000))
    empty = place / f"t_live-{'3' * 32}"
    empty.mkdir()
    (place / "t_live-1").mkdir()
    assert remove_leftovers(catalog, "app", ["t_live"], NOW_MS) == 1
    assert not gone.parent.parent.exists()
    kept = [young, another, longer, shared, moved, broken, empty, place / "t_live-1"]
    assert [path for path in kept if not path.exists()] == []
    assert sorted(one.name[-1] for one in place.glob("t_live-*") if one.name[-1] in "bc") == ["b", "c"]


def test_a_view_that_the_catalog_does_not_know_loses_nothing(catalog: Catalog, place: Path) -> None:
    file = write(place, "a", view="t_cold")
    assert remove_leftovers(catalog, "app", ["t_cold"], NOW_MS) == 0
    assert file.exists()


def test_a_table_of_the_name_is_no_view(catalog: SqlCatalog, place: Path) -> None:
    file = write(place, "a")
    with Session(catalog.engine) as session:
        session.execute(update(IcebergTables).values(iceberg_type="TABLE"))
        session.commit()
    assert remove_leftovers(catalog, "app", ["t_live"], NOW_MS) == 0
    assert file.exists()


def test_much_goes_in_several_turns(catalog: Catalog, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphaned_metadata, "REMOVED_MAX", 2)
    for letter in "0123a":
        write(place, letter)
    assert [remove_leftovers(catalog, "app", ["t_live"], NOW_MS) for _ in range(4)] == [2, 2, 1, 0]
