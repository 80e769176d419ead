"""Records of the log, decoded as the commit that read them did.

A record that is good by now, and was bad by the definition that read it, is in the table only if it was
replayed: it is kept beside the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from thermocline.iceberg.reading import DecidingTimes
from thermocline.kafka.facts import RecordChunk
from thermocline.rules.decode import Decoder, decoder_for, records_table
from thermocline.rules.definition import ABSENT, PARTITION_TIME, PROVENANCE, LiveTable
from thermocline.rules.field_ids import Match, matches
from thermocline.rules.seam import Seam

if TYPE_CHECKING:
    from thermocline.iceberg.reading import Reading
    from thermocline.rules.partition_time import PartitionTimes
    from thermocline.schemas.registry import SchemaRegistry

__all__ = [
    "BATCH",
    "CERTAIN",
    "MAYBE",
    "OLDER",
    "SEGMENT",
    "STATE",
    "LogDecoder",
    "records_schema",
]

BATCH: Final = "_batch"
STATE: Final = "_state"
SEGMENT: Final = "_segment"

CERTAIN: Final = 0
"""Read as it is here."""
MAYBE: Final = 1
"""Bad when it was read, and good by now: in the table only if it was replayed."""
OLDER: Final = 2
"""Good, by whichever definition read it; columns that were added since may be null in its row."""

_ADDED: Final = (pa.field(BATCH, pa.int32()), pa.field(STATE, pa.int8()), pa.field(SEGMENT, pa.int8()))
_TIME: Final = pa.field(PARTITION_TIME, pa.int64())
Array = np.ndarray[Any, np.dtype[Any]]


def records_schema(definition: LiveTable) -> pa.Schema:
    """Decoded records with what is known of how they were read.

    That is their batch, whether they were good then, their stretch of the log, and by which time their batch
    decided between partitions, in milliseconds.
    """
    return pa.schema([*definition.records_schema, *_ADDED, _TIME])


@dataclass(slots=True)
class LogDecoder:
    """Makes tables of ``records_schema`` from what is read of the log.

    Bad records, and those that are filtered, are counted and left out.

    ``cuts`` are ends that something is compared at: records before the seam are in stretch 0, those beyond it
    in stretch 1 and, behind each of the cuts, one further. ``start`` are the partition times where reading
    begins, where it goes on from an earlier decoder's.
    """

    reading: Reading
    cuts: Sequence[Seam]
    records: int = 0
    bad: int = 0
    filtered: int = 0
    registry: SchemaRegistry | None = None
    start: PartitionTimes | None = None
    _good: int = 0
    _decoders: dict[tuple[object, ...], Decoder] = field(default_factory=dict)
    _deciding: DecidingTimes = field(init=False)

    def __post_init__(self) -> None:
        """No record was read yet."""
        self._deciding = DecidingTimes(self.reading, self.start)

    @property
    def partition_times(self) -> PartitionTimes:
        """The partition times after all that was decoded."""
        return self._deciding.now()

    def decode(self, chunk: RecordChunk) -> pa.Table:
        """The records of a chunk that are good now, or were when they were read."""
        self.records += len(chunk.offsets)
        place, offsets = (chunk.topic, chunk.partition), np.array(chunk.offsets, np.int64)
        batches = self.reading.batches(place, offsets)
        times = self._deciding.take(place, chunk.timestamps_ms, offsets)
        tables: list[pa.Table] = []
        for start, end in self._stretches(batches):
            part = _sliced(chunk, start, end)
            tables += self._decode_alike(part, int(batches[start]), batches[start:end])
        whole = pa.concat_tables(tables)
        at = np.searchsorted(offsets, whole.column(PROVENANCE[2]).to_numpy())
        whole = whole.append_column(_TIME, pa.array(times[at]))
        self._good += whole.num_rows
        self.bad = self.records - self.filtered - self._good
        return whole

    def _stretches(self, batches: Array) -> Iterator[tuple[int, int]]:
        """The runs of records that the same definitions may have read."""
        changes = np.flatnonzero(np.diff(batches)) + 1
        edges = [0, *changes.tolist(), len(batches)]
        start = 0
        for edge, following in zip(edges[1:], [*edges[2:], None], strict=True):
            if following is None or not self._is_alike(int(batches[start]), int(batches[edge])):
                yield start, edge
                start = edge

    def _is_alike(self, one: int, other: int) -> bool:
        ours, others = self.reading.candidates(one), self.reading.candidates(other)
        return [by.columns for by in ours] == [by.columns for by in others]

    def _decode_alike(self, chunk: RecordChunk, batch: int, batches: Array) -> Iterator[pa.Table]:
        candidates = self.reading.candidates(batch)  # safety: verify-definition
        newest = candidates[-1]
        good, filtered = self._decoded(newest, chunk)
        self.filtered += filtered  # the same by each of the definitions, since conditions can't be altered
        states = np.full(good.num_rows, CERTAIN)
        if len(candidates) > 1:
            states[:] = OLDER
            for earlier in candidates[:-1]:
                offsets = self._decoded(earlier, chunk)[0].column(PROVENANCE[2]).to_numpy()
                states[~np.isin(good.column(PROVENANCE[2]).to_numpy(), offsets)] = MAYBE
        yield self._with_facts(good, chunk, batches, states)
        if good.num_rows + filtered < len(chunk.offsets):
            others = [*candidates[:-1], *reversed(self.reading.definitions[batch:])]
            yield from self._good_by_now(good, chunk, batches, _distinct(others, newest))

    def _good_by_now(
        self, good: pa.Table, chunk: RecordChunk, batches: Array, others: Sequence[LiveTable]
    ) -> Iterator[pa.Table]:
        """Records that only a definition reads that came later, or that only an earlier candidate did."""
        known = good.column(PROVENANCE[2]).to_numpy()
        for other in others:
            found, _ = self._decoded(other, chunk)
            is_new = ~np.isin(found.column(PROVENANCE[2]).to_numpy(), known)
            if is_new.any():
                found = found.filter(pa.array(is_new))
                known = np.concatenate([known, found.column(PROVENANCE[2]).to_numpy()])
                yield self._with_facts(found, chunk, batches, np.full(found.num_rows, MAYBE))

    def _decoded(self, definition: LiveTable, chunk: RecordChunk) -> tuple[pa.Table, int]:
        """The records that are good by a definition, and how many are filtered."""
        if definition.columns not in self._decoders:
            self._decoders[definition.columns] = decoder_for(definition, self.registry)
        decoded = self._decoders[definition.columns].decode(
            chunk.keys, chunk.values, chunk.headers_of, chunk.topic
        )
        table = records_table(
            definition, decoded, chunk.topic, chunk.partition, chunk.offsets, chunk.timestamps_ms
        )
        found = carried(table, definition, self.reading.definition)  # safety: verify-carried-by-id
        return found, len(decoded.filtered)

    def _with_facts(self, good: pa.Table, chunk: RecordChunk, batches: Array, states: Array) -> pa.Table:
        offsets = good.column(PROVENANCE[2]).to_numpy()
        of_chunk = np.searchsorted(np.array(chunk.offsets), offsets)
        place = (chunk.topic, chunk.partition)
        seam = self.reading.seam.get(place)
        segments = (offsets >= seam).astype(np.int8)
        for cut in self.cuts:  # a hot tier may be behind the table
            segments += offsets >= max(seam, cut.get(place))  # safety: verify-hot-behind
        values = (batches[of_chunk].astype(np.int32), states.astype(np.int8), segments)
        for one, added in zip(_ADDED, values, strict=True):
            good = good.append_column(one, pa.array(added))
        return good


def carried(records: pa.Table, by: LiveTable, to: LiveTable) -> pa.Table:
    """Records that one definition read, as another has their columns, by field id: absent ones are null."""
    known = matches(by.table_schema, to.table_schema)
    columns: list[pa.ChunkedArray | pa.Array] = []
    for one in to.records_schema:
        match = known.get(one.name)
        name = one.name if match is None else match.stored.name
        if name not in records.column_names or (match is None and one.name in to.row_schema.names):
            columns.append(pa.nulls(records.num_rows, one.type))
            continue
        column = records.column(name) if name != ABSENT else _absent_renamed(records, known)
        if match is not None and not match.is_alike:
            column = match.values(column.combine_chunks())
        columns.append(column if column.type == one.type else column.cast(one.type))
    return pa.Table.from_arrays(columns, schema=to.records_schema)


def _absent_renamed(records: pa.Table, known: Mapping[str, Match]) -> pa.ChunkedArray:
    """The columns that records leave as they are, by what they are called now; not those that are gone."""
    found = records.column(ABSENT)
    names = {match.stored.name: name for name, match in known.items()}
    if all(one == other for one, other in names.items()):
        return found
    renamed = [one and [names[name] for name in one if name in names] for one in found.to_pylist()]
    return pa.chunked_array([pa.array(renamed, found.type)])


def _sliced(chunk: RecordChunk, start: int, end: int) -> RecordChunk:
    if (start, end) == (0, len(chunk.offsets)):
        return chunk
    return RecordChunk(
        chunk.topic,
        chunk.partition,
        chunk.keys[start:end],
        chunk.values[start:end],
        chunk.offsets[start:end],
        chunk.timestamps_ms[start:end],
        chunk.messages[start:end],
    )


def _distinct(definitions: Sequence[LiveTable], left_out: LiveTable) -> list[LiveTable]:
    found: list[LiveTable] = []
    for one in definitions:
        if all(one.columns != known.columns for known in (*found, left_out)):
            found.append(one)
    return found
