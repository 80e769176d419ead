"""Checks that the log is the one that fed a snapshot, and still tells all that happened to its keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from thermocline.errors import LogReplaced, ReadPointGone, TombstonesGone, TopicCompacted, TopicsUnmatched
from thermocline.process.clock import iso_time
from thermocline.rules.seam import Seam, check_against_log

if TYPE_CHECKING:
    from thermocline.kafka.facts import TopicConfig, TopicRetention
    from thermocline.kafka.log import Log
    from thermocline.rules.definition import LiveTable

KEPT_MS_MIN: Final = 600_000
"""Tombstones count as kept for this long at least: longer than a batch takes.

A retention that a batch outlasts could never be kept to, and ingest would do nothing but stop. It is rarely
as short in fact: a tombstone goes only once its segment was rolled and cleaned. Where a topic rolls segments
faster than this, a tombstone may be lost unnoticed when ingest is behind for less than ten minutes.
"""


NEVER_MS: Final = (1 << 63) - 1
"""Later than any time."""

MARGIN_PARTS: Final = 10
MARGIN_MS_MAX: Final = 3_600_000
MARGIN_MS_MIN: Final = 5_000
"""A tenth of what a topic promises is left out, from five seconds to an hour: whoever began to read in time
has to end in time, and the clocks of the broker, of Trino and ours differ."""

TRANSACTION_MS_MAX: Final = 900_000
"""For how long a transaction may be open: Kafka's `transaction.max.timeout.ms`, where it is not set. Its
records wait unseen, and grow old: the log that a table held all of may have had them already."""


def check_log(table: str, at: Fed, log: Log, definition: LiveTable, now_ms: int) -> tuple[Seam, Seam]:
    """All the checks of a log against a table, in their order; the log's starts and ends.

    Raises what `check_source`, `check_not_compacted` and `check_tombstones` raise.
    """
    check_has_topics(definition)
    starts, ends = check_source(table, at, log, definition.topics)
    check_not_compacted(definition, log)
    if has_rows_to_delete(at, definition):
        check_tombstones(definition, at, ends, log, now_ms)
    return starts, ends


def check_has_topics(definition: LiveTable) -> None:
    """Raises `TopicsUnmatched` where there is none yet, or none any more, that its patterns find."""
    if not definition.topics:
        raise TopicsUnmatched(table=definition.name, patterns=definition.topic_patterns)


def check_not_compacted(definition: LiveTable, log: Log) -> None:
    """Checks that no record is dropped that later ones of its key don't take the place of.

    Raises:
        TopicCompacted: the table has partial updates, or columns order its records, and topics are compacted;
            all of them are named.
    """
    configs = log.configs(definition.topics) if definition.merging.needs_every_record else {}
    compacted = tuple(topic for topic, config in configs.items() if config.is_compacted)
    if compacted:  # safety: partial-compacted
        raise TopicCompacted(table=definition.name, topics=compacted, hidden=_hidden(configs, compacted))


def _hidden(configs: Mapping[str, TopicConfig], topics: Sequence[str]) -> tuple[str, ...]:
    return tuple(topic for topic in topics if configs[topic].is_hidden)


def check_source(table: str, at: Fed, log: Log, topics: Sequence[str]) -> tuple[Seam, Seam]:
    """Checks that it is the table's log, and holds all from its seam on; the log's starts and ends.

    Raises what `check_identity` and `thermocline.rules.seam.check_against_log` raise.
    """
    check_identity(table, at.cluster_id, at.topic_ids, log, topics)
    starts, ends = log.bounds(topics)
    check_against_log(table, at.seam, starts, ends)  # safety: beh-ends-before-reading
    return starts, ends


def check_identity(
    table: str, cluster_id: str, topic_ids: Mapping[str, str], log: Log, topics: Sequence[str]
) -> None:
    """Compares what a snapshot recorded with what is there. A topic that it does not know is new.

    Raises:
        LogReplaced: offsets of this cluster say nothing about the snapshot's seam; or nor do those of topics
            that were deleted and created again, all of which are named.
    """
    found = log.cluster_id()
    if found != cluster_id:  # safety: cluster-id
        raise LogReplaced.of_cluster(table, cluster_id, found)
    facts = log.describe(topics)
    replaced = [
        topic for topic in topics if topic_ids.get(topic, facts[topic].topic_id) != facts[topic].topic_id
    ]
    if replaced:  # safety: topic-id
        ids = {topic: (topic_ids[topic], facts[topic].topic_id) for topic in replaced}
        raise LogReplaced.of_topics(table, ids)


class Fed(Protocol):
    """How far a table is: a snapshot's state, or an owner's position."""

    @property
    def seam(self) -> Seam:
        """What the table contains of the log."""
        ...

    @property
    def cluster_id(self) -> str:
        """The cluster that it is fed from."""
        ...

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """The ids of the topics that it is fed from, by topic."""
        ...

    @property
    def has_read(self) -> bool:
        """Whether it has ever read a record."""
        ...

    @property
    def watermark_ms(self) -> int:
        """How far it is in the records' own times."""
        ...

    @property
    def drained_ms(self) -> int:
        """When, by our clock, it last held all that the log held."""
        ...

    @property
    def tombstones_since_ms(self) -> Mapping[str, int]:
        """By topic, from when on (our clock) it matters that tombstones are lost; else always."""
        ...


def check_tombstones(definition: LiveTable, at: Fed, ends: Seam, log: Log, now_ms: int) -> None:
    """Checks that compaction cannot have dropped a tombstone between the seam and the log's ends.

    A tombstone is kept for ``delete.retention.ms`` at least, from when it was appended. All that the log held
    at ``drained_ms`` is in the table, so the ones that wait were appended later. Where
    `check_not_compacted` has seen that no topic is compacted, nothing is asked.

    Raises:
        TombstonesGone: records wait, and the table last held all of the log longer ago than that. All topics
            that this is true of are named.
    """
    if definition.merging.needs_every_record:
        return
    waiting = {(topic, p) for topic, p, end in ends.items() if at.seam.get((topic, p)) < end}
    topics = sorted({topic for topic, _ in waiting})
    configs = log.configs(topics) if topics else {}
    since = {topic: behind_since_ms(at, topic, configs[topic], now_ms) for topic in topics}
    late = [
        topic
        for topic in topics
        if configs[topic].is_compacted
        and now_ms - since[topic] > kept_ms(configs[topic])  # safety: tombstones
        and not _is_all_young(at.seam, waiting, log, topic, configs[topic], now_ms - kept_ms(configs[topic]))
    ]
    if late:
        raise TombstonesGone(
            table=definition.name,
            topics=tuple(late),
            since=tuple(iso_time(since[topic]) for topic in late),
            kept_ms=tuple(kept_ms(configs[topic]) for topic in late),
            hidden=_hidden(configs, late),
        )


def check_not_superseded(
    definition: LiveTable,
    at: Fed,
    end: Seam,
    log_ends: Seam,
    gaps: Collection[tuple[str, int]],
    log: Log,
    now_ms: int,
) -> None:
    """Checks that no record between the seam and an end was dropped for one that lies beyond that end.

    Compaction drops a record once a later one of its key exists. Where that one lies beyond the end, nothing
    between seam and end says what the record said. A dropped record leaves a gap in the offsets, and is not
    dropped before the later one is ``min.compaction.lag.ms`` old. So where all beyond the seam is younger, it
    is transactions that left the gaps; and where all beyond the end is, what replaced a record is before it.

    Args:
        log_ends: The log's, asked for after the records were read.
        gaps: The partitions of which not every offset between seam and end came as a record.

    Raises:
        ReadPointGone: a partition has gaps, the log goes on beyond its end, and the topic does not surely
            keep what those later records replace.
    """
    cut = {place for place in gaps if log_ends.get(place) > end.get(place)}
    topics = sorted({topic for topic, _ in cut})
    configs, retentions = (log.configs(topics), log.retentions(topics)) if topics else ({}, {})
    for topic in topics:
        config, lag_ms = configs[topic], retentions[topic].compaction_lag_ms
        if lag_ms is None:
            continue
        kept = less_margin(promised_ms(config, retentions[topic], lag_ms))
        since_ms = beyond_since_ms(at, config, now_ms) - TRANSACTION_MS_MAX
        is_by_transactions = definition.transactional and now_ms - since_ms < kept
        is_young = kept > 0 and _is_all_young(end, cut, log, topic, config, now_ms - kept)
        if not is_by_transactions and not is_young:
            raise ReadPointGone(
                table=definition.name,
                detail=f"topic {topic} is compacted, and may have dropped records up to there for later ones "
                f"(its min.compaction.lag.ms of {lag_ms:,} keeps them no longer).",
            )


def promised_ms(config: TopicConfig, retention: TopicRetention, kept: int) -> int:
    """How long a record surely stays, from when it came, where Kafka keeps it so long by its own time.

    0 where nothing is sure.
    """
    if config.is_log_append_time:
        return kept
    # safety: views-backdated, views-backdated-bound
    return 0 if retention.backdated_ms_max is None else max(kept - retention.backdated_ms_max, 0)


def less_margin(kept: int) -> int:
    """What to count on of a time that a topic promises."""
    margin = min(max(kept // MARGIN_PARTS, MARGIN_MS_MIN), MARGIN_MS_MAX)
    return max(kept - margin, 0)  # safety: views-margin


def beyond_since_ms(at: Fed, config: TopicConfig, now_ms: int) -> int:
    """Since when records of a topic, at the earliest, may stand in the log and not in the table.

    The brokers' own times count as much as our clock, and neither counts when it is in the future.
    """
    # safety: views-by-producer
    known_ms = max(at.drained_ms, at.watermark_ms) if config.is_log_append_time else at.drained_ms
    return min(known_ms, now_ms)  # safety: views-future


def has_rows_to_delete(at: Fed, definition: LiveTable) -> bool:
    """Whether a lost tombstone can leave a row behind.

    Without a key there are no tombstones, and a table that has read nothing has no row that lacks one.
    """
    return definition.merging.is_keyed and at.has_read


def tombstones_matter_from_ms(at: Fed, definition: LiveTable) -> int:
    """From when on (our clock) a lost tombstone may leave a row in the table; `NEVER_MS` where it has none.

    A tombstone from before was applied, or there was no row yet, or its loss was accepted.
    """
    if not has_rows_to_delete(at, definition):
        return NEVER_MS
    since = [at.tombstones_since_ms.get(topic, 0) for topic in definition.topics]
    return max(at.drained_ms, min(since, default=0))


def kept_ms(config: TopicConfig) -> int:
    """For how long a topic's tombstones count as kept."""
    return max(config.delete_retention_ms, KEPT_MS_MIN)


def behind_since_ms(at: Fed, topic: str, config: TopicConfig, now_ms: int) -> int:
    """Since when records of a topic may be waiting; the broker's own times count as much as our clock."""
    since_ms = at.tombstones_since_ms.get(topic, 0)  # safety: tombstones-by-topic
    since_ms = max(at.drained_ms, since_ms if since_ms <= now_ms else 0)  # in the future: by a fast clock
    return max(since_ms, at.watermark_ms) if config.is_log_append_time else since_ms


def _is_all_young(
    from_: Seam, places: Collection[tuple[str, int]], log: Log, topic: str, config: TopicConfig, since_ms: int
) -> bool:
    """Whether the broker's own times show that what stands at or beyond offsets was appended since then.

    Append times never go back: where the record at such an offset, or one before it, is that young, so is
    all that follows. False where producers give the times.
    """
    if not config.is_log_append_time:
        return False
    young = log.offsets_at([topic], since_ms)
    return all(place in young and young[place] <= from_.get(place) for place in places if place[0] == topic)
