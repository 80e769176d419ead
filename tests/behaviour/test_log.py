"""The log room against a real broker: transactions, holes, times, topics that grow or are recreated."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from tests.manual_clock import ManualClock
from tests.transactions import wait_for_markers
from thermocline.dev.broker import LocalKafka
from thermocline.errors import ConfigInvalid, KafkaUnreachable, RangeIncomplete, TopicMissing
from thermocline.kafka import shared_tail
from thermocline.kafka import tail as tail_module
from thermocline.kafka.facts import OffsetRange, OpenTransaction, TopicConfig, TopicFacts
from thermocline.kafka.log import READ_STALL_SECONDS, Log, read_ranges
from thermocline.kafka.tail import Tail
from thermocline.process.clock import SystemClock
from thermocline.rules.seam import Seam
from thermocline.settings import KafkaSettings

TIMEOUT_SECONDS = 60.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    with LocalKafka(tmp_path_factory.mktemp("kafka")) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def settings(broker: LocalKafka) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers=broker.bootstrap_servers)


def transactional(settings: KafkaSettings, name: str) -> Producer:
    producer = Producer({**settings.client_config(), "transactional.id": name, "log_level": 0})
    producer.init_transactions(30)
    return producer


def transaction(producer: Producer, topic: str, values: list[bytes], is_committed: bool) -> None:
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, b"k", partition=0)
    producer.flush(30)
    if is_committed:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def values_of(settings: KafkaSettings, wanted: OffsetRange) -> list[bytes | None]:
    return [value for chunk in read_ranges(settings.client_config(), [wanted]) for value in chunk.values]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_aborted_records_never_show_and_ranges_end_in_markers(
    broker: LocalKafka, settings: KafkaSettings
) -> None:
    """Goal: committed transactions are read whole, aborted ones not at all, and holes end no read early.

    Method: committed, aborted, committed, aborted: each transaction ends with a marker that takes an offset,
    so the log's last offset is never a record.
    """
    broker.create_topic("transactions", 1)
    producer = transactional(settings, "t")
    transaction(producer, "transactions", [b"1", b"2"], is_committed=True)
    transaction(producer, "transactions", [b"bad"], is_committed=False)
    transaction(producer, "transactions", [b"3"], is_committed=True)
    transaction(producer, "transactions", [b"bad", b"bad"], is_committed=False)
    log = Log(settings)
    wait_for_markers(log, ["transactions"])
    assert log.ends(["transactions"])["transactions", 0] == 10

    assert values_of(settings, OffsetRange("transactions", 0, 0, 10)) == [b"1", b"2", b"3"]
    assert values_of(settings, OffsetRange("transactions", 0, 7, 10)) == []
    assert values_of(settings, OffsetRange("transactions", 0, 2, 3)) == [], "a range of one marker"

    tail = Tail(settings.client_config(), Seam.of({"transactions": {0: 0}}))
    read: list[bytes | None] = []

    def has_read_all() -> bool:
        read.extend(value for chunk in tail.poll(0.1) for value in chunk.values)
        return tail.positions()["transactions", 0] == 10 and bool(tail.reached_end_at())

    try:
        wait_for(has_read_all)
    finally:
        tail.close()
    assert read == [b"1", b"2", b"3"]


class Fetched:
    """How many records of a topic each consumer of this process has received, as the client counts them."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._records: dict[str, int] = {}

    def note(self, text: str) -> None:
        said = json.loads(text)
        for partition in said["topics"].get(self._topic, {}).get("partitions", {}).values():
            place = f"{said['name']} {partition['partition']}"
            self._records[place] = max(partition["rxmsgs"], self._records.get(place, 0))

    def settled(self) -> int:
        """By all of them, once that has been the same for a while."""
        total = -1
        while total != (total := sum(self._records.values())):
            time.sleep(1.0)
        return total

    def consumers(self) -> int:
        return len({place.split()[0] for place in self._records})


class SharedTails:
    """Tails that share a consumer, and what each has read."""

    def __init__(self, settings: KafkaSettings, topic: str, more: dict[str, Any]) -> None:
        self._config = {**settings.client_config(), **more}
        self._facts = Log(settings).describe([topic])
        self._topic = topic
        self.shared = shared_tail.SharedConsumer(self._config, SystemClock())
        self._producer = Producer({**settings.client_config(), "linger.ms": 0, "log_level": 0})

    def tail(self, at: int = 0) -> Tail:
        start = Seam.of({self._topic: {0: 0, 1: at}})
        share = self.shared.share(start, self._facts)
        return Tail(self._config, start, self._topic, SystemClock(), share)

    def send(self, values: list[bytes]) -> None:
        for value in values:
            self._producer.produce(self._topic, value, b"k", partition=1)
        assert self._producer.flush(30) == 0

    def read(self, count: int, *tails: Tail) -> list[list[bytes | None]]:
        """What each of them gives, until that is so much."""
        read: list[list[bytes | None]] = [[] for _ in tails]

        def have_all() -> bool:
            for tail, found in zip(tails, read, strict=True):
                found.extend(value for chunk in tail.poll(0.05) for value in chunk.values)
            return all(len(found) >= count for found in read)

        wait_for(have_all)
        return read


def test_a_topic_is_fetched_once_for_all_tails_and_who_stands_still_holds_up_no_other(
    broker: LocalKafka, settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: of three tails, one takes nothing until too much waits for it, and reads it by itself later.

    Then all are at the end, and the shared consumer alone fetches what comes.
    """
    monkeypatch.setattr(shared_tail, "WAITING_BYTES_MAX", 250_000)
    broker.create_topic("fetched-once", 2)
    fetched = Fetched("fetched-once")
    tails = SharedTails(settings, "fetched-once", {"statistics.interval.ms": 100, "stats_cb": fetched.note})
    few = [b"%d" % number for number in range(50)]
    try:
        a, b, still = tails.tail(), tails.tail(), tails.tail()
        tails.send(few)
        assert tails.read(50, a, b, still) == [few, few, few]
        assert fetched.settled() == 50
        many: list[bytes | None] = []
        for number in range(6):
            part = [b"%d-%02d" % (number, place) + 10_000 * b"x" for place in range(50)]
            tails.send(part)
            assert tails.read(50, a, b) == [part, part], "they wait for nobody"
            many += part
        assert tails.read(300, still) == [many]
        sent = 350

        def are_at_their_ends() -> bool:
            return all(not tail.poll(0.05) and len(tail.reached_end_at()) == 2 for tail in (a, b, still))

        def are_fetched_once() -> bool:
            nonlocal sent
            before = fetched.settled()
            tails.send(few)
            sent += 50
            assert tails.read(50, still, a, b) == [few, few, few]
            return fetched.settled() == before + 50

        wait_for(are_at_their_ends)
        assert fetched.consumers() == 2, "one was left behind"
        wait_for(are_fetched_once)  # the consumer of its own may still be there for some of them

        b.close()
        tails.send(few)
        assert tails.read(50, a) == [few]
        again = tails.tail(at=sent - 50)
        assert tails.read(100, again) == [[*few, *few]]
    finally:
        tails.shared.close()
    assert not tails.shared.is_running


def test_a_tail_that_ends_while_it_is_paused_is_read_on_by_the_next_one(
    broker: LocalKafka, settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: it is alone, so that nobody else wants what it does not take."""
    monkeypatch.setattr(shared_tail, "WAITING_BYTES_MAX", 100_000)
    broker.create_topic("paused", 2)
    tails = SharedTails(settings, "paused", {})
    many = [b"%04d" % number + 10_000 * b"x" for number in range(200)]
    try:
        alone = tails.tail()
        tails.send(many)
        assert tails.read(200, alone) == [many]
        tails.send(many)
        time.sleep(0.5)
        alone.close()
        assert tails.read(400, tails.tail()) == [[*many, *many]]
    finally:
        tails.shared.close()


def test_an_open_transaction_holds_the_end_back(broker: LocalKafka, settings: KafkaSettings) -> None:
    broker.create_topic("open", 1)
    producer = transactional(settings, "o")
    producer.begin_transaction()
    producer.produce("open", b"not yet", b"k", partition=0)
    producer.flush(30)
    log = Log(settings)
    ends = log.ends(["open"])
    assert log.bounds(["open"]) == (log.starts(["open"]), ends)
    assert ends["open", 0] == 0
    (held,) = log.open_transactions(["open"])
    assert (held, str(held)) == (OpenTransaction("open", 0, begins_at=0, held_back=1), "open/0@0-1")
    producer.commit_transaction(30)
    wait_for_markers(log, ["open"])
    assert log.ends(["open"])["open", 0] == 2


def test_a_range_whose_end_does_not_come_is_no_range_that_was_read(
    broker: LocalKafka, settings: KafkaSettings
) -> None:
    """Goal: what was planned and did not arrive is a named error, never a shorter batch.

    Method: the range ends beyond the log; a clock that moves with each look at it spares the waiting.
    """
    broker.create_topic("short", 1)
    producer = Producer(settings.client_config())
    for _ in range(10):
        producer.produce("short", b"x", b"k", partition=0)
    producer.flush(30)

    class Impatient(ManualClock):
        def monotonic(self) -> float:
            self.advance(READ_STALL_SECONDS / 20)
            return super().monotonic()

    read = read_ranges(settings.client_config(), [OffsetRange("short", 0, 0, 11)], "t", Impatient())
    with pytest.raises(RangeIncomplete) as incomplete:
        list(read)
    assert (incomplete.value.first, incomplete.value.end, incomplete.value.reached) == (0, 11, 10)


def test_a_topic_says_how_long_its_tombstones_live(broker: LocalKafka, settings: KafkaSettings) -> None:
    broker.create_topic("kept", 1, {"message.timestamp.type": "LogAppendTime"})
    broker.create_topic("compacted", 1, {"cleanup.policy": "compact,delete", "delete.retention.ms": "60000"})
    assert Log(settings).configs(["kept", "compacted"]) == {
        "kept": TopicConfig(is_compacted=False, delete_retention_ms=86_400_000, is_log_append_time=True),
        "compacted": TopicConfig(is_compacted=True, delete_retention_ms=60_000, is_log_append_time=False),
    }


def test_a_tail_hears_that_its_topic_was_deleted(broker: LocalKafka, settings: KafkaSettings) -> None:
    """Though another one of its topics goes on answering."""
    for topic in ("deleted", "left"):
        broker.create_topic(topic, 1)
    tail = Tail(settings.client_config(), Seam.of({"deleted": {0: 0}, "left": {0: 0}}))
    wait_for(lambda: not tail.poll(0.05) and len(tail.facts()) == 2)
    left = tail.facts()["left"]
    broker.delete_topic("deleted")
    wait_for(lambda: not tail.poll(0.05) and tail.facts()["deleted"] == TopicFacts("", 0))
    assert tail.facts()["left"] == left
    tail.close()


def test_a_topic_that_is_not_there_yet_is_waited_for_a_little(
    broker: LocalKafka, settings: KafkaSettings
) -> None:
    class Creating(SystemClock):
        def sleep(self, seconds: float) -> None:
            if not created:
                created.append("late")
                broker.create_topic("late", 2)
            super().sleep(seconds)

    created: list[str] = []
    assert Log(settings, Creating()).starts(["late"]) == Seam.of({"late": {0: 0, 1: 0}})
    assert created


def test_several_ranges_are_read_at_once_each_to_its_own_end(
    broker: LocalKafka, settings: KafkaSettings
) -> None:
    broker.create_topic("several", 3)
    producer = Producer(settings.client_config())
    for number in range(300):
        producer.produce("several", b"%d" % number, None, partition=number % 3)
    producer.flush(30)
    ranges = [OffsetRange("several", 0, 10, 20), OffsetRange("several", 2, 0, 100)]
    read = {(c.partition, o) for c in read_ranges(settings.client_config(), ranges) for o in c.offsets}
    assert read == {(0, o) for o in range(10, 20)} | {(2, o) for o in range(100)}


def test_a_time_finds_the_first_offset_at_or_after_it_and_the_end_where_nothing_is_so_young(
    broker: LocalKafka, settings: KafkaSettings
) -> None:
    broker.create_topic("times", 2)
    producer = Producer(settings.client_config())
    for timestamp in (1_000, 2_000, 3_000):
        producer.produce("times", b"x", b"k", partition=0, timestamp=timestamp)
    producer.flush(30)
    log = Log(settings)
    assert log.offsets_at(["times"], 1_500) == Seam.of({"times": {0: 1, 1: 0}})
    assert log.offsets_at(["times"], 9_000) == Seam.of({"times": {0: 3, 1: 0}})


def test_ends_together_leave_out_no_record_that_is_older_than_one_before_them(
    broker: LocalKafka, settings: KafkaSettings
) -> None:
    """Method: one after the other, a record comes to each partition once the newest time is known."""
    broker.create_topic("together", 2)
    producer = Producer(settings.client_config())

    def write(partition: int, timestamp: int) -> None:
        producer.produce("together", b"x", b"k", partition=partition, timestamp=timestamp)
        producer.flush(30)

    class Busy(Log):
        def _ask_newest_ms(self, topics: Sequence[str]) -> int | None:
            found = super()._ask_newest_ms(topics)
            write(0, 2_000)
            write(0, 4_000)
            write(1, 5_000)
            return found

    write(0, 1_000)
    write(1, 3_000)
    assert Busy(settings).ends_together(["together"]) == Seam.of({"together": {0: 2, 1: 1}})
    assert Log(settings).ends_together(["together"]) == Seam.of({"together": {0: 3, 1: 2}})


def test_what_arrives_between_two_questions_is_neither_passed_over_nor_taken_for_a_transaction(
    broker: LocalKafka, settings: KafkaSettings
) -> None:
    """Method: after each question to the broker one more record is written, younger than the time."""
    broker.create_topic("busy", 1)
    producer = Producer(settings.client_config())

    class Busy(Log):
        def _offsets(self, *arguments: Any) -> dict[tuple[str, int], int]:
            found = super()._offsets(*arguments)
            producer.produce("busy", b"x", b"k", partition=0, timestamp=9_000)
            producer.flush(30)
            return found

    for timestamp in (1_000, 2_000, 3_000):
        producer.produce("busy", b"x", b"k", partition=0, timestamp=timestamp)
    producer.flush(30)
    log = Busy(settings)
    assert log.offsets_at(["busy"], 5_000) == Seam.of({"busy": {0: 3}})
    assert log.open_transactions(["busy"]) == ()


def test_a_tail_notices_that_a_topic_has_grown(broker: LocalKafka, settings: KafkaSettings) -> None:
    broker.create_topic("growing", 1)
    admin = AdminClient({**settings.client_config(), "log_level": 0})
    tail = Tail(settings.client_config(), Seam.of({"growing": {0: 0}}), clock=SystemClock())
    try:
        wait_for(lambda: not tail.poll(0.05) and "growing" in tail.facts())
        before = tail.facts()["growing"]
        admin.create_partitions([NewPartitions("growing", 2)])["growing"].result(30)
        wait_for(lambda: not tail.poll(0.05) and tail.facts()["growing"].partitions == 2)
    finally:
        tail.close()
    assert before.partitions == 1
    assert tail.facts()["growing"].topic_id == before.topic_id


@pytest.mark.full
def test_a_frozen_broker_is_silent_and_no_partition_was_read_to_its_end_meanwhile(
    broker: LocalKafka, settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the age of answers grows while no broker answers.

    Method: a question for offsets whose time is over gives an offset, and no error. The broker is stopped
    until several of them were given up; a log's ends are asked for with what was described before.
    """
    broker.create_topic("frozen", 1)
    log = Log(settings)
    facts = log.describe(["frozen"])
    tail = Tail(settings.client_config(), Seam.of({"frozen": {0: 0}}), clock=SystemClock())
    wait_for(lambda: not tail.poll(0.05) and bool(tail.reached_end_at()))
    monkeypatch.setattr(tail_module, "REQUEST_TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(tail_module, "SILENCE_SECONDS_MAX", 4.0)
    monkeypatch.setattr(log, "_describe", lambda _: facts)
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        tail.poll(0.05)
        frozen_at = SystemClock().monotonic()
        wait_for(lambda: not tail.poll(0.05) and tail.silence() is not None)
        assert tail.reached_end_at()["frozen", 0] <= frozen_at
        with pytest.raises(KafkaUnreachable):
            log.ends(["frozen"])
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    wait_for(lambda: not tail.poll(0.05) and tail.reached_end_at()["frozen", 0] > frozen_at)
    assert tail.silence() is None
    tail.close()


@pytest.mark.full
def test_what_cannot_be_asked_is_a_named_error(settings: KafkaSettings) -> None:
    with pytest.raises(TopicMissing):
        Log(settings).ends(["nowhere"])
    with pytest.raises(ConfigInvalid):
        Log(KafkaSettings.model_validate({"bootstrap_servers": "x:1", "client": {"no.such.setting": "1"}}))
    with pytest.raises(KafkaUnreachable):
        Log(KafkaSettings(bootstrap_servers="127.0.0.1:9")).ends(["any"])
