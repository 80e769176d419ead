"""The embedded broker is a real one: it keeps its data over a crash, and does not outlive who started it."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.dev.starter import ends_with_its_starter
from thermocline.dev.broker import LocalKafka
from thermocline.errors import KafkaUnreachable, PortTaken

pytestmark = pytest.mark.jvm

TIMEOUT_SECONDS = 30.0


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    with LocalKafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


def produce(kafka: LocalKafka, topic: str, value: bytes, timestamp_ms: int = 0) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True})
    producer.produce(topic, value=value, partition=0, timestamp=timestamp_ms)
    assert producer.flush(TIMEOUT_SECONDS) == 0


def read_one(kafka: LocalKafka, topic: str) -> tuple[bytes | None, int]:
    """The first record's value and its time in ms."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "unused"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(TIMEOUT_SECONDS)
        assert message is not None
        assert message.error() is None
        value = message.value()
        assert value is None or isinstance(value, bytes)
        return value, message.timestamp()[1]
    finally:
        consumer.close()


def test_a_topic_gets_its_configuration(kafka: LocalKafka) -> None:
    """The broker's clock replaces the producer's where the topic says so."""
    kafka.create_topic("stamped", 2, {"message.timestamp.type": "LogAppendTime"})
    before_ms = int(time.time() * 1000)
    produce(kafka, "stamped", b"value", timestamp_ms=1)
    _, stamped_ms = read_one(kafka, "stamped")
    assert stamped_ms >= before_ms


def test_creating_a_topic_twice_says_that_it_exists(kafka: LocalKafka) -> None:
    kafka.create_topic("once", 1)
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        kafka.create_topic("once", 1)


def test_a_deleted_topic_can_be_created_again_and_is_empty(kafka: LocalKafka) -> None:
    kafka.create_topic("again", 1)
    produce(kafka, "again", b"old")
    kafka.delete_topic("again")
    kafka.create_topic("again", 1)
    produce(kafka, "again", b"new")
    assert read_one(kafka, "again")[0] == b"new"


@pytest.mark.full
def test_records_survive_a_crash_on_the_same_port(kafka: LocalKafka) -> None:
    kafka.create_topic("kept", 1)
    produce(kafka, "kept", b"value")
    address = kafka.bootstrap_servers
    kafka.kill()
    assert kafka.pid is None
    kafka.start()
    kafka.wait()
    assert kafka.bootstrap_servers == address
    assert read_one(kafka, "kept")[0] == b"value"


def test_a_port_taken_by_another_is_named(tmp_path: Path) -> None:
    broker = LocalKafka(tmp_path)
    with socket.socket() as other:
        other.bind(("127.0.0.1", broker.port))
        other.listen()
        with pytest.raises(PortTaken) as caught:
            broker.start()
    assert caught.value.port == broker.port


@pytest.mark.full
def test_a_broker_that_does_not_come_up_shows_the_end_of_its_log(tmp_path: Path) -> None:
    broker = LocalKafka(tmp_path)
    broker.start()
    broker.stop()
    meta = tmp_path / "data" / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=7"))
    broker.start()
    with pytest.raises(KafkaUnreachable) as caught:
        broker.wait()
    broker.stop()
    assert "node id" in caught.value.cause


def test_the_broker_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    """Goal: no broker is left behind. Method: its starter is killed, so it has no chance to clean up."""
    program = (
        "import sys, time, pathlib\n"
        "from thermocline.dev.broker import LocalKafka\n"
        f"broker = LocalKafka(pathlib.Path({str(tmp_path)!r}))\n"
        "broker.start()\n"
        "print(broker.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    assert ends_with_its_starter(program, TIMEOUT_SECONDS)
