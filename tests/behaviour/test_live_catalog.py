"""The live catalog of a running server: what engines read of it is the replay to its read point."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from tests.behaviour.live import wait_for
from tests.behaviour.read_paths import live_catalog
from tests.behaviour.test_every_read_path import wait_for_server
from tests.behaviour.topic import Topic
from thermocline.dev.stack import TABLE, TOPIC, Command, Stack
from thermocline.dev.workload import Workload, produce
from thermocline.ingest.owner.owner import Owner
from thermocline.rules.read_point import ReadPoint

COMMITS = 5
LOADS = 10


@pytest.fixture(scope="module")
def stack(new_stack: Callable[..., Stack]) -> Stack:
    return new_stack("live_catalog", partitions=3, buckets=4, has_live_catalog=True)


@pytest.fixture(scope="module")
def owner(stack: Stack, new_owner: Callable[[Stack], Owner]) -> Owner:
    return new_owner(stack)


@pytest.fixture(scope="module")
def server(stack: Stack) -> Command:
    server = stack.serve()
    stack.wait_until_ready(server)
    return server


@pytest.fixture
def catalog(stack: Stack, server: Command) -> RestCatalog:
    return live_catalog(stack)


def read_point_of(table: Table) -> ReadPoint:
    return ReadPoint.parse(table.properties["thermocline.read-point"])


def rows_of(table: Table) -> dict[tuple[Any, ...], str]:
    found = table.scan(selected_fields=("app_id", "user_id", "key", "value")).to_arrow().to_pylist()
    rows = {(row["app_id"], row["user_id"], row["key"]): row["value"] for row in found}
    assert len(rows) == len(found), "a key is there twice"
    return rows


def test_every_load_is_the_replay_of_the_log_to_its_read_point(
    stack: Stack, owner: Owner, catalog: RestCatalog
) -> None:
    topic = Topic(stack.settings.kafka, TOPIC)
    stop = threading.Event()
    workload = Workload(seed=11, users=40, keys_per_user=5)
    config = stack.settings.kafka.client_config()
    producer = threading.Thread(
        target=produce, args=(config, TOPIC, workload, topic.oracle), kwargs={"rate": 200, "stop": stop}
    )
    producer.start()
    loads: list[tuple[ReadPoint, Any]] = []

    def is_later() -> bool:
        table = catalog.load_table(f"app.{TABLE}")
        if loads and read_point_of(table).end == loads[-1][0].end:
            return False
        loads.append((read_point_of(table), rows_of(table)))
        return True

    try:
        for _ in range(COMMITS):
            for _ in range(LOADS):
                wait_for(is_later)
            owner.step()
            wait_for_server(stack, owner)
    finally:
        stop.set()
        producer.join()
    for point, rows in loads:
        expected = {key: row["value"] for key, row in topic.oracle.rows(point.end).items()}
        assert rows == expected, point
    assert len({point.snapshot_id for point, _ in loads}) == COMMITS
