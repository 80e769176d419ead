"""Trino starts with the files of `views config` as they are, and they do what they say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from trino.exceptions import TrinoUserError

from tests.transactions import wait_for_markers
from tests.views.door.conftest import ADMIN, ANALYST, NAMES, Door
from thermocline.kafka.log import Log
from thermocline.settings import CatalogSettings
from views.lake import lake_properties
from views.topics import table_name

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
def view(door: Door) -> Iterator[str]:
    """A view on a table and a topic, made by the publisher; the table has one row, the topic two records."""
    door.query("CREATE TABLE lake.app.profiles (a int) WITH (format_version = 2)", user=ADMIN)
    door.query("INSERT INTO lake.app.profiles VALUES 1", user=ADMIN)
    produce(door, "profiles", [b"2", None])
    door.query(
        f"CREATE OR REPLACE VIEW {VIEW} SECURITY DEFINER AS SELECT a FROM lake.app.profiles UNION ALL "
        "SELECT CAST(_message_length AS integer) FROM kafka.default.profiles"
    )
    yield VIEW
    door.query(f"DROP VIEW {VIEW}")
    door.query("DROP TABLE lake.app.profiles", user=ADMIN)


def produce(door: Door, topic: str, values: list[bytes | None]) -> None:
    producer = Producer({"bootstrap.servers": door.kafka.bootstrap_servers})
    for value in values:
        producer.produce(topic, key=b"k", value=value, partition=0)
    assert producer.flush(TIMEOUT_SECONDS) == 0


def refused(door: Door, sql: str, user: str) -> str:
    with pytest.raises(TrinoUserError) as caught:
        door.query(sql, user=user)
    return str(caught.value.message)


def test_an_analyst_reads_the_view(door: Door, view: str) -> None:
    assert sorted(door.query(f"SELECT a FROM {view}", user=ANALYST)) == [(0,), (1,), (1,)]


def test_an_analyst_does_not_even_see_kafka(door: Door, view: str) -> None:
    assert door.query("SHOW CATALOGS", user=ANALYST) == [("lake",), ("system",)]
    assert "Access Denied" in refused(door, "SELECT count(*) FROM kafka.default.profiles", ANALYST)
    assert "Access Denied" in refused(door, "SHOW SCHEMAS FROM kafka", ANALYST)


def test_an_analyst_sees_the_view_and_not_the_table_below(door: Door, view: str) -> None:
    """Whoever reads the table sees past a row filter of its views."""
    assert door.query("SHOW TABLES FROM lake.app", user=ANALYST) == [("profiles_live",)]
    assert "Access Denied" in refused(door, "SELECT a FROM lake.app.profiles", ANALYST)
    assert "Access Denied" in refused(door, 'SELECT * FROM lake.app."profiles$files"', ANALYST)


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
def test_an_analyst_changes_nothing(door: Door, view: str, sql: str) -> None:
    assert "Access Denied" in refused(door, sql, ANALYST)


def test_the_publisher_does_not_write_to_a_table(door: Door, view: str) -> None:
    """Trino 476 takes an INSERT into a table of format version 3, whose rows it does not number."""
    assert "Access Denied" in refused(door, "INSERT INTO lake.app.profiles VALUES 2", NAMES.publisher)
    assert "Access Denied" in refused(door, "DELETE FROM lake.app.profiles", NAMES.publisher)
    assert "Access Denied" in refused(door, "DROP TABLE lake.app.profiles", NAMES.publisher)


def test_the_publisher_reads_snapshots_and_comments(door: Door, view: str) -> None:
    assert door.query('SELECT count(*) FROM lake.app."profiles$snapshots"')[0][0] > 0
    comments = "SELECT comment FROM system.metadata.table_comments WHERE catalog_name = 'lake'"
    assert len(door.query(comments + " AND table_name = 'profiles_live'")) == 1


def test_a_topic_of_any_name_is_a_table_of_that_topic(door: Door) -> None:
    produce(door, "Odd.topic-1", [b"here"])
    table = f"kafka.default.{table_name('Odd.topic-1')}"
    assert door.query(f"SELECT _message FROM {table}") == [("here",)]


def test_key_and_value_come_as_text_and_a_tombstone_as_null_of_no_length(door: Door, view: str) -> None:
    columns = "_partition_id, _partition_offset, _key, _message, _message_length"
    found = door.query(f"SELECT {columns} FROM kafka.default.profiles ORDER BY 2")
    assert found == [(0, 0, "k", "2", 1), (0, 1, "k", None, 0)]


def test_records_of_an_aborted_transaction_are_not_seen(door: Door) -> None:
    door.kafka.create_topic("aborted", 1)
    door.kafka_catalog("kafka_aborted", ["aborted"])
    producer = Producer({"bootstrap.servers": door.kafka.bootstrap_servers, "transactional.id": "aborted"})
    producer.init_transactions(TIMEOUT_SECONDS)
    for value, end in ((b"aborted", producer.abort_transaction), (b"kept", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce("aborted", value=value)
        producer.flush(TIMEOUT_SECONDS)
        end(TIMEOUT_SECONDS)
    wait_for_markers(Log(door.settings.kafka), ["aborted"])
    found = door.query("SELECT _message FROM kafka_aborted.default.aborted", user=ADMIN)
    assert found == [("kept",)]


def test_a_topic_that_does_not_exist_is_no_other_ones_table(door: Door) -> None:
    assert door.query("SELECT count(*) FROM kafka.default.absent") == [(0,)]


def test_a_topic_that_no_table_is_made_of_is_refused_by_name(door: Door) -> None:
    assert "kafka.default.nobody" in refused(door, "SELECT 1 FROM kafka.default.nobody", NAMES.publisher)


def session_of(door: Door, user: str, **options: Any) -> dict[str, str]:
    return {name: value for name, value, *_ in door.query("SHOW SESSION", user=user, **options)}


def test_the_tag_of_live_queries_changes_their_join(door: Door) -> None:
    assert session_of(door, ANALYST)["join_distribution_type"] == "AUTOMATIC"
    tagged = session_of(door, ANALYST, client_tags=["live"])
    assert (tagged["join_distribution_type"], tagged["join_reordering_strategy"]) == ("BROADCAST", "NONE")


def test_analysts_have_a_group_each_and_the_publisher_its_own(door: Door) -> None:
    door.query("SELECT 1", user=ANALYST)
    groups = door.query(
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
def test_trino_takes_every_property_of_a_catalog(door: Door, kind: str, settings: dict[str, str]) -> None:
    """Goal: no name is misspelt. Method: Trino refuses a catalog with a property that it does not know."""
    properties = PROPERTIES.get(settings.pop("properties", ""), {})
    translation = lake_properties(CatalogSettings(**settings, properties=properties), "lake")  # type: ignore[arg-type]
    plain = {name: translation.secrets.get(value[6:-1], value) for name, value in translation.plain.items()}
    door.add_catalog(f"lake_{kind}", plain)
    assert not translation.left_out
