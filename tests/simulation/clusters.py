"""A fake cluster and a real broker behind one face, so that one test asks both the same."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from tests.simulation.kafka import FakeCluster
from tests.transactions import wait_for_markers
from thermocline.dev.broker import LocalKafka
from thermocline.kafka.facts import OffsetRange, RecordChunk
from thermocline.kafka.log import Log, read_ranges
from thermocline.kafka.tail import Tail
from thermocline.rules.seam import Seam
from thermocline.settings import KafkaSettings

ANSWER_SECONDS = 30.0


class Cluster(Protocol):
    """What a test does with a cluster, and asks of it."""

    def create_topic(self, topic: str, partitions: int) -> None: ...
    def delete_topic(self, topic: str) -> None: ...
    def add_partitions(self, topic: str, total: int) -> None: ...
    def produce(self, topic: str, partition: int, value: bytes, timestamp_ms: int) -> None: ...
    def transaction(self) -> Any: ...
    def trim(self, topic: str, partition: int, to: int) -> None: ...
    def log(self) -> Any: ...
    def read(self, ranges: Sequence[OffsetRange]) -> Iterator[RecordChunk]: ...
    def tail(self, start: Seam) -> Any: ...


class Fake:
    """The cluster of the simulation."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()

    def create_topic(self, topic: str, partitions: int) -> None:
        """A topic."""
        self.cluster.create_topic(topic, partitions)

    def delete_topic(self, topic: str) -> None:
        """No topic."""
        self.cluster.delete_topic(topic)

    def add_partitions(self, topic: str, total: int) -> None:
        """A larger topic."""
        self.cluster.add_partitions(topic, total)

    def produce(self, topic: str, partition: int, value: bytes, timestamp_ms: int) -> None:
        """One record."""
        self.cluster.produce(topic, partition, b"key", value, timestamp_ms)

    def transaction(self) -> Any:
        """An open transaction: ``produce``, then ``commit`` or ``abort``."""
        transaction = self.cluster.transaction()

        class Open:
            """As `RealTransaction`."""

            def produce(self, topic: str, partition: int, value: bytes, timestamp_ms: int) -> None:
                transaction.produce(topic, partition, b"key", value, timestamp_ms)

            commit, abort = transaction.commit, transaction.abort

        return Open()

    def trim(self, topic: str, partition: int, to: int) -> None:
        """Retention."""
        self.cluster.trim(topic, partition, to)

    def log(self) -> Any:
        """Questions."""
        return self.cluster.log()

    def read(self, ranges: Sequence[OffsetRange]) -> Iterator[RecordChunk]:
        """The records of ranges."""
        return self.cluster.read_ranges({}, ranges, "t")

    def tail(self, start: Seam) -> Any:
        """Follows the topics."""
        return self.cluster.tail(start, "t")


class RealTransaction:
    """A transaction of a producer of its own."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "transactional.id": str(uuid.uuid4()), "log_level": 0}
        )
        self._log = Log(KafkaSettings(bootstrap_servers=bootstrap_servers))
        self._topics: set[str] = set()
        self._producer.init_transactions(ANSWER_SECONDS)
        self._producer.begin_transaction()

    def produce(self, topic: str, partition: int, value: bytes, timestamp_ms: int) -> None:
        """One record, which the broker has."""
        self._topics.add(topic)
        self._producer.produce(topic, value, b"key", partition, timestamp=timestamp_ms)
        assert self._producer.flush(ANSWER_SECONDS) == 0

    def commit(self) -> None:
        """Show its records."""
        self._producer.commit_transaction(ANSWER_SECONDS)
        wait_for_markers(self._log, self._topics)

    def abort(self) -> None:
        """Hide its records."""
        self._producer.abort_transaction(ANSWER_SECONDS)
        wait_for_markers(self._log, self._topics)


class Real:
    """A broker."""

    def __init__(self, kafka: LocalKafka) -> None:
        self._kafka = kafka
        self._settings = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)
        self._admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})

    def create_topic(self, topic: str, partitions: int) -> None:
        """A topic."""
        self._kafka.create_topic(topic, partitions)

    def delete_topic(self, topic: str) -> None:
        """No topic."""
        self._kafka.delete_topic(topic)

    def add_partitions(self, topic: str, total: int) -> None:
        """A larger topic."""
        self._admin.create_partitions([NewPartitions(topic, total)])[topic].result(ANSWER_SECONDS)
        deadline = time.monotonic() + ANSWER_SECONDS
        while self.log().describe([topic])[topic].partitions != total:
            assert time.monotonic() < deadline

    def produce(self, topic: str, partition: int, value: bytes, timestamp_ms: int) -> None:
        """One record."""
        self._producer.produce(topic, value, b"key", partition, timestamp=timestamp_ms)
        assert self._producer.flush(ANSWER_SECONDS) == 0

    def transaction(self) -> RealTransaction:
        """An open transaction."""
        return RealTransaction(self._kafka.bootstrap_servers)

    def trim(self, topic: str, partition: int, to: int) -> None:
        """As retention does."""
        place = TopicPartition(topic, partition, to)
        (deleted,) = self._admin.delete_records([place]).values()
        deleted.result(ANSWER_SECONDS)

    def log(self) -> Log:
        """Questions."""
        return Log(self._settings)

    def read(self, ranges: Sequence[OffsetRange]) -> Iterator[RecordChunk]:
        """The records of ranges."""
        return read_ranges(self._settings.client_config(), ranges, "t")

    def tail(self, start: Seam) -> Tail:
        """Follows the topics."""
        return Tail(self._settings.client_config(), start, "t")
