"""A table's number of buckets is raised and lowered while records come and a server answers."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.behaviour.topic import APP, Topic
from thermocline.cli import entry
from thermocline.dev.stack import Stack
from thermocline.errors import ExitCode
from thermocline.iceberg.catalog import definition_of, load_table, open_catalog
from thermocline.iceberg.files import plan_files
from thermocline.ingest.engine.engine import Engine, start_engine
from thermocline.ingest.owner.owner import Owner
from thermocline.ingest.table.create import create_table
from thermocline.maintenance.upkeep import TableUpkeep
from thermocline.process.clock import SystemClock
from thermocline.settings import load_settings

pytestmark = pytest.mark.full

TOPIC = "shared"
TABLES = {"of_v2": 2, "of_v3": 3}
USERS = [f"u{number}" for number in range(24)]
STEADY = "steady"
PATIENCE_SECONDS = 60.0
ROUNDS_MAX = 40
_SECTION = """
[tables.{name}]
identifier = "app.{name}"
topics = ["shared"]
start = "earliest"
key = ["app_id", "user_id", "key"]
entity = ["app_id", "user_id"]
buckets = {buckets}
format_version = {version}

[tables.{name}.columns]
app_id = "int"
user_id = "string"
key = "string"
value = "string"
"""

Rows = dict[tuple[str, str], str]


class Changing:
    """The tables of both format versions on one topic, and a plain replay of it."""

    def __init__(self, stack: Stack, seed: int) -> None:
        self.stack = stack
        self.base = stack.config_path.read_text().partition("[tables.")[0]
        self.topic = Topic(stack.settings.kafka, TOPIC)
        self.random = random.Random(seed)
        self.expected: Rows = {}
        self.count = 0

    def configure(self, buckets: int) -> None:
        sections = [
            _SECTION.format(name=name, version=version, buckets=buckets) for name, version in TABLES.items()
        ]
        self.stack.config_path.write_text(self.base + "".join(sections))
        self.stack.settings = load_settings(self.stack.config_path)

    def run(self, *arguments: str) -> int:
        return entry.run(["--config", str(self.stack.config_path), *arguments])

    def write(self, records: int) -> None:
        for _ in range(records):
            user, key = self.random.choice(USERS), f"k{self.random.randrange(6)}"
            self.count += 1
            value = None if self.random.random() < 0.3 else f"v{self.count}"
            self.topic.send((APP, user, key), value)
            if value is None:
                self.expected.pop((user, key), None)
            else:
                self.expected[user, key] = value
        self.topic.flush()

    def looked_up(self, table: str) -> Rows:
        """All entities in one request, as of the last record that was written."""
        entities = [{"app_id": APP, "user_id": user} for user in (*USERS, STEADY)]
        headers = {"Thermocline-Read-After": self.topic.flush()}
        url = f"{self.stack.url}/v1/tables/{table}/rows:batch"
        answer = _when_ready(
            lambda: httpx.post(url, json={"entities": entities}, headers=headers, timeout=60)
        )
        rows = [row for result in answer.json()["results"] for row in result["rows"]]
        return _keyed(rows)

    def extracted(self, table: str) -> Rows:
        url = f"{self.stack.url}/v1/tables/{table}/extract"
        headers = {"Accept": "application/vnd.apache.arrow.stream"}
        answer = _when_ready(lambda: httpx.post(url, headers=headers, timeout=60))
        return _keyed(pa.ipc.open_stream(answer.content).read_all().to_pylist())

    def scanned(self, table: str) -> Rows:
        loaded = load_table(open_catalog(self.stack.settings.catalog), table, f"app.{table}")
        return _keyed(loaded.scan().to_arrow().to_pylist())

    def check_served(self) -> None:
        for table in TABLES:
            assert self.looked_up(table) == self.expected, table
            assert self.extracted(table) == self.expected, table


def _keyed(rows: list[dict[str, Any]]) -> Rows:
    found = {(row["user_id"], row["key"]): row["value"] for row in rows}
    assert len(found) == len(rows), "a row came twice"
    return found


def _when_ready(ask: Callable[[], httpx.Response]) -> httpx.Response:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (answer := ask()).status_code == 503:
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.1)
    return answer.raise_for_status()


@contextmanager
def asked_all_the_while(stack: Stack) -> Iterator[list[tuple[int, str]]]:
    """An entity that never changes is looked up in each table again and again."""
    stop = threading.Event()
    answers: list[tuple[int, str]] = []

    def ask() -> None:
        with httpx.Client(base_url=stack.url, timeout=60) as client:
            while not stop.wait(0.02):
                for table in TABLES:
                    path = f"/v1/tables/{table}/rows?app_id={APP}&user_id={STEADY}"
                    answer = client.get(path)
                    answers.append((answer.status_code, answer.text))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield answers
    finally:
        stop.set()
        thread.join()


@pytest.fixture(scope="module")
def changing(new_stack: Callable[..., Stack]) -> Changing:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    stack = new_stack("buckets", partitions=1, buckets=2)
    stack.kafka.create_topic(TOPIC, 3)
    changing = Changing(stack, seed)
    changing.configure(4)
    for name in TABLES:
        create_table(stack.settings, name)
    changing.topic.send((APP, STEADY, "k"), "the same")
    changing.expected[STEADY, "k"] = "the same"
    return changing


@pytest.fixture(scope="module")
def engine(changing: Changing) -> Iterator[Engine]:
    engine = start_engine(changing.stack.settings, "of_v2")
    yield engine
    engine.stop()


def opened(changing: Changing, engine: Engine) -> list[Owner]:
    owners = []
    for name in TABLES:
        owner = Owner.open(changing.stack.settings, name, SystemClock(), engine=engine)
        owner.upkeep = TableUpkeep(changing.stack.settings.maintenance, SystemClock())
        owners.append(owner)
    return owners


def turned(owner: Owner) -> None:
    """Turns until nothing of a rewrite is under way; planning is due at each."""
    upkeep = owner.upkeep
    assert isinstance(upkeep, TableUpkeep)
    upkeep.journal.hasten("plan")
    for _ in range(3):
        upkeep.turn(owner)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not upkeep.is_settled:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def is_changed(owner: Owner, buckets: int) -> bool:
    files = [file for some in owner.position.files.values() for file in some]
    return owner.definition.buckets == buckets and all(file.part.of == buckets for file in files)


def test_every_read_path_equals_the_replay_while_buckets_become_more_and_fewer(
    changing: Changing, engine: Engine
) -> None:
    """Goal: a table of either format version is exact at every moment of a change of its buckets.

    Method: 4 buckets become 8, and 8 become 2, by the command. Records of all kinds come before, during and
    after; at each step, hot and committed, lookups and extracts of the server are compared with a replay, and
    what is committed with a plain Iceberg scan. At last `verify` compares all of it.
    """
    server = changing.stack.serve()
    changing.write(400)
    changing.stack.wait_until_ready(server)
    mixed = 0
    for buckets in (8, 2):
        owners = opened(changing, engine)
        for owner in owners:
            owner.step()
            owner.close()
        changing.write(40)
        changing.check_served()
        with asked_all_the_while(changing.stack) as answers:
            changing.configure(buckets)
            for table in TABLES:
                assert changing.run("table", "alter", table, "--yes") == ExitCode.DONE
            changing.check_served()
            owners, rounds = opened(changing, engine), 0
            while not all(is_changed(owner, buckets) for owner in owners):
                rounds += 1
                assert rounds < ROUNDS_MAX
                changing.write(30)
                changing.check_served()
                for owner in owners:
                    owner.step()
                    assert changing.scanned(owner.definition.name) == changing.expected
                    turned(owner)
                    assert changing.scanned(owner.definition.name) == changing.expected
                    mixed += (
                        len({file.part.of for some in owner.position.files.values() for file in some}) > 1
                    )
                changing.check_served()
        for owner in owners:
            owner.close()
        assert {status for status, _ in answers} <= {200, 503}
        found = [json.loads(text)["rows"] for status, text in answers if status == 200]
        assert found
        assert all([row["value"] for row in rows] == ["the same"] for rows in found)
        server.check()
    assert mixed, "no step had files of both numbers"
    for table in TABLES:
        loaded = load_table(open_catalog(changing.stack.settings.catalog), table, f"app.{table}")
        snapshot = loaded.current_snapshot()
        assert snapshot is not None
        assert {file.part.of for file in plan_files(loaded, snapshot.snapshot_id)} == {2}
        assert definition_of(loaded, table).buckets == 2
        assert changing.run("verify", table, "--url", changing.stack.url) == ExitCode.DONE
        assert changing.run("maintain", "status", table) == ExitCode.DONE
