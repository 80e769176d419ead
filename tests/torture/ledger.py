"""The torture's truth: the topic, read from its beginning by a plain consumer, replayed into rows.

What the producer was told is not enough: after an outage of the broker it may hear that a record is there and
not where. It shares no code with the product's decoding, keys and folding; bad records are known by sight.
"""

from __future__ import annotations

import json
import threading
import time
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from thermocline.dev.oracle import Row, RowKey
from thermocline.rules.seam import Seam

# What the load sends as bad records. None of them changes a row.
BAD_KEYS: Final = (b"{no key", b'{"app_id":"seven"}', b"")
BAD_VALUES: Final = (b"{no value", b'["a list"]', b'{"value":"v","updated_at":"yesterday"}')

Entity = tuple[int, str]
POLL_SECONDS: Final = 0.05
READ_AT_ONCE: Final = 500
# Reconnecting soon: a broker that was killed is back in seconds, and answers wait to be judged.
CONSUMER_CONFIG: Final[Mapping[str, Any]] = {
    "group.id": "torture",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "log_level": 0,
}


def checksum(key: bytes | None, value: bytes | None) -> int:
    """Tells records apart, to see that the broker has what it acknowledged."""
    return zlib.crc32((key or b"-") + b"\0" + (b"-" if value is None else value))


@dataclass(slots=True)
class _Versions:
    """One row's records, all in one partition; ``values`` grows before ``offsets``, which readers search."""

    partition: int
    offsets: list[int] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)

    def at(self, end: int) -> bytes | None:
        newest = bisect_left(self.offsets, end) - 1
        return self.values[newest] if newest >= 0 else None


@dataclass(slots=True)
class _Partition:
    offsets: array[int] = field(default_factory=lambda: array("q"))
    bad: array[int] = field(default_factory=lambda: array("q"))
    checksums: dict[int, int] = field(default_factory=dict)
    reached: int = 0


class Ledger:
    """All records of the topic so far, by row and in their order. One thread reads, any may ask."""

    def __init__(self, client_config: Mapping[str, Any], topic: str, partitions: int) -> None:
        self.topic = topic
        self._config = {**CONSUMER_CONFIG, **client_config}
        self._partitions = [_Partition() for _ in range(partitions)]
        self._wanted = partitions
        self._entities: dict[Entity, dict[str, _Versions]] = {}
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)

    def start(self) -> None:
        """Begins to read."""
        self._thread.start()

    def stop(self) -> None:
        """Ends reading; what was read stays."""
        self._stop.set()
        self._thread.join()

    def grow(self, partitions: int) -> None:
        """Reads the partitions that the topic has gained as well."""
        self._wanted = partitions

    @property
    def end(self) -> Seam:
        """How far the topic was read."""
        return Seam({(self.topic, p): part.reached for p, part in enumerate(list(self._partitions))})

    @property
    def records(self) -> int:
        """How many were read."""
        return sum(len(part.offsets) for part in list(self._partitions))

    def wait_for(self, end: Seam, seconds: float) -> bool:
        """Whether the topic was read up to there within the time."""
        deadline = time.monotonic() + seconds
        while not self.end.at_least(end):
            if self._error is not None:
                raise self._error
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def rows_of(self, entity: Entity, end: Seam) -> dict[RowKey, Row]:
        """The rows of an entity as of the given next offsets."""
        found: dict[RowKey, Row] = {}
        for name, versions in list(self._entities.get(entity, {}).items()):
            value = versions.at(end.get((self.topic, versions.partition)))
            if value is not None:
                found[*entity, name] = _row(entity, name, value)
        return found

    def rows(self, end: Seam) -> dict[RowKey, Row]:
        """All rows as of the given next offsets."""
        return {key: row for entity in list(self._entities) for key, row in self.rows_of(entity, end).items()}

    def count(self, start: Seam, end: Seam) -> tuple[int, int]:
        """How many records lie between the two, and how many of them are bad."""
        total = bad = 0
        for number, part in enumerate(list(self._partitions)):
            first, last = start.get((self.topic, number)), end.get((self.topic, number))
            total += bisect_left(part.offsets, last) - bisect_left(part.offsets, first)
            bad += bisect_left(part.bad, last) - bisect_left(part.bad, first)
        return total, bad

    def checksum_at(self, partition: int, offset: int) -> int | None:
        """Of the record there; None where the topic has none."""
        return self._partitions[partition].checksums.get(offset)

    def _run(self) -> None:
        consumer = Consumer(dict(self._config))
        assigned = 0
        try:
            while not self._stop.is_set():
                if assigned < self._wanted:
                    assigned = self._assign(consumer, assigned)
                for message in consumer.consume(READ_AT_ONCE, POLL_SECONDS):
                    self._take(message)
        except BaseException as error:  # noqa: BLE001 -- handed to the thread that waits
            self._error = error
        finally:
            consumer.close()

    def _assign(self, consumer: Consumer, assigned: int) -> int:
        while len(self._partitions) < self._wanted:
            self._partitions.append(_Partition())
        new = [TopicPartition(self.topic, p, OFFSET_BEGINNING) for p in range(assigned, self._wanted)]
        consumer.incremental_assign(new)
        return self._wanted

    def _take(self, message: Message) -> None:
        partition, offset, error = message.partition(), message.offset(), message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                assert partition is not None
                assert offset is not None
                part = self._partitions[partition]
                part.reached = max(part.reached, offset)
            return  # else it passes by itself, or nothing is read any more and that is noticed
        assert partition is not None
        assert offset is not None
        key, value = message.key(), message.value()
        assert key is None or isinstance(key, bytes)
        assert value is None or isinstance(value, bytes)
        self.take(partition, offset, key, value)

    def take(self, partition: int, offset: int, key: bytes | None, value: bytes | None) -> None:
        """Enters one record; those of a partition come in the order of their offsets."""
        part = self._partitions[partition]
        part.checksums[offset] = checksum(key, value)
        if key is None or key in BAD_KEYS or value in BAD_VALUES:
            part.bad.append(offset)
        else:
            names = json.loads(key)
            rows = self._entities.setdefault((names["app_id"], names["user_id"]), {})
            versions = rows.setdefault(names["key"], _Versions(partition))
            assert versions.partition == partition, f"{key!r} was written to two partitions"
            versions.values.append(value)
            versions.offsets.append(offset)
        part.offsets.append(offset)
        part.reached = offset + 1


def _row(entity: Entity, name: str, value: bytes) -> Row:
    fields = json.loads(value)
    updated_at = datetime.fromisoformat(fields["updated_at"])
    return {
        "app_id": entity[0],
        "user_id": entity[1],
        "key": name,
        "value": fields["value"],
        "updated_at": updated_at,
    }
