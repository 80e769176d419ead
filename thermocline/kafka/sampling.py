"""A look at some records of a topic: the oldest and the newest of each partition, and nothing is changed.

Offsets are assigned, as everywhere here, so no consumer group is made or moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from thermocline.kafka.facts import OffsetRange, RecordChunk
from thermocline.kafka.log import Log, read_ranges
from thermocline.rules.headers import HeadersUnreadable
from thermocline.rules.recognise import SampledRecord, Topic

if TYPE_CHECKING:
    from thermocline.settings import KafkaSettings

__all__ = ["Sample", "sampled", "topic_facts"]

BYTES_MAX: Final = 64 * 1024 * 1024
"""Of keys and values: some topics have records of many megabytes, and all of a sample is in memory."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Some records of a topic, by partition and offset, and how many offsets its log spans."""

    topic: Topic
    records: tuple[SampledRecord, ...]
    log_records: int


def sampled(kafka: KafkaSettings, topic: str, records_max: int) -> Sample:
    """At most so many records. Raises `TopicMissing`, and what reading raises."""
    log = Log(kafka)
    told = _facts(log, topic)
    starts, ends = log.bounds([topic])
    spans = [
        OffsetRange(topic, partition, starts.get((topic, partition)), end)
        for _, partition, end in ends.items()
        if end > starts.get((topic, partition))
    ]
    found: dict[tuple[int, int], SampledRecord] = {}
    size = 0
    for ranges in _ranges(spans, records_max):
        for record in _records(read_ranges(kafka.client_config(), ranges)):
            found[record.partition, record.offset] = record
            size += len(record.key or b"") + len(record.value or b"")
            if size > BYTES_MAX:
                break
    records = tuple(record for _, record in sorted(found.items()))
    return Sample(told, records, sum(span.end - span.first for span in spans))


def topic_facts(kafka: KafkaSettings, topic: str) -> Topic:
    """What the log says of a topic by itself. Raises `TopicMissing`, and what asking raises."""
    return _facts(Log(kafka), topic)


def _facts(log: Log, topic: str) -> Topic:
    facts = log.describe([topic])[topic]
    config, kept = log.configs([topic])[topic], log.retentions([topic])[topic]
    return Topic(topic, facts.partitions, config.is_compacted, kept.kept_ms, config.is_hidden)


def _ranges(spans: Sequence[OffsetRange], records_max: int) -> Iterator[list[OffsetRange]]:
    """The oldest of each partition, and then the newest that these don't reach; few partitions are whole."""
    share = max(1, records_max // max(1, len(spans)))
    older = max(1, share // 2)
    some = spans[:records_max]
    yield [OffsetRange(one.topic, one.partition, one.first, min(one.end, one.first + older)) for one in some]
    if share > older:
        yield [
            OffsetRange(one.topic, one.partition, max(one.first + older, one.end - (share - older)), one.end)
            for one in some
            if one.end > one.first + older
        ]


def _records(chunks: Iterable[RecordChunk]) -> Iterator[SampledRecord]:
    for chunk in chunks:
        for index, offset in enumerate(chunk.offsets):
            try:
                headers = tuple(chunk.headers_of(index) or ())
            except HeadersUnreadable:
                headers = ()
            yield SampledRecord(chunk.keys[index], chunk.values[index], headers, chunk.partition, offset)
