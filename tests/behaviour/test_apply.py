"""Tables made as a file says, on real parts: from a schema, and then by `apply` as the file changes.

Method: real commands on a real broker, in one process; a registry in this process; the expected rows by hand.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer

from tests.brokers import Brokers
from tests.thermocline.registry_server import RegistryServer
from thermocline import cli
from thermocline.dev.broker import LocalKafka
from thermocline.errors import ExitCode

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "order_id", "type": "long", "doc": "its number"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "buyer",
            "type": {
                "type": "record",
                "name": "Buyer",
                "fields": [{"name": "mail", "type": ["null", "string"]}, {"name": "points", "type": "int"}],
            },
        },
    ],
}
KEY = {"type": "record", "name": "OrderKey", "fields": [{"name": "order_id", "type": "long"}]}
SECOND = {**ORDER, "fields": [*ORDER["fields"], {"name": "country", "type": "string", "default": "none"}]}
FILE = """\
[kafka]
bootstrap_servers = "{kafka}"
[registry]
url = "{registry}"
[catalog]
uri = "sqlite:///catalog.db"
warehouse = "warehouse"
[ingest]
engine = "local"
"""
VISITS = """
[tables.visits]
identifier = "app.visits"
topics = ["visits"]
key = ["id"]
key_format = "string"
buckets = 2

[tables.visits.columns]
id = "string"
count = "long"
"""
Run = Callable[..., tuple[int, Any, str]]


@pytest.fixture(scope="module")
def kafka(brokers: Brokers) -> Iterator[LocalKafka]:
    with brokers.lent() as kafka:
        yield kafka


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer().running() as registry:
        for id_, schema in ((3, KEY), (4, ORDER), (5, SECOND)):
            registry.add(id_, schema)
        registry.schemas["/subjects/orders-key/versions/latest"] = {"id": 3}
        registry.schemas["/subjects/orders-value/versions/latest"] = {"id": 4}
        yield registry


@pytest.fixture
def file(tmp_path: Path, kafka: LocalKafka, registry: RegistryServer) -> Path:
    path = tmp_path / "thermocline.toml"
    path.write_text(FILE.format(kafka=kafka.bootstrap_servers, registry=registry.url))
    return path


@pytest.fixture
def run(file: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], jvm: Any) -> Run:
    """Runs a command in the folder of the file; exit code, JSON document and stderr."""
    monkeypatch.chdir(file.parent)

    def run(*words: str) -> tuple[int, Any, str]:
        code = cli.run([*words, "--json"])
        out, err = capfd.readouterr()
        return int(code), json.loads(out) if out else None, err

    return run


def produce(kafka: LocalKafka, topic: str, records: Sequence[tuple[bytes, bytes]]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    for key, value in records:
        producer.produce(topic, value, key)
    assert producer.flush(30) == 0


def avro(id_: int, schema: Any, row: Mapping[str, Any]) -> bytes:
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, schema, dict(row))
    return b"\x00" + id_.to_bytes(4) + sink.getvalue()


def looked_up(run: Run, name: str, *key: str) -> list[dict[str, Any]]:
    code, _, err = run("ingest", "run", name, "--once")
    assert code in (0, ExitCode.NOTHING_TO_DO), err
    rows: list[dict[str, Any]] = run("lookup", name, *key)[1]["rows"]
    return rows


def test_a_table_from_a_schema_is_then_changed_and_joined_by_applying_the_file(
    kafka: LocalKafka, run: Run, file: Path, registry: RegistryServer
) -> None:
    for topic in ("orders", "visits"):
        kafka.create_topic(topic, 2)
    proposed = run("init", "--topic", "orders", "--dry-run")[1]["text"]
    code, made, err = run("table", "create", "orders", "--from-schema", "orders-value", "--yes")
    assert code == ExitCode.DONE, err
    assert (made["written"], made["key"]) == (True, ["order_id"])
    ours, theirs = (
        [line.partition(" # ")[0].rstrip() for line in text.splitlines() if not line.startswith("#")]
        for text in (made["text"], proposed)
    )
    assert ours == theirs, "the definition is the one that init proposes"
    assert 'buyer = "struct<mail: string, points: int>"' in ours
    row = {"order_id": 7, "at": 1_000, "buyer": {"mail": None, "points": 3}}
    produce(kafka, "orders", [(avro(3, KEY, {"order_id": 7}), avro(4, ORDER, row))])
    first = {"order_id": 7, "at": "1970-01-01T00:00:01Z", "buyer": {"mail": None, "points": 3}}
    assert looked_up(run, "orders", "order_id=7") == [first]
    assert run("table", "diff")[0] == ExitCode.DONE

    # The file gets a column, and another table.
    text = file.read_text()
    assert text.endswith("\n")
    file.write_text(f'{text}country = "string"\n{VISITS}')
    code, differences, _ = run("table", "diff")
    assert code == ExitCode.BAD_ANSWER
    assert [(one["table"], one["exists"]) for one in differences] == [("orders", True), ("visits", False)]
    assert [one["of"] for one in differences[0]["differences"]] == ["column country"]
    code, plan, err = run("apply", "--dry-run")
    assert code == ExitCode.DONE, err
    code, done, err = run("apply", "--yes")
    assert code == ExitCode.DONE, err
    assert [(one["action"], one["done"]) for one in done["tables"]] == [("alter", True), ("create", True)]
    assert [one["changes"] for one in done["tables"]] == [one["changes"] for one in plan["tables"]]
    assert done["tables"][1]["changes"] == [
        "columns: id string, count long",
        "key: id",
        "partitions: 2 buckets by id, format version 3",
        "reads visits from earliest",
    ]
    assert run("table", "diff")[0] == ExitCode.DONE
    code, again, _ = run("apply", "--yes")
    assert (code, {one["action"] for one in again["tables"]}) == (ExitCode.DONE, {"nothing"})

    # Both are read, old rows with null in the new column.
    later = {**row, "order_id": 8, "country": "NL"}
    produce(kafka, "orders", [(avro(3, KEY, {"order_id": 8}), avro(5, SECOND, later))])
    produce(kafka, "visits", [(b"ann", b'{"count":4}')])
    assert looked_up(run, "orders", "order_id=8") == [{**first, "order_id": 8, "country": "NL"}]
    assert looked_up(run, "orders", "order_id=7") == [{**first, "country": None}]
    assert looked_up(run, "visits", "id=ann") == [{"id": "ann", "count": 4}]

    # A table that the file forgets stays, with its rows.
    with_both = file.read_text()
    file.write_text(text + 'country = "string"\n')
    assert run("apply", "--yes")[0] == ExitCode.DONE
    file.write_text(with_both)
    assert looked_up(run, "visits", "id=ann") == [{"id": "ann", "count": 4}]


def test_a_table_without_its_topic_writes_nothing(run: Run, file: Path, tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    before = file.read_text()
    words = ("--from-schema", "order.avsc", "--topic", "not-there", "--key", "order_id", "--yes")
    code, _, err = run("table", "create", "orders", *words)
    assert (code, json.loads(err.splitlines()[-1])["code"]) == (ExitCode.USAGE, "topic-missing")
    assert file.read_text() == before
    assert not (tmp_path / "catalog.db").exists()
