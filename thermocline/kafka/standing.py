"""Asks the log how far a table is behind it, in time; `thermocline.rules.headroom` has the rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TopicPartition

from thermocline.kafka.facts import TIMESTAMP_MS_MAX
from thermocline.kafka.log import CONSUME_WAIT_SECONDS, PARTITION_END, consumer_of, take
from thermocline.rules.headroom import Kept, Oldest, RecordTime, Standing, Stretch, TimeFrom, standing_of
from thermocline.rules.identity import behind_since_ms, has_rows_to_delete, kept_ms
from thermocline.rules.seam import Seam

if TYPE_CHECKING:
    from thermocline.kafka.log import Log
    from thermocline.process.clock import Clock
    from thermocline.rules.definition import LiveTable
    from thermocline.rules.identity import Fed

__all__ = ["FIRST_SECONDS_MAX", "RECORD_OVERHEAD_BYTES", "first_times", "oldest_after", "standing_at"]

FIRST_SECONDS_MAX: Final = 5.0
"""To read one record of each partition; a broker that is well gives them in some 50 ms."""
RECORD_OVERHEAD_BYTES: Final = 80
"""What a record takes beside key and value at most: a batch of its own has a header of 61 bytes."""
RATE_SECONDS: Final = (300, 3_600)
"""How fast a log grows is the faster of these last stretches of time: a peak counts, and so does its end."""
# One record of each partition is wanted; a fetch brings the whole batch that it is in.
_FIRST_CONFIG: Final[dict[str, Any]] = {
    "fetch.wait.max.ms": 20,
    "max.partition.fetch.bytes": 16 << 10,
    "queued.min.messages": 1,
}
_GIVEN_BY: Final = {
    TIMESTAMP_LOG_APPEND_TIME: TimeFrom.APPEND,
    TIMESTAMP_CREATE_TIME: TimeFrom.PRODUCER,
}
Place = tuple[str, int]


def standing_at(
    log: Log,
    client_config: Mapping[str, Any],
    definition: LiveTable,
    at: Fed,
    clock: Clock,
    record_bytes: float | None = None,
    seconds: float = FIRST_SECONDS_MAX,
) -> Standing:
    """The standing of a table that is there in its log; records are waited for for so many seconds.

    ``record_bytes`` is the mean size of keys and values, where somebody has measured it.

    Raises:
        KafkaUnreachable, TopicMissing, TopicForbidden: the log can't be asked.
    """
    topics, now_ms = definition.topics, clock.now_ms()
    starts, ends = log.bounds(topics)
    stretches = _with_first(client_config, _stretches(starts, ends, at.seam), clock, seconds)
    configs, retentions = log.configs(topics), log.retentions(topics)
    is_at_stake = has_rows_to_delete(at, definition) and not definition.merging.needs_every_record
    kept = {
        topic: Kept(
            retentions[topic],
            kept_ms(configs[topic]) if is_at_stake and configs[topic].is_compacted else None,
            behind_since_ms(at, topic, configs[topic], now_ms),
        )
        for topic in topics
    }
    if limited := [topic for topic in topics if retentions[topic].is_limited_by_size]:
        stretches = _with_rates(log, limited, stretches, now_ms)
    in_log = None if record_bytes is None else record_bytes + RECORD_OVERHEAD_BYTES
    return standing_of(stretches, kept, now_ms, in_log)


def oldest_after(client_config: Mapping[str, Any], ends: Seam, position: Seam, clock: Clock) -> Oldest:
    """The oldest record between a position and ends of the log that were asked for before it."""
    stretches = _stretches(Seam(), ends, position)
    return Oldest.of(_with_first(client_config, stretches, clock))


def _stretches(starts: Seam, ends: Seam, taken: Seam) -> dict[Place, Stretch]:
    """Of each partition of the log; one that was not taken from is new, and waits from its first offset."""
    return {
        (topic, partition): Stretch(
            start := starts.get((topic, partition)), min(taken.get((topic, partition), start), end), end
        )
        for topic, partition, end in ends.items()
    }


def _with_first(
    client_config: Mapping[str, Any],
    stretches: Mapping[Place, Stretch],
    clock: Clock,
    seconds: float = FIRST_SECONDS_MAX,
) -> dict[Place, Stretch]:
    waiting = {place: max(one.start, one.taken) for place, one in stretches.items() if one.is_waiting}
    times = first_times(client_config, Seam(waiting), clock, seconds) if waiting else {}
    return {place: replace(one, first=times.get(place)) for place, one in stretches.items()}


def _with_rates(
    log: Log, topics: Sequence[str], stretches: Mapping[Place, Stretch], now_ms: int
) -> dict[Place, Stretch]:
    before = {seconds: log.offsets_at(topics, now_ms - 1000 * seconds) for seconds in RATE_SECONDS}

    def rate(place: Place, end: int) -> float:
        return max(max(end - offsets.get(place, end), 0) / seconds for seconds, offsets in before.items())

    return {
        place: replace(one, offsets_per_second=rate(place, one.end)) if place[0] in topics else one
        for place, one in stretches.items()
    }


def first_times(
    client_config: Mapping[str, Any], start: Seam, clock: Clock, seconds: float = FIRST_SECONDS_MAX
) -> dict[Place, RecordTime]:
    """The time of the first committed record of each partition, from there on.

    A partition is left out whose record has no time, or does not come in time, for whatever reason.
    """
    consumer = consumer_of(client_config, _FIRST_CONFIG)
    wanted = {(topic, partition) for topic, partition, _ in start.items()}
    found: dict[Place, RecordTime] = {}
    deadline = clock.monotonic() + seconds
    try:
        consumer.assign([TopicPartition(*one) for one in start.items()])
        while wanted and clock.monotonic() < deadline:
            for message in take(consumer, len(wanted), CONSUME_WAIT_SECONDS):
                place, error = (message.topic(), message.partition()), message.error()
                if place not in wanted or (error is not None and error.code() != PARTITION_END):
                    continue
                wanted.discard(place)
                consumer.pause([TopicPartition(*place)])
                kind, at_ms = message.timestamp()
                if error is None and kind in _GIVEN_BY and at_ms >= 0:
                    found[place] = RecordTime(min(at_ms, TIMESTAMP_MS_MAX), _GIVEN_BY[kind])
    finally:
        consumer.close()
    return found
