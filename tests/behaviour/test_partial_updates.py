"""Partial updates on real parts: fields that are left out, and values that Debezium's events leave out.

Goal: whatever is committed already, lookups, extracts and verify show what a dict does to which each record
is applied. Method: random records over few keys, in rounds; after some of them ingest commits.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.behaviour.told import KEYS, Row, ToldTable, told_stack
from tests.brokers import Brokers
from thermocline.cli import entry
from thermocline.dev.stack import Stack
from thermocline.errors import ExitCode
from thermocline.rules.definition import UNAVAILABLE

pytestmark = pytest.mark.full

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


class Told(ToldTable):
    """A table, its topic of two partitions, and what a dict says of the records."""

    def __init__(self, stack: Stack, name: str) -> None:
        super().__init__(stack, name)
        self.rows: dict[str, Row] = {}

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

    def extracted(self) -> dict[str, Row]:
        """As JSON has them."""
        rows = super().extracted()
        for row in rows.values():
            row["amount"] = row["amount"] and str(row["amount"])
            row["at"] = row["at"] and row["at"].isoformat().replace("+00:00", "Z")
        return rows


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, jvm: Any, brokers: Brokers) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("partial")
    with brokers.lent() as kafka, told_stack(folder, "partial", SECTIONS, TABLES, kafka) as stack:
        yield stack


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
