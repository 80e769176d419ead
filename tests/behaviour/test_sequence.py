"""Order by a column on real parts: events that come late lose, against rows, hot records and deletes.

Goal: whatever is committed already, lookups, extracts and verify show what a dict does that keeps the highest
sequence of each key. Method: random events over few keys, of any sequence and in any partition, in rounds;
after some of them ingest commits.
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
from thermocline.iceberg.catalog import load_table, open_catalog

pytestmark = pytest.mark.full

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


class Told(ToldTable):
    """A table, its topic of two partitions, and what a dict says of the events."""

    def __init__(self, stack: Stack, name: str) -> None:
        super().__init__(stack, name)
        self.states: dict[str, tuple[int, Row | None]] = {}

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

    def scanned(self) -> dict[str, Row]:
        """What an engine sees that knows nothing of the order, nor of deletes that are remembered."""
        table = load_table(open_catalog(self.stack.settings.catalog), self.name, f"app.{self.name}")
        names = tuple(column.name for column in self.stack.settings.table(self.name).definition("").columns)
        return {row["id"]: row for row in table.scan(selected_fields=names).to_arrow().to_pylist()}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, jvm: Any, brokers: Brokers) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("sequence")
    with brokers.lent() as kafka, told_stack(folder, "sequence", SECTIONS, TABLES, kafka) as stack:
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
