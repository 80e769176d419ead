"""Live tables of a test's own, several on one stack: topic, ingest in this process, and commands as typed."""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TypeVar

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)
from pyiceberg.table import Table

from tests.behaviour.topic import APP, Topic
from thermocline.cli import entry
from thermocline.dev.oracle import Acknowledged, RowKey, row_of
from thermocline.dev.stack import Stack
from thermocline.errors import ThermoclineError, TopicMissing
from thermocline.iceberg.catalog import SnapshotState, current_state, load_table, open_catalog
from thermocline.ingest.owner.owner import Owner
from thermocline.kafka.log import Log
from thermocline.process.clock import Clock, SystemClock
from thermocline.settings import Settings, load_settings

PATIENCE_SECONDS = 60.0
SECTION = """
[tables.{name}]
identifier = "app.{name}"
topics = ["{name}"]
start = "earliest"
buckets = 2
{choices}

[tables.{name}.columns]
app_id = "int"
user_id = "string"
key = "string"
value = "string"
updated_at = "timestamptz"
"""

APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
MANY = range(10_000, 12_000)
"""Users of `Live.write_many`."""
KEYED = 'key = ["app_id", "user_id", "key"]\nentity = ["app_id", "user_id"]'

Rows = dict[RowKey, str]
E = TypeVar("E", bound=ThermoclineError)


class Live:
    """A table and its topic, which have the same name."""

    def __init__(
        self,
        stack: Stack,
        name: str,
        partitions: int = 2,
        config: Mapping[str, str] | None = None,
        choices: str = KEYED,
    ) -> None:
        self.stack, self.name = stack, name
        stack.kafka.create_topic(name, partitions, config)
        self.topic = Topic(stack.settings.kafka, name)
        self.config_path = stack.folder / f"{name}.toml"
        base = stack.config_path.read_text().partition("[tables.")[0]
        self.config_path.write_text(base + SECTION.format(name=name, choices=choices))
        self.create()

    def create(self) -> None:
        """``table create``, as a user types it."""
        assert self.run("table", "create", self.name) == 0

    @property
    def settings(self) -> Settings:
        return load_settings(self.config_path)

    @property
    def log(self) -> Log:
        return Log(self.settings.kafka)

    @property
    def admin(self) -> AdminClient:
        return self.stack.kafka.admin

    def run(self, *arguments: str) -> int:
        """A command as a user types it, in this process; its exit code."""
        return entry.run(["--config", str(self.config_path), *arguments])

    def run_next(self, error: ThermoclineError) -> int:
        """The first line of what an error says to do next, as printed."""
        words = shlex.split(error.next.partition("\n")[0].partition("      (")[0])
        assert words[0] == "thermocline"
        return self.run(*words[1:])

    def open(self, clock: Clock | None = None) -> Owner:
        return Owner.open(self.settings, self.name, clock or SystemClock())

    def ingest(self, clock: Clock | None = None) -> None:
        """As ``ingest run --once``."""
        owner = self.open(clock)
        try:
            owner.catch_up(threading.Event())
        finally:
            owner.close()

    def stopped(self, by: type[E], clock: Clock | None = None) -> E:
        """What stops ingest, before it has written anything."""
        before = self.newest_id()
        with pytest.raises(by) as stop:
            self.ingest(clock)
        assert self.newest_id() == before
        return stop.value

    def send(self, user: int, value: str | None) -> None:
        self.topic.send((APP, f"u{user}", "plan"), value, user % self.partitions())

    def write(self, users: Iterable[int], value: str | None) -> None:
        for user in users:
            self.send(user, value)
        self.topic.flush()

    def write_many(self) -> None:
        """So many rows that their file is merged with no small one: changes of them are deletes."""
        self.write(MANY, "one of many")

    def partitions(self) -> int:
        return self.log.describe([self.name])[self.name].partitions

    def rows(self) -> Rows:
        rows = self.table().scan().to_arrow().to_pylist()
        by_key = {(row["app_id"], row["user_id"], row["key"]): row["value"] for row in rows}
        assert len(by_key) == len(rows), "a key is live twice"
        return by_key

    def state(self) -> SnapshotState:
        return current_state(self.table(), self.name)

    def summary(self) -> Mapping[str, str]:
        newest = self.table().current_snapshot()
        assert newest is not None
        assert newest.summary is not None
        return newest.summary.additional_properties

    def newest_id(self) -> int:
        newest = self.table().current_snapshot()
        assert newest is not None
        return newest.snapshot_id

    def property_of(self, name: str) -> str:
        return self.table().properties.get(name, "")

    def cut(self, offsets: Mapping[int, int]) -> None:
        """Delete the records below an offset in each partition, as retention does."""
        places = [TopicPartition(self.name, partition, offset) for partition, offset in offsets.items()]
        for done in self.admin.delete_records(places).values():
            done.result(PATIENCE_SECONDS)

    def recreate(self, partitions: int = 2) -> None:
        """Delete the topic and make another of its name; its records are remembered again."""
        self.stack.kafka.delete_topic(self.name)
        wait_for(self._is_gone)
        wait_for(lambda: self._is_created(partitions))
        self.topic = Topic(self.stack.settings.kafka, self.name)

    def add_partitions(self, total: int) -> None:
        """More partitions, and a producer that knows them; it goes on with the same oracle."""
        self.admin.create_partitions([NewPartitions(self.name, total)])[self.name].result(PATIENCE_SECONDS)
        wait_for(lambda: self.partitions() == total)
        topic = Topic(self.stack.settings.kafka, self.name)
        topic.oracle = self.topic.oracle
        self.topic = topic

    def set_config(self, **values: str) -> None:
        """Settings of the topic."""
        self._alter(ResourceType.TOPIC, self.name, values)

    def set_broker_config(self, **values: str) -> None:
        """Settings of the one broker."""
        self._alter(ResourceType.BROKER, "1", values)

    def _alter(self, kind: ResourceType, name: str, values: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(setting.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for setting, value in values.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        for done in self.admin.incremental_alter_configs([resource]).values():
            done.result(PATIENCE_SECONDS)

    def _is_gone(self) -> bool:
        try:
            self.log.describe([self.name])
        except TopicMissing:
            return True
        return False

    def _is_created(self, partitions: int) -> bool:
        """A deleted topic's name is free a moment later, and a new topic is known a moment after that."""
        with suppress(KafkaException):
            self.stack.kafka.create_topic(self.name, partitions)
        with suppress(TopicMissing):
            return bool(self.log.ends([self.name]))
        return False

    def table(self) -> Table:
        return load_table(open_catalog(self.settings.catalog), self.name, f"app.{self.name}")


def replayed(before: Rows, records: Iterable[Acknowledged]) -> Rows:
    """Rows after some more records, partition by partition in the order of the offsets."""
    rows = dict(before)
    for record in records:
        key, row = row_of(record)
        if row is None:
            rows.pop(key, None)
        else:
            rows[key] = row["value"]
    return rows


@contextmanager
def meanwhile(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Something goes on in a thread until it is told to stop; what it raises is raised at the end."""
    stop, failed = threading.Event(), []

    def run() -> None:
        try:
            work(stop)
        except BaseException as error:  # noqa: BLE001  it is raised at the end
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if failed:
        raise failed[0]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
