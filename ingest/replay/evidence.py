"""Evidence from table and log about the keys of candidates: their rows, and what was read of them since.

A record of the log is judged by the definition of the commit that read it, not by today's: an alteration
makes records good that the table left out, and others bad that it took in.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thermocline.iceberg.catalog import SUMMARY_DRAINED
from thermocline.iceberg.lineage import Link, links_back
from thermocline.iceberg.reading import DecidingTimes
from thermocline.ingest.replay.judgement import CandidateEvidence, Found, Origin, TableContext, batch_before
from thermocline.kafka.facts import OffsetRange, RecordChunk
from thermocline.kafka.log import read_ranges
from thermocline.rules.decode import Decoded, decoder_for, records_table
from thermocline.rules.definition import ABSENT, KEY, PROVENANCE, TOMBSTONE
from thermocline.rules.fold import OFFSET
from thermocline.rules.keys import buckets
from thermocline.upsert.probe import probe
from thermocline.upsert.stored_rows import rows_at

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table

    from thermocline.iceberg.reading import Place, Reading
    from thermocline.ingest.quarantine import SeenRecords
    from thermocline.ingest.replay.judgement import Candidate, Judgement
    from thermocline.kafka.log import Log
    from thermocline.rules.definition import LiveTable
    from thermocline.schemas.registry import SchemaRegistry
    from thermocline.upsert.files_by_bucket import FilesByBucket

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
    """What the table took in of the candidates' keys from before their batches on, as the log shows it.

    ``last`` has the last such record of each key in each partition before the seam: it was good when it was
    read, or was replayed since.
    ``is_there`` says, for the places of candidates where the log shows a record, whether it is the one that
    the quarantine keeps. ``hiding`` has the last record of a key that is bad or beyond the seam in each
    partition of a compacted topic. ``waiting`` has the last one in each partition that could be read by now,
    and is in quarantine. ``times_ms`` are those by which the batches of all these decided between partitions.
    """

    last: dict[bytes, dict[Place, Found]] = field(default_factory=dict)
    is_there: dict[tuple[str, int, int], bool] = field(default_factory=dict)
    hiding: dict[bytes, dict[Place, Origin]] = field(default_factory=dict)
    waiting: dict[bytes, dict[Place, Origin]] = field(default_factory=dict)
    times_ms: dict[tuple[Place, int], int] = field(default_factory=dict)

    def take(self, records: pa.Table) -> None:
        """Take up good records from before the seam, in any order."""
        columns = (records.column(KEY).to_pylist(), records.column(TOMBSTONE).to_pylist())
        for key, *facts in zip(columns[0], origins(records), columns[1], are_partial(records), strict=True):
            self.add(key, Found(*facts))

    def add(self, key: bytes, found: Found) -> None:
        """Take up one record that the table took in."""
        last, origin = self.last.setdefault(key, {}), found.origin
        if origin.place not in last or last[origin.place].origin.offset < origin.offset:
            last[origin.place] = found

    def note(self, candidate: Candidate, verdict: Judgement | None) -> None:
        """Take up a verdict: if it settles the candidate, the table is as if it had taken the record in."""
        if verdict is None or not verdict.settles:  # safety: replay-settled-ones-count
            return
        origin, waiting = candidate.origin, self.waiting.get(candidate.key, {})
        self.add(candidate.key, _as_found(candidate))
        if origin.place in waiting and waiting[origin.place].is_at(origin):
            del waiting[origin.place]

    def hide(self, key: bytes, origin: Origin) -> None:
        """Take up a record of a compacted topic that may have made compaction drop another one of its key."""
        _keep_last(self.hiding, key, origin)

    def wait(self, key: bytes, origin: Origin) -> None:
        """Take up a record that could be read by now, and is in quarantine."""
        _keep_last(self.waiting, key, origin)

    def of(self, candidate: Candidate) -> CandidateEvidence:
        """What concerns one candidate."""
        origin, last = candidate.origin, dict(self.last.get(candidate.key, {}))
        if origin.place not in last or last[origin.place].origin.offset < origin.offset:
            last[origin.place] = _as_found(candidate)
        hiding = self.hiding.get(candidate.key, {}).values()
        return CandidateEvidence(
            last=list(last.values()),
            is_there=self.is_there.get((*origin.place, origin.offset)),
            hiding=next((o for o in hiding if o.place != origin.place or o.offset > origin.offset), None),
            waiting=list(self.waiting.get(candidate.key, {}).values()),
            times_ms=self.times_ms,
        )


def _as_found(candidate: Candidate) -> Found:
    return Found(candidate.origin, candidate.is_tombstone, candidate.is_partial)


def _keep_last(origins_of: dict[bytes, dict[Place, Origin]], key: bytes, origin: Origin) -> None:
    last = origins_of.setdefault(key, {})
    if origin.place not in last or last[origin.place].offset < origin.offset:
        last[origin.place] = origin


def unbroken(table: Table) -> list[Link]:
    """The snapshots of main for as long as each went on where the one before it was, oldest first.

    They begin where the table was told to go on with another log, or behind a gap, and what was expired is
    missing at their beginning. They also begin after a snapshot of which the metadata does not say by which
    definition its batch was decoded.
    """
    schemas = table.schemas()
    taken: list[Link] = []
    for link in links_back(table):
        if taken and link.snapshot_id in taken[-1].taken_over:  # it read nothing
            continue
        if link.state is None or link.snapshot.schema_id not in schemas:  # safety: replay-definition-unknown
            break
        if taken and not _goes_on(link, taken[-1]):
            break
        taken.append(link)
    return taken[::-1]


def drained(links: Sequence[Link]) -> list[int | None]:
    """When each of the snapshots held all of the log.

    That is said with a batch: at creation, and where the snapshots begin, it is presumed.
    """
    return [None, *(_drained(before, link) for before, link in pairwise(links))][: len(links)]


def _goes_on(link: Link, later: Link) -> bool:
    """Whether a later snapshot read on in the same log, as its batch says and nobody told it to."""
    one, other = link.state, later.state
    assert one is not None
    assert other is not None
    is_same_log = one.cluster_id == other.cluster_id and one.topic_ids.items() <= other.topic_ids.items()
    # safety: replay-history-of-this-log
    return is_same_log and other.seam.at_least(one.seam) and not later.is_accepted


def _drained(before: Link, link: Link) -> int | None:
    assert before.state is not None
    assert link.state is not None
    is_said = before.state.drained_ms < link.state.drained_ms and SUMMARY_DRAINED in link.summary
    return link.state.drained_ms if is_said else None


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
            for some, rows in rows_at(io, definition, hit.file.path, hit.positions, PROVENANCE):
                names = keys.take(pa.array(hit.key_indexes[some])).to_pylist()
                found.update(zip(names, origins(rows), strict=True))
    return found


def read_log(  # noqa: PLR0913, PLR0917  (all that decides about a record)
    log: Log,
    client_config: Mapping[str, Any],
    registry: SchemaRegistry | None,
    definition: LiveTable,
    candidates: Sequence[Candidate],
    kept: Mapping[tuple[str, int, int], Kept],
    quarantined: SeenRecords,
    live: Mapping[bytes, Origin],
    context: TableContext,
    progress: Progress,
) -> LogEvidence:
    """Read what the table read since the snapshots from before the candidates' batches, for their keys.

    Then compacted topics are read on to their ends: a record beyond the seam may have made compaction drop
    another one, which was to be seen otherwise. Candidates for which no such snapshot is left add nothing.
    ``live`` says where the keys' rows come from. None of the candidates is part of the evidence.

    Raises:
        OffsetsGone: the log was cut beyond the context's ``starts`` meanwhile.
    """
    search = _Search(definition, registry, candidates, kept, quarantined, live, context)
    ranges = _ranges(candidates, context)
    _read(client_config, ranges, definition.name, search, progress)
    if ranges and context.compacted:
        ends = log.ends(context.compacted)
        beyond = [OffsetRange(topic, p, context.seam.get((topic, p)), end) for topic, p, end in ends.items()]
        _read(client_config, beyond, definition.name, search, progress)  # safety: replay-beyond-the-seam
    return search.evidence


def _read(
    client_config: Mapping[str, Any],
    ranges: Sequence[OffsetRange],
    name: str,
    search: _Search,
    progress: Progress,
) -> None:
    wanted = [one for one in ranges if one.first < one.end]
    total, done = sum(one.end - one.first for one in wanted), 0
    if not total:
        return
    positions = {(one.topic, one.partition): one.first for one in wanted}
    progress(done, total)
    for chunk in read_ranges(client_config, wanted, name):
        search.take(chunk)
        place = (chunk.topic, chunk.partition)
        done += chunk.offsets[-1] + 1 - positions[place]
        positions[place] = chunk.offsets[-1] + 1
        progress(done, total)
    progress(total, total)


class _Search:
    """Looks for the keys of the candidates in what is read of the log."""

    def __init__(
        self,
        definition: LiveTable,
        registry: SchemaRegistry | None,
        candidates: Sequence[Candidate],
        kept: Mapping[tuple[str, int, int], Kept],
        quarantined: SeenRecords,
        live: Mapping[bytes, Origin],
        context: TableContext,
    ) -> None:
        self._definition = definition
        self._key_decoder = decoder_for(definition, registry)  # of keys alone, which no alteration changes
        self._keys = pa.array(list({one.key for one in candidates}), pa.binary())
        self._kept = kept
        self._quarantined, self._topic_ids = quarantined, context.topic_ids
        self._rows = {(*row.place, row.offset): (key, row) for key, row in live.items()}
        self._seam = context.seam
        self._compacted = frozenset(context.compacted)
        self._as_read = _AsRead(context.reading, registry)
        self._deciding = DecidingTimes(context.reading)
        self._times_ms: Sequence[int] = ()  # of the records of the chunk
        self.evidence = LogEvidence()

    def take(self, chunk: RecordChunk) -> None:
        """Take up what a chunk says."""
        self._times_ms = self._deciding.take(
            (chunk.topic, chunk.partition), chunk.timestamps_ms, np.array(chunk.offsets, np.int64)
        ).tolist()
        self._identify(chunk)
        if self._definition.key_from == "value":  # a bad record has no key then, and nothing is ever deleted
            before_seam = chunk.offsets[: self._before_seam(chunk)]
            for _, _, good in self._as_read.decode(chunk, before_seam):
                self._hear(chunk, self._ours(good))
            return
        # Keys alone first: few records are of ours, and of a bad record the key may be readable.
        nothing = [None] * len(chunk.keys)
        by_key = self._key_decoder.decode(
            chunk.keys, nothing, chunk.headers_of, chunk.topic
        )  # safety: replay-key-headers
        keyed = self._ours(_table(self._definition, by_key, chunk, range(len(chunk.offsets))))
        is_before = pc.less(keyed.column(OFFSET), self._seam.get((chunk.topic, chunk.partition)))
        self._hear_good(chunk, keyed.filter(is_before))
        self._hide(chunk, keyed.filter(pc.invert(is_before)))

    def _hear_good(self, chunk: RecordChunk, keyed: pa.Table) -> None:
        """Of records before the seam whose keys are ours, take up the good ones; the bad may hide others."""
        for first, decoded, good in self._as_read.decode(chunk, keyed.column(OFFSET).to_pylist()):
            bad = pa.array([first + bad.index for bad in decoded.bad], pa.int64())
            self._hide(chunk, keyed.take(bad))
            self._hear(chunk, good)

    def _hear(self, chunk: RecordChunk, good: pa.Table) -> None:
        """Take up records that can be read. One whose schema came late was bad when the table passed it."""
        topic_id = self._topic_ids[chunk.topic]
        offsets = good.column(OFFSET).to_pylist()
        self._note_times(chunk, offsets)
        is_kept = pa.array(
            [(topic_id, chunk.partition, at) in self._quarantined for at in offsets], pa.bool_()
        )
        kept = good.filter(is_kept)
        for key, origin in zip(kept.column(KEY).to_pylist(), origins(kept), strict=True):
            self.evidence.wait(key, origin)
        self.evidence.take(good.filter(pc.invert(is_kept)))

    def _hide(self, chunk: RecordChunk, keyed: pa.Table) -> None:
        if chunk.topic in self._compacted:
            for key, origin in zip(keyed.column(KEY).to_pylist(), origins(keyed), strict=True):
                self.evidence.hide(key, origin)

    def _before_seam(self, chunk: RecordChunk) -> int:
        return bisect_left(chunk.offsets, self._seam.get((chunk.topic, chunk.partition)))

    def _note_times(self, chunk: RecordChunk, offsets: Sequence[int]) -> None:
        place = (chunk.topic, chunk.partition)
        for offset in offsets:
            self.evidence.times_ms[place, offset] = self._times_ms[bisect_left(chunk.offsets, offset)]

    def _identify(self, chunk: RecordChunk) -> None:
        for index, offset in enumerate(chunk.offsets):
            place = (chunk.topic, chunk.partition, offset)
            kept = self._kept.get(place)
            if kept is not None:
                found = Kept(chunk.keys[index], chunk.values[index], chunk.timestamps_ms[index])
                self.evidence.is_there[place] = found == kept
                self._note_times(chunk, [offset])
            # Bad or not when it was read: if it was, a replay has applied it.
            key, row = self._rows.get(place, (b"", None))
            # safety: replay-replayed-since
            if row is not None and row.timestamp_ms == chunk.timestamps_ms[index]:
                self._note_times(chunk, [offset])
                is_partial = self._definition.merging.is_partial  # or it may be
                self.evidence.add(key, Found(row, is_tombstone=False, is_partial=is_partial))

    def _ours(self, records: pa.Table) -> pa.Table:
        return records.filter(pc.is_in(records.column(KEY), value_set=self._keys))


class _AsRead:
    """Decodes records by the definitions of the commits that read them."""

    def __init__(self, reading: Reading, registry: SchemaRegistry | None) -> None:
        self._reading = reading
        self._definitions = list(dict.fromkeys(reading.definitions))
        self._decoders = [decoder_for(definition, registry) for definition in self._definitions]
        self._numbers = np.array([self._definitions.index(one) for one in reading.definitions], np.int64)

    def decode(self, chunk: RecordChunk, offsets: Sequence[int]) -> Iterator[tuple[int, Decoded, pa.Table]]:
        """Some records of a chunk, all before the seam, in runs of one definition.

        Of each run where it begins among the offsets, what became of its records, and the good ones.
        """
        indexes = np.searchsorted(chunk.offsets, offsets).tolist()
        for first, end, number in self._runs((chunk.topic, chunk.partition), offsets):
            some = indexes[first:end]
            decoded = self._decoders[number].decode(
                [chunk.keys[i] for i in some],
                [chunk.values[i] for i in some],
                chunk.headers_of_some(some),
                chunk.topic,
            )
            yield first, decoded, _table(self._definitions[number], decoded, chunk, some)

    def _runs(self, place: Place, offsets: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Where each run of one definition begins and ends, and the definition's number."""
        if not offsets:
            return
        # safety: replay-as-read
        numbers = self._numbers[self._reading.batches(place, np.array(offsets))]
        edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(offsets)]
        for first, end in pairwise(edges):
            yield first, end, int(numbers[first])


def _table(definition: LiveTable, decoded: Decoded, chunk: RecordChunk, indexes: Sequence[int]) -> pa.Table:
    offsets = [chunk.offsets[i] for i in indexes]
    times = [chunk.timestamps_ms[i] for i in indexes]
    return records_table(definition, decoded, chunk.topic, chunk.partition, offsets, times)


def origins(records: pa.Table, topic_ids: Mapping[str, str] | None = None) -> list[Origin]:
    """Where each record comes from, with the ids of the topics where they are given; no topic for no log."""
    topics, partitions, offsets, times = (records.column(name) for name in PROVENANCE)
    milliseconds = pc.divide(times.cast(pa.int64()), 1000)
    columns = (topics.to_pylist(), partitions.to_pylist(), offsets.to_pylist(), milliseconds.to_pylist())
    ids = topic_ids or {}
    return [
        Origin("", -1, -1, -1) if place[0] is None else Origin(*place, ids.get(place[0], ""))
        for place in zip(*columns, strict=True)
    ]


def are_partial(records: pa.Table) -> list[bool]:
    """Of each record, whether it leaves columns of its row as they are."""
    if ABSENT not in records.column_names:
        return [False] * records.num_rows
    return [count > 0 for count in pc.list_value_length(records.column(ABSENT)).to_pylist()]


def _ranges(candidates: Sequence[Candidate], context: TableContext) -> list[OffsetRange]:
    """What was read after the oldest of the snapshots from before the candidates' batches, up to the seam."""
    reading, seam = context.reading, context.seam
    before = [index for one in candidates if (index := batch_before(one.origin, reading)) is not None]
    return [
        OffsetRange(
            topic, p, max(reading.reached(min(before) + 1, (topic, p)), start), seam.get((topic, p), start)
        )
        for topic, p, start in context.starts.items()
        if before
    ]


__all__ = [
    "Kept",
    "LogEvidence",
    "Progress",
    "are_partial",
    "drained",
    "live_rows",
    "origins",
    "read_log",
    "unbroken",
]
