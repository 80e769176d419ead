"""Another program drops a column: ingest and reads stop with a name, and `table alter` gives it back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.brokers import Brokers
from thermocline import cli
from thermocline.dev.broker import LocalKafka
from thermocline.iceberg.catalog import open_table
from thermocline.settings import load_settings

CONFIG = """
[kafka]
bootstrap_servers = "{servers}"
[catalog]
uri = "sqlite:///catalog.db"
warehouse = "warehouse"
[ingest]
engine = "local"
[tables.notes]
identifier = "app.notes"
topics = ["notes"]
key = ["k"]
key_format = "string"
buckets = 1
format_version = 2
[tables.notes.columns]
k = "string"
v = "string"
n = "long"
"""


@pytest.fixture(scope="module")
def kafka(brokers: Brokers) -> Iterator[LocalKafka]:
    with brokers.lent() as kafka:
        kafka.create_topic("notes", 1)
        yield kafka


def test_a_column_that_another_program_dropped_stops_everything_until_it_is_given_back(
    kafka: LocalKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "thermocline.toml"
    file.write_text(CONFIG.format(servers=kafka.bootstrap_servers))
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})

    def send(key: str, value: dict[str, object]) -> None:
        producer.produce("notes", key=key, value=json.dumps(value))
        producer.flush()

    def run(*arguments: str) -> tuple[int, str]:
        code = cli.run(["--config", str(file), *arguments])
        captured = capsys.readouterr()
        return int(code), captured.out + captured.err

    assert run("table", "create", "notes")[0] == 0
    send("a", {"v": "x", "n": 1})
    assert run("ingest", "run", "notes", "--once")[0] == 0
    with open_table(load_settings(file), "notes").update_schema() as update:
        update.delete_column("n")
    send("b", {"v": "y", "n": 2})
    for command in (["ingest", "run", "notes", "--once"], ["lookup", "notes", "k=b"]):
        code, said = run(*command)
        assert code == 40, said
        assert "[foreign-schema]" in said
        assert "n (long) was dropped" in said
        assert "table alter notes      (gives the table its columns back)" in said
    code, said = run("verify", "notes")
    assert code == 1, said
    assert "schema-foreign" in said

    code, said = run("table", "alter", "notes", "--yes")
    assert (code, "undone: n (long) was dropped" in said) == (0, True), said
    assert run("ingest", "run", "notes", "--once")[0] == 0
    code, said = run("extract", "notes", "--format", "jsonl")
    rows = [json.loads(line) for line in said.splitlines() if line.startswith('{"k"')]
    assert sorted(rows, key=lambda row: row["k"]) == [
        {"k": "a", "v": "x", "n": 1},
        {"k": "b", "v": "y", "n": 2},
    ]
    assert run("verify", "notes")[0] == 0
