"""Until when a view may answer: as long as the log surely holds what the view shows of it.

A view keeps the offsets that it begins at. Once the log drops a record beyond them, the view would show the
row of before, and could not know. So it ends before that can be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from thermocline.clock import iso_time
from thermocline.identity import KEPT_MS_MIN, kept_ms
from thermocline.log import TIMESTAMP_MS_MAX

if TYPE_CHECKING:
    from views.facts import TableFacts

__all__ = ["Lifetime", "lifetime"]

MARGIN_PARTS: Final = 10
MARGIN_MS_MAX: Final = 3_600_000
"""A tenth of what a topic promises is left out, an hour at most: a query that began in time has to end in
time, and the broker's clock, Trino's and ours differ."""

INTERVALS_WITHOUT_PROMISE: Final = 3
"""Of a topic that is limited by its size nobody knows how long a record stays. It held all at the last look;
within so many commit intervals there is another."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """When a view ends, in milliseconds since 1970, and why then; None where nothing ends it."""

    until_ms: int | None
    because: str


def lifetime(facts: TableFacts, commit_interval_ms: int, reads_to: int | None = None) -> Lifetime:
    """How long views of the table's newest snapshot may answer.

    Args:
        reads_to: For views that end at literal offsets, when these were the log's ends. Compaction may drop
            what a later record replaced, and such a view does not see the later one.
    """
    ends = [*_by_topic(facts, commit_interval_ms), *_of_compaction(facts, reads_to)]
    return min(ends, key=_until, default=Lifetime(None, "the topics keep all their records"))


def _until(one: Lifetime) -> int:
    assert one.until_ms is not None
    return one.until_ms


def _by_topic(facts: TableFacts, commit_interval_ms: int) -> Iterator[Lifetime]:
    for topic in facts.definition.topics:
        config, retention = facts.configs[topic], facts.retentions[topic]
        since_ms = _beyond_since_ms(facts, topic)
        if retention.kept_ms is not None:
            words = f"retention.ms of topic {topic}"
            yield _ending(since_ms, retention.kept_ms, words)
        if retention.is_limited_by_size:
            until_ms = facts.looked_at_ms + INTERVALS_WITHOUT_PROMISE * commit_interval_ms
            yield Lifetime(until_ms, f"retention.bytes of topic {topic}, which promises no time")
        if config.is_compacted and facts.definition.has_key and facts.state.has_read:
            accepted_ms = facts.state.tombstones_since_ms.get(topic, 0)
            since_ms = max(since_ms, min(accepted_ms, facts.looked_at_ms))
            yield _ending(since_ms, kept_ms(config), f"delete.retention.ms of topic {topic}")


def _of_compaction(facts: TableFacts, reads_to: int | None) -> Iterator[Lifetime]:
    """A lag below ten minutes counts as ten: what was just written is in a segment that is still open."""
    if reads_to is None:
        return
    for topic in facts.definition.topics:
        lag_ms = facts.retentions[topic].compaction_lag_ms
        if lag_ms is not None:
            words = f"min.compaction.lag.ms of topic {topic}"
            yield _ending(reads_to, max(lag_ms, KEPT_MS_MIN), words)


def _beyond_since_ms(facts: TableFacts, topic: str) -> int:
    """Since when records of the topic, at the earliest, may stand in the log and not in the table.

    The brokers' own times count as much as our clock, and neither counts when it is in the future.
    """
    if facts.is_drained:
        return facts.looked_at_ms
    known_ms = facts.state.drained_ms
    if facts.configs[topic].is_log_append_time:
        known_ms = max(known_ms, facts.state.watermark_ms)
    return min(known_ms, facts.looked_at_ms)


def _ending(since_ms: int, kept: int, words: str) -> Lifetime:
    until_ms = since_ms + kept - min(kept // MARGIN_PARTS, MARGIN_MS_MAX)
    return Lifetime(
        min(until_ms, TIMESTAMP_MS_MAX), f"{words} ({kept:,} ms, from {iso_time(since_ms)} on, less a margin)"
    )
