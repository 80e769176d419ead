"""Avro on real parts: a topic whose schema changes midway, and a registry that is unavailable at first.

Goal: ingest, tailer, lookups, extracts, replay and verify read each record by the schema of its writer, and
while that can't be asked for, they wait: nothing is quarantined, nothing is guessed. Method: real commands on
a real broker, and a registry in this process that speaks Confluent's protocol.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from typing import Any

import fastavro
import httpx
import pyarrow as pa
import pytest
from confluent_kafka import Producer

from tests.brokers import Brokers
from tests.thermocline.registry_server import RegistryServer
from thermocline.cli import entry
from thermocline.dev.stack import Stack, StackOptions
from thermocline.errors import ExitCode, RegistryUnreachable
from thermocline.iceberg.catalog import current_state, load_table, open_catalog
from thermocline.ingest.owner.owner import Owner
from thermocline.process.clock import SystemClock
from thermocline.rules.decode.framing import KEY_HEADER, VALUE_HEADER
from thermocline.schemas import registry as schema_registry
from thermocline.serving.read import private
from thermocline.settings import load_settings

NAME = "readings"
SECTION = f"""
[registry]
url = "URL"

[tables.{NAME}]
identifier = "app.{NAME}"
topics = ["{NAME}"]
format = "avro"
key = ["sensor"]
buckets = 2

[tables.{NAME}.columns]
sensor = "string"
degrees = "double"
at = "timestamptz"
place = {{ type = "string", path = "site.name" }}
tags = "json"
"""
MOMENT = {"type": "long", "logicalType": "timestamp-millis"}
SITE = {"type": "record", "name": "Site", "fields": [{"name": "name", "type": "string"}]}
SCHEMAS: dict[int, Any] = {
    1: {"type": "string"},  # of keys
    2: {
        "type": "record",
        "name": "Reading",
        "fields": [{"name": "degrees", "type": "float"}, {"name": "at", "type": MOMENT}],
    },
    3: {
        "type": "record",
        "name": "Reading",
        "fields": [
            {"name": "site", "type": ["null", SITE]},
            {"name": "at", "type": MOMENT},
            {"name": "degrees", "type": ["null", "double"]},
            {"name": "tags", "type": {"type": "map", "values": "int"}},
        ],
    },
    9: {"type": "record", "name": "Reading", "fields": [{"name": "degrees", "type": "double"}]},
}
FIRST = [("a", 2, {"degrees": 1.5, "at": 0}), ("b", 2, {"degrees": 2.5, "at": 1_000})]
SECOND = [
    ("b", 3, {"site": {"name": "roof"}, "at": 2_000, "degrees": -3.25, "tags": {"y": 1, "x": 2}}),
    ("c", 3, {"site": None, "at": 3_000, "degrees": None, "tags": {}}),
    ("d", 9, {"degrees": 9.0}),  # which is not registered yet
    ("e", 2, {"degrees": 5.0, "at": 4_000}),
    ("a", 0, None),
    ("f", 9, {"degrees": 9.0}),  # nor is this, and then its row is deleted
    ("f", 0, None),
]
HEADERS = (KEY_HEADER, VALUE_HEADER)
IN_HEADERS = "f"  # its records name their schemas there
EXPECTED = {
    "b": (-3.25, "1970-01-01T00:00:02Z", "roof", '{"x":2,"y":1}'),
    "c": (None, "1970-01-01T00:00:03Z", None, "{}"),
    "e": (5.0, "1970-01-01T00:00:04Z", None, None),
}
REPLAYED = EXPECTED | {"d": (9.0, None, None, None)}
Rows = dict[str, tuple[Any, ...]]


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer().running() as registry:
        for number in (1, 2, 3):
            registry.add(number, SCHEMAS[number])
        yield registry


@pytest.fixture
def stack(tmp_path: Any, jvm: Any, brokers: Brokers, registry: RegistryServer) -> Iterator[Stack]:
    with (
        brokers.lent() as kafka,
        Stack(tmp_path, StackOptions(catalog="avro", engine="local", kafka=kafka)) as stack,
    ):
        base = stack.config_path.read_text().partition("[tables.")[0]
        stack.config_path.write_text(base + SECTION.replace("URL", registry.url))
        stack.settings = load_settings(stack.config_path)
        kafka.create_topic(NAME, 1)
        yield stack


@pytest.mark.full
def test_records_are_read_by_their_writers_schemas_and_held_back_while_these_are_unknown(
    stack: Stack, registry: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_registry, "UNKNOWN_SECONDS", 0.0)  # the replay asks again at once
    assert run(stack, "table", "create", NAME) == 0
    registry.stop()
    write(stack, FIRST)
    write(stack, SECOND)
    server = stack.serve()
    nothing_is_read_while_the_registry_is_away(stack)

    registry.start()
    stack.wait_until_ready(server)
    assert looked_up(stack) == extracted(stack) == EXPECTED
    ingest(stack)
    assert quarantined(stack) == ["the schema registry knows no schema 9"] * 2
    assert looked_up(stack) == extracted(stack) == EXPECTED
    assert run(stack, "verify", NAME) == 0

    registry.add(9, SCHEMAS[9])
    assert run(stack, "quarantine", "replay", NAME, "--all") == 0
    assert quarantined(stack) == []
    assert extracted(stack) == REPLAYED
    assert run(stack, "verify", NAME) == 0


def nothing_is_read_while_the_registry_is_away(stack: Stack) -> None:
    before = current_state(table(stack), NAME)
    with pytest.raises(RegistryUnreachable):
        ingest(stack)
    with pytest.raises(RegistryUnreachable):
        extracted(stack)
    assert run(stack, "ingest", "run", NAME, "--once") == ExitCode.UNAVAILABLE
    after = current_state(table(stack), NAME)
    assert (after.seam, dict(after.totals)) == (before.seam, dict(before.totals))
    assert quarantined(stack) == []

    def is_held() -> bool:
        status = stack.get("/status")[1].get("tables", {}).get(NAME, {})
        return RegistryUnreachable.code in str(status)

    stack.wait_for(is_held, "the tailer says what it waits for")


def write(stack: Stack, records: list[tuple[str, int, Any]]) -> None:
    producer = Producer({**stack.settings.kafka.client_config(), "linger.ms": 0, "log_level": 0})
    for sensor, schema, value in records:
        parts = [framed(1, sensor), None if value is None else framed(schema, value)]
        headers: list[tuple[str, str | bytes | None]] = []
        if sensor == IN_HEADERS:
            headers = [(name, part and part[:5]) for name, part in zip(HEADERS, parts, strict=True)]
            parts = [part and part[5:] for part in parts]
        producer.produce(NAME, parts[1], parts[0], headers=headers)
    assert producer.flush(30) == 0


def framed(number: int, value: Any) -> bytes:
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, fastavro.parse_schema(SCHEMAS[number]), value)
    return b"\x00" + number.to_bytes(4) + sink.getvalue()


def run(stack: Stack, *arguments: str) -> int:
    return entry.run(["--config", str(stack.config_path), *arguments])


def ingest(stack: Stack) -> None:
    owner = Owner.open(stack.settings, NAME, SystemClock())
    try:
        owner.catch_up(threading.Event())
    finally:
        owner.close()


def table(stack: Stack) -> Any:
    return load_table(open_catalog(stack.settings.catalog), NAME, f"app.{NAME}")


def quarantined(stack: Stack) -> list[str]:
    kept = open_catalog(stack.settings.catalog).load_table(f"app.{NAME}_quarantine").scan().to_arrow()
    return [row["reason"] for row in kept.to_pylist()]


def looked_up(stack: Stack) -> Rows:
    answer = httpx.post(
        f"{stack.url}/v1/tables/{NAME}/rows:batch",
        json={"entities": [{"sensor": sensor} for sensor in "abcdef"]},
        headers={"Thermocline-Read-After": f"{NAME}/0@{len(FIRST) + len(SECOND) - 1}"},
        timeout=30,
    )
    assert answer.status_code == 200, answer.text
    rows = [row for result in answer.json()["results"] for row in result["rows"]]
    return {row["sensor"]: (row["degrees"], row["at"], row["place"], row["tags"]) for row in rows}


def extracted(stack: Stack) -> Rows:
    sink = io.BytesIO()
    private.extract(stack.settings, NAME, None, "arrow", sink, None, lambda _: None)
    rows = pa.ipc.open_stream(sink.getvalue()).read_all().to_pylist()
    return {
        row["sensor"]: (
            row["degrees"],
            row["at"] and row["at"].isoformat().replace("+00:00", "Z"),
            row["place"],
            row["tags"],
        )
        for row in rows
    }
