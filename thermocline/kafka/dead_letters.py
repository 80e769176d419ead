"""The dead-letter topic: bad records as they came, with headers that say why.

With ``thermocline.kafka.log`` the only room that knows the Kafka client.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from thermocline.errors import ConfigInvalid, DeadLetterRefused, KafkaUnreachable, TopicMissing
from thermocline.failpoints import failstep
from thermocline.process.clock import Clock, SystemClock

# No acknowledgement for this long means that the brokers can't take records now: longer than a broker's
# restart, and the batch waits meanwhile.
DELIVERY_STALL_SECONDS = 30.0
# How long one call waits for acknowledgements, so that a stall is noticed between calls.
_POLL_SECONDS = 0.2
# What waits for acknowledgements: more than the largest record that Kafka's client reads by its defaults.
QUEUE_KBYTES_MAX = 131_072

# The topic will never take these, however often they are sent.
_REFUSALS = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.POLICY_VIOLATION,
        KafkaError.INVALID_RECORD,
    }
)
_MISSING = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})  # noqa: SLF001  no other name

_kafka_logger = logging.getLogger("thermocline.kafka")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record as it came, its headers followed by those that say where it came from and why it is bad."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    place: str


def send_dead_letters(
    client_config: Mapping[str, Any],
    table: str,
    topic: str,
    letters: Iterable[DeadLetter],
    clock: Clock | None = None,
) -> int:
    """Write records to a topic; returns, with their number, when all replicas have every one of them.

    Called again with the same records, they stand in the topic twice.

    Raises:
        KafkaUnreachable: not all of them were acknowledged in time; some may stand in the topic.
        TopicMissing: the topic does not exist.
        DeadLetterRefused: the topic will never take one of them.
    """
    sending = _Sending(client_config, table, topic, clock or SystemClock())
    try:
        with failstep("dead-letters.send"):
            for letter in letters:
                sending.send(letter)
            sending.flush()  # safety: dead-letters-acknowledged
    except BaseException:
        sending.abandon()
        raise
    return sending.sent


class _Sending:
    """One producer for one batch: after a fatal error a producer of librdkafka is of no more use."""

    def __init__(self, client_config: Mapping[str, Any], table: str, topic: str, clock: Clock) -> None:
        self._bootstrap_servers = str(client_config["bootstrap.servers"])
        self._table = table
        self._topic = topic
        self._clock = clock
        self._failed: tuple[KafkaError, str] | None = None
        self._acknowledged_at = clock.monotonic()
        self.sent = 0
        # The client's own count holds its events too, such as of a broker that is unavailable.
        self.unacknowledged = 0
        try:
            self._producer = Producer(
                {**client_config, **_producer_config(), "log_level": 0}, logger=_kafka_logger
            )
        except KafkaException as error:  # librdkafka refuses a name or a value
            raise ConfigInvalid(of="[kafka.client]", problems=(error.args[0].str(),)) from error

    def send(self, letter: DeadLetter) -> None:
        while not self._is_queued(letter):
            self._wait()
        self.sent += 1

    def flush(self) -> None:
        while self.unacknowledged:
            self._wait()
        self._check()

    def abandon(self) -> None:
        """Let go of what is queued still: it would keep the process from ending."""
        self._producer.purge()
        self._producer.poll(0)

    def _is_queued(self, letter: DeadLetter) -> bool:
        place = letter.place
        if not self.unacknowledged:  # nothing to acknowledge, however long it took to get this one
            self._acknowledged_at = self._clock.monotonic()
        try:
            self._producer.produce(
                self._topic,
                letter.value,
                letter.key,
                headers=list(letter.headers),
                on_delivery=lambda error, _: self._on_delivery(error, place),
            )
            self.unacknowledged += 1
        except BufferError as error:
            if not self.unacknowledged:  # alone it is more than the queue takes
                detail = f"it is larger than {QUEUE_KBYTES_MAX >> 10} MiB"
                raise DeadLetterRefused(
                    table=self._table, topic=self._topic, record=place, detail=detail
                ) from error
            return False
        except KafkaException as error:
            self._failed = self._failed or (error.args[0], place)
        self._producer.poll(0)
        self._check()
        return True

    def _wait(self) -> None:
        self._producer.poll(_POLL_SECONDS)
        self._check()
        waited_seconds = self._clock.monotonic() - self._acknowledged_at
        # Twice: the client's own bound, which says why, comes first.
        if waited_seconds > 2 * DELIVERY_STALL_SECONDS:
            raise self._unreachable(f"no dead letter was acknowledged for {waited_seconds:.0f} s")

    def _on_delivery(self, error: KafkaError | None, place: str) -> None:
        self.unacknowledged -= 1
        if error is None:
            self._acknowledged_at = self._clock.monotonic()
        elif self._failed is None:
            self._failed = (error, place)

    def _check(self) -> None:
        if self._failed is None:
            return
        error, place = self._failed
        if error.code() in _MISSING:
            raise TopicMissing(topic=self._topic, bootstrap_servers=self._bootstrap_servers)
        if error.code() in _REFUSALS:
            raise DeadLetterRefused(table=self._table, topic=self._topic, record=place, detail=error.str())
        raise self._unreachable(f"a dead letter was not acknowledged: {error.str()}")

    def _unreachable(self, detail: str) -> KafkaUnreachable:
        return KafkaUnreachable(bootstrap_servers=self._bootstrap_servers, detail=detail)


def _producer_config() -> dict[str, Any]:
    return {
        "enable.idempotence": True,
        "acks": "all",
        "delivery.timeout.ms": int(DELIVERY_STALL_SECONDS * 1000),
        "queue.buffering.max.kbytes": QUEUE_KBYTES_MAX,
        # The record was within its own topic's limit; whether it is within this one's, the broker says.
        "message.max.bytes": 1_000_000_000,
        # As Java's producers do: a key's dead letters stay together, in order.
        "partitioner": "murmur2_random",
    }
