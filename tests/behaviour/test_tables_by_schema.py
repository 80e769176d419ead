"""A topic with records of several types becomes a table for each, with the columns of the records' schemas.

Method: one broker, a registry in this process, and rows by hand; the file never changes. Tables are made by
ingest, and read by an extract, `verify` and PyIceberg.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from tests.brokers import Brokers
from tests.thermocline.registered import framed
from tests.thermocline.registry_server import RegistryServer
from tests.thermocline.test_avro import written
from thermocline.cli import entry
from thermocline.dev.stack import Stack, StackOptions
from thermocline.errors import ExitCode
from thermocline.iceberg.catalog import load_table, open_catalog
from thermocline.iceberg.routed_tables import directory_in, with_routed_tables
from thermocline.ingest.run import Ended, run
from thermocline.serving.read import private
from thermocline.settings import Settings, load_settings
from thermocline.settings.route import table_of_value

ROUTE = "events"
SECTION = """
[registry]
url = "URL"

[routes.events]
topics = ["events"]
by = { schema = "name" }
table = "app.events_{}"
format = "avro"
key_format = "string"
key = ["id"]
columns = "schema"
contract = "evolve"
buckets = 1
"""
TOTAL = {"name": "total", "type": "long", "doc": "in cents"}
MAIL = {"type": "record", "name": "Buyer", "fields": [{"name": "mail", "type": ["null", "string"]}]}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}


def record(name: str, *fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


SCHEMAS = {
    1: record("shop.Order", TOTAL, {"name": "buyer", "type": MAIL}),
    2: record("shop.Order", TOTAL, NOTE),
    3: record("shop.Line", {"name": "article", "type": "string"}),
    4: record("shop.Gone", {"name": "__deleted", "type": "string"}),
}
ORDER, LINE = table_of_value(ROUTE, "shop.Order"), table_of_value(ROUTE, "shop.Line")


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer().running() as server:
        for id_, schema in SCHEMAS.items():
            server.add(id_, schema)
        yield server


@contextmanager
def started(folder: Path, brokers: Brokers, registry: RegistryServer) -> Iterator[Stack]:
    with (
        brokers.lent() as kafka,
        Stack(folder, StackOptions(catalog="by_schema", engine="local", kafka=kafka)) as stack,
    ):
        base = stack.config_path.read_text().partition("[tables.")[0]
        stack.config_path.write_text(base + SECTION.replace("URL", registry.url))
        kafka.create_topic("events", 2)
        assert command(stack, "table", "create", ROUTE) == 0
        yield stack


def command(stack: Stack, *arguments: str) -> int:
    return entry.run(["--config", str(stack.config_path), *arguments])


def known(stack: Stack) -> Settings:
    return with_routed_tables(load_settings(stack.config_path))


def caught_up(stack: Stack) -> dict[str, Ended]:
    settings = known(stack)
    return {one.table: one for one in run(settings, tuple(settings.tables), True, threading.Event())}


def write(stack: Stack, *records: tuple[str, int, Any], partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": stack.kafka.bootstrap_servers, "log_level": 0})
    for key, id_, value in records:
        body = None if value is None else framed(id_, written(SCHEMAS[id_], value))
        producer.produce("events", body, key.encode(), partition=partition)
    assert producer.flush(30) == 0


def extracted(stack: Stack, name: str) -> list[dict[str, Any]]:
    sink = io.BytesIO()
    private.extract(known(stack), name, None, "arrow", sink, None, lambda _: None)
    rows = pa.ipc.open_stream(sink.getvalue()).read_all().to_pylist()
    return sorted(
        ({column: value for column, value in row.items() if not column.startswith("_")} for row in rows),
        key=lambda row: str(row["id"]),
    )


@pytest.mark.jvm
@pytest.mark.full
def test_each_type_gets_a_table_with_its_columns_and_goes_on_by_its_contract(
    tmp_path: Path, jvm: Any, brokers: Brokers, registry: RegistryServer
) -> None:
    with started(tmp_path, brokers, registry) as stack:
        # Two schemas of a type in one batch: the first in the log has a field that the second lacks.
        write(stack, ("o1", 1, {"total": 7, "buyer": {"mail": "a@b"}}), ("l1", 3, {"article": "pen"}))
        write(stack, ("g1", 4, {"__deleted": "false"}))
        write(stack, ("o2", 2, {"total": 8, "note": "x"}), partition=1)
        registry.status = 500
        assert caught_up(stack)[ROUTE].error.code == "registry-unreachable"  # type: ignore[union-attr]
        registry.status = 0
        ended = caught_up(stack)
        assert set(ended) == {ROUTE, ORDER, LINE}
        assert {name: one.error for name, one in ended.items() if one.error} == {}

        orders = [
            {"id": "o1", "total": 7, "buyer": {"mail": "a@b"}, "note": None},
            {"id": "o2", "total": 8, "buyer": None, "note": "x"},
        ]
        assert extracted(stack, ORDER) == orders
        assert extracted(stack, LINE) == [{"id": "l1", "article": "pen"}]
        catalog = open_catalog(known(stack).catalog)
        table = load_table(catalog, ORDER, known(stack).table(ORDER).identifier)
        assert {one.name: one.doc for one in table.schema().fields}["total"] == "in cents"
        assert table.scan().to_arrow().num_rows == 2
        directory = load_table(catalog, ROUTE, "app.events_directory")
        failed = directory_in(directory.properties, ROUTE).failed
        assert list(failed) == ["shop.Gone"]
        assert 'its schema has "__deleted"' in failed["shop.Gone"].reason

        # What is not committed yet is read by the table's own columns; a tombstone names no type.
        write(stack, ("l2", 3, {"article": "cup"}), ("l1", 3, None))
        assert extracted(stack, LINE) == [{"id": "l2", "article": "cup"}]
        assert {one.exit_code for one in caught_up(stack).values()} <= {ExitCode.DONE}
        for name in (ORDER, LINE):
            assert command(stack, "verify", name) == 0
            assert command(stack, "table", "diff", name) == 0, "the file names no column, and need not"
        assert command(stack, "apply", "--yes") == 0
