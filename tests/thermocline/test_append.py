"""Appending to a topic: in order, once each, through refusals and outages, without a broker of our own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.manual_clock import ManualClock
from thermocline.errors import ConfigInvalid, KafkaUnreachable, TopicMissing
from thermocline.kafka import append
from thermocline.kafka.append import TopicAppender
from thermocline.process.clock import SystemClock

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}
# librdkafka's own brokers, within the client.
MOCK = {"bootstrap.servers": "", "test.mock.num.brokers": 3}
RECORDS = [(b"billing", b"one"), (None, b"two"), (b"billing", b"three")]

OnDelivery = Callable[[KafkaError | None, object], None]


class Answers:
    """A producer of which a test says what becomes of each record: acknowledged, refused, or nothing yet."""

    made: list[Answers]
    script: deque[KafkaError | None]
    room = 1_000

    def __init__(self, config: dict[str, Any], **_: object) -> None:
        self.config = config
        self.log: list[bytes] = []
        self.asked: list[bytes] = []
        self.waiting: deque[tuple[bytes, OnDelivery]] = deque()
        self.is_purged = False
        Answers.made.append(self)

    def produce(self, _: str, value: bytes, key: bytes | None, on_delivery: OnDelivery) -> None:
        if len(self.waiting) >= Answers.room:
            raise BufferError
        self.asked.append(value)
        self.waiting.append((value, on_delivery))

    def poll(self, timeout_seconds: float) -> None:
        if not timeout_seconds:
            return
        clock.advance(timeout_seconds)
        while self.waiting and Answers.script:
            value, on_delivery = self.waiting.popleft()
            error = Answers.script.popleft()
            if error is None:
                self.log.append(value)
            on_delivery(error, None)

    def purge(self) -> None:
        self.is_purged = True


clock = ManualClock()


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> type[Answers]:
    Answers.made, Answers.script, Answers.room = [], deque(), 1_000
    monkeypatch.setattr(append, "Producer", Answers)
    return Answers


def test_a_batch_is_appended_when_every_record_is_acknowledged() -> None:
    appender = TopicAppender(MOCK, "audit")
    appender.append(RECORDS, 30)
    assert appender.is_idle
    appender.append([], 30)
    appender.close()


def test_it_is_idempotent_and_never_gives_a_record_up(answers: type[Answers]) -> None:
    TopicAppender({**NOWHERE, "acks": "1", "delivery.timeout.ms": "5"}, "audit", clock)
    config = answers.made[0].config
    assert (config["enable.idempotence"], config["acks"], config["delivery.timeout.ms"]) == (True, "all", 0)
    assert config["bootstrap.servers"] == "127.0.0.1:1"


def test_brokers_that_are_down_are_an_error_in_time_and_waited_for_again() -> None:
    appender = TopicAppender(NOWHERE, "audit", SystemClock())
    with pytest.raises(KafkaUnreachable, match="127") as away:
        appender.append(RECORDS, 0.2)
    assert away.value.cause == "3 records were not acknowledged in 0.2 s"
    assert not appender.is_idle
    with pytest.raises(KafkaUnreachable):
        appender.resume(0.2)
    appender.close()


def test_what_is_on_its_way_is_waited_for_and_not_sent_again(answers: type[Answers]) -> None:
    appender = TopicAppender(NOWHERE, "audit", clock)
    answers.script.extend([None])
    with pytest.raises(KafkaUnreachable):
        appender.append(RECORDS, 2)
    with pytest.raises(KafkaUnreachable):
        appender.resume(2)
    answers.script.extend([None, None])
    appender.resume(2)
    (producer,) = answers.made
    assert producer.asked == producer.log == [b"one", b"two", b"three"]


def test_a_queue_that_is_full_takes_the_rest_later_in_order(answers: type[Answers]) -> None:
    answers.room = 2
    answers.script.extend([None] * 5)
    appender = TopicAppender(NOWHERE, "audit", clock)
    appender.append([(None, b"%d" % number) for number in range(5)], 2)
    assert answers.made[0].log == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, TopicMissing),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaUnreachable),
        (KafkaError.MSG_SIZE_TOO_LARGE, KafkaUnreachable),
    ],
)
def test_what_was_refused_is_sent_again_in_order_and_nothing_else(
    answers: type[Answers], code: int, error: type[Exception]
) -> None:
    appender = TopicAppender(NOWHERE, "audit", clock)
    answers.script.extend([None, KafkaError(code), KafkaError(code)])
    with pytest.raises(error):
        appender.append(RECORDS, 2)
    answers.script.extend([None, None])
    appender.resume(2)
    (producer,) = answers.made
    assert producer.log == [b"one", b"two", b"three"]
    assert producer.asked == [b"one", b"two", b"three", b"two", b"three"]


def test_a_producer_that_failed_for_good_is_replaced(answers: type[Answers]) -> None:
    appender = TopicAppender(NOWHERE, "audit", clock)
    fatal = KafkaError(KafkaError._FATAL, "fenced", fatal=True)
    answers.script.extend([None, fatal, fatal])
    with pytest.raises(KafkaUnreachable) as failed:
        appender.append(RECORDS, 2)
    assert failed.value.cause == "a record was not acknowledged: fenced"
    answers.script.extend([None, None])
    appender.resume(2)
    first, second = answers.made
    assert first.is_purged
    assert (first.log, second.log) == ([b"one"], [b"two", b"three"])


def test_a_record_that_the_client_refuses_at_once_is_sent_again(
    answers: type[Answers], monkeypatch: pytest.MonkeyPatch
) -> None:
    appender = TopicAppender(NOWHERE, "audit", clock)

    def refuse(*_: object, **__: object) -> None:
        raise KafkaException(KafkaError(KafkaError._UNKNOWN_TOPIC))

    with monkeypatch.context() as missing:
        missing.setattr(Answers, "produce", refuse)
        with pytest.raises(TopicMissing, match="audit"):
            appender.append(RECORDS, 2)
    answers.script.extend([None] * 3)
    appender.resume(2)
    assert answers.made[0].log == [b"one", b"two", b"three"]


def test_closing_lets_go_of_what_waits(answers: type[Answers]) -> None:
    appender = TopicAppender(NOWHERE, "audit", clock)
    with pytest.raises(KafkaUnreachable):
        appender.append(RECORDS, 2)
    appender.close()
    assert answers.made[0].is_purged


def test_settings_of_which_no_client_can_be_made_are_named() -> None:
    with pytest.raises(ConfigInvalid, match=r"no\.such\.name"):
        TopicAppender({**NOWHERE, "no.such.name": "1"}, "audit")
