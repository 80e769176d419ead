"""One topic into many tables under load, static and dynamic ones, one of which is broken.

It prints what it measured; what it asserts is that each table has its rows, and that the topic is read for
all of them at once. The counts of what the broker sent are those of Kafka's own client, in its statistics.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.behaviour.test_shared_scans import Sent, ingesting, sent
from tests.tier import quick_or_full
from thermocline.dev.stack import Stack
from thermocline.errors import TooManyBadRecords
from thermocline.iceberg.catalog import load_table, open_catalog
from thermocline.iceberg.routed_tables import with_routed_tables
from thermocline.ingest.commit.java_metadata import JavaMetadata
from thermocline.ingest.table.create import create_table
from thermocline.process.metrics import REGISTRY
from thermocline.settings import Settings, load_settings

__all__ = ["sent"]  # a fixture

TYPES = quick_or_full(6, 200)
REGIONS = 5
RATE = quick_or_full(2_000, 20_000)
SECONDS = quick_or_full(3, 180)
INTERVAL_SECONDS = quick_or_full(1, 60)
PATIENCE_SECONDS = 1_800.0
STATIC = """
[tables.{name}]
identifier = "app.{name}"
topics = ["trial"]
start = "earliest"
key = ["id"]
buckets = 4
commit_interval_seconds = {seconds}
where = {{ field = "region", is = "{region}" }}
{more}
columns = {{ id = "long", type = "string", v = "{type}" }}
"""
ROUTE = """
[routes.types]
topics = ["trial"]
by = {{ field = "type" }}
table = "app.types_{{}}"
key = ["id"]
buckets = 1
commit_interval_seconds = {seconds}
columns = {{ id = "long", region = "string", v = "string" }}
"""


def value_of(number: int) -> bytes:
    of = {"type": f"t{number % TYPES}", "region": f"r{number // TYPES % REGIONS}", "v": f"value {number}"}
    return json.dumps(of).encode()


def send(bootstrap_servers: str, first: int, count: int, rate: int) -> None:
    """Records of the numbers from one on, so many a second; in a process of its own."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 20, "log_level": 0})
    began, step = time.monotonic(), max(rate // 20, 1)
    for number in range(first, first + count):
        while True:
            try:
                producer.produce("trial", value_of(number), b'{"id":%d}' % number)
                break
            except BufferError:
                producer.poll(0.05)
        done = number - first + 1
        if done % step == 0:
            producer.poll(0)
            time.sleep(max(began + done / rate - time.monotonic(), 0))
    assert producer.flush(60) == 0


class Catalog:
    """How often ingest asked it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests = 0
        for name in ("start", "publish", "refresh"):
            made = getattr(JavaMetadata, name)

            def counted(*arguments: Any, made: Any = made) -> Any:
                self.requests += 1
                return made(*arguments)

            monkeypatch.setattr(JavaMetadata, name, counted)


def applied() -> dict[str, int]:
    """Rows that were committed in this process, by table."""
    names = [
        *(f"region{number}" for number in range(REGIONS)),
        *(f"types_t{number}" for number in range(TYPES)),
    ]
    said = {name: {"table": name, "outcome": "applied"} for name in names}
    return {
        name: int(REGISTRY.get_sample_value("thermocline_ingest_records_total", labels) or 0)
        for name, labels in said.items()
    }


def wait_until(condition: Callable[[], bool]) -> float:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + PATIENCE_SECONDS
        time.sleep(0.2)
    return time.monotonic() - began


def settings_of(stack: Stack, path: Path) -> Settings:
    sections = [
        STATIC.format(
            name=f"region{number}",
            region=f"r{number}",
            seconds=INTERVAL_SECONDS,
            type="string" if number else "double",
            more="" if number else "errors_count_max = 0",
        )
        for number in range(REGIONS)
    ]
    base = stack.config_path.read_text().partition("[tables.")[0]
    path.write_text(base + "".join(sections) + ROUTE.format(seconds=INTERVAL_SECONDS))
    return load_settings(path)


@pytest.mark.full
@pytest.mark.timeout(2 * PATIENCE_SECONDS)
def test_a_topic_is_read_once_for_static_and_dynamic_tables_while_one_of_them_is_broken(
    new_stack: Callable[..., Stack], sent: Sent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: all tables but the broken one have their rows, and the broker sends hardly more than it was sent.

    Method: a record of each type and region makes the dynamic tables; then comes the load. What a consumer
    fetches beyond the end of its range is sent again with the next batch, so the bound is twice the records.
    """
    stack, catalog = new_stack("trial"), Catalog(monkeypatch)
    stack.kafka.create_topic("trial", 8)
    settings = settings_of(stack, tmp_path / "trial.toml")
    names = [*(f"region{number}" for number in range(REGIONS)), "types"]
    for name in names:
        create_table(settings, name)
    bootstrap_servers = stack.kafka.bootstrap_servers
    first = TYPES * REGIONS
    send(bootstrap_servers, 0, first, first)
    with ingesting(settings, names) as ended:

        def are_there(count: int) -> bool:
            rows = applied()
            wanted = {name: count // (TYPES if name.startswith("types") else REGIONS) for name in rows}
            return all(rows[name] == wanted[name] for name in rows if name != "region0")

        made_seconds = wait_until(lambda: are_there(first))
        before, asked = sent.records, catalog.requests
        count = RATE * SECONDS // first * first
        began = time.monotonic()
        load = multiprocessing.get_context("spawn").Process(
            target=send, args=(bootstrap_servers, first, count, RATE)
        )
        load.start()
        load.join()
        load_seconds = time.monotonic() - began
        assert load.exitcode == 0
        behind_seconds = wait_until(lambda: are_there(first + count))
        figures = {
            "tables": len(applied()),
            "tables_made_after_seconds": round(made_seconds, 1),
            "records": count,
            "sent_per_second": round(count / load_seconds),
            "committed_per_second": round(count / (load_seconds + behind_seconds)),
            "behind_after_the_load_seconds": round(behind_seconds, 1),
            "records_fetched": sent.records - before,
            "catalog_requests": catalog.requests - asked,
        }
        print(json.dumps(figures))
    assert count <= sent.records - before < 2 * count
    stopped = {one.table: type(one.error) for one in ended if one.error is not None}
    assert stopped == {"region0": TooManyBadRecords}
    loaded, known = open_catalog(settings.catalog), with_routed_tables(settings)
    for name, rows in applied().items():
        table = load_table(loaded, name, known.table(name).identifier)
        found = table.scan().to_arrow().column("id").to_pylist() if name != "region0" else []
        assert len(found) == len(set(found)) == (rows if name != "region0" else 0)
