"""Until when a view may answer: as long as the log surely holds what the view shows of it.

A view keeps the offsets that it begins at. Once the log drops a record beyond them, the view would show the
row of before, and could not know. So it ends before that can be.

Kafka goes by the records' own times, and drops a segment once the latest in it is `retention.ms` old. Where
the broker gives them (LogAppendTime), that counts from when a record came. Where producers do, a record may
be old when it comes, and go at once: the setting then promises only what is left of it by
`message.timestamp.before.max.ms`, which bounds that age, and without that bound nothing.
`min.compaction.lag.ms` counts the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from thermocline.kafka.facts import TIMESTAMP_MS_MAX
from thermocline.process.clock import iso_time
from thermocline.rules.identity import (
    TRANSACTION_MS_MAX,
    beyond_since_ms,
    kept_ms,
    less_margin,
    promised_ms,
)

if TYPE_CHECKING:
    from thermocline.views.facts import TableFacts

__all__ = ["Lifetime", "lifetime"]

INTERVALS_WITHOUT_PROMISE: Final = 3
"""Of a topic that is limited by its size, or by times that producers give, nobody knows how long a record
stays. It held all at the last look; within so many commit intervals there is another."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """When a view ends, in milliseconds since 1970, and why then; None where nothing ends it."""

    until_ms: int | None
    because: str


def lifetime(facts: TableFacts, commit_interval_ms: int, reads_to: int | None = None) -> Lifetime:
    """How long views of the table's newest snapshot may answer.

    Args:
        reads_to: For views that end at literal offsets, when no record beyond these was in the log yet.
            Compaction may drop what a later record replaced, and such a view does not see the later one.
    """
    ends = [*_by_topic(facts, commit_interval_ms)]
    if reads_to is not None:
        ends += _of_compaction(facts, reads_to)
    return min(ends, key=_until, default=Lifetime(None, "the topics keep all their records"))


def _until(one: Lifetime) -> int:
    assert one.until_ms is not None
    return one.until_ms


def _by_topic(facts: TableFacts, commit_interval_ms: int) -> Iterator[Lifetime]:
    for topic in facts.definition.topics:
        config, retention = facts.configs[topic], facts.retentions[topic]
        since_ms = _beyond_since_ms(facts, topic)
        without_promise_ms = facts.looked_at_ms + INTERVALS_WITHOUT_PROMISE * commit_interval_ms
        if retention.kept_ms is not None:
            words = f"retention.ms of topic {topic}"
            promised = promised_ms(config, retention, retention.kept_ms)
            if promised:
                yield _ending(since_ms - _waited_ms(facts), promised, words)
            else:
                words = f"{words}, which promises no time where producers give the records' times"
                yield Lifetime(without_promise_ms, words)
        if retention.is_limited_by_size:  # safety: views-size
            yield Lifetime(without_promise_ms, f"retention.bytes of topic {topic}, which promises no time")
        # safety: views-tombstones
        if config.is_compacted and facts.definition.has_key and facts.state.has_read:
            accepted_ms = facts.state.tombstones_since_ms.get(topic, 0)
            since_ms = max(since_ms, min(accepted_ms, facts.looked_at_ms))
            yield _ending(since_ms, kept_ms(config), f"delete.retention.ms of topic {topic}")


def _of_compaction(facts: TableFacts, reads_to: int) -> Iterator[Lifetime]:
    for topic in facts.definition.topics:
        config, retention = facts.configs[topic], facts.retentions[topic]
        lag_ms = retention.compaction_lag_ms
        if lag_ms is not None:  # safety: views-compaction
            promised = promised_ms(config, retention, lag_ms)  # safety: views-backdated-lag
            words = f"min.compaction.lag.ms of topic {topic}"
            yield _ending(reads_to - _waited_ms(facts), promised, words)


def _waited_ms(facts: TableFacts) -> int:
    """For how long records may have been in the log before anybody could see them."""
    return TRANSACTION_MS_MAX if facts.is_transactional else 0  # safety: views-waited


def _beyond_since_ms(facts: TableFacts, topic: str) -> int:
    """As `beyond_since_ms`, and of a table that holds all of its log, not before the look at it."""
    if facts.is_drained:  # safety: views-since
        return facts.looked_at_ms
    return beyond_since_ms(facts.state, facts.configs[topic], facts.looked_at_ms)


def _ending(since_ms: int, kept: int, words: str) -> Lifetime:
    until_ms = since_ms + less_margin(kept)
    return Lifetime(
        min(until_ms, TIMESTAMP_MS_MAX), f"{words} ({kept:,} ms, from {iso_time(since_ms)} on, less a margin)"
    )
