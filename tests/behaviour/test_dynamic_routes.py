"""A topic whose records go into a table for each of their types: tables appear, and none lacks a record.

Method: one producer; a plain dict says which rows each type has. Tables are read through PyIceberg alone.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from tests.tier import is_full
from thermocline.dev.stack import Stack
from thermocline.errors import ExitCode, LogReplaced
from thermocline.iceberg.catalog import (
    current_state,
    definition_of,
    find_table,
    load_table,
    open_catalog,
)
from thermocline.iceberg.routed_tables import directory_in, with_routed_tables
from thermocline.ingest.commit.commit import Committer
from thermocline.ingest.quarantine import open_quarantine
from thermocline.ingest.run import Ended, run
from thermocline.ingest.table.create import create_table
from thermocline.ingest.table.resume import rebase
from thermocline.process.clock import SystemClock
from thermocline.process.metrics import REGISTRY
from thermocline.rules.routes.names import name_of
from thermocline.settings import Settings, load_settings

ROUTE = "events"
TYPES = 200 if is_full() else 12
PATIENCE_SECONDS = 120.0
SECTION = """
[routes.events]
topics = ["{of}"]
by = {{ field = "type" }}
table = "app.{of}_{{}}"
denied = ["debug_*"]
tables_max = {tables_max}
key = ["id"]
buckets = 1
commit_interval_seconds = 0.2

[routes.events.columns]
id = "int"
v = "int"
"""


@dataclass
class Events:
    """The topic, and what each type's table is to have: ``v`` by ``id``. Ids are in one partition each."""

    stack: Stack
    path: Path
    rows: dict[str, dict[int, int]] = field(default_factory=dict)
    written: int = 0
    topic: str = "events"

    def settings(self, tables_max: int = TYPES + 4, of: str = "events") -> Settings:
        base = self.stack.config_path.read_text().partition("[tables.")[0]
        self.path.write_text(base + SECTION.format(tables_max=tables_max, of=of))
        return load_settings(self.path)

    def write(self, types: Sequence[object], ids: Sequence[int] = (1, 2, 3)) -> None:
        """A record of each id for each of the types; None is that it has none."""
        producer = Producer({"bootstrap.servers": self.stack.kafka.bootstrap_servers, "log_level": 0})
        for type_ in types:
            for id_ in ids:
                self.written += 1
                value = {"v": self.written} | ({} if type_ is None else {"type": type_})
                key = json.dumps({"id": id_}).encode()
                producer.produce(self.topic, json.dumps(value).encode(), key, partition=id_ % 2)
                if type_ is not None:
                    self.rows.setdefault(str(type_), {})[id_] = self.written
        assert producer.flush(30) == 0

    def delete(self, id_: int) -> None:
        """A tombstone, which has no type: each table reads it."""
        producer = Producer({"bootstrap.servers": self.stack.kafka.bootstrap_servers, "log_level": 0})
        producer.produce(self.topic, None, json.dumps({"id": id_}).encode(), partition=id_ % 2)
        assert producer.flush(30) == 0
        for rows in self.rows.values():
            rows.pop(id_, None)


def caught_up(settings: Settings) -> dict[str, Ended]:
    """All of the route, as `ingest run --once` does it after a restart."""
    known = with_routed_tables(settings)
    ended = run(known, tuple(known.tables), once=True, stop=threading.Event())
    return {one.table: one for one in ended}


def rows_in(settings: Settings) -> dict[str, dict[int, int]]:
    """What the tables of the directory have, by type."""
    catalog = open_catalog(settings.catalog)
    directory = load_table(catalog, ROUTE, settings.routes[ROUTE].directory_identifier)
    found = {}
    for value in directory_in(directory.properties, ROUTE).names:
        table = load_table(catalog, value, settings.routes[ROUTE].table_settings(value).identifier)
        assert definition_of(table, value).where[0].values == (value,)
        found[value] = {row["id"]: row["v"] for row in table.scan().to_arrow().to_pylist()}
    return found


def counts_of(settings: Settings) -> dict[str, int]:
    directory = load_table(open_catalog(settings.catalog), ROUTE, settings.routes[ROUTE].directory_identifier)
    return dict(current_state(directory, ROUTE).totals)


@pytest.fixture(scope="module")
def stack(new_stack: Callable[..., Stack]) -> Stack:
    return new_stack("dynamic", partitions=1)


def test_each_value_gets_its_table_with_all_of_its_records_whatever_stops_ingest(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.kafka.create_topic("events", 2)
    events = Events(stack, tmp_path / "routes.toml")
    settings = events.settings()
    create_table(settings, ROUTE)
    types = [f"type{number}" for number in range(TYPES)]
    events.write([*types[: TYPES // 2], "Order", "größe"])

    # It stops when tables are made, and the directory does not know them yet.
    commit = Committer.commit
    monkeypatch.setattr(Committer, "commit", lambda *_: pytest.fail("the process dies"))
    with pytest.raises(pytest.fail.Exception):
        caught_up(settings)
    monkeypatch.setattr(Committer, "commit", commit)
    assert rows_in(settings) == {}
    events.write(types[:3], ids=(1, 4))

    ended = caught_up(settings)
    assert {name: one.error for name, one in ended.items() if one.error} == {}
    assert set(ended) == {ROUTE, *(f"{ROUTE}_{name_of(one)}" for one in events.rows)}
    assert rows_in(settings) == events.rows
    # The directory alone is known, as where another process made the tables; and then all are.
    again = run(settings, tuple(settings.tables), once=True, stop=threading.Event())
    assert {one.table: one.exit_code for one in again} == dict.fromkeys(ended, ExitCode.NOTHING_TO_DO)
    assert all(code == ExitCode.NOTHING_TO_DO for code in codes(caught_up(settings)))

    # One value's name is taken, others are denied or have no type; a tombstone is for all.
    catalog = open_catalog(settings.catalog)
    foreign = catalog.create_table("app.events_broken", Schema(NestedField(1, "x", LongType())))
    events.write([*types[TYPES // 2 :], "broken"])
    events.write(["debug_trace", None, 7])
    events.delete(2)
    events.write(types[:2], ids=(2,))
    caught_up(settings)
    told = directory_in(load_table(catalog, ROUTE, "app.events_directory").properties, ROUTE).failed["broken"]
    assert "it was not made by a route" in told.reason
    others = {type_: rows for type_, rows in events.rows.items() if type_ not in ("broken", "debug_trace")}
    assert others["7"].keys() == {1, 3}
    assert rows_in(settings) == others
    assert find_table(catalog, "app.events_debug_trace") is None
    assert open_quarantine(catalog, ROUTE, "app.events_directory").scan().to_arrow().num_rows == 3
    assert catalog.load_table("app.events_broken").metadata.table_uuid == foreign.metadata.table_uuid

    # Nothing of the value is lost once its table can be made, though the seam is far beyond by now.
    catalog.drop_table("app.events_broken")
    events.write(["broken"], ids=(5,))
    caught_up(settings)
    assert rows_in(settings)["broken"] == events.rows["broken"]

    # All types, Order, größe, 7 and broken have one: of two more, there is room for one.
    limited = events.settings(tables_max=TYPES + 5)
    events.write(["zebra", "yak"])
    caught_up(limited)
    assert rows_in(limited)["yak"] == events.rows["yak"]
    assert "zebra" not in rows_in(limited)
    counts = counts_of(limited)
    assert counts["quarantined"] == 3 + 3
    assert counts["read"] == events.written + 1
    assert counts["read"] == counts["filtered"] + counts["quarantined"]
    beyond = {"table": ROUTE, "outcome": "beyond"}
    assert REGISTRY.get_sample_value("thermocline_ingest_route_records_total", beyond) == 3


@pytest.mark.full
def test_a_value_that_waits_while_its_topic_is_recreated_stops_by_name_and_goes_on_from_there(
    stack: Stack, tmp_path: Path
) -> None:
    """Goal: no offset of the old topic is taken for one of the new, which has more records."""
    events = Events(stack, tmp_path / "again.toml", topic="again")
    settings = events.settings(of="again")
    stack.kafka.create_topic("again", 2)
    create_table(settings, ROUTE)
    catalog = open_catalog(settings.catalog)
    catalog.create_table("app.again_broken", Schema(NestedField(1, "x", LongType())))
    events.write(["fine"] * 3)
    caught_up(settings)
    events.write(["fine", "broken"])
    caught_up(settings)
    stack.kafka.delete_topic("again")
    stack.kafka.create_topic("again", 2)
    events.rows.clear()
    events.write(["broken", "fine"], ids=range(30))
    for stopped in caught_up(settings).values():
        rebased(settings, stopped)
    catalog.drop_table("app.again_broken")

    ended = caught_up(settings)
    assert {name: one.error for name, one in ended.items() if one.error} == {
        "events_broken": ended["events_broken"].error
    }
    rebased(settings, ended["events_broken"])
    assert not [one.error for one in caught_up(settings).values() if one.error]
    assert rows_in(settings) == events.rows


def rebased(settings: Settings, stopped: Ended) -> None:
    assert isinstance(stopped.error, LogReplaced)
    facts = stopped.error.tokens
    assert rebase(with_routed_tables(settings), stopped.table, facts, "earliest", SystemClock())


def codes(ended: dict[str, Ended]) -> list[int]:
    return [one.exit_code for one in ended.values()]


def test_tables_are_made_and_served_while_ingest_and_server_run(stack: Stack, tmp_path: Path) -> None:
    """Goal: a value that comes now can be looked up soon, by the name of its table, without a restart."""
    events = Events(stack, tmp_path / "running.toml", topic="running")
    settings = events.settings(of="running")
    stack.kafka.create_topic("running", 2)
    create_table(settings, ROUTE)
    events.write(["first"])
    ingest = stack.command("routes-ingest", "ingest", "run", config_path=events.path)
    served = stack.command("routes-serve", "serve", config_path=events.path)
    for type_, id_ in (("first", 1), ("second", 2)):
        events.write([type_], ids=(id_,))

        def is_answered(type_: str = type_, id_: int = id_) -> bool:
            code, answer = stack.get(f"/v1/tables/events_{type_}/rows?id={id_}")
            return code == HTTPStatus.OK and [row["v"] for row in answer["rows"]] == [events.written]

        stack.wait_for(is_answered, f"{type_} is served", ingest, served, timeout=PATIENCE_SECONDS)
    stack.wait_for(lambda: rows_in(settings) == events.rows, "both are committed", ingest, served)
