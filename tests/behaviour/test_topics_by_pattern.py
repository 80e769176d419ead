"""Topics that come and go under a pattern, while a server answers: each answer is right as of its read point.

Method: one producer, a topic a day, each key in one partition of each; a plain dict replays what an answer's
end says that it holds. Of a topic that left, an answer has all that was read of it.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyiceberg.table import Table

from tests.behaviour.live import Live, wait_for
from tests.behaviour.served import Served
from thermocline.cli import entry
from thermocline.dev.stack import Stack
from thermocline.errors import ExitCode, ThermoclineError, TopicDeleted
from thermocline.iceberg.catalog import current_state, definition_of, load_table, open_catalog
from thermocline.ingest.owner import topic_watch
from thermocline.ingest.owner.owner import Owner
from thermocline.ingest.table.sample import warnings_of
from thermocline.kafka.log import Log
from thermocline.process.clock import SystemClock
from thermocline.rules.seam import Seam
from thermocline.settings import Settings, load_settings

NAME = "rotated"
SECTION = f"""
[tables.{NAME}]
identifier = "app.{NAME}"
topics = ["log\\\\.\\\\d{{8}}"]
key = ["id", "k"]
entity = ["id"]
buckets = 2

[tables.{NAME}.columns]
id = "int"
k = "string"
v = "int"
"""
KEYS = 12
PATIENCE_SECONDS = 60.0

Rows = dict[int, int]


@dataclass
class Days:
    """What was written into each day's topic, in order: topic, partition, offset, key and value."""

    stack: Stack
    settings: Settings
    written: list[tuple[str, int, int, int, int | None]] = field(default_factory=list)
    read_of_left: dict[str, Seam] = field(default_factory=dict)
    number: int = 0

    def begin(self, topic: str) -> None:
        self.stack.kafka.create_topic(topic, 2)

    def write(self, topic: str) -> None:
        """A value for each key, or its end."""
        time.sleep(0.005)  # later than what was written into other topics
        producer = Producer({**self.settings.kafka.client_config(), "log_level": 0})
        self.number += 1
        for key in range(KEYS):
            v = None if (key + self.number) % 5 == 0 else self.number
            value = None if v is None else json.dumps({"v": v}).encode()

            def taken(_: object, message: Any, key: int = key, v: int | None = v) -> None:
                self.written.append((topic, message.partition(), message.offset(), key, v))

            producer.produce(
                topic, value, json.dumps({"id": key, "k": "a"}).encode(), partition=key % 2, on_delivery=taken
            )
        assert producer.flush(30) == 0

    def end(self, topic: str, read: Seam) -> None:
        """The topic is deleted, when the table had read it up to there."""
        self.stack.kafka.delete_topic(topic)
        self.read_of_left[topic] = read
        wait_for(lambda: topic not in Log(self.settings.kafka).names())

    def rows(self, end: Seam) -> Rows:
        """The replay of all that an answer up to an end holds."""
        rows: Rows = {}
        for topic, partition, offset, key, v in self.written:
            known = end if topic in end.topics else self.read_of_left.get(topic, Seam())
            if offset < known.get((topic, partition)):
                rows.pop(key, None) if v is None else rows.update({key: v})
        return rows


@dataclass
class Asked:
    """The answers of a server, compared with the replay."""

    days: Days
    served: Served
    answers: int = 0
    refused: str = ""

    def read(self) -> Seam | None:
        """Each lookup and an extract: right, or refused; up to where the extract went."""
        client = self.served.reads.client
        try:
            for key in range(KEYS):
                answer: dict[str, Any] = client.lookup(NAME, {"id": str(key)})
                expected = self.days.rows(Seam.from_dict(answer["read_point"]["end"])).get(key)
                assert [row["v"] for row in answer["rows"]] == ([] if expected is None else [expected])
                self.answers += 1
            sink = io.BytesIO()
            point = client.extract(NAME, None, "arrow", sink, lambda _: None)
        except ThermoclineError as error:
            self.refused = str(error)
            return None
        rows = pa.ipc.open_stream(sink.getvalue()).read_all().to_pylist()
        assert {row["id"]: row["v"] for row in rows} == self.days.rows(point.end)
        self.answers += 1
        return point.end

    def until(self, end: Seam, topics: tuple[str, ...]) -> None:
        """Until the answers are of these topics, and go up to there."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = self.read()
            if found is not None and found.topics == topics and found.at_least(end):
                return
            assert time.monotonic() < deadline, f"up to {found}, not {end}; {self.refused}"
            time.sleep(0.05)


@pytest.fixture(scope="module")
def stack(new_stack: Callable[..., Stack]) -> Stack:
    return new_stack("rotated", partitions=1)


@pytest.fixture
def settings(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(topic_watch, "LOOK_SECONDS", 0.0)
    base = stack.config_path.read_text().partition("[tables.")[0]
    path = stack.folder / "rotated.toml"
    path.write_text(base + SECTION)
    return load_settings(path)


@pytest.fixture
def owner_of(settings: Settings) -> Iterator[Callable[[], Owner]]:
    opened: list[Owner] = []

    def opening() -> Owner:
        opened.append(Owner.open(settings, NAME, SystemClock()))
        return opened[-1]

    yield opening
    for one in opened:
        one.close()


def caught_up(owner: Owner) -> Seam:
    """The seam after all that the log has was read."""
    owner.step()
    goal = owner.log.ends(owner.definition.topics)
    while not owner.position.seam.at_least(goal):
        owner.step()
    return owner.position.seam


FIRST, SECOND, THIRD = "log.20240101", "log.20240102", "log.20240103"


def test_topics_come_and_go_and_every_answer_is_right_as_of_its_read_point(
    stack: Stack, settings: Settings, owner_of: Callable[[], Owner]
) -> None:
    config = ["--config", str(stack.folder / "rotated.toml")]
    days = Days(stack, settings)
    stack.kafka.create_topic("log.today", 1)
    assert entry.run([*config, "table", "create", NAME]) == ExitCode.USAGE  # no topic matches yet
    days.begin(FIRST)
    days.write(FIRST)
    assert entry.run([*config, "table", "create", NAME]) == 0
    owner = owner_of()
    served = Served(cast(Live, SimpleNamespace(name=NAME, settings=settings, topic=None)))
    asked = Asked(days, served)
    try:
        asked.until(owner.log.ends([FIRST]), (FIRST,))
        next_day(days, asked, owner)
        drained_day_leaves(days, asked, owner)
        day_again(days, asked, owner)
        stopped = unread_day_stops(days, asked, owner)
        owner.close()
        with pytest.raises(TopicDeleted) as again:
            owner_of()
        assert again.value.unread == stopped.unread
        assert entry.run([*config, *stopped.resume.split()[1:]]) == 0
        days.read_of_left[THIRD] = Seam()
        asked.until(caught_up(owner_of()), (FIRST, SECOND))
        assert entry.run([*config, "verify", NAME]) == 0
    finally:
        served.close()
    assert asked.answers > 100
    assert not served.crashes


def next_day(days: Days, asked: Asked, owner: Owner) -> None:
    """Its topic counts from the snapshot on that names it."""
    days.write(FIRST)
    days.begin(SECOND)
    days.write(SECOND)
    asked.until(owner.log.ends([FIRST]), (FIRST,))
    caught_up(owner)
    assert definition_of(table_of(days.settings), NAME).topics == (FIRST, SECOND)
    days.write(SECOND)
    asked.until(owner.log.ends([FIRST, SECOND]), (FIRST, SECOND))


def drained_day_leaves(days: Days, asked: Asked, owner: Owner) -> None:
    """Its rows stay."""
    days.end(FIRST, caught_up(owner))
    days.write(SECOND)
    asked.read()
    caught_up(owner)
    table = table_of(days.settings)
    named = [one.summary.additional_properties for one in table.snapshots() if one.summary]
    assert [one["thermocline.topics-left"] for one in named if "thermocline.topics-left" in one] == [FIRST]
    assert current_state(table, NAME).seam.topics == (SECOND,)
    assert list(current_state(table, NAME).topic_ids) == [SECOND]
    asked.until(owner.log.ends([SECOND]), (SECOND,))


def day_again(days: Days, asked: Asked, owner: Owner) -> None:
    """A topic made again under the name of one that left is another one, read from its first record on."""
    days.written = [(f"{one[0]} before" if one[0] == FIRST else one[0], *one[1:]) for one in days.written]
    days.read_of_left[f"{FIRST} before"] = renamed(days.read_of_left.pop(FIRST), FIRST, f"{FIRST} before")
    days.begin(FIRST)
    days.write(FIRST)
    asked.until(caught_up(owner), (FIRST, SECOND))


def unread_day_stops(days: Days, asked: Asked, owner: Owner) -> TopicDeleted:
    """One that is deleted with records unread; the server goes on with what it holds."""
    days.begin(THIRD)
    caught_up(owner)
    days.write(THIRD)
    ends = owner.log.ends([THIRD])
    asked.until(ends, (FIRST, SECOND, THIRD))
    owner.topics.saw(owner.log.ends([FIRST, SECOND, THIRD]))  # as before a batch that fails
    held = owner.position.seam
    days.end(THIRD, ends)
    with pytest.raises(TopicDeleted) as stopped:
        owner.step()
    assert stopped.value.unread == (f"{THIRD}/0@0-6", f"{THIRD}/1@0-6")
    assert owner.position.seam == held
    point = asked.read()
    assert point is not None
    assert point.at_least(ends)
    return stopped.value


def renamed(seam: Seam, topic: str, name: str) -> Seam:
    return Seam({(name, partition): at for of, partition, at in seam.items() if of == topic})


def table_of(settings: Settings) -> Table:
    return load_table(open_catalog(settings.catalog), NAME, f"app.{NAME}")


def test_a_new_table_warns_of_records_in_topics_that_its_pattern_finds(
    stack: Stack, settings: Settings
) -> None:
    stack.kafka.create_topic("odd.1", 1)
    producer = Producer({**settings.kafka.client_config(), "log_level": 0})
    producer.produce("odd.1", b'{"v": 1, "w": 2}', b'{"id": 1, "k": "a"}')
    assert producer.flush(30) == 0
    table = settings.table(NAME).model_copy(update={"topics": ("odd\\.\\d",)})
    assert warnings_of(settings, table.definition(NAME)) == [
        'no column is read from: field "w" in 1 of 1 sampled values'
    ]
