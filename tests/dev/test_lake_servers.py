"""The embedded S3 store and REST catalog: they keep what they have over a crash, and do what a lake's do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from thermocline.dev.rest_catalog import LocalRestCatalog
from thermocline.dev.s3 import LocalS3
from thermocline.iceberg.catalog import open_catalog
from thermocline.settings import CatalogSettings, PassThrough

pytestmark = [pytest.mark.jvm, pytest.mark.full]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalS3]:
    with LocalS3(tmp_path_factory.mktemp("s3")) as running:
        yield running


def test_a_table_is_there_after_both_servers_were_killed(store: LocalS3, tmp_path: Path) -> None:
    with LocalRestCatalog(tmp_path, store) as catalog:
        settings = CatalogSettings(type="rest", uri=catalog.url, properties=PassThrough(catalog.properties))
        client = open_catalog(settings)
        client.create_namespace("app")
        rows = pa.table({"id": [1, 2, 3]})
        client.create_table("app.t", rows.schema).append(rows)
        for server in (store, catalog):
            server.kill()
            server.start()
            server.wait()
        assert open_catalog(settings).load_table("app.t").scan().to_arrow() == rows


def test_a_catalog_that_vends_credentials_is_used_without_keys(store: LocalS3, tmp_path: Path) -> None:
    with LocalRestCatalog(tmp_path, store, vends_credentials=True) as catalog:
        assert not any("-key" in name for name in catalog.properties)
        client = open_catalog(
            CatalogSettings(type="rest", uri=catalog.url, properties=PassThrough(catalog.properties))
        )
        client.create_namespace("vended")
        rows = pa.table({"id": [1]})
        client.create_table("vended.t", rows.schema).append(rows)
        assert client.load_table("vended.t").scan().to_arrow() == rows
