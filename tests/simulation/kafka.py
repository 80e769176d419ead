"""A Kafka cluster in memory: partitions with transactions, retention and compaction; answers at once.

    cluster = FakeCluster(clock)
    cluster.create_topic("profiles", partitions=2)
    cluster.produce("profiles", 0, b"key", b"value")
    cluster.log()                       what `thermocline.kafka.log.Log` says of it
    cluster.read_ranges({}, ranges)     what `thermocline.kafka.log.read_ranges` gives
    cluster.tail(start, table, clock)   what `thermocline.kafka.tail.Tail` gives

`test_fakes` asks the same questions of it and of a broker. Nothing waits: where the real one would wait and
then give up, this one gives up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.manual_clock import ManualClock
from tests.simulation.partitions import Headers, Partition, Place, Record, Transaction
from thermocline.errors import KafkaUnreachable, OffsetsGone, RangeIncomplete, TopicMissing
from thermocline.kafka.facts import (
    TIMESTAMP_MS_MAX,
    OffsetRange,
    OpenTransaction,
    RecordChunk,
    TopicConfig,
    TopicFacts,
)
from thermocline.kafka.log import CONSUME_RECORDS_MAX
from thermocline.process.clock import Clock
from thermocline.rules.seam import Seam

BOOTSTRAP_SERVERS = "simulated:9092"

_KEPT_MS = 86_400_000
_DELETED_BY_TIME = TopicConfig(is_compacted=False, delete_retention_ms=_KEPT_MS, is_log_append_time=False)


@dataclass(slots=True)
class Topic:
    """A topic: what identifies it, its configuration, and its partitions."""

    topic_id: str
    config: TopicConfig
    partitions: list[Partition]


class FakeCluster:
    """A cluster of one broker that does what it is told, at once, and remembers all of it.

    ``before`` is called with the name of each request before it is answered (and with "read" before each
    chunk of a range): it may raise what ends the process that asks, or change the cluster meanwhile.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or ManualClock()
        self._made = 0
        self.cluster_id = self._new_id("cluster")
        self.topics: dict[str, Topic] = {}
        self.is_up = True
        self.before: Callable[[str], None] | None = None

    # What a client asks for.

    def log(self) -> FakeLog:
        """What `thermocline.kafka.log.Log` says of this cluster."""
        return FakeLog(self)

    def read_ranges(
        self,
        client_config: Mapping[str, Any],
        ranges: Sequence[OffsetRange],
        table: str = "",
        clock: Clock | None = None,
    ) -> Iterator[RecordChunk]:
        """As `thermocline.kafka.log.read_ranges`; what can't be finished now raises at once."""
        for wanted in ranges:
            if wanted.first >= wanted.end:
                continue
            self.ask("read")
            log = self.partition_or_none(wanted.topic, wanted.partition) if self.is_up else None
            if log is None:
                raise _incomplete(wanted, wanted.first)
            _check_position(log, table, wanted.first)
            records = log.between(wanted.first, wanted.end)
            if records:
                yield _chunk(wanted.topic, wanted.partition, records)
            if log.stable_end < wanted.end:
                raise _incomplete(wanted, max(log.stable_end, wanted.first))

    def tail(self, start: Seam, table: str = "", clock: Clock | None = None) -> FakeTail:
        """What `thermocline.kafka.tail.Tail` gives of this cluster."""
        return FakeTail(self, start, table, clock or self._clock)

    def ask(self, what: str) -> None:
        """A request reaches the cluster. For the fakes of this file."""
        if self.before is not None:
            self.before(what)

    # What happens to it.

    def create_topic(self, topic: str, partitions: int = 1, config: TopicConfig = _DELETED_BY_TIME) -> str:
        """The id of the new topic."""
        assert topic not in self.topics
        logs = [Partition(place=(topic, number)) for number in range(partitions)]
        self.topics[topic] = Topic(self._new_id("topic"), config, logs)
        return self.topics[topic].topic_id

    def delete_topic(self, topic: str) -> None:
        """It and all that it held is gone."""
        del self.topics[topic]

    def replace_topic(self, topic: str, partitions: int | None = None) -> str:
        """Deleted and created again, empty: the same name, another id."""
        before = self.topics.pop(topic)
        return self.create_topic(topic, partitions or len(before.partitions), before.config)

    def add_partitions(self, topic: str, total: int) -> None:
        """The topic has so many partitions from now on."""
        logs = self.topics[topic].partitions
        assert total >= len(logs)
        logs += [Partition(place=(topic, number)) for number in range(len(logs), total)]

    def replace(self) -> None:
        """Another cluster answers at this address: the same topics by name, empty, with other ids."""
        self.cluster_id = self._new_id("cluster")
        for topic in list(self.topics):
            self.replace_topic(topic)

    def produce(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int | None = None,
        transaction: Transaction | None = None,
        headers: Headers | None = None,
    ) -> int:
        """The offset that the record took. A topic with append times ignores the producer's time."""
        log, now_ms = self.partition(topic, partition), self.now_ms()
        is_broker_s = timestamp_ms is None or self.topics[topic].config.is_log_append_time
        at_ms = now_ms if is_broker_s or timestamp_ms is None else timestamp_ms
        return log.append(key, value, at_ms, now_ms, transaction, headers=headers)

    def transaction(self) -> Transaction:
        """A new transaction, open."""
        return Transaction(self)

    def trim(self, topic: str, partition: int, to: int) -> None:
        """Retention took all before this offset."""
        self.partition(topic, partition).trim(to)

    def lose_end(self, topic: str, partition: int, to: int) -> None:
        """An unclean election lost all from this offset on."""
        self.partition(topic, partition).lose_end(to)

    def compact(
        self,
        topic: str,
        partition: int,
        before: int | None = None,
        tombstones_before_ms: int | None = None,
    ) -> None:
        """The cleaner came by: of the records below ``before`` (default: all) only the last of each key stay.

        Tombstones that the cleaner first met before ``tombstones_before_ms`` go too; by default none.
        """
        log = self.partition(topic, partition)
        log.compact(log.end if before is None else before, self.now_ms(), tombstones_before_ms)

    def partition(self, topic: str, partition: int) -> Partition:
        """The log of one partition."""
        return self.topics[topic].partitions[partition]

    def partition_or_none(self, topic: str, partition: int) -> Partition | None:
        """The log of one partition, where there is one."""
        found = self.topics.get(topic)
        return found.partitions[partition] if found and partition < len(found.partitions) else None

    def now_ms(self) -> int:
        """The broker's time."""
        return self._clock.now_ms()

    def _new_id(self, kind: str) -> str:
        self._made += 1
        return f"{kind}-{self._made}"


class FakeLog:
    """Questions about a fake cluster's topics: the interface of `thermocline.kafka.log.Log`."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def cluster_id(self) -> str:
        """The cluster's id."""
        self._ask("cluster_id")
        return self._cluster.cluster_id

    def names(self) -> frozenset[str]:
        """All topics."""
        self._ask("names")
        return frozenset(self._cluster.topics)

    def missing(self, topics: Sequence[str]) -> tuple[str, ...]:
        """Those that don't exist."""
        if topics:
            self._ask("missing")
        return tuple(topic for topic in topics if topic not in self._cluster.topics)

    def may_read(self, topics: Sequence[str]) -> dict[str, bool]:
        """Every user may."""
        self._ask("may_read")
        return {topic: bool(self._topic(topic)) for topic in topics}

    def describe(self, topics: Sequence[str]) -> dict[str, TopicFacts]:
        """The facts of each topic."""
        self._ask("describe")
        found = {topic: self._topic(topic) for topic in topics}
        return {topic: TopicFacts(one.topic_id, len(one.partitions)) for topic, one in found.items()}

    def configs(self, topics: Sequence[str]) -> dict[str, TopicConfig]:
        """The configuration of each topic."""
        self._ask("configs")
        return {topic: self._topic(topic).config for topic in topics}

    def starts(self, topics: Sequence[str]) -> Seam:
        """The first offset that each partition still holds."""
        self._ask("starts")
        return Seam({log.place: log.start for log in self._logs(topics)})

    def ends(self, topics: Sequence[str]) -> Seam:
        """The last stable offset of each partition."""
        self._ask("ends")
        return Seam({log.place: log.stable_end for log in self._logs(topics)})

    def bounds(self, topics: Sequence[str]) -> tuple[Seam, Seam]:
        """Starts and ends, in this order, of the partitions that there are at the first of them."""
        self._ask("starts")
        logs = self._logs(topics)
        starts = Seam({log.place: log.start for log in logs})
        self._ask("ends")
        return starts, Seam({log.place: log.stable_end for log in logs})

    def ends_together(self, topics: Sequence[str]) -> Seam:
        """The ends: here partitions are asked at once."""
        self._ask("ends_together")
        return Seam({log.place: log.stable_end for log in self._logs(topics)})

    def open_transactions(self, topics: Sequence[str]) -> tuple[OpenTransaction, ...]:
        """What holds a committed reader back."""
        self._ask("open_transactions")
        return tuple(
            OpenTransaction(*log.place, log.stable_end, log.end - log.stable_end)
            for log in self._logs(topics)
            if log.end > log.stable_end
        )

    def offsets_at(self, topics: Sequence[str], epoch_ms: int) -> Seam:
        """The first offset at or after a time; the end where nothing is that young."""
        self._ask("offsets_at")
        return Seam(
            {
                log.place: next(
                    (
                        record.offset
                        for record in log.records
                        if record.timestamp_ms >= epoch_ms and record.offset < log.stable_end
                    ),
                    log.stable_end,
                )
                for log in self._logs(topics)
            }
        )

    def _ask(self, what: str) -> None:
        self._cluster.ask(what)
        if not self._cluster.is_up:
            raise KafkaUnreachable(bootstrap_servers=BOOTSTRAP_SERVERS, detail="no answer")

    def _topic(self, topic: str) -> Topic:
        found = self._cluster.topics.get(topic)
        if found is None:
            raise TopicMissing(topic=topic, bootstrap_servers=BOOTSTRAP_SERVERS)
        return found

    def _logs(self, topics: Sequence[str]) -> list[Partition]:
        return [log for topic in topics for log in self._topic(topic).partitions]


class FakeTail:
    """Follows the committed records of a fake cluster: the interface of `thermocline.kafka.tail.Tail`.

    ``poll`` takes what is there and never waits; ends and facts are asked for with each poll, and answered at
    once. The real one asks for facts every two seconds, so it may take records of a topic made again before.
    """

    def __init__(self, cluster: FakeCluster, start: Seam, table: str, clock: Clock) -> None:
        self._cluster = cluster
        self._table = table
        self._clock = clock
        self._positions = {(topic, partition): offset for topic, partition, offset in start.items()}
        self._reached_end_at: dict[Place, float] = {}
        self._facts: dict[str, TopicFacts] = {}

    def poll(self, timeout_seconds: float, records_max: int = CONSUME_RECORDS_MAX) -> list[RecordChunk]:
        """The next records, a chunk a partition; empty when there are none, or the broker is unavailable."""
        self._cluster.ask("poll")
        if not self._cluster.is_up:
            return []
        asked_at = self._clock.monotonic()
        logs = {place: self._cluster.partition_or_none(*place) for place in self._positions}
        chunks, left = [], records_max
        for place, log in logs.items():
            if log is None:
                continue
            _check_position(log, self._table, self._positions[place])
            records = log.between(self._positions[place], log.end)
            if len(records) > left:
                records = records[:left]
                self._positions[place] = records[-1].offset + 1 if records else self._positions[place]
            else:
                self._positions[place] = max(self._positions[place], log.stable_end)
                self._reached_end_at[place] = asked_at
            left -= len(records)
            if records:
                chunks.append(_chunk(*place, records))
        topics = {topic: self._cluster.topics.get(topic) for topic, _ in logs}
        self._facts |= {
            name: TopicFacts("", 0) if one is None else TopicFacts(one.topic_id, len(one.partitions))
            for name, one in topics.items()
        }
        return chunks

    def positions(self) -> Seam:
        """The next offset to be read of each partition."""
        return Seam(self._positions)

    def silence(self) -> None:
        """A silence is only ever told of, so it need not be simulated."""

    def reached_end_at(self) -> dict[Place, float]:
        """When (monotonic seconds) each partition was last known to be read up to its end."""
        return dict(self._reached_end_at)

    def facts(self) -> dict[str, TopicFacts]:
        """What the cluster last said of the topics."""
        return dict(self._facts)

    def close(self) -> None:
        """Leaves the broker."""


def _check_position(log: Partition, table: str, wanted: int) -> None:
    """A fetch from before the log's start, or from beyond its end, is refused."""
    if not log.start <= wanted <= log.end:
        end = log.start if log.start > wanted else "?"
        raise OffsetsGone(table=table, gaps=(f"{log.place[0]}/{log.place[1]}@{wanted}-{end}",))


def _incomplete(wanted: OffsetRange, reached: int) -> RangeIncomplete:
    return RangeIncomplete(
        topic=wanted.topic,
        partition=wanted.partition,
        first=wanted.first,
        end=wanted.end,
        reached=reached,
    )


def _chunk(topic: str, partition: int, records: Sequence[Record]) -> RecordChunk:
    return RecordChunk(
        topic,
        partition,
        [record.key for record in records],
        [record.value for record in records],
        [record.offset for record in records],
        [min(max(record.timestamp_ms, -1), TIMESTAMP_MS_MAX) for record in records],
        records,
    )
