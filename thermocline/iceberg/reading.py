"""A table's reading of its log: from where on, in which commit, and by which definition.

All of it is taken from the snapshots that the table still holds, and from what somebody accepted. Pure but
for `Reading.of`, which asks the table's metadata.
"""

from __future__ import annotations

import itertools
import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from thermocline.errors import OffsetsGone, ReadPointGone, TombstonesGone
from thermocline.iceberg.catalog import ACCEPTED_PROPERTY, SUMMARY_ACCEPTED, TAKEN_IN_PROPERTY, state_of
from thermocline.iceberg.earlier_columns import at_version, up_to_version
from thermocline.iceberg.lineage import Link, whole_lineage
from thermocline.rules.alteration import definition_by
from thermocline.rules.partition_time import NO_TIME, PartitionTimes, RunningTimes
from thermocline.rules.seam import Seam

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.iceberg.catalog import SnapshotState
    from thermocline.rules.definition import Column, LiveTable

__all__ = ["DecidingTimes", "Incarnation", "Place", "Reading", "definition_at", "reading_of"]

Place = tuple[str, int]
"""Topic and partition."""
Offsets = np.ndarray[Any, np.dtype[np.int64]]

# Accepting these goes on in the same log; all others go on with another one, or with one that was cut.
_SAME_LOG: Final = frozenset({OffsetsGone.code, TombstonesGone.code})


@dataclass(frozen=True, slots=True)
class Incarnation:
    """A partition as the table read it, from when it began to read the log that is there now.

    ``begins``: from that offset on the table read all; None where nothing says it. ``first`` is the index of
    the first snapshot of this incarnation, or that the partition joined with; ``seams`` are where it was
    then and in each snapshot after it.
    """

    begins: int | None
    first: int
    seams: tuple[int, ...]


@dataclass(frozen=True)
class Reading:
    """Which commit read which offsets.

    A *batch* is the index of the snapshot whose commit read a record. 0 stands for all that the first
    snapshot held: for nothing, where the table began with it (``is_whole``), else for commits that nobody
    knows apart.
    ``definitions`` are those of the snapshots, ``earlier`` those that may have read what is in batch 0.
    ``replaced`` are topics of which the table may hold rows from a log that is not there any more.
    ``partition_times`` are those at the seams of the snapshots. ``took_in``: the table may have rows of
    another source.
    """

    seam: Seam
    incarnations: Mapping[Place, Incarnation]
    definitions: Sequence[LiveTable]
    earlier: Sequence[LiveTable]
    is_whole: bool
    replaced: frozenset[str] = frozenset()
    has_grown: bool = False
    suppressed: bool = False
    partition_times: Sequence[PartitionTimes | None] = ()
    took_in: bool = False

    @classmethod
    def of(cls, table: Table, snapshot_id: int, definition: LiveTable) -> Reading:
        """From the metadata of a table, as of one of its snapshots.

        Raises:
            ReadPointGone: the snapshot is not in main's history (any more).
            ForeignSnapshot: no snapshot carries a seam.
        """
        links = whole_lineage(table)
        ids = [link.snapshot_id for link in links]
        if snapshot_id not in ids:
            detail = f"snapshot {snapshot_id} is not in the history of the table's main branch"
            raise ReadPointGone(table=definition.name, detail=detail)
        ours = [link for link in links[: ids.index(snapshot_id) + 1] if link.state is not None]
        if not ours:
            state_of(links[-1].snapshot, definition.name)  # raises that another writer made it
        schemas = {schema.schema_id: schema for schema in table.metadata.schemas}
        by_snapshot = [definition_at(table, link, definition) for link in ours]
        state = ours[0].state
        assert state is not None
        first = ours[0].snapshot.schema_id
        earlier = [
            definition_by(then, schema)
            for then in up_to_version(table.properties, definition, state.definition_version)
            for schema_id, schema in sorted(schemas.items())
            if first is None or schema_id <= first
        ]
        accepted = json.loads(table.properties.get(ACCEPTED_PROPERTY, "[]"))
        reading = reading_of(ours, by_snapshot, _distinct(earlier), accepted, definition)
        return replace(reading, took_in=TAKEN_IN_PROPERTY in table.properties)

    @property
    def definition(self) -> LiveTable:
        """The definition of the newest snapshot."""
        return self.definitions[-1]

    def batch(self, place: Place, offset: int) -> int:
        """The index of the snapshot whose commit read an offset; the number of snapshots where none did."""
        partition = self.incarnations.get(place)
        if partition is None:
            return len(self.definitions)
        # What a topic held before it joined.
        if offset < (partition.begins or 0):  # safety: replay-joined-topic
            return 0
        return partition.first + bisect_right(partition.seams, offset)

    def batches(self, place: Place, offsets: Offsets) -> Offsets:
        """The same of many offsets, from where the table began to read a partition on."""
        partition = self.incarnations.get(place)
        if partition is None:
            return np.full(len(offsets), len(self.definitions))
        found: Offsets = partition.first + np.searchsorted(np.array(partition.seams), offsets, side="right")
        return found

    def is_known(self, batch: int) -> bool:
        """Whether records of a batch were read in one commit, as far as is known."""
        return batch > 0 or self.is_whole

    def is_timed(self, batch: int) -> bool:
        """Whether partition times decide within a batch; in commits of older releases own times did."""
        return batch >= len(self.partition_times) or self.partition_times[batch] is not None

    def partition_time_before(self, batch: int, place: Place) -> int:
        """The partition time with which a batch begins."""
        before = self.partition_times[batch - 1] if 0 < batch <= len(self.partition_times) else None
        return NO_TIME if before is None else before.get(place)

    def reached(self, batch: int, place: Place) -> int:
        """How far a partition was read before a batch; 0 where that is not known."""
        partition = self.incarnations.get(place)
        if partition is None:
            return 0
        if batch - 1 < partition.first:
            return partition.begins or 0 if partition.first or self.is_whole else 0
        return partition.seams[min(batch - 1 - partition.first, len(partition.seams) - 1)]

    def candidates(self, batch: int) -> Sequence[LiveTable]:
        """The definitions one of which read a batch: one, or all that may have."""
        if batch == 0 and not self.is_whole:
            return self.earlier
        return (self.definitions[min(batch, len(self.definitions) - 1)],)

    def first_of(self, place: Place, log_start: int) -> int | None:
        """From where on table and log can be compared; None where nothing says what the table has read."""
        partition = self.incarnations.get(place)
        return None if partition is None or partition.begins is None else max(partition.begins, log_start)

    def with_evidence(self, least: Mapping[Place, int]) -> Reading:
        """The same, where nothing else says where reading began: at the least offset that a row comes from.

        Reading goes on without a gap from there, or else from the first seam that is known. Rows of a log
        that was replaced say nothing.
        """
        known = {place: offset for place, offset in least.items() if place[0] not in self.replaced}
        incarnations = {
            place: replace(partition, begins=min(known.get(place, partition.seams[0]), partition.seams[0]))
            if partition.begins is None
            else partition
            for place, partition in self.incarnations.items()
        }
        return replace(self, incarnations=incarnations)

    @property
    def lacks_beginning(self) -> bool:
        """Whether it is not known of some partition from where on it was read."""
        return any(partition.begins is None for partition in self.incarnations.values())

    @cached_property
    def later_columns(self) -> frozenset[str]:
        """The columns that older rows may have as null, since they were added."""
        kept = {column.field_id for column in self.earlier[0].columns} if self.earlier else set()
        return frozenset(column.name for column in self.definition.columns if column.field_id not in kept)

    @cached_property
    def other_columns(self) -> frozenset[str]:
        """The columns that older rows may have otherwise: their fields, or where they are read, changed."""
        now = {column.field_id: column for column in self.definition.columns}
        return frozenset(
            now[column.field_id].name
            for earlier in (*self.earlier, *self.definitions)
            for column in earlier.columns
            if column.field_id in now and _read_as(column) != _read_as(now[column.field_id])
        )


def _read_as(column: Column) -> object:
    """What says what a record's value is in a column, but for its width."""
    return column.nested_ids, column.source


def reading_of(
    links: Sequence[Link],
    definitions: Sequence[LiveTable],
    earlier: Sequence[LiveTable],
    accepted: Sequence[Mapping[str, Any]],
    definition: LiveTable,
) -> Reading:
    """From snapshots with a seam, oldest first, and the table's list of what was accepted.

    ``definitions`` are those of the snapshots; ``earlier`` those of the first and of any before it.
    """
    states = [link.state for link in links if link.state is not None]
    if not states:
        return Reading(Seam(), {}, (), (), is_whole=False)
    is_whole = links[0].is_first and not states[0].has_read
    starts = _starts(links)
    seam = states[-1].seam
    incarnations = _incarnations(states, starts, None if is_whole else accepted)
    replaced = set(starts).union(*(_replaced_by(entry, seam.topics) for entry in accepted))
    partitions = {len(state.seam) for state in states}
    return Reading(
        seam=seam,
        incarnations=incarnations,
        definitions=tuple(definitions),
        earlier=tuple(earlier),
        is_whole=is_whole,
        replaced=frozenset(replaced),
        has_grown=len(partitions) > 1 or len(seam.topics) > 1,
        suppressed=definition.suppress_unchanged or definition.version > 1,
        partition_times=tuple(state.partition_times for state in states),
    )


class DecidingTimes:
    """The times by which the commits that read a log's records decided between partitions."""

    def __init__(self, reading: Reading, start: PartitionTimes | None = None) -> None:
        """``start``: the partition times where it begins, where they are known from reading up to there."""
        self._reading = reading
        self._running = RunningTimes(start)

    def now(self) -> PartitionTimes:
        """The partition times after all that was taken."""
        return self._running.now()

    def take(self, place: Place, times_ms: Sequence[int], offsets: Offsets) -> Offsets:
        """Those of a partition's next records, of which these are the own times and the offsets."""
        found = np.array(times_ms, np.int64)
        batches = self._reading.batches(place, offsets)
        edges = [0, *(np.flatnonzero(np.diff(batches)) + 1).tolist(), len(found)]
        for first, end in itertools.pairwise(edges):
            batch = int(batches[first])
            if self._reading.is_timed(batch):
                self._running.raise_to(place, self._reading.partition_time_before(batch, place))
                found[first:end] = self._running.take(place, found[first:end].tolist())
        return found


def definition_at(table: Table, link: Link, definition: LiveTable) -> LiveTable:
    """The definition as it was with a snapshot; as it is now where the metadata does not say."""
    schema_id, state = link.snapshot.schema_id, link.state
    schema = next((one for one in table.metadata.schemas if one.schema_id == schema_id), None)
    if state is not None:  # safety: earlier-columns
        definition = at_version(table.properties, definition, state.definition_version)
    return definition if schema is None else definition_by(definition, schema)


def _distinct(definitions: Sequence[LiveTable]) -> list[LiveTable]:
    found: list[LiveTable] = []
    for one in definitions:
        if not any(one.columns == known.columns for known in found):
            found.append(one)
    return found


def _starts(links: Sequence[Link]) -> dict[str, tuple[int, Seam]]:
    """The topics that went on with another log: the last snapshot that says so, and its seam."""
    starts: dict[str, tuple[int, Seam]] = {}
    known: set[str] = set()
    for index, (before, link) in enumerate(itertools.pairwise(links), start=1):
        earlier, state = before.state, link.state
        assert earlier is not None
        assert state is not None
        known.update(earlier.seam.topics)
        for topic in state.seam.topics:
            is_again = topic in known and topic not in earlier.seam.topics  # safety: reading-joined-again
            if is_again or _is_other_log(topic, earlier, state) or topic in _moved_with(link):
                starts[topic] = (index, state.seam)
    return starts


def _is_other_log(topic: str, earlier: SnapshotState, state: SnapshotState) -> bool:
    """Whether a topic was made again after a snapshot, or went back, as far as the next one shows."""
    topic_id = state.topic_ids.get(topic)
    if earlier.cluster_id != state.cluster_id or earlier.topic_ids.get(topic, topic_id) != topic_id:
        return True
    return any(
        state.seam.get((name, partition)) < offset
        for name, partition, offset in earlier.seam.items()
        if name == topic
    )


def _moved_with(link: Link) -> set[str]:
    """The topics that a snapshot was told to read from somewhere else."""
    text = link.summary.get(SUMMARY_ACCEPTED)
    return set() if text is None else _moved_by(json.loads(text))


def _moved_by(entry: Mapping[str, Any]) -> set[str]:
    # Who gave something up went back to a snapshot: its rows are of the same log.
    if entry.get("code") in _SAME_LOG or entry.get("given_up"):
        return set()
    return {*entry.get("seam_before", {}), *entry.get("seam_after", {})}


def _replaced_by(entry: Mapping[str, Any], topics: Sequence[str]) -> set[str]:
    is_other_cluster = any(fact.startswith("cluster=") for fact in entry.get("facts", ()))
    is_other_cluster &= not entry.get("given_up")
    return set(topics) if is_other_cluster else _moved_by(entry)


def _incarnations(
    states: Sequence[SnapshotState],
    starts: Mapping[str, tuple[int, Seam | None]],
    accepted: Sequence[Mapping[str, Any]] | None,
) -> dict[Place, Incarnation]:
    """How each partition of the last seam was read; ``accepted`` is None where the first one began it."""
    incarnations: dict[Place, Incarnation] = {}
    for topic, partition, _ in states[-1].seam.items():
        place = (topic, partition)
        first, begins = starts.get(topic, (0, None))
        began: int | None
        if place not in states[first].seam:
            first, began = _joined(states, first, place)
        elif begins is not None:  # another log since that snapshot
            began = begins[place]
        else:
            began = states[0].seam[place] if accepted is None else _accepted_from(accepted, place)
        incarnations[place] = Incarnation(began, first, tuple(state.seam[place] for state in states[first:]))
    return incarnations


def _accepted_from(accepted: Sequence[Mapping[str, Any]], place: Place) -> int | None:
    """Where the last rebase of a partition that is on record began to read."""
    for entry in reversed(accepted):
        if entry.get("code") not in _SAME_LOG and not entry.get("given_up"):
            offset = entry.get("seam_after", {}).get(place[0], {}).get(str(place[1]))
            if offset is not None:
                return int(offset)
    return None


def _joined(states: Sequence[SnapshotState], first: int, place: Place) -> tuple[int, int]:
    """With which snapshot after the first one a partition joined, and from where on it is read.

    A topic that joins is read from its seam, and a new partition of a topic from 0.
    """
    index = next(index for index in range(first, len(states)) if place in states[index].seam)
    is_new_topic = place[0] not in states[index - 1].topic_ids
    return index, states[index].seam[place] if is_new_topic else 0
