"""Trying a store: what is said of one that can't be used, and that nothing is left of the attempt."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from thermocline.errors import CatalogUnreachable, StorageFailed
from thermocline.iceberg.catalog import open_catalog
from thermocline.iceberg.catalog_properties import pyiceberg_properties
from thermocline.iceberg.shared_io import SharedFileIO
from thermocline.iceberg.store_check import check_store, new_place
from thermocline.settings import CatalogSettings, PassThrough

LOCAL = PyArrowFileIO()


def in_s3(port: int) -> SharedFileIO:
    """What reaches a bucket at a port of this machine."""
    properties = {"s3.endpoint": f"http://127.0.0.1:{port}", "s3.region": "us-east-1"}
    properties |= {"s3.access-key-id": "a", "s3.secret-access-key": "b"}
    settings = CatalogSettings(type="rest", uri="http://none", properties=PassThrough(properties))
    return SharedFileIO(pyiceberg_properties(settings))


def test_a_folder_that_can_be_written_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    check_store(LOCAL, f"file://{tmp_path}/there/app.db/profiles", "profiles")
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


def test_a_warehouse_below_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "warehouse").write_text("")
    with pytest.raises(
        StorageFailed, match=r"warehouse/app/thermocline/check-\S+ can't be written: .*Not a dir"
    ):
        check_store(LOCAL, f"file://{tmp_path}/warehouse/app", "profiles")


def test_a_scheme_of_no_store_is_named() -> None:
    with pytest.raises(StorageFailed, match=r"nfs://warehouse/\S+ can't be written: .*nfs"):
        check_store(LOCAL, "nfs://warehouse/app", "profiles")


def test_a_store_that_nobody_listens_for_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(StorageFailed, match=r"s3://lake/app/\S+ can't be written: .*NETWORK_CONNECTION"):
        check_store(in_s3(port), "s3://lake/app", "profiles")


def test_a_store_that_never_answers_is_not_waited_for() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(StorageFailed, match="s3://lake/app"),
    ):
        check_store(in_s3(silent.getsockname()[1]), "s3://lake/app", "profiles", seconds_max=0.5)


def test_a_table_that_is_not_there_yet_has_a_place_and_is_not_created(tmp_path: Path) -> None:
    settings = CatalogSettings(uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "warehouse"))
    catalog = open_catalog(settings, may_create=True)
    warehouse = new_place(catalog, "profiles", "app.profiles")
    assert warehouse is not None
    assert warehouse[1] == f"file://{tmp_path}/warehouse"
    catalog.create_namespace("app")
    place = new_place(catalog, "profiles", "app.profiles")
    assert place is not None
    io, location = place
    assert location == f"file://{tmp_path}/warehouse/app/profiles"
    check_store(io, location, "profiles")
    assert not catalog.table_exists("app.profiles")
    assert [path.name for path in tmp_path.iterdir()] == ["catalog.db"]


def test_a_catalog_whose_folder_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    settings = CatalogSettings(uri=f"sqlite:///{tmp_path}/data/new/catalog.db", warehouse=str(tmp_path))
    with pytest.raises(CatalogUnreachable, match="did not answer") as away:
        open_catalog(settings, may_create=True)
    assert "Not a directory" in away.value.detail
