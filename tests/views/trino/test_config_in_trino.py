"""Trino starts with the files of `views config` as they are, and they do what they say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from trino.exceptions import TrinoUserError

from tests.transactions import wait_for_markers
from tests.views.trino.conftest import ADMIN, ANALYST, NAMES, TrinoSite
from thermocline.kafka.log import Log
from thermocline.settings import CatalogSettings
from thermocline.views.lake import lake_properties
from thermocline.views.topics import table_name

pytestmark = [pytest.mark.trino, pytest.mark.full]

VIEW = "lake.app.profiles_live"
TIMEOUT_SECONDS = 30.0

S3 = {
    "s3.endpoint": "http://127.0.0.1:1",
    "s3.region": "eu-west-1",
    "s3.access-key-id": "id",
    "s3.secret-access-key": "secret",
}
POSTGRESQL = {"type": "sql", "uri": "postgresql://me:secret@127.0.0.1:1/db", "warehouse": "s3://b/w"}
HIVE = {"type": "hive", "uri": "thrift://127.0.0.1:1"}
PROPERTIES = {
    "s3": S3,
    "rest": {
        **S3,
        "credential": "id:secret",
        "oauth2-server-uri": "http://127.0.0.1:1/t",
        "scope": "PRINCIPAL_ROLE:ALL",
    },
    "glue": {
        "glue.region": "eu-west-1",
        "glue.endpoint": "http://127.0.0.1:1",
        "glue.id": "123456789012",
        "glue.access-key-id": "id",
        "glue.secret-access-key": "secret",
        **S3,
    },
    "gcs": {"gcs.project-id": "p", "gcs.service.host": "http://127.0.0.1:1"},
    "azure": {"adls.account-name": "a", "adls.account-key": "c2VjcmV0"},
}


@pytest.fixture(scope="module")
def view(site: TrinoSite) -> Iterator[str]:
    """A view on a table and a topic, made by the publisher; the table has one row, the topic two records."""
    site.query("CREATE TABLE lake.app.profiles (a int) WITH (format_version = 2)", user=ADMIN)
    site.query("INSERT INTO lake.app.profiles VALUES 1", user=ADMIN)
    produce(site, "profiles", [b"2", None])
    site.query(
        f"CREATE OR REPLACE VIEW {VIEW} SECURITY DEFINER AS SELECT a FROM lake.app.profiles UNION ALL "
        "SELECT CAST(_message_length AS integer) FROM kafka.default.profiles"
    )
    yield VIEW
    site.query(f"DROP VIEW {VIEW}")
    site.query("DROP TABLE lake.app.profiles", user=ADMIN)


def produce(site: TrinoSite, topic: str, values: list[bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": site.kafka.bootstrap_servers})
    for value in values:
        producer.produce(topic, key=b"k", value=value, partition=0)
    assert producer.flush(TIMEOUT_SECONDS) == 0


def refused(site: TrinoSite, sql: str, user: str) -> str:
    with pytest.raises(TrinoUserError) as caught:
        site.query(sql, user=user)
    return str(caught.value.message)


def test_an_analyst_reads_the_view(site: TrinoSite, view: str) -> None:
    assert sorted(site.query(f"SELECT a FROM {view}", user=ANALYST)) == [(0,), (1,), (1,)]


def test_time_travel_is_done_by_tables_and_ignored_on_views(site: TrinoSite, view: str) -> None:
    """Goal: what docs/views.md says of Trino is so; if a newer Trino refuses or does it, the page changes."""
    (before,) = site.query('SELECT snapshot_id FROM lake.app."profiles$snapshots"', ADMIN)[-1]
    site.query("INSERT INTO lake.app.profiles VALUES 7", user=ADMIN)
    try:
        rows = f"SELECT a FROM lake.app.profiles FOR VERSION AS OF {before}"
        assert site.query(rows, user=ADMIN) == [(1,)]
        for clause in (f"VERSION AS OF {before}", "TIMESTAMP AS OF TIMESTAMP '1999-01-01 00:00:00'"):
            found = site.query(f"SELECT a FROM {view} FOR {clause}", user=ANALYST)
            assert sorted(found) == [(0,), (1,), (1,), (7,)], clause
    finally:
        site.query("DELETE FROM lake.app.profiles WHERE a = 7", user=ADMIN)


def test_an_analyst_does_not_even_see_kafka(site: TrinoSite, view: str) -> None:
    assert site.query("SHOW CATALOGS", user=ANALYST) == [("lake",), ("system",)]
    assert "Access Denied" in refused(site, "SELECT count(*) FROM kafka.default.profiles", ANALYST)
    assert "Access Denied" in refused(site, "SHOW SCHEMAS FROM kafka", ANALYST)


def test_an_analyst_sees_the_view_and_not_the_table_below(site: TrinoSite, view: str) -> None:
    """Whoever reads the table sees past a row filter of its views."""
    assert site.query("SHOW TABLES FROM lake.app", user=ANALYST) == [("profiles_live",)]
    assert "Access Denied" in refused(site, "SELECT a FROM lake.app.profiles", ANALYST)
    assert "Access Denied" in refused(site, 'SELECT * FROM lake.app."profiles$files"', ANALYST)


@pytest.mark.parametrize(
    "sql",
    [
        f"CREATE OR REPLACE VIEW {VIEW} AS SELECT 1 AS a",
        f"DROP VIEW {VIEW}",
        "CREATE TABLE lake.app.mine (a int)",
        "CREATE VIEW lake.app.profiles_at_1 AS SELECT 1 AS a",
        "CREATE SCHEMA lake.mine",
    ],
)
def test_an_analyst_changes_nothing(site: TrinoSite, view: str, sql: str) -> None:
    assert "Access Denied" in refused(site, sql, ANALYST)


def test_the_publisher_does_not_write_to_a_table(site: TrinoSite, view: str) -> None:
    """Trino 476 takes an INSERT into a table of format version 3, whose rows it does not number."""
    assert "Access Denied" in refused(site, "INSERT INTO lake.app.profiles VALUES 2", NAMES.publisher)
    assert "Access Denied" in refused(site, "DELETE FROM lake.app.profiles", NAMES.publisher)
    assert "Access Denied" in refused(site, "DROP TABLE lake.app.profiles", NAMES.publisher)


def test_the_publisher_reads_snapshots_and_comments(site: TrinoSite, view: str) -> None:
    assert site.query('SELECT count(*) FROM lake.app."profiles$snapshots"')[0][0] > 0
    comments = "SELECT comment FROM system.metadata.table_comments WHERE catalog_name = 'lake'"
    assert len(site.query(comments + " AND table_name = 'profiles_live'")) == 1


def test_a_topic_of_any_name_is_a_table_of_that_topic(site: TrinoSite) -> None:
    produce(site, "Odd.topic-1", [b"here"])
    table = f"kafka.default.{table_name('Odd.topic-1')}"
    assert site.query(f"SELECT _message FROM {table}") == [("here",)]


def test_key_and_value_come_as_text_and_a_tombstone_as_null_of_no_length(site: TrinoSite, view: str) -> None:
    columns = "_partition_id, _partition_offset, _key, _message, _message_length"
    found = site.query(f"SELECT {columns} FROM kafka.default.profiles ORDER BY 2")
    assert found == [(0, 0, "k", "2", 1), (0, 1, "k", None, 0)]


def test_records_of_an_aborted_transaction_are_not_seen(site: TrinoSite) -> None:
    site.kafka.create_topic("aborted", 1)
    site.kafka_catalog("kafka_aborted", ["aborted"])
    producer = Producer({"bootstrap.servers": site.kafka.bootstrap_servers, "transactional.id": "aborted"})
    producer.init_transactions(TIMEOUT_SECONDS)
    for value, end in ((b"aborted", producer.abort_transaction), (b"kept", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce("aborted", value=value)
        producer.flush(TIMEOUT_SECONDS)
        end(TIMEOUT_SECONDS)
    wait_for_markers(Log(site.settings.kafka), ["aborted"])
    found = site.query("SELECT _message FROM kafka_aborted.default.aborted", user=ADMIN)
    assert found == [("kept",)]


def test_a_topic_that_does_not_exist_is_no_other_ones_table(site: TrinoSite) -> None:
    assert site.query("SELECT count(*) FROM kafka.default.absent") == [(0,)]


def test_a_topic_that_no_table_is_made_of_is_refused_by_name(site: TrinoSite) -> None:
    assert "kafka.default.nobody" in refused(site, "SELECT 1 FROM kafka.default.nobody", NAMES.publisher)


def session_of(site: TrinoSite, user: str, **options: Any) -> dict[str, str]:
    return {name: value for name, value, *_ in site.query("SHOW SESSION", user=user, **options)}


def test_the_tag_of_live_queries_changes_their_join(site: TrinoSite) -> None:
    assert session_of(site, ANALYST)["join_distribution_type"] == "AUTOMATIC"
    tagged = session_of(site, ANALYST, client_tags=["live"])
    assert (tagged["join_distribution_type"], tagged["join_reordering_strategy"]) == ("BROADCAST", "NONE")


def test_analysts_have_a_group_each_and_the_publisher_its_own(site: TrinoSite) -> None:
    site.query("SELECT 1", user=ANALYST)
    groups = site.query(
        "SELECT DISTINCT \"user\", array_join(resource_group_id, '.') FROM system.runtime.queries",
        user=ADMIN,
    )
    assert (ANALYST, f"analysts.{ANALYST}") in groups
    assert (NAMES.publisher, "publisher") in groups


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (
            "postgresql",
            {**POSTGRESQL, "properties": "s3"},
        ),
        ("rest", {"type": "rest", "uri": "http://127.0.0.1:1", "warehouse": "w", "properties": "rest"}),
        ("glue", {"type": "glue", "warehouse": "s3://b/w", "properties": "glue"}),
        ("hive", {**HIVE, "warehouse": "s3://b/w", "properties": "s3"}),
        ("gcs", {**HIVE, "warehouse": "gs://b/w", "properties": "gcs"}),
        ("azure", {**HIVE, "warehouse": "abfss://b/w", "properties": "azure"}),
    ],
)
def test_trino_takes_every_property_of_a_catalog(
    site: TrinoSite, kind: str, settings: dict[str, str]
) -> None:
    """Goal: no name is misspelt. Method: Trino refuses a catalog with a property that it does not know."""
    properties = PROPERTIES.get(settings.pop("properties", ""), {})
    translation = lake_properties(CatalogSettings(**settings, properties=properties), "lake")  # type: ignore[arg-type]
    plain = {name: translation.secrets.get(value[6:-1], value) for name, value in translation.plain.items()}
    site.add_catalog(f"lake_{kind}", plain)
    assert not translation.left_out
