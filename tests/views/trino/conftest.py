"""A Trino beside a broker, on a catalog in SQLite: with the files of `views config`, and without Spark.

It is for tables that tests commit to by themselves; `tests.views.stacked` has those of a real ingest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trino.dbapi
from pyiceberg.catalog import Catalog

from thermocline.dev.broker import LocalKafka
from thermocline.dev.trino import LocalTrino
from thermocline.iceberg.catalog import open_catalog
from thermocline.settings import CatalogSettings, KafkaSettings, Settings, TableSettings
from thermocline.views.access import Names
from thermocline.views.config import kafka_properties, trino_files, write_files
from thermocline.views.topics import description, table_name

NAMESPACE = "app"
ADMIN = "admin"
ANALYST = "ana"
NAMES = Names(admin=ADMIN)

COLUMNS: dict[str, Any] = {
    "app_id": "int",
    "user_id": "string",
    "key": "string",
    "value": "string",
    "updated_at": "timestamptz",
}
TABLES = {
    "profiles": TableSettings(
        identifier="app.profiles", topics=("profiles",), key=("app_id", "user_id", "key"), columns=COLUMNS
    ),
    "odd": TableSettings(
        identifier="app.odd", topics=("Odd.topic-1", "absent"), key=("app_id",), columns=COLUMNS
    ),
}
"""The tables that the files are made for. Only the topic `absent` does not exist."""


@dataclass(frozen=True, slots=True)
class TrinoSite:
    """The parts that the tests of views share."""

    kafka: LocalKafka
    trino: LocalTrino
    settings: Settings
    catalog: Catalog

    def query(self, sql: str, user: str = NAMES.publisher, **options: Any) -> list[tuple[Any, ...]]:
        """The rows that a query gives to this user."""
        connection = trino.dbapi.connect(host=self.trino.host, port=self.trino.port, user=user, **options)
        with closing(connection), closing(connection.cursor()) as cursor:
            cursor.execute(sql)
            return [tuple(row) for row in cursor.fetchall()]

    def kafka_catalog(self, name: str, topics: Sequence[str]) -> None:
        """Adds a Kafka catalog for topics that come up in a test; `admin` alone may use it."""
        folder = self.trino.configuration / name
        folder.mkdir()
        for topic in topics:
            (folder / f"{table_name(topic)}.json").write_text(description(topic))
        self.add_catalog(name, kafka_properties(self.kafka.bootstrap_servers, topics, str(folder)))

    def add_catalog(self, name: str, properties: Mapping[str, str]) -> None:
        """Adds a catalog until the end of the session; `admin` alone may use it."""
        connector = properties["connector.name"]
        rest = {key: value for key, value in properties.items() if key != "connector.name"}
        listed = ", ".join(f""" "{key}" = '{value}'""" for key, value in rest.items())
        self.query(f"CREATE CATALOG {name} USING {connector} WITH ({listed})", user=ADMIN)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrinoSite]:
    folder: Path = tmp_path_factory.mktemp("trino")
    with LocalKafka(folder / "kafka") as kafka:
        settings = Settings(
            kafka=KafkaSettings(bootstrap_servers=kafka.bootstrap_servers),
            catalog=CatalogSettings(
                uri=f"sqlite:///{folder / 'catalog.db'}", warehouse=str(folder / "warehouse")
            ),
            tables=TABLES,
        )
        for topic in ("profiles", "Odd.topic-1"):
            kafka.create_topic(topic, 2, {"message.timestamp.type": "LogAppendTime"})
        # Trino does not make the database: whoever makes the first table does.
        catalog = open_catalog(settings.catalog, may_create=True)
        catalog.create_namespace(NAMESPACE)
        server = LocalTrino(folder / "trino")
        write_files(trino_files(settings, NAMES), server.configuration)
        with server:
            yield TrinoSite(kafka, server, settings, catalog)
