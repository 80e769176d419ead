"""A topic that gains partitions while producers' clocks disagree: the record that Kafka was given last wins.

Method: 20 keys in one partition, which is then one of six. Their second values come from a clock that is
right; third ones of k0 to k4 from one that is an hour slow; and, after a commit, others from one that is two
hours slow. Each key's records after the topic grew are in one partition. What is expected is written by hand.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterable, Mapping

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewPartitions

from thermocline.cli import entry
from thermocline.dev.stack import Stack
from thermocline.ingest.owner.owner import Owner
from thermocline.kafka.log import Log
from thermocline.process.clock import SystemClock
from thermocline.serving.read import private
from thermocline.serving.read.entity import entity_of
from thermocline.settings import Settings, load_settings

SECTION = """
[tables.{table}]
identifier = "app.{table}"
topics = ["relocated"]
start = "earliest"
key = ["id"]
key_format = "string"
buckets = 2
batch_records_max = {records_max}

[tables.{table}.columns]
id = "string"
v = "int"
"""
TABLES = {"relocated": 2_000_000, "again": 2_000_000, "in_pieces": 7}
HOUR_MS = 3_600_000
Values = Mapping[str, int]

FIRST: Values = {
    **{f"k{number}": 3 for number in range(5)},
    **{f"k{number}": 2 for number in range(5, 20)},
}
LAST: Values = {
    **FIRST,
    **{f"k{number}": 4 for number in range(10, 15)},
}
DELETED = ("k15", "k16", "k17")


@pytest.fixture(scope="module")
def stack(new_stack: Callable[..., Stack]) -> Stack:
    return new_stack("partitions_added", partitions=1)


@pytest.fixture
def settings(stack: Stack) -> Settings:
    base = stack.config_path.read_text().partition("[tables.")[0]
    sections = [SECTION.format(table=table, records_max=most) for table, most in TABLES.items()]
    path = stack.folder / "relocated.toml"
    path.write_text(base + "".join(sections))
    return load_settings(path)


def send(settings: Settings, records: Iterable[tuple[int, int | None]], at_ms: int) -> None:
    producer = Producer({**settings.kafka.client_config(), "log_level": 0})
    for number, v in records:
        value = None if v is None else json.dumps({"v": v}).encode()
        producer.produce("relocated", value, f"k{number}".encode(), timestamp=at_ms)
    assert producer.flush(30) == 0


def shown(settings: Settings, table: str) -> Values:
    """What an extract shows, and each lookup, which must be the same."""
    sink = io.BytesIO()
    private.extract(settings, table, None, "jsonl", sink, None, lambda _: None)
    rows = {row["id"]: row["v"] for row in map(json.loads, sink.getvalue().splitlines())}
    with private.opened(settings, table) as opened:
        for number in range(20):
            found = opened.reader.lookup((entity_of(opened.definition, {"id": f"k{number}"}),))[1][0]
            assert [row["v"] for row in json.loads(found or b"[]")] == (
                [rows[f"k{number}"]] if f"k{number}" in rows else []
            )
    return rows


def ingest(settings: Settings, table: str) -> int:
    """How many snapshots it takes."""
    owner, count = Owner.open(settings, table, SystemClock()), 0
    try:
        goal = owner.log.ends(["relocated"])
        while not owner.position.seam.at_least(goal):
            owner.step()
            count += 1
    finally:
        owner.close()
    return count


def test_the_record_that_kafka_was_given_last_wins_whenever_the_table_is_read(
    stack: Stack, settings: Settings
) -> None:
    stack.kafka.create_topic("relocated", 1)
    config = ["--config", str(stack.folder / "relocated.toml")]
    assert entry.run([*config, "table", "create", "relocated"]) == 0
    now_ms = int(time.time() * 1000)
    send(settings, [(number, 1) for number in range(20)], now_ms)
    stack.kafka.admin.create_partitions([NewPartitions("relocated", 6)])["relocated"].result(30)
    while len(Log(settings.kafka).ends(["relocated"])) < 6:
        time.sleep(0.05)
    send(settings, [(number, 2) for number in range(20)], now_ms + 1_000)
    send(settings, [(number, 3) for number in range(5)], now_ms - HOUR_MS)
    assert shown(settings, "relocated") == FIRST
    ingest(settings, "relocated")
    assert shown(settings, "relocated") == FIRST

    send(settings, [(number, 4) for number in range(10, 15)], now_ms - 2 * HOUR_MS)
    send(settings, [(number, None) for number in range(15, 18)], now_ms - 2 * HOUR_MS)
    expected = {key: v for key, v in LAST.items() if key not in DELETED}
    assert shown(settings, "relocated") == expected
    ingest(settings, "relocated")
    assert shown(settings, "relocated") == expected

    for table in ("again", "in_pieces"):
        assert entry.run([*config, "table", "create", table]) == 0
        assert shown(settings, table) == expected
        assert (ingest(settings, table) > 1) == (table == "in_pieces")
        assert shown(settings, table) == expected
    for table in TABLES:
        assert entry.run([*config, "verify", table]) == 0
