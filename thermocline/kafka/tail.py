"""Follows the log: the committed records of partitions from given offsets on, and how far the log goes.

`Tail` has the rules; a `Reader` gives it messages and answers: one of its own, or a share of a consumer that
several tails of a process have together (``shared_tail``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, Protocol

from confluent_kafka import OFFSET_INVALID, IsolationLevel, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from thermocline.errors import KafkaUnreachable, OffsetsGone, TopicForbidden
from thermocline.kafka.admin import admin_client
from thermocline.kafka.facts import Message, RecordChunk, TopicFacts
from thermocline.kafka.log import (
    CONSUME_RECORDS_MAX,
    LATEST,
    OFFSET_OUT_OF_LOG,
    PARTITION_END,
    REQUEST_TIMEOUT_SECONDS,
    consumer_of,
    is_forbidden,
    is_topic_missing,
    offsets_gone,
    take,
)
from thermocline.process.clock import Clock, SystemClock
from thermocline.rules.seam import Seam

__all__ = [
    "END_PROBE_SECONDS",
    "FACTS_PROBE_SECONDS",
    "SILENCE_SECONDS_MAX",
    "Answers",
    "Asked",
    "End",
    "OwnReader",
    "Probes",
    "Question",
    "Reader",
    "Tail",
    "ask_ends",
    "ask_facts",
    "ends_in",
    "facts_in",
]

# The end offsets are asked for this often while tailing; it bounds how old "read up to the end" can look.
END_PROBE_SECONDS: Final = 0.25
# The end offsets are answered several times a second; a silence as long as this is an outage.
SILENCE_SECONDS_MAX: Final = 5.0
# Rounds of a tailer take milliseconds; after a longer one it paused, was frozen, or the machine slept.
LISTENING_GAP_SECONDS_MAX: Final = 1.0
# A topic that grows or is recreated while it is tailed is noticed within this.
FACTS_PROBE_SECONDS: Final = 2.0
TAIL_CONFIG: Final[dict[str, Any]] = {"fetch.wait.max.ms": 100, "queued.max.messages.kbytes": 65_536}
Place = tuple[str, int]
End = tuple[Place, int, float]
"""A partition, its end offset, and when it was asked for."""

_kafka_logger = logging.getLogger("thermocline.kafka")


class Asked(Protocol):
    """What asks for the ends and the facts of a tail's partitions (`Probes`)."""

    def ends(self) -> list[End]:
        """What was answered since the last call."""
        ...

    def facts(self) -> dict[str, TopicFacts]:
        """What was answered since the last call."""
        ...


class Reader(Protocol):
    """Where the messages and answers of a tail come from."""

    def take(
        self, records_max: int, timeout_seconds: float, positions: Mapping[Place, int], /
    ) -> list[Message]:
        """What has arrived of its partitions, events included, as soon as the first of it is there.

        ``positions`` are those that the tail has come to: what lies before them may come, and nothing is
        left out from there on.
        """
        ...

    @property
    def probes(self) -> Asked:
        """What asks for the ends of its partitions, and for the facts of their topics."""
        ...

    def gone(self, table: str, place: Place, wanted: int) -> OffsetsGone:
        """The error, where the log was cut beyond what is wanted of a partition."""
        ...

    def close(self) -> None:
        """Nobody takes any more."""
        ...


class Tail:
    """Follows the committed records of a topic's partitions from given offsets, for as long as it lives."""

    def __init__(
        self,
        client_config: Mapping[str, Any],
        start: Seam,
        table: str = "",
        clock: Clock | None = None,
        reader: Reader | None = None,
    ) -> None:
        """``reader`` reads the partitions from there on; otherwise the tail has one of its own."""
        self._clock = clock or SystemClock()
        self._table = table
        self._positions = {(topic, partition): offset for topic, partition, offset in start.items()}
        self._reached_end_at: dict[Place, float] = {}
        self._reader = reader or OwnReader(client_config, start, self._clock)
        self._facts: dict[str, TopicFacts] = {}
        self._read: set[str] = set()
        self._forbidden: TopicForbidden | None = None
        self._bootstrap_servers = str(client_config["bootstrap.servers"])
        self._polled_at = self._answered_at = self._clock.monotonic()

    def poll(self, timeout_seconds: float, records_max: int = CONSUME_RECORDS_MAX) -> list[RecordChunk]:
        """The next records, a chunk a partition, offsets ascending; empty when nothing came in time.

        A broker that is unavailable does not raise: nothing comes, and `reached_end_at` grows old.
        Raises `OffsetsGone` when the log was cut beyond a partition's position, and `TopicForbidden`, once
        what came before that was taken.
        """
        if self._forbidden is not None:
            raise self._forbidden
        now = self._clock.monotonic()
        if now - self._polled_at > LISTENING_GAP_SECONDS_MAX:
            self._answered_at += now - self._polled_at  # nobody listened, so nothing could be heard
        self._polled_at = now
        records = self._sorted(self._reader.take(records_max, timeout_seconds, self._positions))
        probes = self._reader.probes
        ends, facts = probes.ends(), probes.facts()
        for place, end, asked_at in ends:
            if self._positions[place] >= end:
                self._reached_end_at[place] = max(asked_at, self._reached_end_at.get(place, asked_at))
        self._facts |= facts
        if records or ends or facts:
            self._answered_at = self._clock.monotonic()
        return [RecordChunk.of(*place, read) for place, read in records.items()]

    def _sorted(self, messages: list[Message]) -> dict[Place, list[Message]]:
        """The records by partition; moves the positions."""
        records: dict[Place, list[Message]] = {}
        for message in messages:
            place = (message.topic(), message.partition())
            error = message.error()
            if error is None:
                if message.offset() < self._positions[place]:  # safety: tail-once
                    continue
                records.setdefault(place, []).append(message)
                self._positions[place] = message.offset() + 1
                self._read.add(place[0])
            elif error.code() == PARTITION_END:
                self._positions[place] = max(self._positions[place], message.offset())
                self._read.add(place[0])
            elif error.code() == OFFSET_OUT_OF_LOG:
                raise self._reader.gone(self._table, place, self._positions[place])
            elif is_forbidden(error):
                self._forbidden = TopicForbidden(topic=place[0], detail=error.str())
        return records

    def silence(self) -> KafkaUnreachable | None:
        """The error, where no broker has answered anything for a while; `poll` goes on all the same."""
        if self._clock.monotonic() - self._answered_at < SILENCE_SECONDS_MAX:
            return None
        detail = f"no answer for {SILENCE_SECONDS_MAX:.0f} s"
        return KafkaUnreachable(bootstrap_servers=self._bootstrap_servers, detail=detail)

    def positions(self) -> Seam:
        """The next offset to be read of each partition."""
        return Seam(self._positions)

    def reached_end_at(self) -> dict[Place, float]:
        """When (monotonic seconds) each partition was last known to be read up to its end; absent: never.

        Known from asking for the ends alone: an end-of-partition event may have waited in a queue.
        """
        return dict(self._reached_end_at)

    def facts(self) -> dict[str, TopicFacts]:
        """What the cluster last said of the topics: other facts mean another topic, or one that has grown."""
        return dict(self._facts)

    def has_read(self, topic: str) -> bool:
        """Whether the broker gave a record of the topic, or said that there is none yet."""
        return topic in self._read

    def close(self) -> None:
        """Leaves the broker; positions stay readable."""
        self._reader.close()


class OwnReader:
    """A consumer and probes of a tail's own."""

    def __init__(self, client_config: Mapping[str, Any], start: Seam, clock: Clock) -> None:
        self._consumer = consumer_of(client_config, TAIL_CONFIG)
        self._consumer.assign(assignment(start))
        admin = admin_client(self, {**client_config, "log_level": 0}, _kafka_logger)
        self.probes = Probes(admin, [(topic, p) for topic, p, _ in start.items()], clock)

    def take(
        self, records_max: int, timeout_seconds: float, _positions: Mapping[Place, int], /
    ) -> list[Message]:
        """What the consumer has."""
        return take(self._consumer, records_max, timeout_seconds)

    def gone(self, table: str, place: Place, wanted: int) -> OffsetsGone:
        """With where the log begins now."""
        return offsets_gone(self._consumer, table, *place, wanted)

    def close(self) -> None:
        """Leaves the broker."""
        self._consumer.close()


def assignment(start: Seam) -> list[TopicPartition]:
    """The partitions, to be read from there on."""
    return [TopicPartition(topic, partition, offset) for topic, partition, offset in start.items()]


class Probes:
    """Asks for end offsets and for the topics' facts in the background, one question of each at a time."""

    def __init__(self, admin: AdminClient, places: Sequence[Place], clock: Clock) -> None:
        """``admin`` is kept alive by its owner."""
        topics = sorted({topic for topic, _ in places})
        self._ends = Question(lambda: ask_ends(admin, places), END_PROBE_SECONDS, clock)
        self._facts = Question(lambda: ask_facts(admin, topics), FACTS_PROBE_SECONDS, clock)

    def ends(self) -> list[End]:
        """Of a question answered since the last call."""
        asked_at, answers = self._ends.answers()
        return [(place, end, asked_at) for place, end in ends_in(answers)]

    def facts(self) -> dict[str, TopicFacts]:
        """The facts of the topics, where a question for them was answered since the last call."""
        return facts_in(self._facts.answers()[1])


Answers = Sequence[tuple[Any, Future[Any]]]
"""What was asked for, each with what was said of it."""


class Question:
    """One question, asked again a while after it was asked last, and never while it is unanswered."""

    def __init__(self, ask: Callable[[], dict[Any, Future[Any]]], seconds: float, clock: Clock) -> None:
        """``seconds`` lie between one time and the next."""
        self.seconds = seconds
        self._ask = ask
        self._clock = clock
        self._asked_at = float("-inf")
        self._pending: dict[Any, Future[Any]] = {}

    def answers(self) -> tuple[float, Answers]:
        """When it was asked, and what came back since the last call."""
        if not self._pending:
            if self._clock.monotonic() - self._asked_at >= self.seconds:
                self._asked_at = self._clock.monotonic()
                self._pending = self._ask()
            return self._asked_at, []
        if not all(future.done() for future in self._pending.values()):
            return self._asked_at, []
        answered, self._pending = list(self._pending.items()), {}
        return self._asked_at, answered


def ask_ends(admin: AdminClient, places: Sequence[Place]) -> dict[Any, Future[Any]]:
    """Asks for the ends of partitions, each broker for those that it leads."""
    asked = {TopicPartition(*place): LATEST for place in places}
    return admin.list_offsets(
        asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=REQUEST_TIMEOUT_SECONDS
    )


def ends_in(answers: Answers) -> list[tuple[Place, int]]:
    """The ends that were answered."""
    return [
        ((place.topic, place.partition), found.offset)
        for place, answer in answers
        if not answer.exception() and (found := answer.result()).offset != OFFSET_INVALID
    ]


def ask_facts(admin: AdminClient, topics: Sequence[str]) -> dict[Any, Future[Any]]:
    """Asks for the facts of topics; of no topic, nothing."""
    if not topics:
        return {}
    return admin.describe_topics(TopicCollection(list(topics)), request_timeout=REQUEST_TIMEOUT_SECONDS)


def facts_in(answers: Answers) -> dict[str, TopicFacts]:
    """The facts that were answered. A topic that is not there has no id and no partitions."""
    found: dict[str, TopicFacts] = {}
    for topic, answer in answers:
        error = answer.exception()
        if error is None:
            facts = answer.result()
            found[topic] = TopicFacts(str(facts.topic_id), len(facts.partitions))
        elif is_topic_missing(error):
            found[topic] = TopicFacts("", 0)
    return found
