"""Partial updates on real parts: fields that are left out, and values that Debezium's events leave out.

Goal: whatever is committed already, lookups, extracts and verify show what a dict does to which each record
is applied. Method: random records over few keys, in rounds; after some of them ingest commits.
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
from thermocline.rules.decode.debezium import UNAVAILABLE
from thermocline.settings import load_settings

TABLES = ("carts", "articles")
SECTION = """
[tables.{name}]
identifier = "app.{name}"
topics = ["{topic}"]
key = ["id"]
buckets = 2
partial_updates = true
{choices}

[tables.{name}.columns]
id = "string"
text = "string"
amount = "decimal(20,2)"
at = "timestamptz"
"""
SECTIONS = (
    SECTION.format(name="carts", topic="carts", choices="suppress_unchanged = true"),
    SECTION.format(name="articles", topic="articles", choices='envelope = "debezium"'),
)
VALUES: dict[str, list[Any]] = {
    "text": ["one", "two", None],
    "amount": ["1.50", "2.00", None],
    "at": ["2026-01-01T00:00:00Z", None],
}
KEYS = [f"k{number}" for number in range(8)]
Row = dict[str, Any]


class Told:
    """A table, its topic of two partitions, and what a dict says of the records."""

    def __init__(self, stack: Stack, name: str) -> None:
        self.stack, self.name = stack, name
        self.rows: dict[str, Row] = {}
        self.ends = [0, 0]

    def write(self, chance: random.Random, count: int) -> None:
        producer = Producer({**self.stack.settings.kafka.client_config(), "linger.ms": 0, "log_level": 0})
        for _ in range(count):
            key = chance.choice(KEYS)
            sets = {
                name: chance.choice(VALUES[name])
                for name in chance.sample(sorted(VALUES), chance.randrange(4))
            }
            change = None if chance.random() < 0.15 else sets
            partition = KEYS.index(key) % 2
            value = None if change is None else self._value(key, change)
            producer.produce(self.name, value, json.dumps({"id": key}).encode(), partition=partition)
            self.ends[partition] += 1
            self._apply(key, change)
        assert producer.flush(30) == 0

    def _value(self, key: str, sets: Row) -> bytes:
        if self.name == "carts":
            return json.dumps(sets).encode()
        after = {"id": key} | dict.fromkeys(VALUES, UNAVAILABLE) | sets
        return json.dumps({"op": "u", "before": None, "after": after}).encode()

    def _apply(self, key: str, sets: Row | None) -> None:
        if sets is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = {"id": key, **dict.fromkeys(VALUES)} | self.rows.get(key, {}) | sets

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
        rows = pa.ipc.open_stream(sink.getvalue()).read_all().to_pylist()
        for row in rows:
            row["amount"] = row["amount"] and str(row["amount"])
            row["at"] = row["at"] and row["at"].isoformat().replace("+00:00", "Z")
        return {row["id"]: row for row in rows}

    def ingest(self) -> None:
        owner = Owner.open(self.stack.settings, self.name, SystemClock())
        try:
            owner.catch_up(threading.Event())
        finally:
            owner.close()

    def counts(self) -> dict[str, int]:
        table = load_table(open_catalog(self.stack.settings.catalog), self.name, f"app.{self.name}")
        return dict(current_state(table, self.name).totals)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, jvm: Any) -> Iterator[Stack]:
    stack = Stack(tmp_path_factory.mktemp("partial"), catalog="partial", engine="local")
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
                assert table.looked_up() == table.extracted() == table.rows
    for table in tables:
        assert run(stack, "verify", table.name) == 0
        counts = table.counts()
        assert counts["read"] * 2 == sum(counts.values())
        assert counts["read"] == 5 * 25
    assert tables[0].counts()["unchanged"] > 0


def test_a_compacted_topic_is_refused(stack: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    stack.kafka.create_topic("compacted", 1, {"cleanup.policy": "compact"})
    path = stack.folder / "compacted.toml"
    base = stack.config_path.read_text().partition("[tables.")[0]
    path.write_text(base + SECTION.format(name="compacted", topic="compacted", choices=""))
    assert entry.run(["--config", str(path), "table", "create", "compacted"]) == ExitCode.STOPPED
    assert "topic-compacted" in capsys.readouterr().err


def run(stack: Stack, *arguments: str) -> int:
    return entry.run(["--config", str(stack.config_path), *arguments])
