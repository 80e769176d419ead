"""A consumer group that mirrors seams, on a real broker: as tools for the lag of groups see it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.behaviour.topic import APP, Topic
from thermocline.dev.stack import TABLE, Stack
from thermocline.errors import ExitCode, KafkaUnreachable
from thermocline.ingest.run import run
from thermocline.kafka.log import Log
from thermocline.kafka.mirror_group import GroupHasMembers, GroupRefused, MirrorGroup
from thermocline.rules.seam import Seam
from thermocline.settings import KafkaSettings

PATIENCE_SECONDS = 60.0


@pytest.fixture(scope="module")
def stack(new_stack: Callable[..., Stack]) -> Stack:
    """Its broker has coordinated no group yet."""
    return new_stack("mirrored")


def offsets_of(kafka: KafkaSettings, group: str) -> dict[tuple[str, int], int]:
    """As `kafka-consumer-groups --describe` asks for them."""
    admin = AdminClient(kafka.client_config())
    asked = [ConsumerGroupTopicPartitions(group)]
    found = admin.list_consumer_group_offsets(asked)[group].result(30).topic_partitions
    return {(one.topic, one.partition): one.offset for one in found}


def test_ingest_writes_what_it_committed_to_the_group_of_its_table(stack: Stack) -> None:
    settings = stack.settings
    own = settings.ingest.model_copy(update={"mirror_group": "lake-{table}"})
    settings = settings.model_copy(update={"ingest": own})
    (topic,) = settings.table(TABLE).topics
    written = Topic(settings.kafka, topic)
    for number in range(40):
        written.send((APP, f"u{number}", "k"), "v")
    written.flush()

    (ended,) = run(settings, [TABLE], once=True, stop=threading.Event())

    assert ended.exit_code == ExitCode.DONE
    ends = {(topic, p): offset for topic, p, offset in Log(settings.kafka).ends([topic]).items()}
    assert sum(ends.values()) == 40
    assert offsets_of(settings.kafka, f"lake-{TABLE}") == ends


def test_a_seam_may_go_back_and_one_without_offsets_changes_nothing(stack: Stack) -> None:
    kafka = stack.settings.kafka
    (topic,) = stack.settings.table(TABLE).topics
    group = MirrorGroup(kafka, "back")
    group.write(Seam.of({topic: {0: 5, 1: 6}}))
    group.write(Seam.of({topic: {0: 2}}))
    group.write(Seam())
    assert offsets_of(kafka, "back") == {(topic, 0): 2, (topic, 1): 6}


def test_a_group_in_which_others_consume_is_left_as_it_is(stack: Stack) -> None:
    kafka = stack.settings.kafka
    (topic,) = stack.settings.table(TABLE).topics
    consumer = Consumer({**kafka.client_config(), "group.id": "theirs", "enable.auto.commit": False})
    consumer.subscribe([topic])
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not consumer.assignment():
        assert time.monotonic() < deadline
        consumer.poll(0.1)
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    group = MirrorGroup(kafka, "theirs")

    with pytest.raises(GroupHasMembers, match='"theirs" has members'):
        group.write(Seam.of({topic: {0: 9}}))
    assert offsets_of(kafka, "theirs") == {(topic, 0): 1}

    consumer.close()
    group.write(Seam.of({topic: {0: 9}}))
    assert offsets_of(kafka, "theirs") == {(topic, 0): 9}


def test_what_a_broker_does_not_take_is_an_error(stack: Stack) -> None:
    kafka = stack.settings.kafka
    with pytest.raises(GroupRefused, match="nowhere/0: UNKNOWN_TOPIC_OR_PART"):
        MirrorGroup(kafka, "refused").write(Seam.of({"nowhere": {0: 9}}))


def test_a_broker_that_is_away_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thermocline.kafka.mirror_group.REQUEST_TIMEOUT_SECONDS", 0.5)
    with pytest.raises(KafkaUnreachable):
        MirrorGroup(KafkaSettings(bootstrap_servers="127.0.0.1:9"), "g").write(Seam.of({"t": {0: 1}}))
