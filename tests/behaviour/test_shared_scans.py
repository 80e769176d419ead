"""Tables of one process that are fed by one topic: what the broker sends, it sends once for all of them.

What it sends is counted by Kafka's own client, in its statistics.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.behaviour.live import wait_for
from tests.behaviour.topic import APP, Topic
from thermocline.dev.stack import Stack
from thermocline.errors import ExitCode, TooManyBadRecords
from thermocline.iceberg.catalog import current_state, load_table, open_catalog
from thermocline.ingest.engine.engine import start_engine
from thermocline.ingest.owner.owner import Owner
from thermocline.ingest.owner.scans import step_together
from thermocline.ingest.run import Ended, run
from thermocline.ingest.table.create import create_table
from thermocline.kafka import log as log_module
from thermocline.process.clock import SystemClock
from thermocline.rules.seam import Seam
from thermocline.settings import Settings, load_settings

SECTION = """
[tables.{name}]
identifier = "app.{name}"
topics = ["{topic}"]
start = "earliest"
key = ["app_id", "user_id", "key"]
entity = ["app_id", "user_id"]
buckets = {buckets}
commit_interval_seconds = 0.3
{more}

[tables.{name}.columns]
app_id = "int"
user_id = "string"
key = "string"
value = "string"
"""
STATISTICS_MS = 5


class Shared:
    """A topic, and tables that it feeds."""

    def __init__(self, stack: Stack, topic: str, names: Sequence[str]) -> None:
        stack.kafka.create_topic(topic, 2)
        self.stack, self.names = stack, names
        self.topic = Topic(stack.settings.kafka, topic)
        for name in names:
            create_table(self.settings(), name)

    def settings(self, **more: str) -> Settings:
        """The configuration of all of them; ``more`` is of a table."""
        sections = [
            SECTION.format(name=name, topic=self.topic.name, buckets=2 + at, more=more.get(name, ""))
            for at, name in enumerate(self.names)
        ]
        path = self.stack.folder / f"{self.topic.name}.toml"
        path.write_text(self.stack.config_path.read_text().partition("[tables.")[0] + "".join(sections))
        return load_settings(path)

    def write(self, users: range, value: str) -> None:
        """A record of each user, acknowledged."""
        for user in users:
            self.topic.send((APP, f"u{user}", "k"), f"{value} {user}")
        self.topic.flush()

    def seam(self, name: str) -> Seam:
        table = load_table(open_catalog(self.settings().catalog), name, f"app.{name}")
        return current_state(table, name).seam

    def end(self) -> Seam:
        return log_module.Log(self.settings().kafka).ends([self.topic.name])

    def are_committed(self, *names: str) -> bool:
        end = self.end()
        return all(self.seam(name) == end for name in names)

    def check_rows(self) -> None:
        wanted = {key: row["value"] for key, row in self.topic.oracle.rows().items()}
        for name in self.names:
            table = load_table(open_catalog(self.settings().catalog), name, f"app.{name}")
            rows = table.scan().to_arrow().to_pylist()
            assert {(row["app_id"], row["user_id"], row["key"]): row["value"] for row in rows} == wanted


@pytest.fixture(scope="module")
def stack(new_stack: Callable[..., Stack]) -> Stack:
    return new_stack("shared")


class Sent:
    """What brokers sent to the consumers of this process: records, by the statistics of each client."""

    def __init__(self) -> None:
        self._by_client: dict[str, int] = {}
        self.emitted = 0

    @property
    def records(self) -> int:
        return sum(self._by_client.values())

    def said(self, statistics: str) -> None:
        document = json.loads(statistics)
        partitions = (one for topic in document["topics"].values() for one in topic["partitions"].values())
        self._by_client[document["name"]] = sum(one["rxmsgs"] for one in partitions)
        self.emitted += 1


class Counted:
    """A consumer that waits for its last statistics before it closes."""

    def __init__(self, consumer: Any, sent: Sent) -> None:
        self._consumer, self._sent = consumer, sent

    def close(self) -> None:
        before = self._sent.emitted
        while self._sent.emitted < before + 2:  # one may have been under way
            self._consumer.poll(0.02)
        self._consumer.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """Of ranges that are read in this process from now on."""
    sent, made = Sent(), log_module.consumer_of

    def consumer_of(client_config: Any, pace: Any) -> Any:
        counting = {"statistics.interval.ms": STATISTICS_MS, "stats_cb": sent.said}
        return Counted(made({**client_config, **counting}, pace), sent)

    monkeypatch.setattr(log_module, "consumer_of", consumer_of)
    return sent


@contextmanager
def ingesting(settings: Settings, names: Sequence[str]) -> Iterator[list[Ended]]:
    """As ``ingest run``, within the block; how each table ended, after it."""
    stop, ended = threading.Event(), list[Ended]()
    thread = threading.Thread(target=lambda: ended.extend(run(settings, names, False, stop)))
    thread.start()
    try:
        yield ended
    finally:
        stop.set()
        thread.join()


def test_a_topic_is_sent_once_for_all_its_tables_and_one_that_stops_catches_up_alone(
    stack: Stack, sent: Sent
) -> None:
    """Goal: 600 records are 600 for four tables, too; and one that bears no bad record harms no other."""
    names = ["one", "two", "three", "four"]
    shared = Shared(stack, "shared", names)
    strict = shared.settings(two="errors_count_max = 0")
    shared.write(range(600), "first")
    with ingesting(strict, names) as ended:
        wait_for(lambda: shared.are_committed(*names))
        assert sent.records == 600
        shared.topic.send_raw(b"no key", b"{}")
        shared.write(range(99), "second")
        wait_for(lambda: shared.are_committed("one", "three", "four"))
        shared.write(range(50, 150), "third")
        wait_for(lambda: shared.are_committed("one", "three", "four"))
    assert [type(one.error) for one in ended] == [type(None), TooManyBadRecords, type(None), type(None)]
    assert sum(offset for _, _, offset in shared.seam("two").items()) == 600

    before = sent.records
    with ingesting(shared.settings(), names) as ended:
        wait_for(lambda: shared.are_committed(*names))
        assert sent.records == before + 200  # for the one that lacked them
        shared.write(range(140, 160), "fourth")
        wait_for(lambda: shared.are_committed(*names))
        assert sent.records == before + 220
    assert [one.error for one in ended] == [None] * 4

    before = sent.records
    shared.write(range(30), "fifth")
    once = run(shared.settings(), names, True, threading.Event())
    assert [one.exit_code for one in once] == [ExitCode.DONE] * 4
    assert sent.records == before + 30
    shared.check_rows()


@pytest.mark.full
def test_spark_reads_a_topic_once_for_all_its_tables(new_stack: Callable[..., Stack], tmp_path: Path) -> None:
    """Goal: one job for two tables, in which each record was sent to one worker. Oracle: a dict."""
    shared = Shared(new_stack("shared-spark", engine="spark"), "shared-spark", ["left", "right"])
    settings, clock = shared.settings(), SystemClock()
    engine = start_engine(settings, "left")
    first = Owner.open(settings, "left", clock, engine=engine)
    owners = [first, Owner.open(settings, "right", clock, engine=engine)]
    try:
        for owner in owners:
            owner.log = first.log
            counting = {"statistics.interval.ms": STATISTICS_MS, "stats_cb": told_to(tmp_path)}
            owner.task = replace(owner.task, client_config={**owner.task.client_config, **counting})
        for number in range(2):
            shared.write(range(number * 100, number * 100 + 500), f"batch {number}")
            ((one, other),) = step_together(owners)
            assert [one, other] == [(owners[0], False), (owners[1], False)]
    finally:
        for owner in owners:
            owner.close()
        engine.stop()
    shared.check_rows()
    # The last statistics of a client may be older than its last record.
    assert 0 < sum(int(path.read_text()) for path in tmp_path.iterdir()) <= 1_000


def told_to(folder: Path) -> Callable[[str], None]:
    """Writes how many records each client was sent; it goes to Spark's workers."""

    def told(statistics: str) -> None:
        document = json.loads(statistics)
        partitions = (one for topic in document["topics"].values() for one in topic["partitions"].values())
        count = sum(one["rxmsgs"] for one in partitions)
        (folder / f"{os.getpid()}-{document['name']}").write_text(str(count))

    return told
