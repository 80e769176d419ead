"""Whether the log is the one that a snapshot was fed from, and still tells all that happened to its keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from thermocline.clock import iso_time
from thermocline.errors import ClusterReplaced, TombstonesGone, TopicReplaced
from thermocline.seam import Seam, check_against_log

if TYPE_CHECKING:
    from thermocline.definition import LiveTable
    from thermocline.log import Log, TopicConfig

KEPT_MS_MIN: Final = 600_000
"""Tombstones count as kept for this long at least: longer than a batch takes.

A retention that a batch outlasts could never be kept to, and ingest would do nothing but stop. It is rarely
as short in fact: a tombstone goes only once its segment was rolled and cleaned. Where a topic rolls segments
faster than this, a tombstone may be lost unnoticed when ingest is behind for less than ten minutes.
"""


NEVER_MS: Final = (1 << 63) - 1
"""Later than any time."""


def check_log(table: str, at: Fed, log: Log, definition: LiveTable, now_ms: int) -> tuple[Seam, Seam]:
    """All the checks of a log against a table, in their order; the log's starts and ends.

    Raises what `check_source` and `check_tombstones` raise.
    """
    starts, ends = check_source(table, at, log, definition.topics)
    if has_rows_to_delete(at, definition):
        check_tombstones(table, at, ends, log, now_ms)
    return starts, ends


def check_source(table: str, at: Fed, log: Log, topics: Sequence[str]) -> tuple[Seam, Seam]:
    """Checks that it is the table's log, and holds all from its seam on; the log's starts and ends.

    Raises what `check_identity` and `thermocline.seam.check_against_log` raise.
    """
    check_identity(table, at.cluster_id, at.topic_ids, log, topics)
    starts, ends = log.bounds(topics)
    check_against_log(table, at.seam, starts, ends)
    return starts, ends


def check_identity(
    table: str, cluster_id: str, topic_ids: Mapping[str, str], log: Log, topics: Sequence[str]
) -> None:
    """Compares what a snapshot recorded with what is there. A topic that it does not know is new.

    Raises:
        ClusterReplaced: offsets of this cluster say nothing about the snapshot's seam.
        TopicReplaced: nor do those of topics that were deleted and created again; all of them are named.
    """
    found = log.cluster_id()
    if found != cluster_id:
        raise ClusterReplaced(table=table, recorded=cluster_id, found=found)
    facts = log.describe(topics)
    replaced = [
        topic for topic in topics if topic_ids.get(topic, facts[topic].topic_id) != facts[topic].topic_id
    ]
    if replaced:
        raise TopicReplaced(
            table=table,
            topics=tuple(replaced),
            recorded=tuple(topic_ids[topic] for topic in replaced),
            found=tuple(facts[topic].topic_id for topic in replaced),
        )


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


def check_tombstones(table: str, at: Fed, ends: Seam, log: Log, now_ms: int) -> None:
    """Checks that compaction cannot have dropped a tombstone between the seam and the log's ends.

    A tombstone is kept for ``delete.retention.ms`` at least, from when it was appended. All that the log held
    at ``drained_ms`` is in the table, so the ones that wait were appended later.

    Raises:
        TombstonesGone: records wait, and the table last held all of the log longer ago than that. All topics
            that this is true of are named.
    """
    waiting = {(topic, p) for topic, p, end in ends.items() if at.seam.get((topic, p)) < end}
    topics = sorted({topic for topic, _ in waiting})
    configs = log.configs(topics) if topics else {}
    since = {topic: _behind_since_ms(at, topic, configs[topic], now_ms) for topic in topics}
    late = [
        topic
        for topic in topics
        if configs[topic].is_compacted
        and now_ms - since[topic] > kept_ms(configs[topic])
        and not _is_all_young(at.seam, waiting, log, topic, configs[topic], now_ms)
    ]
    if late:
        raise TombstonesGone(
            table=table,
            topics=tuple(late),
            since=tuple(iso_time(since[topic]) for topic in late),
            kept_ms=tuple(kept_ms(configs[topic]) for topic in late),
        )


def has_rows_to_delete(at: Fed, definition: LiveTable) -> bool:
    """Whether a lost tombstone can leave a row behind.

    Without a key there are no tombstones, and a table that has read nothing has no row that lacks one.
    """
    return definition.has_key and at.has_read


def tombstones_matter_from_ms(at: Fed, definition: LiveTable) -> int:
    """From when on (our clock) a lost tombstone may leave a row in the table; `NEVER_MS` where it has none.

    A tombstone from before was applied, or there was no row yet, or its loss was accepted.
    """
    if not has_rows_to_delete(at, definition):
        return NEVER_MS
    return max(at.drained_ms, min(at.tombstones_since_ms.get(topic, 0) for topic in definition.topics))


def kept_ms(config: TopicConfig) -> int:
    """For how long a topic's tombstones count as kept."""
    return max(config.delete_retention_ms, KEPT_MS_MIN)


def _behind_since_ms(at: Fed, topic: str, config: TopicConfig, now_ms: int) -> int:
    """Since when records of a topic may be waiting; the broker's own times count as much as our clock."""
    since_ms = at.tombstones_since_ms.get(topic, 0)
    since_ms = max(at.drained_ms, since_ms if since_ms <= now_ms else 0)  # in the future: by a fast clock
    return max(since_ms, at.watermark_ms) if config.is_log_append_time else since_ms


def _is_all_young(
    seam: Seam, waiting: set[tuple[str, int]], log: Log, topic: str, config: TopicConfig, now_ms: int
) -> bool:
    """Whether the broker's own times show that whatever waits was appended within the retention.

    Append times never go back: where the record at the seam, or one before it, is that young, so is all that
    follows.
    """
    if not config.is_log_append_time:
        return False
    young = log.offsets_at([topic], now_ms - kept_ms(config))
    places = [place for place in waiting if place[0] == topic]
    return all(place in young and young[place] <= seam.get(place) for place in places)
