"""The load: upserts, deletes, rows that come back and bad records, at a rate, through outages of the broker.

Each row has its partition for life, so that the log alone says in which order it changed.
"""

from __future__ import annotations

import random
import threading
from array import array
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import KafkaException, Message, Producer

from tests.behaviour.topic import APP, key_bytes, value_bytes
from tests.torture.ledger import BAD_KEYS, BAD_VALUES, Entity, checksum
from thermocline.dev.oracle import RowKey
from thermocline.rules.seam import Seam

TICK_SECONDS: Final = 0.1
DELETED: Final = 0.15
REPEATED: Final = 0.1  # as it was, which a table may leave out
FLUSH_SECONDS_MAX: Final = 120.0
# A transaction that its producer leaves is aborted by the broker after this.
TRANSACTION_SECONDS: Final = 12
PRODUCER_CONFIG: Final[Mapping[str, Any]] = {
    "enable.idempotence": True,
    "linger.ms": 5,
    # No outage of a run is as long: the load waits and loses nothing.
    "message.timeout.ms": 600_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "log_level": 0,
}


class Traffic:
    """Sends until it is stopped. ``rate`` (records a second) may be changed at any time."""

    def __init__(
        self,
        client_config: Mapping[str, Any],
        topic: str,
        seed: int,
        *,
        partitions: int,
        users: int = 40,
        attributes: int = 5,
        rate: int = 100,
        bad: float = 0.0,
    ) -> None:
        self.rate = rate
        self.refused: list[str] = []
        self._config = {**PRODUCER_CONFIG, **client_config}
        self._topic = topic
        self._random = random.Random(seed)
        self._attributes = attributes
        self._bad = bad
        self._users_per_partition = max(1, users // partitions)
        self._users: list[tuple[str, int]] = []
        self._last: dict[RowKey, bytes | None] = {}
        # Partition, offset and checksum of each record that the broker acknowledged with its offset.
        self._acknowledged = array("q")
        self._ends: dict[int, int] = {}
        self._number = 0
        self._partitions = 0
        self._wanted = partitions
        self._grow()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)

    def start(self) -> None:
        """Begins to send."""
        self._thread.start()

    def stop(self) -> None:
        """Ends sending, once the broker has all of it."""
        self._ended.set()
        self._thread.join()

    def grow(self, partitions: int) -> None:
        """New users, in the partitions that the topic has gained."""
        self._wanted = partitions

    @property
    def entities(self) -> list[Entity]:
        """Everybody whose rows may have been written so far."""
        return [(APP, user) for user, _ in list(self._users)]

    @property
    def acknowledged_end(self) -> Seam:
        """Behind the last record of each partition that the broker has acknowledged."""
        return Seam({(self._topic, p): end for p, end in list(self._ends.items())})

    def acknowledged(self) -> list[tuple[int, int, int]]:
        """Partition, offset and checksum of each record that the broker has."""
        flat = self._acknowledged
        return list(zip(flat[::3], flat[1::3], flat[2::3], strict=True))

    def open_transaction(self, number: int) -> Transaction:
        """Some records in a transaction that stays open; its rows are written by nobody else."""
        rows = [((APP, f"t{number}-{p}", "plan"), p) for p in range(self._partitions)]
        return Transaction(self._config, self._topic, number, rows)

    def _run(self) -> None:
        producer = Producer({**self._config, "on_delivery": self._delivered})
        due = 0.0
        while not self._ended.wait(TICK_SECONDS):
            if self._partitions < self._wanted:
                # A new producer asks again how many partitions there are.
                producer.flush(FLUSH_SECONDS_MAX)
                producer = Producer({**self._config, "on_delivery": self._delivered})
                self._grow()
            due += self.rate * TICK_SECONDS
            while due >= 1:
                due -= 1
                self._send(producer)
            producer.poll(0)
        if producer.flush(FLUSH_SECONDS_MAX):
            self.refused.append(f"not acknowledged within {FLUSH_SECONDS_MAX:g} s")

    def _grow(self) -> None:
        for partition in range(self._partitions, self._wanted):
            first = len(self._users)
            self._users += [(f"u{first + n}", partition) for n in range(self._users_per_partition)]
        self._partitions = self._wanted

    def _send(self, producer: Producer) -> None:
        self._number += 1
        # Some are changed all the time, most seldom.
        user, partition = self._users[int(len(self._users) * self._random.random() ** 2)]
        row = (APP, user, f"k{self._random.randrange(self._attributes)}")
        key: bytes | None = key_bytes(row)
        draw = self._random.random()
        if draw < self._bad:
            key, value = self._broken(key)
        elif draw < self._bad + DELETED:
            value = self._last[row] = None
        elif draw < self._bad + DELETED + REPEATED:
            value = self._last.get(row)
        else:
            value = self._last[row] = value_bytes(f"v{self._number}")
        with suppress(BufferError):  # full where the broker is unavailable for long: this one is never sent
            producer.produce(self._topic, value, key, partition=partition)

    def _broken(self, key: bytes | None) -> tuple[bytes | None, bytes | None]:
        if self._random.random() < 0.5:
            return self._random.choice((None, *BAD_KEYS)), value_bytes("of a bad key")
        return key, self._random.choice(BAD_VALUES)

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self.refused.append(str(error))
            return
        partition, offset = message.partition(), message.offset()
        if partition is None or offset is None or offset < 0:
            return  # it has the record, from an attempt before, and does not say where
        key, value = message.key(), message.value()
        assert key is None or isinstance(key, bytes)
        assert value is None or isinstance(value, bytes)
        self._acknowledged.extend((partition, offset, checksum(key, value)))
        self._ends[partition] = max(offset + 1, self._ends.get(partition, 0))


class Transaction:
    """Open from the start; ``commit`` or ``abort`` ends it, or the broker does when that takes too long."""

    def __init__(
        self, config: Mapping[str, Any], topic: str, number: int, rows: list[tuple[RowKey, int]]
    ) -> None:
        milliseconds = TRANSACTION_SECONDS * 1000
        own = {
            "transactional.id": f"torture-{number}",
            "transaction.timeout.ms": milliseconds,
            "message.timeout.ms": milliseconds,
        }
        self._producer = Producer({**config, **own})
        self._producer.init_transactions(TRANSACTION_SECONDS)
        self._producer.begin_transaction()
        for row, partition in rows:
            self._producer.produce(topic, value_bytes(f"of transaction {number}"), key_bytes(row), partition)
        self._producer.flush(TRANSACTION_SECONDS)

    def end(self, is_committed: bool) -> None:
        """Commits or aborts; where the broker does not answer, it is left to the broker."""
        with suppress(KafkaException):
            if is_committed:
                self._producer.commit_transaction(TRANSACTION_SECONDS)
            else:
                self._producer.abort_transaction(TRANSACTION_SECONDS)
