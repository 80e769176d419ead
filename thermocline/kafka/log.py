"""The Kafka log: what it holds, and reading planned ranges of it exactly; ``tail`` follows it.

This package is all that knows confluent-kafka, the demo's embedded parts aside. Offsets that are read are
always assigned, never subscribed, so nothing of ours depends on consumer groups.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import (
    OFFSET_INVALID,  # the offset that a question for offsets gives, without an error, when its time is over
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, though its __all__ is missing
    AclOperation,
    ConfigResource,
    OffsetSpec,
)

from thermocline.errors import (
    ConfigInvalid,
    KafkaUnreachable,
    OffsetsGone,
    RangeIncomplete,
    TopicForbidden,
    TopicMissing,
)
from thermocline.failpoints import failpoint
from thermocline.kafka.admin import admin_client
from thermocline.kafka.client_settings import reworded
from thermocline.kafka.facts import (
    Message,
    OffsetRange,
    OpenTransaction,
    RecordChunk,
    TopicConfig,
    TopicFacts,
    TopicRetention,
    config_of,
    retention_of,
)
from thermocline.process.clock import Clock, SystemClock
from thermocline.rules.seam import Seam
from thermocline.rules.topic_patterns import OWN_OF_KAFKA

if TYPE_CHECKING:
    from thermocline.settings import KafkaSettings

# A metadata question that a healthy cluster answers in milliseconds; the user waits for it at a terminal.
REQUEST_TIMEOUT_SECONDS = 10.0
# No record and no end-of-partition event for this long means that a range cannot be finished now: longer
# than a broker restart (5 s with the session timeout of the embedded broker), shorter than patience.
READ_STALL_SECONDS = 30.0
# Messages taken from librdkafka's queue in one call: large enough to spread the cost of the call.
CONSUME_RECORDS_MAX = 10_000
# How long one call waits for the first message, so that a stalled read is noticed between calls.
CONSUME_WAIT_SECONDS = 0.2
# A topic or partition that was just made is known to one broker before the others, and a new leader takes a
# moment; but what its user misspelt should be said soon.
METADATA_WAIT_SECONDS = 2.0
METADATA_POLL_SECONDS = 0.1

# librdkafka demands a group id even where no group is used.
_READER_CONFIG: dict[str, Any] = {
    "group.id": "thermocline",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "fetch.min.bytes": 1,
}
# A range is read as fast as the broker can send; a tail (``tail``) waits for records that do not exist yet.
_RANGE_CONFIG = {
    "fetch.wait.max.ms": 50,
    "queued.max.messages.kbytes": 131_072,
    "max.partition.fetch.bytes": 8 << 20,
}

PARTITION_END = KafkaError._PARTITION_EOF  # noqa: SLF001  librdkafka's local errors have no other name
OFFSET_OUT_OF_LOG = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001

# While a topic is being made or deleted, or a partition changes its leader.
_NOT_SETTLED = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_ID,
)
_NOT_SUPPORTED = (
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError._UNSUPPORTED_FEATURE,  # noqa: SLF001
)
_NOT_ALLOWED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)

_EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_NEWEST = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]

_Answer = TypeVar("_Answer")

_kafka_logger = logging.getLogger("thermocline.kafka")


class Log:
    """Questions about a cluster's topics. Raises `KafkaUnreachable` when no broker answers in time.

    Raises `ConfigInvalid` where the client's settings are none of librdkafka's.
    """

    def __init__(self, kafka: KafkaSettings, clock: Clock | None = None) -> None:
        self._bootstrap_servers = kafka.bootstrap_servers
        self._clock = clock or SystemClock()
        try:
            self._admin = admin_client(self, {**kafka.client_config(), "log_level": 0}, _kafka_logger)
        except KafkaException as error:  # librdkafka refuses a name or a value
            raise ConfigInvalid(of="[kafka.client]", problems=(reworded(error.args[0].str()),)) from error

    def cluster_id(self) -> str:
        """The id that the cluster was formatted with."""
        return str(
            self._answer(self._admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_SECONDS)).cluster_id
        )

    def describe(self, topics: Sequence[str]) -> dict[str, TopicFacts]:
        """The facts of each topic. Raises `TopicMissing` for the first one that does not exist."""
        return self._once_known(lambda: self._describe(topics))

    def names(self) -> frozenset[str]:
        """All topics that the user may describe, without Kafka's own."""
        try:
            listed = _requested(lambda: self._admin.list_topics(timeout=REQUEST_TIMEOUT_SECONDS)).topics
        except KafkaException as error:
            raise self._unreachable(error.args[0].str()) from error
        return frozenset(topic for topic in listed if not topic.startswith(OWN_OF_KAFKA))

    def missing(self, topics: Sequence[str]) -> tuple[str, ...]:
        """Those that don't exist, by what the cluster goes on to say of each of them for a little while.

        A list of all topics lacks those, too, that the user may not describe.
        """
        deadline, missing = self._clock.monotonic() + METADATA_WAIT_SECONDS, tuple(topics)
        while missing:
            missing = self._missing(missing)  # safety: deleted-by-name
            if self._clock.monotonic() >= deadline:
                break
            self._clock.sleep(METADATA_POLL_SECONDS)
        return missing

    def may_read(self, topics: Sequence[str]) -> dict[str, bool]:
        """Whether the user may read the records of each topic, as far as the brokers say it."""
        futures = (
            self._admin.describe_topics(
                TopicCollection(list(topics)),
                include_authorized_operations=True,
                request_timeout=REQUEST_TIMEOUT_SECONDS,
            )
            if topics
            else {}
        )
        allowed = {topic: self._answer(futures[topic], topic).authorized_operations for topic in topics}
        return {
            topic: operations is None or AclOperation.READ in operations
            for topic, operations in allowed.items()
        }

    def configs(self, topics: Sequence[str]) -> dict[str, TopicConfig]:
        """The configuration of each topic; `config_of` nothing where the user may not describe it."""
        return {
            topic: replace(config_of(entries or {}), is_hidden=entries is None)
            for topic, entries in self.entries(topics).items()
        }

    def retentions(self, topics: Sequence[str]) -> dict[str, TopicRetention]:
        """For how long each topic keeps its records; the least where the user may not ask."""
        return {topic: retention_of(entries or {}) for topic, entries in self.entries(topics).items()}

    def entries(self, topics: Sequence[str]) -> dict[str, dict[str, str | None] | None]:
        """What the broker says of each topic's configuration; None where the user may not describe it."""
        if not topics:
            return {}
        asked = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
        futures = self._admin.describe_configs(asked, request_timeout=REQUEST_TIMEOUT_SECONDS)
        return {topic: self._entries_of(futures[of], topic) for topic, of in zip(topics, asked, strict=True)}

    def starts(self, topics: Sequence[str]) -> Seam:
        """The first offset that each partition still holds."""
        return Seam(self._offsets(topics, _EARLIEST))

    def ends(self, topics: Sequence[str]) -> Seam:
        """The next offset of each partition that a committed reader can reach (the last stable offset)."""
        return Seam(self._offsets(topics, LATEST))

    def bounds(self, topics: Sequence[str]) -> tuple[Seam, Seam]:
        """`starts` and `ends`, in this order, of the partitions that the topics have at the first of them."""
        return self._once_known(lambda: self._ask_bounds(topics))

    def open_transactions(self, topics: Sequence[str]) -> tuple[OpenTransaction, ...]:
        """What holds a committed reader back, of all partitions; mostly nothing."""
        # The other way round, records that arrive between the questions would look like held back.
        watermarks = self._offsets(topics, LATEST, IsolationLevel.READ_UNCOMMITTED)
        return tuple(
            OpenTransaction(topic, partition, end, watermarks[topic, partition] - end)
            for topic, partition, end in self.ends(topics).items()
            if watermarks.get((topic, partition), end) > end
        )

    def ends_together(self, topics: Sequence[str]) -> Seam:
        """The ends as of one moment, by the records' own times.

        Partitions are asked one after the other, so that a record may be missed that is older than one that
        is not. Here the greatest time is asked for first, and then for all that was appended up to it.
        """
        newest_ms = self._once_known(lambda: self._ask_newest_ms(topics))
        # safety: log-ends-together
        return self.ends(topics) if newest_ms is None else self.offsets_at(topics, newest_ms + 1)

    def offsets_at(self, topics: Sequence[str], epoch_ms: int) -> Seam:
        """The first offset at or after a time; the end of the log where nothing is that young.

        A partition that appears between the two questions is left out.
        """
        # The ends first: what arrives between the questions may be that young, and must not be passed over.
        ends = self._offsets(topics, LATEST)  # safety: beh-ends-before-time
        found = self._offsets(topics, OffsetSpec.for_timestamp(epoch_ms))
        return Seam(
            {
                place: offset if offset >= 0 else ends[place]
                for place, offset in found.items()
                if place in ends
            }
        )

    def _missing(self, topics: Sequence[str]) -> tuple[str, ...]:
        futures = self._admin.describe_topics(
            TopicCollection(list(topics)), request_timeout=REQUEST_TIMEOUT_SECONDS
        )
        missing = []
        for topic in topics:
            try:
                self._answer(futures[topic], topic)
            except TopicMissing:
                missing.append(topic)
        return tuple(missing)

    def _describe(self, topics: Sequence[str]) -> dict[str, TopicFacts]:
        if not topics:  # of which the client asks nobody
            return {}
        futures = self._admin.describe_topics(
            TopicCollection(list(topics)), request_timeout=REQUEST_TIMEOUT_SECONDS
        )
        facts = {}
        for topic in topics:
            described = self._answer(futures[topic], topic)
            if not described.partitions:
                raise TopicMissing(topic=topic, bootstrap_servers=self._bootstrap_servers)
            facts[topic] = TopicFacts(str(described.topic_id), len(described.partitions))
        return facts

    def _entries_of(self, future: Future[Any], topic: str) -> dict[str, str | None] | None:
        try:
            entries = self._answer(future, topic)
        except TopicForbidden:
            return None
        return {name: entry.value for name, entry in entries.items()}

    def _offsets(
        self,
        topics: Sequence[str],
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[tuple[str, int], int]:
        """By (topic, partition); -1 where the log holds nothing that answers."""
        return self._once_known(lambda: self._ask_offsets(self._describe(topics), spec, isolation))

    def _ask_bounds(self, topics: Sequence[str]) -> tuple[Seam, Seam]:
        facts = self._describe(topics)
        isolation = IsolationLevel.READ_COMMITTED
        starts = Seam(self._ask_offsets(facts, _EARLIEST, isolation))
        return starts, Seam(self._ask_offsets(facts, LATEST, isolation))

    def _ask_newest_ms(self, topics: Sequence[str]) -> int | None:
        """The greatest time of any record, or -1; None from brokers that don't say it (before 3.0)."""
        isolation = IsolationLevel.READ_COMMITTED
        try:
            found = self._ask(self._describe(topics), _NEWEST, isolation)
        except KafkaUnreachable as error:
            if is_unsupported(error.__cause__):
                return None
            raise
        return max((int(one.timestamp) for one in found.values()), default=-1)

    def _ask_offsets(
        self, facts: Mapping[str, TopicFacts], spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[tuple[str, int], int]:
        return {place: one.offset for place, one in self._ask(facts, spec, isolation).items()}

    def _ask(
        self, facts: Mapping[str, TopicFacts], spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[tuple[str, int], Any]:
        asked = {
            TopicPartition(topic, p): spec for topic, fact in facts.items() for p in range(fact.partitions)
        }
        if not asked:
            return {}
        futures = self._admin.list_offsets(
            asked, isolation_level=isolation, request_timeout=REQUEST_TIMEOUT_SECONDS
        )
        found = {
            (place.topic, place.partition): self._answer(future, place.topic)
            for place, future in futures.items()
        }
        if any(one.offset == OFFSET_INVALID for one in found.values()):
            raise self._unreachable(f"no answer within {REQUEST_TIMEOUT_SECONDS:.0f} s")
        return found

    def _once_known(self, ask: Callable[[], _Answer]) -> _Answer:
        """The answer, waited for a little where a topic or a partition's leader is not known (yet)."""
        deadline = self._clock.monotonic() + METADATA_WAIT_SECONDS
        while True:
            try:
                return ask()
            except (TopicMissing, KafkaUnreachable) as error:
                if not _passes_soon(error) or self._clock.monotonic() >= deadline:
                    raise
            self._clock.sleep(METADATA_POLL_SECONDS)

    def _answer(self, future: Future[Any], topic: str = "") -> Any:
        try:
            return _requested(lambda: future.result(timeout=REQUEST_TIMEOUT_SECONDS + 1))
        except KafkaException as error:
            if is_topic_missing(error):
                raise TopicMissing(topic=topic, bootstrap_servers=self._bootstrap_servers) from None
            if topic and is_forbidden(error.args[0]):
                raise TopicForbidden(topic=topic, detail=error.args[0].str()) from error
            raise self._unreachable(error.args[0].str()) from error
        except TimeoutError as error:
            raise self._unreachable(f"no answer within {REQUEST_TIMEOUT_SECONDS:.0f} s") from error

    def _unreachable(self, detail: str) -> KafkaUnreachable:
        return KafkaUnreachable(bootstrap_servers=self._bootstrap_servers, detail=detail)


def is_topic_missing(error: BaseException) -> bool:
    """Whether a broker said that it has no such topic."""
    return isinstance(error, KafkaException) and error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def is_unsupported(error: BaseException | None) -> bool:
    """Whether a broker, or the client for it, said that it is too old for a request."""
    return isinstance(error, KafkaException) and error.args[0].code() in _NOT_SUPPORTED


def is_forbidden(error: KafkaError) -> bool:
    """Whether a broker said that the user may not do that."""
    return error.code() in _NOT_ALLOWED


def _passes_soon(error: TopicMissing | KafkaUnreachable) -> bool:
    """Whether a broker said that it knows no such topic or leader, which may be so for a moment only."""
    cause = error.__cause__
    is_unsettled = isinstance(cause, KafkaException) and cause.args[0].code() in _NOT_SETTLED
    return isinstance(error, TopicMissing) or is_unsettled


def read_ranges(
    client_config: Mapping[str, Any],
    ranges: Sequence[OffsetRange],
    table: str = "",
    clock: Clock | None = None,
) -> Iterator[RecordChunk]:
    """The committed records of ranges of different partitions, all of them, each partition's in order.

    A range counts as read only when a record or an end-of-partition event at or past its end was seen:
    transaction markers and compaction leave holes, so the last offset may never arrive as a record.

    Raises:
        OffsetsGone: the log no longer reaches back to the first offset of a range.
        RangeIncomplete: the end of a range was not reached; nothing says that it does not exist.
    """
    unread = {(wanted.topic, wanted.partition): wanted for wanted in ranges if wanted.first < wanted.end}
    positions = {place: wanted.first for place, wanted in unread.items()}
    consumer = consumer_of(client_config, _RANGE_CONFIG)
    clock = clock or SystemClock()
    progressed_at = clock.monotonic()
    try:
        consumer.assign([TopicPartition(*place, offset) for place, offset in positions.items()])
        while unread:
            messages = take(consumer, CONSUME_RECORDS_MAX, CONSUME_WAIT_SECONDS)
            chunks, has_progressed = _sort_out(messages, unread, positions, consumer, table)
            yield from chunks
            if has_progressed:
                progressed_at = clock.monotonic()
            elif clock.monotonic() - progressed_at > READ_STALL_SECONDS:
                place, wanted = next(iter(unread.items()))
                raise RangeIncomplete(  # safety: log-range-stall
                    topic=wanted.topic,
                    partition=wanted.partition,
                    first=wanted.first,
                    end=wanted.end,
                    reached=positions[place],
                )
    finally:
        consumer.close()


def _sort_out(
    messages: list[Message],
    unread: dict[tuple[str, int], OffsetRange],
    positions: dict[tuple[str, int], int],
    consumer: Consumer,
    table: str,
) -> tuple[list[RecordChunk], bool]:
    """The messages as chunks, a partition each; moves positions, and drops the ranges read to their end."""
    records: dict[tuple[str, int], list[Message]] = {}
    has_progressed = False
    for message in messages:
        place, error = (message.topic(), message.partition()), message.error()
        wanted = unread.get(place)
        if wanted is None:
            continue  # fetched beyond the end of a range that is done
        if error is None:
            reached = message.offset() + 1
            if message.offset() < wanted.end:
                records.setdefault(place, []).append(message)
        elif error.code() == PARTITION_END:
            reached = message.offset()
        elif error.code() == OFFSET_OUT_OF_LOG:
            raise offsets_gone(consumer, table, *place, positions[place])
        elif is_forbidden(error):
            raise TopicForbidden(topic=message.topic(), detail=error.str())
        else:
            continue  # a broker that is unavailable for a moment; the stall bound ends it when it stays away
        has_progressed = has_progressed or reached > positions[place]
        positions[place] = max(positions[place], reached)
        if positions[place] >= wanted.end:  # safety: log-range-end
            del unread[place]
            consumer.pause([TopicPartition(*place)])
    return [RecordChunk.of(*place, read) for place, read in records.items()], has_progressed


def consumer_of(client_config: Mapping[str, Any], pace: Mapping[str, Any]) -> Consumer:
    """A consumer whose partitions are assigned, and which says where each of them ends."""
    return Consumer({**pace, **client_config, **_READER_CONFIG, "log_level": 0}, logger=_kafka_logger)


def take(consumer: Consumer, records_max: int, timeout_seconds: float) -> list[Message]:
    """What has arrived, events included, as soon as the first of it is there."""
    # consume(n, timeout) waits for n messages or the whole timeout; waiting for one and then taking what is
    # there gives each record away as soon as it arrives.
    first = consumer.poll(timeout_seconds)
    if first is None:
        return []
    return [first, *consumer.consume(records_max - 1, 0)] if records_max > 1 else [first]


def offsets_gone(consumer: Consumer, table: str, topic: str, partition: int, wanted: int) -> OffsetsGone:
    """The error, where the log was cut beyond what is wanted of a partition."""
    try:
        log_start = consumer.get_watermark_offsets(TopicPartition(topic, partition), REQUEST_TIMEOUT_SECONDS)[
            0
        ]
    except KafkaException:
        log_start = -1
    end = log_start if log_start > wanted else "?"
    return OffsetsGone(table=table, gaps=(f"{topic}/{partition}@{wanted}-{end}",))


def _requested(answer: Callable[[], _Answer]) -> _Answer:
    failpoint("log.request")
    return answer()
