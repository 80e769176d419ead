"""Lag in seconds and headroom against a real broker, from times of producers and of the broker itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.manual_clock import ManualClock
from thermocline.dev.broker import LocalKafka
from thermocline.kafka.log import Log
from thermocline.kafka.standing import first_times, oldest_after, standing_at
from thermocline.process.clock import SystemClock
from thermocline.rules.definition import LiveTable
from thermocline.rules.headroom import Limit, RecordTime, TimeFrom
from thermocline.rules.seam import Seam
from thermocline.serving.tail.standing import ServedStanding
from thermocline.settings import KafkaSettings

DEFINITION = LiveTable.build(
    name="t", identifier="a.t", topics=["aged"], key=["k"], columns={"k": "string", "v": "long"}
)
CUT = LiveTable.build(
    name="t", identifier="a.t", topics=["cut"], key=["k"], columns={"k": "string", "v": "long"}
)
HOUR_MS = 3_600_000


@dataclass
class State:
    """What a snapshot says, as far as it is asked here."""

    seam: Seam
    has_read: bool = True
    drained_ms: int = 0
    watermark_ms: int = -1
    tombstones_since_ms: dict[str, int] = field(default_factory=dict)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaSettings]:
    with LocalKafka(tmp_path_factory.mktemp("kafka")) as kafka:
        kafka.create_topic("aged", 3, {"retention.ms": str(4 * HOUR_MS)})
        kafka.create_topic("cut", 2, {"retention.ms": str(4 * HOUR_MS)})
        kafka.create_topic("stamped", 1, {"message.timestamp.type": "LogAppendTime"})
        yield KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)


def test_the_first_record_that_waits_says_its_time_and_who_gave_it(settings: KafkaSettings) -> None:
    producer = Producer(settings.client_config())
    now_ms = int(time.time() * 1000)
    for hours in (3, 2, 1):
        producer.produce("aged", b"v", b"k", partition=0, timestamp=now_ms - hours * HOUR_MS)
    producer.produce("aged", b"v", b"k", partition=1, timestamp=now_ms)
    producer.produce("stamped", b"v", b"k", partition=0, timestamp=now_ms - HOUR_MS)
    producer.flush(30)
    config, clock = settings.client_config(), SystemClock()

    start = Seam.of({"aged": {0: 1, 1: 0, 2: 0}, "stamped": {0: 0}})
    found = first_times(config, start, clock)
    stamped = found.pop(("stamped", 0))
    assert found == {
        ("aged", 0): RecordTime(now_ms - 2 * HOUR_MS, TimeFrom.PRODUCER),
        ("aged", 1): RecordTime(now_ms, TimeFrom.PRODUCER),
    }, "of the partition that has none, nothing is said"
    assert stamped.given_by is TimeFrom.APPEND
    assert stamped.at_ms >= now_ms

    log = Log(settings)
    at: Any = SimpleNamespace(
        seam=Seam.of({"aged": {0: 1, 1: 1, 2: 0}}),
        has_read=True,
        drained_ms=0,
        watermark_ms=-1,
        tombstones_since_ms={},
    )
    standing = standing_at(log, config, DEFINITION, at, clock)
    said = standing.document(now_ms)
    assert (said["ingest_lag_seconds"], said["lag_time_from"]) == (7200.0, "producer")
    assert (standing.headroom.limit, said["headroom_seconds"], said["retention_seconds"]) == (
        Limit.TIME,
        7200.0,
        14_400.0,
    )
    ends = log.ends(["aged"])
    assert oldest_after(config, ends, ends, clock).lag_seconds(now_ms) == 0.0


def test_a_server_says_where_the_log_begins_and_how_old_what_is_unread_is(settings: KafkaSettings) -> None:
    now_ms = int(time.time() * 1000)
    producer = Producer(settings.client_config())
    for hours in (3, 2, 1):
        producer.produce("cut", b"v", b"k", partition=0, timestamp=now_ms - hours * HOUR_MS)
    producer.flush(30)
    admin = AdminClient(settings.client_config())
    for deleted in admin.delete_records([TopicPartition("cut", 0, 1)]).values():
        deleted.result(30)
    state = State(Seam.of({"cut": {0: 1, 1: 0}}))
    newest = SimpleNamespace(definition=CUT, state=state, seam=state.seam)
    follower: Any = SimpleNamespace(newest=newest)
    tailer: Any = SimpleNamespace(end=Seam.of({"cut": {0: 2, 1: 0}}), reached=lambda seam: seam)
    standing = ServedStanding(settings, follower, tailer, ManualClock(now_ms))

    assert standing.said()["log_start"] is None
    standing.look()

    said = standing.said()
    assert said["log_start"] == {"cut": {"0": 1, "1": 0}}
    assert (said["ingest_lag_seconds"], said["tailer_lag_seconds"]) == (7200.0, 3600.0)
