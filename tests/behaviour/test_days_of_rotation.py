"""Days of rotation under load: a topic a day, on a cluster of a thousand, written all the time.

Method: ingest and the server run as a user runs them. A producer writes into today's topic at some hundred
records a second. At each midnight the oldest topic is deleted, which the table has all of; once a day one is
deleted that it has not, while ingest is dead. Both processes are killed in between. A plain dict replays what
the end of each answer says that it holds, and ``verify`` compares all with the log.
"""

from __future__ import annotations

import io
import json
import random
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from tests.behaviour.live import wait_for
from tests.tier import quick_or_full
from thermocline.cli.server_answers import Client
from thermocline.client import Retries
from thermocline.dev.stack import Command, Stack
from thermocline.errors import ThermoclineError
from thermocline.iceberg.catalog import SnapshotState, current_state, definition_of, load_table, open_catalog
from thermocline.kafka.log import Log
from thermocline.rules.seam import Seam
from thermocline.settings import Settings, load_settings

pytestmark = pytest.mark.full

NAME: Final = "days"
SECTION: Final = f"""
[tables.{NAME}]
identifier = "app.{NAME}"
topics = ["log\\\\.\\\\d+"]
key = ["id", "k"]
entity = ["id"]
buckets = 4
commit_interval_seconds = 2
deleted_topic_seconds = 3

[tables.{NAME}.columns]
id = "int"
k = "string"
v = "int"
"""
DAYS: Final = quick_or_full(1, 3)
DAY_SECONDS: Final = 70.0
OTHER_TOPICS: Final = 990
KEYS: Final = 300
RECORDS_PER_SECOND: Final = 300
PARTITIONS: Final = 2
PATIENCE_SECONDS: Final = 90.0
KEPT: Final = 3
"""Topics of the table at any time: of today and yesterday, and one that is about to leave, or of the day."""

Rows = dict[int, int]


@dataclass
class Written:
    """What was acknowledged, by key in the order in which it was sent.

    ``left`` says of topics that are deleted how far the table has read them.
    """

    of_key: dict[int, list[tuple[str, int, int, int | None]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    acknowledged: dict[tuple[str, int], int] = field(default_factory=dict)
    left: dict[str, Seam] = field(default_factory=dict)
    sent: int = 0

    def expected(self, key: int, end: Seam) -> int | None:
        """What a row is as of an end."""
        value: int | None = None
        topics = set(end.topics)
        for topic, partition, offset, v in self.of_key[key]:
            known = end if topic in topics else self.left.get(topic, Seam())
            if offset < known.get((topic, partition)):
                value = v
        return value

    def has_heard_of(self, end: Seam) -> bool:
        """Whether all before an end has been acknowledged to the one who wrote it."""
        return all(self.acknowledged.get((topic, p), 0) >= at for topic, p, at in end.items())


class Writer:
    """A producer that writes into one topic at a time, all the time."""

    def __init__(self, settings: Settings, written: Written) -> None:
        self._written = written
        self._producer = Producer({**settings.kafka.client_config(), "log_level": 0, "linger.ms": 5})
        self._lock = threading.Lock()
        self._topic = ""
        self._draw = random.Random(1)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self, topic: str) -> None:
        self._topic = topic
        self._thread.start()

    def into(self, topic: str) -> None:
        """From now on; what was written before is acknowledged, and earlier by the clock."""
        with self._lock:
            assert self._producer.flush(30) == 0
            time.sleep(0.01)
            self._topic = topic

    def once(self, topic: str, count: int) -> None:
        """Some records into another topic, and then on where it was."""
        with self._lock:
            assert self._producer.flush(30) == 0
            time.sleep(0.01)
            for _ in range(count):
                self._write(topic)
            assert self._producer.flush(30) == 0
            time.sleep(0.01)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(30) == 0

    def _run(self) -> None:
        while not self._stop.is_set():
            with self._lock:
                for _ in range(RECORDS_PER_SECOND // 20):
                    self._write(self._topic)
                self._producer.poll(0)
            time.sleep(0.05)

    def _write(self, topic: str) -> None:
        written = self._written
        written.sent += 1
        key, number = self._draw.randrange(KEYS), written.sent
        v = None if self._draw.random() < 0.1 else number
        value = None if v is None else json.dumps({"v": v}).encode()

        def taken(_: object, message: Any) -> None:
            place, offset = (topic, message.partition()), message.offset()
            written.of_key[key].append((*place, offset, v))
            written.acknowledged[place] = max(written.acknowledged.get(place, 0), offset + 1)

        raw_key = json.dumps({"id": key, "k": "a"}).encode()
        self._producer.produce(topic, value, raw_key, partition=key % PARTITIONS, on_delivery=taken)


class Asker:
    """Asks the server all the time, and compares each answer with the replay."""

    def __init__(self, client: Client, written: Written) -> None:
        self._client, self._written = client, written
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self._draw = random.Random(2)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._lookup() if self._draw.random() < 0.95 else self._extract()
            except ThermoclineError as error:
                self.counts[f"refused: {error.code}"] += 1
            time.sleep(0.05)

    def _lookup(self) -> None:
        key = self._draw.randrange(KEYS)
        answer: dict[str, Any] = self._client.lookup(NAME, {"id": str(key)})
        end = Seam.from_dict(answer["read_point"]["end"])
        self._compare("lookup", {row["id"]: row["v"] for row in answer["rows"]}, [key], end)
        self.counts["stale"] += bool(answer.get("stale"))

    def _extract(self) -> None:
        sink = io.BytesIO()
        point = self._client.extract(NAME, None, "arrow", sink, lambda _: None)
        rows = pa.ipc.open_stream(sink.getvalue()).read_all().to_pylist()
        self._compare("extract", {row["id"]: row["v"] for row in rows}, range(KEYS), point.end)

    def _compare(self, what: str, found: Rows, keys: Any, end: Seam) -> None:
        wait_for(lambda: self._written.has_heard_of(end))
        expected = {key: self._written.expected(key, end) for key in keys}
        differing = {key: (found.get(key), v) for key, v in expected.items() if found.get(key) != v}
        self.counts[what] += 1
        if differing:
            self.problems.append(f"{what} up to {end}: found and expected {differing}")


class World:
    """The processes, and what is done to them."""

    def __init__(self, stack: Stack, settings: Settings) -> None:
        self.stack, self.settings = stack, settings
        self.config = stack.folder / "days.toml"
        self.written = Written()
        self.writer = Writer(settings, self.written)
        self.asker = Asker(Client(stack.url, retries=Retries(attempts_max=1)), self.written)
        self.ingest = self.command("ingest", "ingest", "run", NAME)
        self.server = self.command("serve", "serve")

    def command(self, log_name: str, *arguments: str) -> Command:
        return self.stack.command(log_name, *arguments, config_path=self.config)

    def done(self, *arguments: str) -> None:
        """A command that has to succeed."""
        command = self.command(arguments[0], *arguments)
        code = command.process.wait()
        assert code == 0, command.log_path.read_text()[-3000:]

    def state(self) -> SnapshotState:
        return current_state(self.table(), NAME)

    def table(self) -> Any:
        return load_table(open_catalog(self.settings.catalog), NAME, f"app.{NAME}")

    def topics(self) -> tuple[str, ...]:
        return definition_of(self.table(), NAME).topics

    def restart_server(self) -> None:
        self.server.kill()
        self.server = self.command("serve", "serve")

    def restart_ingest(self) -> None:
        self.ingest.kill()
        self.ingest = self.command("ingest", "ingest", "run", NAME)

    def begin(self, topic: str) -> None:
        """Midnight: what is written from now on goes there."""
        self.stack.kafka.create_topic(topic, PARTITIONS)
        self.writer.into(topic)

    def wait_until_read(self, topic: str) -> Seam:
        """The ends of a topic that nobody writes into any more, once the table has it all."""
        ends = Log(self.settings.kafka).ends([topic])
        self.wait(lambda: self.state().seam.at_least(ends), f"{topic} is read")
        # The owner that runs has seen these ends, too.
        before = self.state().snapshot_id
        self.wait(lambda: self.state().snapshot_id != before, "another batch")
        return ends

    def drained_leaves(self, topic: str) -> None:
        """It leaves the table by itself."""
        self.written.left[topic] = self.wait_until_read(topic)
        self.stack.kafka.delete_topic(topic)
        self.wait(lambda: topic not in self.topics(), f"{topic} left")

    def unread_stops(self, topic: str) -> None:
        """It is deleted while ingest is dead, with records that the table lacks."""
        self.stack.kafka.create_topic(topic, PARTITIONS)
        self.wait(lambda: topic in self.topics(), f"{topic} feeds the table")
        self.writer.once(topic, 100)
        self.wait_until_read(topic)
        self.ingest.kill()
        self.writer.once(topic, 50)
        time.sleep(4)
        read = self.state().seam
        self.stack.kafka.delete_topic(topic)
        stopped = self.command("ingest-stopped", "ingest", "run", NAME)
        assert stopped.process.wait(PATIENCE_SECONDS) != 0
        text = stopped.log_path.read_text()
        assert "topic-deleted" in text, text[-3000:]
        found = re.findall(r"thermocline [^\"\\]*(ingest accept-gap [^\"\\]+)", text)
        assert found, text[-3000:]
        self.written.left[topic] = read.only([topic])
        self.done(*found[-1].split())
        self.ingest = self.command("ingest", "ingest", "run", NAME)
        self.wait(lambda: topic not in self.topics(), f"{topic} left")

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        self.stack.wait_for(condition, what, self.server, timeout=PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def stack(new_stack: Callable[..., Stack]) -> Stack:
    return new_stack("days", partitions=1, has_own_broker=True, lease_seconds=3.0)


@pytest.fixture
def world(stack: Stack) -> Iterator[World]:
    base = stack.config_path.read_text().partition("[tables.")[0]
    path = stack.folder / "days.toml"
    path.write_text(base + SECTION)
    others = [NewTopic(f"other.{number}", 1, 1) for number in range(OTHER_TOPICS)]
    for made in stack.kafka.admin.create_topics(others, operation_timeout=60).values():
        made.result(120)
    stack.kafka.create_topic("log.0", PARTITIONS)
    settings = load_settings(path)
    wait_for(lambda: "log.0" in Log(settings.kafka).names())
    created = stack.command("create", "table", "create", NAME, config_path=path)
    assert created.process.wait() == 0, created.log_path.read_text()
    found = World(stack, settings)
    yield found
    found.writer.close()
    found.asker.close()


def test_days_of_rotation_under_load_change_no_answer_and_leave_nothing_behind(world: World) -> None:
    world.writer.start("log.0")
    world.stack.wait_until_ready(world.server)
    world.asker.start()
    for day in range(1, DAYS + 1):
        midnight = time.monotonic() + DAY_SECONDS
        world.begin(f"log.{day}")
        world.wait(lambda day=day: f"log.{day}" in world.topics(), "the new topic feeds the table")  # type: ignore[misc]
        world.done("verify", NAME)
        if day > 1:
            world.drained_leaves(f"log.{day - 2}")
        world.restart_server()
        world.unread_stops(f"log.{1000 + day}")
        world.done("verify", NAME)
        world.restart_ingest()
        assert world.asker.problems == []
        time.sleep(max(0.0, midnight - time.monotonic()))
        state = world.state()
        assert len(state.seam.topics) <= KEPT
        assert set(state.topic_ids) == set(state.seam.topics)
    world.stack.wait_until_ready(world.server)
    world.done("verify", NAME)
    world.asker.close()
    said = (world.stack.folder / "serve.log").read_text()
    print(world.written.sent, world.asker.counts, said.count("the hot tier goes on with other topics"))
    assert world.asker.problems == []
    assert world.asker.counts["lookup"] > 200
    assert world.asker.counts["extract"] > 5
    assert said.count("the hot tier goes on with other topics") >= DAYS
    assert len(world.topics()) <= KEPT
