"""What table and log say of the keys of candidates: the rows they have, and what came after in the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.table.snapshots import ancestors_of

from ingest.judgement import COMPLETE, NEVER, Ground, History, Origin
from ingest.probe import Replaced, probe
from thermocline.catalog import SUMMARY_ACCEPTED, SUMMARY_DRAINED, SnapshotState, state_of
from thermocline.decode import Decoded, Decoder, decoder_for, records_table
from thermocline.definition import KEY, PROVENANCE
from thermocline.errors import TableUnowned
from thermocline.files import open_input
from thermocline.fold import OFFSET
from thermocline.keys import buckets
from thermocline.log import OffsetRange, RecordChunk, read_ranges
from thermocline.seam import Seam

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from ingest.files_by_bucket import FilesByBucket
    from thermocline.definition import LiveTable
    from thermocline.log import Log

Progress = Callable[[int, int], None]
"""Called with the offsets that were read, and those to be read."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A record as the quarantine keeps it, to be found again in the log."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int


@dataclass(slots=True)
class LogEvidence:
    """What the log holds from the candidates on, up to the table's seam.

    ``last`` has the last good record of each key in each partition, candidates included. ``is_there`` says,
    for the places of candidates where the log shows a record, whether it is the one that the quarantine
    keeps. ``bad`` has the bad records of a key.
    """

    last: dict[bytes, dict[tuple[str, int], Origin]] = field(default_factory=dict)
    is_there: dict[tuple[str, int, int], bool] = field(default_factory=dict)
    bad: dict[bytes, list[Origin]] = field(default_factory=dict)
    complete_since_ms: dict[tuple[str, int], int] = field(default_factory=dict)

    def hear(self, records: pa.Table) -> None:
        """Take up good records, in any order."""
        for key, origin in zip(records.column(KEY).to_pylist(), origins(records), strict=True):
            last = self.last.setdefault(key, {})
            if origin.place not in last or last[origin.place].offset < origin.offset:
                last[origin.place] = origin

    def bad_after(self, key: bytes, origin: Origin) -> Origin | None:
        """A bad record of the key that may have come later than the one from ``origin``; None without one."""
        later = (
            bad for bad in self.bad.get(key, ()) if bad.place != origin.place or bad.offset > origin.offset
        )
        return next(later, None)


def history_of(table: Table, name: str) -> History:
    """The snapshots of main since the seam last went back or the log was another one, oldest first."""
    current = table.current_snapshot()
    states: list[SnapshotState] = []
    taken: list[Snapshot] = []
    for snapshot in ancestors_of(current, table.metadata) if current is not None else ():
        try:
            state = state_of(snapshot, name)
        except TableUnowned:
            break
        if states and not _goes_on(state, states[-1]):
            break
        states.append(state)
        taken.append(snapshot)
    states, taken = states[::-1], taken[::-1]
    pairs = zip([None, *states], states, taken, strict=False)
    return History(
        [state.seam for state in states],
        [state.drained_ms if _is_drained(before, state, one) else None for before, state, one in pairs],
    )


def _goes_on(state: SnapshotState, later: SnapshotState) -> bool:
    """Whether a later snapshot read on in the same log."""
    is_same_log = state.cluster_id == later.cluster_id and state.topic_ids.items() <= later.topic_ids.items()
    return is_same_log and later.seam.at_least(state.seam)


def _is_drained(before: SnapshotState | None, state: SnapshotState, snapshot: Snapshot) -> bool:
    """Whether ``drained_ms`` is of this batch: at creation and on accepting a gap it is presumed."""
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    is_said = SUMMARY_DRAINED in summary and SUMMARY_ACCEPTED not in summary
    return is_said and before is not None and before.drained_ms != state.drained_ms


def live_rows(
    io: FileIO, definition: LiveTable, files: FilesByBucket, records: pa.Table
) -> dict[bytes, Origin]:
    """Where the live rows of the records' keys come from, by key; a key without a row is absent."""
    found: dict[bytes, Origin] = {}
    if not records.num_rows:
        return found
    of_bucket = buckets(definition, records.column(definition.bucket_column.name))
    for bucket in np.unique(of_bucket).tolist():
        keys = records.column(KEY).combine_chunks().filter(pa.array(of_bucket == bucket)).unique().sort()
        for hit in probe(io, definition, files.get(bucket, ()), keys):
            names = keys.take(pa.array(hit.key_indexes)).to_pylist()
            found.update(zip(names, _origins_at(io, hit), strict=True))
    return found


def read_log(
    log: Log,
    client_config: Mapping[str, Any],
    definition: LiveTable,
    candidates: pa.Table,
    kept: Mapping[tuple[str, int, int], Kept],
    ground: Ground,
    progress: Progress,
) -> LogEvidence:
    """Read the log from the candidates on up to the seam, and look for what it holds of their keys.

    In a candidate's own partition from its place on, in the others from its time on, or from where its batch
    ended, if that is earlier: what lies before is older by the rule of the fold, and was read before.

    ``candidates`` have the ``definition.records_schema``.

    Raises:
        OffsetsGone: the log was cut beyond the ground's ``starts`` meanwhile.
    """
    evidence = LogEvidence()
    ranges = _ranges(log, definition.topics, candidates, ground, evidence)
    search = _Search(definition, candidates, kept, evidence)
    total, done = sum(one.end - one.first for one in ranges), 0
    positions = {(one.topic, one.partition): one.first for one in ranges}
    progress(done, total)
    for chunk in read_ranges(client_config, ranges, definition.name):
        search.hear(chunk)
        place = (chunk.topic, chunk.partition)
        done += chunk.offsets[-1] + 1 - positions[place]
        positions[place] = chunk.offsets[-1] + 1
        progress(done, total)
    progress(total, total)
    return evidence


class _Search:
    """Looks for the keys of the candidates in what is read of the log."""

    def __init__(
        self,
        definition: LiveTable,
        candidates: pa.Table,
        kept: Mapping[tuple[str, int, int], Kept],
        evidence: LogEvidence,
    ) -> None:
        self._definition = definition
        self._decoder: Decoder = decoder_for(definition)
        self._keys = candidates.column(KEY).combine_chunks().unique()
        self._kept = kept
        self._evidence = evidence
        evidence.hear(candidates)

    def hear(self, chunk: RecordChunk) -> None:
        """Take up what a chunk says."""
        place = (chunk.topic, chunk.partition)
        if self._evidence.complete_since_ms.get(place) == NEVER:
            self._evidence.complete_since_ms[place] = chunk.timestamps_ms[0]
        self._identify(chunk)
        self._evidence.hear(self._of_our_keys(chunk))

    def _identify(self, chunk: RecordChunk) -> None:
        for index, offset in enumerate(chunk.offsets):
            kept = self._kept.get((chunk.topic, chunk.partition, offset))
            if kept is not None:
                found = Kept(chunk.keys[index], chunk.values[index], chunk.timestamps_ms[index])
                self._evidence.is_there[chunk.topic, chunk.partition, offset] = found == kept

    def _of_our_keys(self, chunk: RecordChunk) -> pa.Table:
        """The good records of the candidates' keys; takes note of the bad ones."""
        everything = range(len(chunk.offsets))
        if self._definition.key_from == "value":  # a bad record has no key then, and nothing is ever deleted
            return self._ours(self._table(self._decoder.decode(chunk.keys, chunk.values), chunk, everything))
        # Keys alone first: few records are of ours, and of a bad record the key may be readable.
        by_key = self._decoder.decode(chunk.keys, [None] * len(chunk.keys))
        keyed = self._ours(self._table(by_key, chunk, everything))
        place_of = {offset: index for index, offset in enumerate(chunk.offsets)}
        ours = [place_of[offset] for offset in keyed.column(OFFSET).to_pylist()]
        decoded = self._decoder.decode([chunk.keys[i] for i in ours], [chunk.values[i] for i in ours])
        names, places = keyed.column(KEY).to_pylist(), origins(keyed)
        for bad in decoded.bad:
            self._evidence.bad.setdefault(names[bad.index], []).append(places[bad.index])
        return self._table(decoded, chunk, ours)

    def _table(self, decoded: Decoded, chunk: RecordChunk, indexes: Sequence[int]) -> pa.Table:
        offsets = [chunk.offsets[i] for i in indexes]
        times = [chunk.timestamps_ms[i] for i in indexes]
        return records_table(self._definition, decoded, chunk.topic, chunk.partition, offsets, times)

    def _ours(self, records: pa.Table) -> pa.Table:
        return records.filter(pc.is_in(records.column(KEY), value_set=self._keys))


def origins(records: pa.Table) -> list[Origin]:
    """Where each record comes from."""
    topics, partitions, offsets, times = (records.column(name) for name in PROVENANCE)
    milliseconds = pc.divide(times.cast(pa.int64()), 1000)
    columns = (topics.to_pylist(), partitions.to_pylist(), offsets.to_pylist(), milliseconds.to_pylist())
    return [Origin(*place) for place in zip(*columns, strict=True)]


def _ranges(
    log: Log, topics: Sequence[str], candidates: pa.Table, ground: Ground, evidence: LogEvidence
) -> list[OffsetRange]:
    places, seam, starts = origins(candidates), ground.seam, ground.starts
    firsts = _at_time(log, topics, min(origin.timestamp_ms for origin in places), starts)
    for place, first in firsts.items():
        is_whole = first > starts[place] or starts[place] == 0
        evidence.complete_since_ms[place] = COMPLETE if is_whole else NEVER
    afters = [ground.history.after(origin) for origin in places]
    for topic, partition, offset in min(
        afters, key=lambda after: sum(end for *_, end in after.items())
    ).items():
        place = (topic, partition)
        if place in firsts:
            firsts[place] = min(firsts[place], max(offset, starts[place]))
    for origin in places:
        firsts[origin.place] = min(firsts[origin.place], max(origin.offset, starts[origin.place]))
    return [
        OffsetRange(*place, first, seam[place])
        for place, first in firsts.items()
        if place in seam and first < seam[place]
    ]


def _at_time(log: Log, topics: Sequence[str], epoch_ms: int, starts: Seam) -> dict[tuple[str, int], int]:
    """The first offset at or after a time; the log's start where a record carries no time, which is -1."""
    found = log.offsets_at(topics, epoch_ms) if epoch_ms >= 0 else starts
    return {(topic, p): max(found.get((topic, p), start), start) for topic, p, start in starts.items()}


def _origins_at(io: FileIO, hit: Replaced) -> list[Origin]:
    """Where the rows at some positions of a data file come from; only their row groups are read."""
    with open_input(io, hit.file.path) as source:
        parquet = pq.ParquetFile(source, pre_buffer=True)
        rows = [parquet.metadata.row_group(group).num_rows for group in range(parquet.num_row_groups)]
        starts = np.concatenate([[0], np.cumsum(rows)])
        group_of = np.searchsorted(starts, hit.positions, side="right") - 1
        groups = np.unique(group_of)
        read = parquet.read_row_groups(groups.tolist(), columns=list(PROVENANCE), use_threads=False)
        read_starts = np.concatenate([[0], np.cumsum(np.asarray(rows)[groups])])[:-1]
        places = read_starts[np.searchsorted(groups, group_of)] + hit.positions - starts[group_of]
    return origins(read.take(pa.array(places)))


__all__ = ["Kept", "LogEvidence", "Progress", "history_of", "live_rows", "origins", "read_log"]
