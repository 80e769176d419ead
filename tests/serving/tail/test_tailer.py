"""The tailer's loop against a log, a catalog and settings that the test moves by hand."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.serving.hot_log import DEFINITION, PLACES, START, FakeLog
from thermocline.errors import KafkaUnreachable, OffsetsGone
from thermocline.iceberg.catalog import SnapshotState
from thermocline.kafka.facts import RecordChunk, TopicConfig, TopicFacts
from thermocline.process.clock import Clock, SystemClock
from thermocline.rules.seam import Seam
from thermocline.serving.store.layout import TAILER_STATUS
from thermocline.serving.tail import tailer as tailer_module
from thermocline.serving.tail.follower import PublishedSnapshot
from thermocline.serving.tail.tailer import Tailer

P0, P1, OTHER = PLACES
PATIENCE_SECONDS = 30.0
SOURCE = "the topics of one cluster"
ALTERED = replace(DEFINITION, version=2, suppress_unchanged=not DEFINITION.suppress_unchanged)


def snapshot(snapshot_id: int, seam: Seam) -> SnapshotState:
    return SnapshotState(
        snapshot_id=snapshot_id,
        seam=seam,
        epoch=1,
        batch_id="b",
        cluster_id="c",
        topic_ids={"profiles": "t"},
        definition_version=1,
        watermark_ms=-1,
        timestamp_ms=0,
    )


NOT_COMPACTED = TopicConfig(is_compacted=False, delete_retention_ms=3_600_000, is_log_append_time=False)


@dataclass
class Kafka:
    """What ``Log`` and ``Tail`` say, and what the test changes."""

    log: FakeLog = field(default_factory=FakeLog)
    starts: dict[tuple[str, int], int] = field(default_factory=lambda: dict.fromkeys(PLACES, 0))
    cluster_id: str = "c"
    topic_id: str = "t"
    is_away: bool = False
    config: TopicConfig = NOT_COMPACTED
    is_silent: bool = False  # it never answers, and nothing is raised
    records_a_poll: int = 1_000_000  # of each partition

    def log_now(self) -> Any:
        if self.is_away:
            raise KafkaUnreachable(bootstrap_servers="nowhere", detail="away")
        return SimpleNamespace(
            cluster_id=lambda: self.cluster_id,
            describe=lambda topics: self.facts(),
            starts=lambda topics: Seam(self.starts),
            ends=lambda topics: Seam(self.log.ends),
            bounds=lambda topics: (Seam(self.starts), Seam(self.log.ends)),
            configs=lambda topics: dict.fromkeys(topics, self.config),
        )

    def facts(self) -> dict[str, TopicFacts]:
        ids = {"profiles": self.topic_id, "more": "m"}
        return {name: TopicFacts(ids[name], sum(topic == name for topic, _ in self.starts)) for name in ids}

    def tail(self, start: Seam, facts: dict[str, TopicFacts]) -> Any:
        return FakeTail(self, {(topic, partition): offset for topic, partition, offset in start.items()})


@dataclass
class FakeTail:
    """Reads on; what it says of the topics was asked for after the poll before, as the real one's lags."""

    kafka: Kafka
    at: dict[tuple[str, int], int]
    asked: dict[str, TopicFacts] = field(default_factory=dict)
    told: dict[str, TopicFacts] = field(default_factory=dict)

    def poll(self, timeout_seconds: float) -> list[RecordChunk]:
        chunks = []
        for place, records in self.kafka.log.partitions.items():
            if place not in self.at:
                continue
            if self.kafka.starts[place] > self.at[place]:
                gap = f"{place[0]}/{place[1]}@{self.at[place]}-{self.kafka.starts[place]}"
                raise OffsetsGone(table="profiles", gaps=(gap,))
            waiting = [record for record in records if record.offset >= self.at[place]]
            new = waiting[: self.kafka.records_a_poll]
            self.at[place] = self.kafka.log.ends[place] if new == waiting else new[-1].offset + 1
            if new:
                keys: list[bytes | None] = [
                    b'{"app_id":1,"user_id":"%s","key":"k"}' % record.key[1].encode() for record in new
                ]
                values: list[bytes | None] = [b"broken" if record.is_bad else b"{}" for record in new]
                offsets = [record.offset for record in new]
                chunks.append(RecordChunk(*place, keys, values, offsets, [0] * len(new)))
        self.told, self.asked = self.asked, self.kafka.facts()
        return chunks

    def positions(self) -> Seam:
        return Seam(self.at)

    def silence(self) -> KafkaUnreachable | None:
        if self.kafka.is_silent:
            return KafkaUnreachable(bootstrap_servers="nowhere", detail="no answer")
        return None

    def reached_end_at(self) -> dict[tuple[str, int], float]:
        return self.at_its_end(SystemClock())

    def at_its_end(self, clock: Clock) -> dict[tuple[str, int], float]:
        ends = self.kafka.log.ends
        return {place: clock.monotonic() for place, offset in self.at.items() if offset >= ends[place]}

    def facts(self) -> dict[str, TopicFacts]:
        return self.told

    def close(self) -> None:
        pass


@dataclass
class World:
    kafka: Kafka
    follower: Any
    folder: Path
    settings: Any
    tailer: Tailer

    def status(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = msgspec.json.decode((self.folder / TAILER_STATUS).read_bytes())
        except FileNotFoundError:
            return {}
        return found

    def commit(self, snapshot_id: int, seam: Seam) -> None:
        self.follower.newest = PublishedSnapshot(DEFINITION, snapshot(snapshot_id, seam), SOURCE)

    def wait_for(self, is_so: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_so(self.status()):
            assert time.monotonic() < deadline, self.status()
            time.sleep(0.005)
        return self.status()

    def wait_for_position(self, offset: int) -> dict[str, Any]:
        return self.wait_for(
            lambda status: status.get("positions", {}).get("profiles", {}).get("0") == offset
        )


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    kafka = Kafka()
    monkeypatch.setattr(tailer_module, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(tailer_module, "STATUS_SECONDS", 0.0)
    settings: Any = SimpleNamespace(hot_bytes_max=1 << 30)
    source: Any = SimpleNamespace(log=kafka.log_now, tail=kafka.tail)
    follower: Any = SimpleNamespace(
        has_looked=True, newest=PublishedSnapshot(DEFINITION, snapshot(1, START), SOURCE), problem=None
    )
    stop = threading.Event()
    tailer = Tailer(settings, "profiles", tmp_path, follower, source, SystemClock(), stop.wait)
    thread = threading.Thread(target=tailer.run, args=(stop,))
    thread.start()
    yield World(kafka, follower, tmp_path, settings, tailer)
    stop.set()
    thread.join()
    tailer.close()
    assert msgspec.json.decode((tmp_path / TAILER_STATUS).read_bytes())["state"] == "stopped"


@pytest.mark.parametrize("how", ["is_silent", "is_away"])
def test_an_outage_and_its_end_are_logged_once_each(
    world: World, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """Method: brokers that fall silent while they are read, and brokers that refuse; two outages of each."""
    caplog.set_level(logging.INFO, "thermocline.serving.tail.tailer")
    world.wait_for(lambda status: status.get("caught_up_to_start_ends"))
    for number in range(1, 3):
        setattr(world.kafka, how, True)
        if how == "is_away":
            world.kafka.topic_id += "again"  # so that the tailer asks
        world.wait_for(lambda status: (status.get("problem") or {}).get("code") == "kafka-unreachable")
        time.sleep(0.2)
        if how == "is_away":
            world.kafka.topic_id = world.kafka.topic_id.removesuffix("again")
        setattr(world.kafka, how, False)
        world.wait_for(lambda status: status.get("problem") is None)
        said = [record.getMessage() for record in caplog.records if record.levelno != logging.DEBUG]
        assert said.count("the log cannot be read; answers are getting older") == number
        assert said.count("reading continues") == number


def test_it_reads_what_comes_and_counts_what_is_bad(world: World) -> None:
    world.wait_for(lambda status: status.get("caught_up_to_start_ends"))
    world.kafka.log.add(P0, (1, "a", "k"), "v", 0)
    world.kafka.log.add(P0, (1, "b", "k"), "v", 0, is_bad=True)
    status = world.wait_for_position(102)
    assert (status["records"], status["bad"], status["hot_records"]) == (2, {"decode": 1}, 2)
    assert status["state"] == "running"


def test_it_waits_for_a_cluster_that_is_away(world: World) -> None:
    world.wait_for(lambda status: status.get("state") == "running")
    world.kafka.is_away = True
    world.follower.newest = PublishedSnapshot(ALTERED, snapshot(2, START), SOURCE)
    status = world.wait_for(lambda status: status["state"] == "waiting")
    assert status["problem"]["code"] == "kafka-unreachable"
    assert status["definition_version"] == 1, "what is held answers until another tier can be filled"
    world.kafka.is_away = False
    assert world.wait_for(lambda status: status["state"] == "running")["definition_version"] == 2


def test_a_log_cut_beyond_its_end_freezes_it_until_a_snapshot_contains_the_lost_records(world: World) -> None:
    world.kafka.log.add(P0, (1, "a", "k"), "v", 0)
    world.wait_for_position(101)
    world.kafka.starts[P0] = 200
    world.kafka.log.ends[P0] = 200
    status = world.wait_for(lambda status: status["state"] == "failed")
    assert status["problem"]["code"] == "offsets-gone"
    assert status["positions"]["profiles"]["0"] == 101
    world.commit(2, Seam({**dict.fromkeys(PLACES, 100), P0: 200}))
    status = world.wait_for(lambda status: status["state"] == "running")
    assert status["start"]["profiles"]["0"] == status["positions"]["profiles"]["0"] == 200


@pytest.mark.parametrize(
    ("name", "said"), [("cluster_id", "cluster another answers"), ("topic_id", "id another")]
)
def test_another_cluster_or_topic_is_not_read(world: World, name: str, said: str) -> None:
    world.wait_for(lambda status: status.get("state") == "running")
    setattr(world.kafka, name, "another")
    world.commit(
        2, Seam(dict.fromkeys(PLACES, 50))
    )  # the tier has to begin again, so it looks at the log again
    problem = world.wait_for(lambda status: status["state"] == "failed")["problem"]
    assert problem["code"] == "log-replaced"
    assert said in problem["what"]


def test_a_partition_that_a_snapshot_names_is_taken_up(world: World) -> None:
    world.wait_for(lambda status: status.get("state") == "running")
    new = ("profiles", 2)
    world.kafka.log.partitions[new], world.kafka.log.ends[new], world.kafka.starts[new] = [], 0, 0
    world.kafka.log.add(new, (1, "a", "k"), "v", 0)
    world.commit(2, Seam({**dict.fromkeys(PLACES, 100), new: 0}))
    world.wait_for(lambda status: status["positions"]["profiles"].get("2") == 1)


def test_at_its_budget_it_pauses_and_goes_on_when_there_is_room(world: World) -> None:
    world.wait_for(lambda status: status.get("state") == "running")
    world.settings.hot_bytes_max = 1
    world.wait_for(lambda status: status["paused"])
    world.kafka.log.add(P0, (1, "a", "k"), "v", 0)
    assert world.wait_for(lambda status: status["state"] == "paused")["positions"]["profiles"]["0"] == 100
    world.settings.hot_bytes_max = 1 << 30
    world.wait_for_position(101)


def test_a_topic_that_grows_is_taken_up_without_a_snapshot(world: World) -> None:
    world.wait_for(lambda status: status.get("state") == "running")
    new = ("profiles", 2)
    world.kafka.log.partitions[new], world.kafka.log.ends[new] = [], 0
    world.kafka.log.add(new, (1, "a", "k"), "v", 0)
    world.kafka.starts[new] = 0
    world.wait_for(lambda status: status["positions"]["profiles"].get("2") == 1)


def test_a_topic_that_is_made_again_stops_it_without_a_snapshot(world: World) -> None:
    world.wait_for(lambda status: status.get("state") == "running")
    world.kafka.topic_id = "another"
    world.kafka.log.add(P0, (1, "a", "k"), "v", 0)
    status = world.wait_for(lambda status: status["state"] == "failed")
    assert status["problem"]["code"] == "log-replaced"


def test_a_table_made_again_over_another_topic_takes_over_no_record(world: World) -> None:
    world.kafka.log.add(P0, (1, "a", "k"), "of the topic before", 0)
    world.wait_for_position(101)
    world.kafka.topic_id = "another"
    world.wait_for(lambda status: status["state"] == "failed")
    world.kafka.log.partitions[P0].clear()
    world.kafka.log.ends[P0] = 101  # a record that can't be known by its offset
    world.follower.newest = PublishedSnapshot(
        DEFINITION, replace(snapshot(2, START), topic_ids={"profiles": "another"}), "another"
    )
    status = world.wait_for(lambda status: status["state"] == "running" and status["snapshot_id"] == "2")
    assert world.wait_for_position(101)["hot_records"] == 0
    assert status["start"]["profiles"]["0"] == 100


def test_a_tier_is_kept_when_the_log_cannot_fill_another(world: World) -> None:
    """The table went back to a snapshot that the log was cut beyond: what is held answers on, older."""
    world.kafka.log.add(P0, (1, "a", "k"), "v", 0)
    world.wait_for_position(101)
    world.kafka.starts[P0] = 90
    world.commit(2, Seam(dict.fromkeys(PLACES, 50)))
    status = world.wait_for(lambda status: status["state"] == "failed")
    assert status["problem"]["code"] == "offsets-gone"
    assert (status["start"]["profiles"]["0"], status["hot_records"]) == (100, 1)
    assert status["caught_up_to_start_ends"]


def test_a_tier_that_was_begun_again_is_not_called_caught_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.wait_for(lambda status: status.get("caught_up_to_start_ends"))
    monkeypatch.setattr(tailer_module, "STATUS_SECONDS", 1e9)
    world.tailer.status_seconds = 1e9
    world.follower.newest = PublishedSnapshot(ALTERED, snapshot(2, START), SOURCE)
    status = world.wait_for(lambda status: status.get("definition_version") == 2)
    assert not status["caught_up_to_start_ends"]
