"""Kafka's consumer over a fake cluster, and the product's shared reading with it, whose thread is a call.

reading = FakeReading(cluster, clock)
tail = reading.tail(start, facts, "t")    a product's tail, one of several
reading.step()                            one turn of the thread that polls the consumer
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, TopicPartition

from tests.simulation.kafka import BOOTSTRAP_SERVERS, FakeCluster
from tests.simulation.partitions import Place, Record
from thermocline.errors import OffsetsGone
from thermocline.kafka.facts import RecordChunk, TopicFacts
from thermocline.kafka.log import CONSUME_RECORDS_MAX, OFFSET_OUT_OF_LOG, PARTITION_END, take
from thermocline.kafka.shared_tail import Share, SharedReading
from thermocline.kafka.tail import Asked, End, Tail
from thermocline.rules.seam import Seam

if TYPE_CHECKING:
    from thermocline.process.clock import Clock

# A turn of the consumer's thread brings what the one before fetched; one that joins takes a few.
TURNS_MIN = 4
TURNS_MAX = 30
CONFIG = {"bootstrap.servers": BOOTSTRAP_SERVERS}


class FakeMessage:
    """What a consumer gives: a record, or an event."""

    def __init__(self, place: Place, offset: int, record: Record | None, code: int = 0) -> None:
        self._place, self._offset, self._record, self._code = place, offset, record, code

    def topic(self) -> str:
        """Of its place."""
        return self._place[0]

    def partition(self) -> int:
        """Of its place."""
        return self._place[1]

    def offset(self) -> int:
        """Its own; of the end of a partition, that."""
        return self._offset

    def error(self) -> KafkaError | None:
        """What happened; None for a record."""
        return None if self._record is not None else KafkaError(self._code)

    def key(self) -> bytes | None:
        """The record's."""
        return None if self._record is None else self._record.key

    def value(self) -> bytes | None:
        """The record's."""
        return None if self._record is None else self._record.value

    def timestamp(self) -> tuple[int, int]:
        """The record's."""
        assert self._record is not None
        return 1, self._record.timestamp_ms

    def headers(self) -> Any:
        """The record's."""
        return None if self._record is None else self._record.headers()


class FakeConsumer:
    """A consumer whose partitions are assigned. It fetches ahead: what it gives may be of a topic before."""

    def __init__(
        self,
        cluster: FakeCluster,
        records_a_fetch: int = 100,
        forbidden: frozenset[str] | set[str] = frozenset(),
    ) -> None:
        """``forbidden`` are topics that the user may not read, which it says once."""
        self._cluster = cluster
        self._forbidden = forbidden
        self._records_a_fetch = records_a_fetch
        self._fetch_from: dict[Place, int] = {}
        self._given: dict[Place, int] = {}
        self._told_end: dict[Place, int] = {}
        self._paused: set[Place] = set()
        self._ready: deque[FakeMessage] = deque()
        self._ahead: list[FakeMessage] = []
        self.fetched = 0
        self.is_closed = False

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Begins to read them."""
        for one in partitions:
            place = (one.topic, one.partition)
            assert place not in self._fetch_from, "assigned twice"
            self._fetch_from[place] = self._given[place] = one.offset

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Reads them no more. A pause outlives it."""
        for one in partitions:
            place = (one.topic, one.partition)
            self._forget(place)
            del self._fetch_from[place], self._given[place]
            self._told_end.pop(place, None)

    def pause(self, partitions: list[TopicPartition]) -> None:
        """What was fetched ahead is fetched again."""
        for one in partitions:
            place = (one.topic, one.partition)
            self._paused.add(place)
            self._forget(place)
            self._fetch_from[place] = self._given[place]
            self._told_end.pop(place, None)

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Goes on."""
        self._paused -= {(one.topic, one.partition) for one in partitions}

    def poll(self, timeout_seconds: float) -> FakeMessage | None:
        """The next message; None where there is none."""
        self._cluster.ask("poll")
        if not self._ready:
            self._ready, self._ahead = deque(self._ahead), self._fetched()
        return self._next()

    def consume(self, number: int, timeout_seconds: float) -> list[FakeMessage]:
        """What there is beside it."""
        found: list[FakeMessage] = []
        while len(found) < number and (message := self._next()) is not None:
            found.append(message)
        return found

    def close(self) -> None:
        """Leaves the broker."""
        self.is_closed = True

    def _next(self) -> FakeMessage | None:
        if not self._ready:
            return None
        message = self._ready.popleft()
        place = (message.topic(), message.partition())
        self._given[place] = max(self._given[place], message.offset() + (message.error() is None))
        return message

    def _forget(self, place: Place) -> None:
        def is_other(one: FakeMessage) -> bool:
            return (one.topic(), one.partition()) != place

        self._ready = deque(one for one in self._ready if is_other(one))
        self._ahead = [one for one in self._ahead if is_other(one)]

    def _fetched(self) -> list[FakeMessage]:
        if not self._cluster.is_up:
            return []
        found = []
        for place, at in self._fetch_from.items():
            log = self._cluster.partition_or_none(*place)
            if log is None or place in self._paused or at < 0:
                continue
            is_forbidden = place[0] in self._forbidden
            if is_forbidden or not log.start <= at <= log.end:
                self._fetch_from[place] = -1  # until it is assigned again
                code = KafkaError.TOPIC_AUTHORIZATION_FAILED if is_forbidden else OFFSET_OUT_OF_LOG
                found.append(FakeMessage(place, at, None, code))
                continue
            records = log.between(at, log.end)
            part = records[: self._records_a_fetch]
            self.fetched += len(part)
            found += [FakeMessage(place, record.offset, record) for record in part]
            self._fetch_from[place] = part[-1].offset + 1 if part else at
            if len(part) == len(records):
                end = self._fetch_from[place] = max(self._fetch_from[place], log.stable_end)
                if self._told_end.get(place) != end:
                    self._told_end[place] = end
                    found.append(FakeMessage(place, end, None, PARTITION_END))
        return found


class FakeProbes:
    """Questions for ends and facts, answered at once."""

    def __init__(self, cluster: FakeCluster, places: Sequence[Place], clock: Clock) -> None:
        self._cluster, self._places, self._clock = cluster, places, clock

    def ends(self) -> list[End]:
        """As of now."""
        if not self._cluster.is_up:
            return []
        now = self._clock.monotonic()
        logs = [(place, self._cluster.partition_or_none(*place)) for place in self._places]
        return [(place, log.stable_end, now) for place, log in logs if log is not None]

    def facts(self) -> dict[str, TopicFacts]:
        """As of now."""
        if not self._cluster.is_up:
            return {}
        topics = {topic: self._cluster.topics.get(topic) for topic, _ in self._places}
        return {
            name: TopicFacts("", 0) if one is None else TopicFacts(one.topic_id, len(one.partitions))
            for name, one in topics.items()
        }


class FakeReading:
    """The consumer that tails share, and those of their own."""

    def __init__(self, cluster: FakeCluster, clock: Clock, records_a_fetch: int = 100) -> None:
        self._cluster, self._clock, self._records_a_fetch = cluster, clock, records_a_fetch
        self.forbidden: set[str] = set()
        self.consumers = [FakeConsumer(cluster, records_a_fetch, self.forbidden)]
        self._reading = SharedReading(self.consumers[0], self)  # type: ignore[arg-type]

    def tail(self, start: Seam, facts: Mapping[str, TopicFacts], table: str) -> Tail:
        """One of those that share the reading."""
        return Tail(CONFIG, start, table, self._clock, self.share(start, facts))

    def share(self, start: Seam, facts: Mapping[str, TopicFacts]) -> Share:
        """The reader of one of them."""
        places = [(topic, partition) for topic, partition, _ in start.items()]
        probes: Asked = FakeProbes(self._cluster, places, self._clock)
        return self._reading.share(start, facts, probes)

    def step(self) -> None:
        """One turn of the thread that polls the shared consumer."""
        self._reading.obey()
        shared: Any = self.consumers[0]
        self._reading.hand_out(take(shared, CONSUME_RECORDS_MAX, 0))

    @property
    def fetched(self) -> int:
        """How many records were fetched, by all consumers."""
        return sum(one.fetched for one in self.consumers)

    @property
    def open(self) -> int:
        """How many consumers there are."""
        return sum(not one.is_closed for one in self.consumers)

    # What a share asks for.

    def own(self) -> Any:
        """A consumer for a tail that is behind."""
        self.consumers.append(FakeConsumer(self._cluster, self._records_a_fetch, self.forbidden))
        return self.consumers[-1]

    def gone(self, table: str, place: Place, wanted: int) -> OffsetsGone:
        """The error."""
        log = self._cluster.partition_or_none(*place)
        end = log.start if log is not None and log.start > wanted else "?"
        return OffsetsGone(table=table, gaps=(f"{place[0]}/{place[1]}@{wanted}-{end}",))


class SharedTails:
    """The reading of a process that tails two tables of the same topics: one is the history's.

    The other begins where that one does or at the log's start, takes what it gets or stands still, and
    begins again, by chance.
    """

    def __init__(self, cluster: FakeCluster, clock: Clock, counts: Counter[str]) -> None:
        self._cluster, self._counts, self.clock = cluster, counts, clock
        self._reading = FakeReading(cluster, clock)
        self._chance = Random(counts["tailers started"])
        self._other: Tail | None = None

    def tail(self, start: Seam, facts: Mapping[str, TopicFacts], table: str) -> Tail:
        """Of the history's table."""
        if self._other is None and self._chance.random() < 0.8:
            self._begin_other(start, facts)
        return _TailOfSeveral(self, start, facts, table)

    def share(self, start: Seam, facts: Mapping[str, TopicFacts]) -> Share:
        """The reader of one of them."""
        return self._reading.share(start, facts)

    def turn(self, positions: Seam, facts: Mapping[str, TopicFacts]) -> None:
        """One of the consumer's thread, and one of the other table's; ``positions`` are of the first."""
        self._reading.step()
        self._poll_other(positions, facts)

    def _begin_other(self, start: Seam, facts: Mapping[str, TopicFacts]) -> None:
        logs = {
            place: self._cluster.partition_or_none(*place)
            for place in [(topic, partition) for topic, partition, _ in start.items()]
        }
        if self._chance.random() < 0.5:
            start = Seam({place: start[place] if log is None else log.start for place, log in logs.items()})
        self._other = self._reading.tail(start, facts, "another")

    def _poll_other(self, positions: Seam, facts: Mapping[str, TopicFacts]) -> None:
        if self._other is None or self._chance.random() < 0.3:
            return
        self._counts["shared tails polled"] += 1
        try:
            self._other.poll(0)
            if self._chance.random() < 0.9:
                return
        except OffsetsGone:
            pass
        self._other.close()
        self._other = None
        if self._chance.random() < 0.8:
            self._begin_other(positions, facts)


class _TailOfSeveral(Tail):
    """A tail that takes what comes in some turns of all threads, until nothing does."""

    def __init__(self, tails: SharedTails, start: Seam, facts: Mapping[str, TopicFacts], table: str) -> None:
        super().__init__(CONFIG, start, table, tails.clock, tails.share(start, facts))
        self._tails, self._described = tails, facts

    def poll(self, timeout_seconds: float, records_max: int = CONSUME_RECORDS_MAX) -> list[RecordChunk]:
        """As the tail's, without waiting."""
        chunks: list[RecordChunk] = []
        for number in range(TURNS_MAX):
            before = self.positions()
            self._tails.turn(before, self._described)
            came = super().poll(0, records_max)
            chunks += came
            if not came and number >= TURNS_MIN and self.positions() == before:
                break
        return chunks
