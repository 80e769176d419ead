"""Names of topics and tables as OpenLineage's conventions give them; expected values by hand."""

from __future__ import annotations

from typing import Any

import pytest

from thermocline.ingest.owner.lineage.datasets import (
    DatasetName,
    address_of,
    name_of_table,
    name_of_topic,
    symlinks_of,
)
from thermocline.settings import CatalogSettings, ViewsSettings


@pytest.mark.parametrize(
    ("servers", "namespace"),
    [
        ("broker:9092", "kafka://broker:9092"),
        ("SASL_SSL://k1.corp:9093, k2.corp:9093", "kafka://k1.corp:9093"),
        ("[::1]:9092", "kafka://[::1]:9092"),
    ],
)
def test_a_topic_is_in_the_namespace_of_the_first_broker(servers: str, namespace: str) -> None:
    assert name_of_topic(servers, "orders") == DatasetName(namespace, "orders")


@pytest.mark.parametrize(
    ("location", "namespace", "name"),
    [
        ("s3://lake/app/orders", "s3://lake", "app/orders"),
        ("s3a://lake/app/orders/", "s3://lake", "app/orders"),
        ("gs://lake/app/orders", "gs://lake", "app/orders"),
        ("abfs://box@host.example/app/orders", "abfss://box@host.example", "app/orders"),
        ("wasbs://box@host.example/orders", "wasbs://box@host.example", "orders"),
        ("hdfs://name:8020/app/orders", "hdfs://name:8020", "/app/orders"),
        ("file:///lake/app/orders", "file", "/lake/app/orders"),
        ("/lake/app/orders/", "file", "/lake/app/orders"),
        ("s3://lake", "s3://lake", "/"),
    ],
)
def test_a_table_is_named_by_its_location_as_spark_names_it(location: str, namespace: str, name: str) -> None:
    assert name_of_table(location) == DatasetName(namespace, name)


def in_catalog(**settings: Any) -> list[tuple[str, str]]:
    catalog = CatalogSettings(**settings)
    return [(one.namespace, one.name) for one in symlinks_of(catalog, ViewsSettings(), "app.orders")]


def test_the_symlink_of_a_catalog_is_the_one_that_its_other_users_give() -> None:
    assert in_catalog(type="rest", uri="http://catalog:8181/v1") == [("http://catalog:8181/v1", "app.orders")]
    assert in_catalog(type="hive", uri="thrift://h1:9083,thrift://h2:9083") == [
        ("hive://h1:9083", "app.orders")
    ]
    assert in_catalog(type="glue", properties={"glue.region": "eu-west-1", "glue.id": "123"}) == [
        ("arn:aws:glue:eu-west-1:123", "table/app/orders")
    ]
    assert in_catalog(type="glue") == [], "of which account nobody knows"


def test_the_symlink_of_a_database_has_neither_driver_nor_password() -> None:
    uri = "postgresql+psycopg://me:hunter22@db:5432/catalog?sslpassword=hunter22"
    assert in_catalog(uri=uri, warehouse="w") == [("postgresql://db:5432/catalog", "app.orders")]
    assert address_of("sqlite:////lake/catalog.db") == "sqlite:////lake/catalog.db"


@pytest.mark.parametrize(
    ("url", "namespace"),
    [
        ("http://trino:8080", "trino://trino:8080"),
        ("https://trino.corp", "trino://trino.corp:443"),
        ("http://[::1]:8080/", "trino://[::1]:8080"),
    ],
)
def test_a_table_with_views_has_its_name_in_trino_too(url: str, namespace: str) -> None:
    views = ViewsSettings(enabled=True, url=url, lake="iceberg")
    catalog = CatalogSettings(type="rest", uri="http://catalog")
    assert list(symlinks_of(catalog, views, "app.orders")) == [
        DatasetName("http://catalog", "app.orders"),
        DatasetName(namespace, "iceberg.app.orders"),
    ]
