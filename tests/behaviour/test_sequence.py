"""Order by a column on real parts: events that come late lose, against rows, hot records and deletes.

Goal: whatever is committed already, lookups, extracts and verify show what a dict does that keeps the highest
sequence of each key. Method: random events over few keys, of any sequence and in any partition, in rounds;
after some of them ingest commits.
"""

from __future__ import annotations

import io
import json
import random
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest
from confluent_kafka import Producer

from embedded.stack import Stack
from ingest.owner import Owner
from serving import private
from thermocline.cli import entry
from thermocline.errors import ExitCode
from thermocline.iceberg.catalog import current_state, load_table, open_catalog
from thermocline.process.clock import SystemClock
from thermocline.settings import load_settings

TABLES = ("prices", "articles")
SECTION = """
[tables.{name}]
identifier = "app.{topic}"
topics = ["{topic}"]
key = ["id"]
buckets = 2
{choices}

[tables.{name}.columns]
id = "string"
text = "string"
{columns}
"""
PLAIN = """delete_when = { path = "op", values = ["D"] }
sequence_by = ["version"]
suppress_unchanged = true"""
PLAIN_COLUMNS = 'version = "long"'
DEBEZIUM = """envelope = "debezium"
format_version = 2
sequence_by = ["file", "version"]"""
DEBEZIUM_COLUMNS = """
file = { type = "string", event = "source.file" }
version = { type = "long", event = "source.pos" }
"""
SECTIONS = (
    SECTION.format(name="prices", topic="prices", choices=PLAIN, columns=PLAIN_COLUMNS),
    SECTION.format(name="articles", topic="articles", choices=DEBEZIUM, columns=DEBEZIUM_COLUMNS),
)
KEYS = [f"k{number}" for number in range(8)]
Row = dict[str, Any]


class Told:
    """A table, its topic of two partitions, and what a dict says of the events."""

    def __init__(self, stack: Stack, name: str) -> None:
        self.stack, self.name = stack, name
        self.states: dict[str, tuple[int, Row | None]] = {}
        self.ends = [0, 0]

    @property
    def rows(self) -> dict[str, Row]:
        return {key: row for key, (_, row) in self.states.items() if row is not None}

    def write(self, chance: random.Random, count: int) -> None:
        producer = Producer({**self.stack.settings.kafka.client_config(), "linger.ms": 0, "log_level": 0})
        for _ in range(count):
            key, partition = chance.choice(KEYS), chance.randrange(2)
            # Of one sequence are only events of one partition.
            version = 2 * chance.randrange(60) + partition
            text = None if chance.random() < 0.35 else chance.choice(["one", "two"])
            value = self._value(key, version, text)
            producer.produce(self.name, value, json.dumps({"id": key}).encode(), partition=partition)
            self.ends[partition] += 1
            if version >= self.states.get(key, (-1, None))[0]:
                self.states[key] = (version, self._row(key, version, text))
        assert producer.flush(30) == 0

    def _value(self, key: str, version: int, text: str | None) -> bytes:
        if self.name == "prices":
            fields = {"version": version} | ({"op": "D"} if text is None else {"text": text})
            return json.dumps(fields).encode()
        source = {"file": f"binlog.{version // 50:06}", "pos": version % 50}
        after = None if text is None else {"id": key, "text": text}
        event = {"op": "d" if text is None else "u", "before": None, "after": after, "source": source}
        return json.dumps(event).encode()

    def _row(self, key: str, version: int, text: str | None) -> Row | None:
        if text is None:
            return None
        if self.name == "prices":
            return {"id": key, "text": text, "version": version}
        return {"id": key, "text": text, "file": f"binlog.{version // 50:06}", "version": version % 50}

    def looked_up(self) -> dict[str, Row]:
        last = [f"{self.name}/{partition}@{end - 1}" for partition, end in enumerate(self.ends) if end]
        answer = httpx.post(
            f"{self.stack.url}/v1/tables/{self.name}/rows:batch",
            json={"entities": [{"id": key} for key in KEYS]},
            headers={"Thermocline-Read-After": ",".join(last)},
            timeout=30,
        )
        assert answer.status_code == 200, answer.text
        rows = [row for result in answer.json()["results"] for row in result["rows"]]
        return {row["id"]: row for row in rows}

    def extracted(self) -> dict[str, Row]:
        sink = io.BytesIO()
        private.extract(self.stack.settings, self.name, None, "arrow", sink, None, lambda _: None)
        return {row["id"]: row for row in pa.ipc.open_stream(sink.getvalue()).read_all().to_pylist()}

    def ingest(self) -> None:
        owner = Owner.open(self.stack.settings, self.name, SystemClock())
        try:
            owner.catch_up(threading.Event())
        finally:
            owner.close()

    def scanned(self) -> dict[str, Row]:
        """What an engine sees that knows nothing of the order, nor of deletes that are remembered."""
        table = load_table(open_catalog(self.stack.settings.catalog), self.name, f"app.{self.name}")
        names = tuple(column.name for column in self.stack.settings.table(self.name).definition("").columns)
        return {row["id"]: row for row in table.scan(selected_fields=names).to_arrow().to_pylist()}

    def counts(self) -> dict[str, int]:
        table = load_table(open_catalog(self.stack.settings.catalog), self.name, f"app.{self.name}")
        return dict(current_state(table, self.name).totals)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, jvm: Any) -> Iterator[Stack]:
    stack = Stack(tmp_path_factory.mktemp("sequence"), catalog="sequence", engine="local")
    base = stack.config_path.read_text().partition("[tables.")[0]
    stack.config_path.write_text(base + "".join(SECTIONS))
    stack.settings = load_settings(stack.config_path)
    stack.start_broker()
    for name in TABLES:
        stack.kafka.create_topic(name, 2)
    yield stack
    stack.stop()


def test_lookups_extracts_and_verify_show_what_a_dict_does(stack: Stack) -> None:
    chance = random.Random(7)
    tables = [Told(stack, name) for name in TABLES]
    for table in tables:
        assert run(stack, "table", "create", table.name) == 0
    server = stack.serve()
    stack.wait_until_ready(server)
    for number in range(6):
        for table in tables:
            table.write(chance, 25)
            assert table.looked_up() == table.extracted() == table.rows
            if number in (1, 2, 4):
                table.ingest()
                assert table.looked_up() == table.extracted() == table.scanned() == table.rows
                assert run(stack, "verify", table.name) == 0
    for table in tables:
        assert run(stack, "verify", table.name) == 0
        counts = table.counts()
        assert counts["read"] * 2 == sum(counts.values())
        assert counts["read"] == 5 * 25


def test_a_compacted_topic_is_refused(stack: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    stack.kafka.create_topic("compacted", 1, {"cleanup.policy": "compact"})
    path = stack.folder / "compacted.toml"
    base = stack.config_path.read_text().partition("[tables.")[0]
    path.write_text(
        base + SECTION.format(name="compacted", topic="compacted", choices=PLAIN, columns=PLAIN_COLUMNS)
    )
    assert entry.run(["--config", str(path), "table", "create", "compacted"]) == ExitCode.STOPPED
    assert "topic-compacted" in capsys.readouterr().err


def run(stack: Stack, *arguments: str) -> int:
    return entry.run(["--config", str(stack.config_path), *arguments])
