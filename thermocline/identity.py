"""Whether the log is the one that a snapshot was fed from, and still tells all that happened to its keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from thermocline.errors import ClusterReplaced, TombstonesGone, TopicReplaced
from thermocline.seam import Seam, check_against_log

if TYPE_CHECKING:
    from thermocline.catalog import SnapshotState
    from thermocline.log import Log, TopicConfig


def check_log(
    table: str, state: SnapshotState, log: Log, topics: Sequence[str], now_ms: int
) -> tuple[Seam, Seam]:
    """All the checks of a log against a snapshot, in their order; the log's starts and ends.

    Raises what `check_identity`, `thermocline.seam.check_against_log` and `check_tombstones` raise.
    """
    check_identity(table, state.cluster_id, state.topic_ids, log, topics)
    starts, ends = log.starts(topics), log.ends(topics)
    check_against_log(table, state.seam, starts, ends)
    check_tombstones(table, state, ends, log, now_ms)
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
    def watermark_ms(self) -> int:
        """How far it is in the records' own times."""
        ...

    @property
    def drained_ms(self) -> int:
        """When, by our clock, it last held all that the log held."""
        ...


def check_tombstones(table: str, at: Fed, ends: Seam, log: Log, now_ms: int) -> None:
    """Checks that compaction cannot have dropped a tombstone between the seam and the log's ends.

    A tombstone is kept for ``delete.retention.ms`` at least, from when it was appended. All that the log held
    at ``drained_ms`` is in the table, so the ones that wait were appended later.

    Raises:
        TombstonesGone: records wait, and the table last held all of the log longer ago than that.
    """
    waiting = {(topic, p) for topic, p, end in ends.items() if at.seam.get((topic, p)) < end}
    topics = sorted({topic for topic, _ in waiting})
    configs = log.configs(topics) if topics else {}
    since = {topic: behind_since_ms(at, configs[topic]) for topic in topics}
    late = [
        topic
        for topic in topics
        if configs[topic].is_compacted
        and now_ms - since[topic] > configs[topic].delete_retention_ms
        and not _is_all_young(at.seam, waiting, log, topic, configs[topic], now_ms)
    ]
    if late:
        raise TombstonesGone(
            table=table,
            topics=tuple(late),
            since=iso_time(min(since[topic] for topic in late)),
            delete_retention_ms=min(configs[topic].delete_retention_ms for topic in late),
        )


def behind_since_ms(at: Fed, config: TopicConfig) -> int:
    """Since when records of a topic may be waiting; the broker's own times count as much as our clock."""
    return max(at.drained_ms, at.watermark_ms) if config.is_log_append_time else at.drained_ms


def iso_time(epoch_ms: int) -> str:
    """A time in UTC to the millisecond, as errors and commands write it."""
    return (
        datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def _is_all_young(
    seam: Seam, waiting: set[tuple[str, int]], log: Log, topic: str, config: TopicConfig, now_ms: int
) -> bool:
    """Whether the broker's own times show that whatever waits was appended within the retention.

    Append times never go back: where the record at the seam, or one before it, is that young, so is all that
    follows.
    """
    if not config.is_log_append_time:
        return False
    young = log.offsets_at([topic], now_ms - config.delete_retention_ms)
    places = [place for place in waiting if place[0] == topic]
    return all(place in young and young[place] <= seam.get(place) for place in places)
