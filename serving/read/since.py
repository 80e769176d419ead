"""Checks that table and log still tell all that changed since a read point.

What changed is read from the log, from the read point's seam on: the snapshot at that seam and the records
from there on are all that later states come from. So history must show that nothing else went into the table,
and the log must still hold those records. Topics that came and left by themselves change nothing else of the
definition: those that came are read from their first record on, and of those that left, the read point's
snapshot must have had all that the table ever had.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING

from thermocline.errors import (
    LogReplaced,
    OffsetsGone,
    ReadPointGone,
    TombstonesGone,
    TopicCompacted,
)
from thermocline.iceberg.lineage import links_back
from thermocline.rules.bad_digest import merged
from thermocline.rules.identity import check_not_compacted, check_source, check_tombstones
from thermocline.rules.seam import Seam
from thermocline.serving.store.storage import storage_named

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.iceberg.catalog import SnapshotState
    from thermocline.iceberg.lineage import Link
    from thermocline.kafka.log import Log
    from thermocline.rules.definition import LiveTable
    from thermocline.rules.read_point import ReadPoint
    from thermocline.serving.tail.unreadable import Unreadable

_LOG_CHANGED = (
    LogReplaced,
    OffsetsGone,
    TombstonesGone,
    TopicCompacted,
)


def state_since(table: Table, definition: LiveTable, since: ReadPoint) -> SnapshotState:
    """What the read point's snapshot says of itself. It may be expired, as long as history has it.

    Raises:
        ReadPointGone: it is not in main's history, or something else than the log went into the table since.
    """
    name = definition.name
    found, problem = None, None
    taken_over: set[int] = set()  # by the later ones
    rotations = _Rotations(definition.version)
    with storage_named(name):
        for link in links_back(table):
            is_since = link.snapshot_id == since.snapshot_id
            problem = next(_untold(link, is_since, taken_over), problem)
            if link.state is not None:
                problem = rotations.problem(link, link.state) or problem
            taken_over.update(link.taken_over)
            if is_since:
                found = link
                break
    if found is None:
        detail = f"snapshot {since.snapshot_id} is not in the table's history (any more)"
        raise ReadPointGone(table=name, detail=detail, which="since")
    if found.state is None or found.state.seam != since.seam:
        detail = f"snapshot {since.snapshot_id} has another seam: it is no read point of this table"
        raise ReadPointGone(table=name, detail=detail, which="since")
    problem = problem or rotations.lacking(since, definition)
    if problem is not None:  # safety: since-history
        raise ReadPointGone(table=name, detail=problem, which="since")
    return found.state


def check_log_since(
    definition: LiveTable, state: SnapshotState, since: ReadPoint, log: Log, now_ms: int
) -> None:
    """Makes sure that the log still tells of each key that had a record since the read point.

    Raises:
        ReadPointGone: it is another log, or it has lost records or tombstones of that time.
    """
    name = definition.name
    try:
        _, ends = check_source(name, state, log, definition.topics)
        check_not_compacted(definition, log)
        if definition.merging.is_keyed:
            came = [topic for topic in definition.topics if topic not in state.topic_ids]
            check_tombstones(definition, state, ends.without(came), log, now_ms)  # safety: since-tombstones
            # How old what they held was when they came, the read point does not say.
            again = replace(state, drained_ms=0, watermark_ms=-1, tombstones_since_ms={})
            check_tombstones(definition, again, ends.only(came), log, now_ms)  # safety: since-topics-came
    except _LOG_CHANGED as error:
        raise ReadPointGone(table=name, detail=error.what, which="since") from error
    # The table has all of those that left.
    reached = since.end.only(definition.topics)
    if not ends.at_least(reached):
        raise ReadPointGone(table=name, detail=f"the log ends at {ends}, before {reached}", which="since")


def check_readable_since(name: str, current: SnapshotState, since: SnapshotState, found: Unreadable) -> None:
    """Makes sure that each record since that can't be read now was bad all along, so its key is unchanged.

    Raises:
        ReadPointGone: ingest may have applied one of them, or the answer at the read point may have had it.
    """
    detail = ""
    if found.first and not _was_all_bad(current, since, found):  # safety: since-readable
        detail = f"{found.first}, and the table may have taken it in"
    elif found.without_schema:  # safety: since-readable-hot
        detail = f"{found.without_schema}, and may have been readable then"
    if detail:
        raise ReadPointGone(table=name, detail=detail, which="since")


def _was_all_bad(current: SnapshotState, since: SnapshotState, found: Unreadable) -> bool:
    """Whether ingest found exactly these records bad: a snapshot of an earlier release does not say which."""
    if current.bad_digest is None or since.bad_digest is None:
        return False
    return found.digest == merged(current.bad_digest, without=since.bad_digest)


def _untold(link: Link, is_first: bool, taken_over: AbstractSet[int]) -> Iterator[str]:
    """Why the log alone doesn't tell what came with a snapshot; of the first one, what it holds."""
    at = f"snapshot {link.snapshot_id}"
    if link.state is None:
        if link.snapshot_id not in taken_over:
            yield f"{at} was written by another program"
        return
    if not is_first and link.taken_in:  # safety: since-taken-in
        yield f"{at} took in rows of {link.taken_in}, of which the log knows nothing"
    if not is_first and link.is_replay:
        yield f"{at} replayed quarantined records, from before the read point"
    if not is_first and link.is_accepted:
        yield f"{at} accepted that the log doesn't go on where the table was"


class _Rotations:
    """The topics that came and left by themselves, as history is read from its newest snapshot back."""

    def __init__(self, version: int) -> None:
        """``version`` is that of the definition now."""
        self._version = version
        self._newer: Mapping[str, str] | None = None
        self._known: set[str] = set()
        self._left: dict[tuple[str, int], int] = {}

    def problem(self, link: Link, state: SnapshotState) -> str | None:
        """What else changed after one of our snapshots, up to the newer ones that were given before."""
        problem = self._other_topics(state)
        if state.definition_version != self._version:  # safety: since-altered
            problem = "the table's definition was altered since"
        # The version before topics came or left by themselves, which changed nothing else.
        self._version = state.definition_version - (1 if link.is_rotation else 0)
        return problem

    def _other_topics(self, state: SnapshotState) -> str | None:
        """Why records can't be told by their topics since this snapshot; notes which ones left after it."""
        newer, self._newer, problem = self._newer, state.topic_ids, None
        if newer is None or newer == state.topic_ids:
            self._known.update(state.topic_ids)
            return None
        for topic, topic_id in state.topic_ids.items():
            if newer.get(topic, topic_id) != topic_id or (topic in self._known and topic not in newer):
                problem = f"topic {topic} left the table since, and came again"  # safety: since-came-again
        left = state.seam.without(newer)
        self._left |= {(topic, partition): end for topic, partition, end in left.items()}
        self._known.update(state.topic_ids)
        return problem

    def lacking(self, since: ReadPoint, definition: LiveTable) -> str | None:
        """Which topics that left had records that the read point's snapshot lacks; None if none had."""
        left = Seam(self._left).merged_max(since.end.without(definition.topics))
        if since.seam.at_least(left):  # safety: since-topics-left
            return None
        topics = [topic for topic in left.topics if not since.seam.at_least(left.only([topic]))]
        return f"{', '.join(topics)} left the table since, and had records that were not committed by then"
