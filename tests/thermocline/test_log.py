"""What a broker says of a topic. What only a real broker can answer is in tests/behaviour/test_log.py."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.manual_clock import ManualClock
from thermocline.errors import TopicForbidden
from thermocline.kafka import log as log_module
from thermocline.kafka.facts import OffsetRange, TopicConfig, config_of
from thermocline.kafka.log import Log, read_ranges
from thermocline.kafka.tail import SILENCE_SECONDS_MAX, Tail
from thermocline.rules.seam import Seam
from thermocline.settings import KafkaSettings


def test_what_a_broker_leaves_out_is_taken_for_the_most_careful_reading() -> None:
    careful = TopicConfig(is_compacted=True, delete_retention_ms=86_400_000, is_log_append_time=False)
    assert config_of({}) == config_of({"cleanup.policy": None}) == careful
    assert config_of({"cleanup.policy": "delete", "delete.retention.ms": "5"}) == TopicConfig(
        is_compacted=False, delete_retention_ms=5, is_log_append_time=False
    )


def test_a_tail_of_brokers_that_never_answer_is_silent() -> None:
    clock = ManualClock()
    tail = Tail({"bootstrap.servers": "127.0.0.1:9"}, Seam({("t", 0): 0}), clock=clock)
    assert tail.poll(0) == []
    assert tail.silence() is None
    clock.advance(3600)
    assert tail.poll(0) == []
    assert tail.silence() is None, "nobody listened"
    for _ in range(round(SILENCE_SECONDS_MAX)):
        assert tail.silence() is None
        clock.advance(1)
        assert tail.poll(0) == []
    clock.advance(3600)
    assert tail.poll(0) == []
    silence = tail.silence()
    assert silence is not None, "that nobody listened ends no silence"
    assert "127.0.0.1:9" in silence.what
    tail.close()


def test_a_topic_that_the_user_may_not_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The consumer hears of it once, and then nothing more of the topic; other errors pass."""
    config: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:9"}
    said = [
        SimpleNamespace(topic=lambda: "t", partition=lambda: 0, error=lambda code=code: KafkaError(code))
        for code in (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    ]
    monkeypatch.setattr(log_module, "take", lambda *_: said)
    with pytest.raises(TopicForbidden, match="topic t"):
        list(read_ranges(config, [OffsetRange("t", 0, 0, 5)]))

    probes = SimpleNamespace(ends=list, facts=dict)
    reader = SimpleNamespace(take=lambda *_: said, probes=probes, close=lambda: None)
    tail = Tail(config, Seam({("t", 0): 0}), reader=reader)
    assert tail.poll(0) == []
    with pytest.raises(TopicForbidden, match="topic t"):
        tail.poll(0)
    assert not tail.has_read("t")


def test_a_topic_that_the_user_may_not_describe_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Future[Any]()
    refused.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
    admin = SimpleNamespace(
        describe_topics=lambda *_, **__: {"t": refused},
        describe_configs=lambda asked, **_: {asked[0]: refused},
    )
    monkeypatch.setattr(log_module, "admin_client", lambda *_: admin)
    log = Log(KafkaSettings(bootstrap_servers="127.0.0.1:9"))
    with pytest.raises(TopicForbidden, match="topic t"):
        log.describe(["t"])
    careful = TopicConfig(
        is_compacted=True, delete_retention_ms=86_400_000, is_log_append_time=False, is_hidden=True
    )
    assert log.configs(["t"]) == {"t": careful}


def test_a_topic_that_is_not_listed_is_missing_only_where_the_cluster_goes_on_to_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A list lacks what the user may not describe, and what a broker does not know yet."""
    said = {"hidden": KafkaError.TOPIC_AUTHORIZATION_FAILED, "gone": KafkaError.UNKNOWN_TOPIC_OR_PART}
    asked: list[str] = []

    def answer(topic: str) -> Future[Any]:
        asked.append(topic)
        future = Future[Any]()
        code = (
            KafkaError.UNKNOWN_TOPIC_OR_PART
            if topic == "late" and asked.count("late") < 3
            else said.get(topic)
        )
        if code is None:
            future.set_result(SimpleNamespace(topic_id="id", partitions=[0]))
        else:
            future.set_exception(KafkaException(KafkaError(code)))
        return future

    admin = SimpleNamespace(
        describe_topics=lambda topics, **_: {topic: answer(topic) for topic in topics.topic_names}
    )
    monkeypatch.setattr(log_module, "admin_client", lambda *_: admin)
    monkeypatch.setattr(log_module, "TopicCollection", lambda names: SimpleNamespace(topic_names=names))
    log = Log(KafkaSettings(bootstrap_servers="127.0.0.1:9"), ManualClock())
    assert log.missing(["there", "gone", "late"]) == ("gone",)
    assert asked.count("there") == 1
    with pytest.raises(TopicForbidden, match="topic hidden"):
        log.missing(["hidden"])
    assert log.missing([]) == ()


def test_nothing_is_asked_of_no_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client refuses such questions, and a table whose topics were all deleted has none."""
    monkeypatch.setattr(log_module, "admin_client", lambda *_: SimpleNamespace())
    log = Log(KafkaSettings(bootstrap_servers="127.0.0.1:9"))
    assert (log.describe([]), log.configs([]), log.retentions([])) == ({}, {}, {})
    assert (log.starts([]), log.bounds([]), log.ends_together([])) == (Seam(), (Seam(), Seam()), Seam())
    assert (log.may_read([]), log.open_transactions([])) == ({}, ())
