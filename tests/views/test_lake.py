"""Our catalog's settings in the words of Trino's Iceberg connector."""

from __future__ import annotations

from typing import Any

import pytest

from thermocline.settings import CatalogSettings
from thermocline.views.lake import lake_properties


def plain(**settings: Any) -> dict[str, str]:
    return lake_properties(CatalogSettings(**settings), "lake").plain


def test_a_catalog_in_sqlite_on_this_machines_files() -> None:
    assert plain(name="ours", uri="sqlite:////data/catalog.db", warehouse="/data/warehouse") == {
        "connector.name": "iceberg",
        "iceberg.catalog.type": "jdbc",
        "iceberg.jdbc-catalog.driver-class": "org.sqlite.JDBC",
        "iceberg.jdbc-catalog.connection-url": "jdbc:sqlite:/data/catalog.db?busy_timeout=30000",
        "iceberg.jdbc-catalog.catalog-name": "ours",
        "iceberg.jdbc-catalog.default-warehouse-dir": "file:///data/warehouse",
        "fs.native-local.enabled": "true",
        "local.location": "/",
    }


def test_a_connection_to_postgresql_has_a_limit_and_no_password_in_its_url() -> None:
    settings = CatalogSettings(uri="postgresql://me:p%40ss@db/lake?sslmode=require", warehouse="gs://b/w")
    found = lake_properties(settings, "lake")
    assert found.plain["iceberg.jdbc-catalog.connection-url"] == (
        "jdbc:postgresql://db/lake?sslmode=require&socketTimeout=60&tcpKeepAlive=true"
    )
    assert found.plain["iceberg.jdbc-catalog.connection-user"] == "me"
    assert found.secrets == {"TRINO_LAKE_ICEBERG_JDBC_CATALOG_CONNECTION_PASSWORD": "p@ss"}
    assert found.plain["fs.native-gcs.enabled"] == "true"
    assert "fs.native-local.enabled" not in found.plain


def test_a_rest_catalog_hands_out_keys_where_we_have_none() -> None:
    asked = plain(type="rest", uri="http://r", warehouse="w")
    assert asked["iceberg.rest-catalog.vended-credentials-enabled"] == "true"
    assert asked["fs.native-s3.enabled"] == "true"
    ours = plain(
        type="rest", uri="http://r", properties={"s3.access-key-id": "a", "s3.secret-access-key": "b"}
    )
    assert "iceberg.rest-catalog.vended-credentials-enabled" not in ours


@pytest.mark.parametrize(
    ("properties", "security"),
    [
        ({}, None),
        ({"token": "t"}, "OAUTH2"),
        ({"credential": "a:b"}, "OAUTH2"),
        ({"rest.sigv4-enabled": "true"}, "SIGV4"),
    ],
)
def test_how_a_rest_catalog_knows_us(properties: dict[str, str], security: str | None) -> None:
    found = plain(type="rest", uri="http://r", properties=properties)
    assert found.get("iceberg.rest-catalog.security") == security


def test_one_setting_for_all_of_a_cloud_says_it_to_catalog_and_store() -> None:
    found = plain(type="glue", warehouse="s3://b/w", properties={"client.region": "eu-west-1"})
    assert found["hive.metastore.glue.region"] == found["s3.region"] == "eu-west-1"


def test_a_store_at_an_endpoint_of_ones_own_is_asked_by_path() -> None:
    endpoint = {"s3.endpoint": "http://store"}
    assert plain(type="glue", properties=endpoint)["s3.path-style-access"] == "true"
    virtual = {**endpoint, "s3.force-virtual-addressing": "true"}
    assert "s3.path-style-access" not in plain(type="glue", properties=virtual)


@pytest.mark.parametrize(
    ("warehouse", "switch"),
    [("s3a://b", "s3"), ("gs://b", "gcs"), ("abfss://b", "azure"), ("s3://b", "s3")],
)
def test_the_warehouse_tells_the_store(warehouse: str, switch: str) -> None:
    found = plain(type="hive", uri="thrift://m:9083", warehouse=warehouse)
    assert [name for name in found if name.startswith("fs.")] == [f"fs.native-{switch}.enabled"]
