"""Appends records to a topic, batch after batch, in order and once each as long as the process lives.

The client itself keeps what the brokers don't acknowledge, and sends it again for as long as it takes: by
idempotence, the brokers know what they have. So an outage neither doubles records nor changes the order of
those of a key.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from thermocline.errors import ConfigInvalid, KafkaUnreachable, TopicMissing
from thermocline.process.clock import Clock, SystemClock

__all__ = ["TopicAppender"]

Record = tuple[bytes | None, bytes]
"""Key and value."""

# How long one call waits for acknowledgements, so that its bound is noticed between calls.
_POLL_SECONDS: Final = 0.1
_MISSING: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}  # noqa: SLF001  no other name
)

_kafka_logger = logging.getLogger("thermocline.kafka")


class TopicAppender:
    """One producer for one topic; belongs to one thread."""

    def __init__(self, client_config: Mapping[str, Any], topic: str, clock: Clock | None = None) -> None:
        """Raises `ConfigInvalid` where no client can be made of that configuration. Asks no broker."""
        self._config = {**client_config, **_PRODUCER, "log_level": 0}
        self._bootstrap_servers = str(client_config.get("bootstrap.servers", ""))
        self._topic = topic
        self._clock = clock or SystemClock()
        self._to_send: deque[tuple[int, Record]] = deque()
        self._sent = 0
        self._failed: list[tuple[int, Record, KafkaError]] = []
        self._producer: Producer | None = None
        self._new_producer()

    def append(self, records: Sequence[Record], seconds_max: float) -> None:
        """Returns when all replicas have every one of them.

        After an error, they are still to be appended: `resume` goes on with them.

        Raises:
            KafkaUnreachable: not all of them were acknowledged in time.
            TopicMissing: the topic does not exist.
        """
        assert self.is_idle, "the records before are not appended yet"
        self._to_send.extend(enumerate(records))
        self.resume(seconds_max)

    @property
    def is_idle(self) -> bool:
        """Whether all that was given is appended."""
        return not (self._to_send or self._sent or self._failed)

    def resume(self, seconds_max: float) -> None:
        """Goes on with what ``append`` did not get done. Raises as it does."""
        producer = self._new_producer() if self._producer is None else self._producer
        give_up_at = self._clock.monotonic() + seconds_max
        while not self.is_idle:
            while self._to_send and self._is_taken(producer, self._to_send[0]):
                self._to_send.popleft()
            # Where some are refused, those that come after them are waited for, and then all are sent again.
            if self._failed and not self._sent:
                raise self._refused()
            if self._clock.monotonic() > give_up_at:
                waiting = self._sent + len(self._to_send)
                raise self._unreachable(f"{waiting} records were not acknowledged in {seconds_max:g} s")
            producer.poll(_POLL_SECONDS)

    def close(self) -> None:
        """Lets go of what is not appended: it would keep the process from ending."""
        if self._producer is not None:
            self._producer.purge()
            self._producer.poll(0)
            self._producer = None

    def _is_taken(self, producer: Producer, numbered: tuple[int, Record]) -> bool:
        if self._failed:  # they come after it
            return False
        _, (key, value) = numbered
        try:
            producer.produce(self._topic, value, key, on_delivery=partial(self._on_delivery, numbered))
        except BufferError:
            return False
        except KafkaException as error:
            self._failed.append((*numbered, error.args[0]))
            return True
        self._sent += 1
        producer.poll(0)
        return True

    def _on_delivery(self, numbered: tuple[int, Record], error: KafkaError | None, _: object) -> None:
        self._sent -= 1
        if error is not None:  # safety: appended-acknowledged
            self._failed.append((*numbered, error))

    def _refused(self) -> TopicMissing | KafkaUnreachable:
        """The error of the first one; all that failed are to be sent again, in their order."""
        failed = sorted(self._failed, key=lambda one: one[0])
        self._failed.clear()
        self._to_send.extendleft((number, record) for number, record, _ in reversed(failed))
        errors = [error for _, _, error in failed]
        if any(error.fatal() for error in errors):  # such a producer is of no more use
            self.close()
        if errors[0].code() in _MISSING:
            return TopicMissing(topic=self._topic, bootstrap_servers=self._bootstrap_servers)
        return self._unreachable(f"a record was not acknowledged: {errors[0].str()}")

    def _new_producer(self) -> Producer:
        try:
            self._producer = Producer(self._config, logger=_kafka_logger)
        except KafkaException as error:  # librdkafka refuses a name or a value
            raise ConfigInvalid(of="[kafka.client]", problems=(error.args[0].str(),)) from error
        return self._producer

    def _unreachable(self, detail: str) -> KafkaUnreachable:
        return KafkaUnreachable(bootstrap_servers=self._bootstrap_servers, detail=detail)


_PRODUCER: Final[Mapping[str, Any]] = {
    "enable.idempotence": True,
    "acks": "all",
    # Never: what is given up may be there nevertheless, and would be there twice when it is sent again.
    "delivery.timeout.ms": 0,
    # As Java's producers do: a key's records stay together, in order.
    "partitioner": "murmur2_random",
}
