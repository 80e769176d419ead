"""Reads the log once: decoded records into the staging, and those of sampled entities into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from thermocline.errors import OffsetsGone, ReadPointGone
from thermocline.kafka.facts import OffsetRange, RecordChunk
from thermocline.kafka.log import Log, read_ranges
from thermocline.rules.seam import Seam
from thermocline.verify.entities import Entities
from thermocline.verify.log_decode import SEGMENT, LogDecoder
from thermocline.verify.sample import entities_of
from thermocline.verify.staging import LOG, Staging

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thermocline.iceberg.reading import Place, Reading
    from thermocline.process.clock import Clock
    from thermocline.rules.definition import LiveTable
    from thermocline.rules.partition_time import PartitionTimes
    from thermocline.schemas.registry import SchemaRegistry
    from thermocline.verify.sample import Chosen

__all__ = ["LogPass", "Progress", "ReadLog", "sampled"]

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is; 0 where nobody knows."""

# Retention may cut the log while it is read; a log that is cut this often is not for reading.
_READS_MAX: Final = 3
# Records beyond the seam that wait to be looked through for sampled entities.
_WAITING_RECORDS: Final = 100_000
PROGRESS: Final = "log"


@dataclass(frozen=True, slots=True)
class ReadLog:
    """What was read: from where to where, how much, and the records of sampled entities.

    ``partition_times`` are those at the ends.

    ``firsts`` are by partition: from there on the log holds all that the table has read.
    """

    firsts: Mapping[Place, int]
    ends: Seam
    entities: Entities
    read: int
    bad: int
    filtered: int
    partition_times: PartitionTimes


@dataclass(slots=True)
class LogPass:
    """One pass over the log up to some ends. ``cuts`` are the read points' ends, the seam left out.

    ``chosen`` is offered the entity of each record; where ``is_part``, nobody else's records are kept.
    """

    log: Log
    client_config: Mapping[str, Any]
    reading: Reading
    cuts: Sequence[Seam]
    chosen: Chosen
    is_part: bool
    clock: Clock
    progress: Progress
    registry: SchemaRegistry | None = None
    _waiting: list[pa.Table] = field(default_factory=list)
    _waiting_records: int = 0

    def read(self, staging: Staging) -> ReadLog:
        """Reads all that the log holds and the table has read, and on to the ends.

        Raises:
            ReadPointGone: the log is cut faster than it can be read.
            ThermoclineError: the log can't be read.
        """
        for attempt in range(1, _READS_MAX + 1):
            try:
                return self._read(staging)
            except OffsetsGone as gone:  # what is left is read from its new start
                if attempt == _READS_MAX:
                    detail = f"the log is cut faster than it can be read, at {', '.join(gone.gaps)}"
                    raise ReadPointGone(table=self.reading.definition.name, detail=detail) from gone
                staging.clear(LOG)
        raise AssertionError("unreachable")

    def _read(self, staging: Staging) -> ReadLog:
        definition = self.reading.definition
        starts = self.log.starts(definition.topics)
        firsts = {place: first for place, first in self._firsts(starts) if first is not None}
        ends = self.reading.seam
        for cut in self.cuts:
            ends = ends.merged_max(cut)
        decoder = LogDecoder(self.reading, self.cuts, registry=self.registry)
        entities = Entities(definition, self.reading)
        self._waiting, self._waiting_records = [], 0
        for chunk in self._chunks(firsts, ends):
            found = decoder.decode(chunk)
            self.chosen.offer(entities_of(definition, found))
            kept = sampled(definition, found, self.chosen) if self.is_part else found
            staging.add(LOG, kept)
            self._wait(definition, found)
        if self._waiting:
            entities.take_records(sampled(definition, pa.concat_tables(self._waiting), self.chosen))
        return ReadLog(
            firsts, ends, entities, decoder.records, decoder.bad, decoder.filtered, decoder.partition_times
        )

    def _firsts(self, starts: Seam) -> list[tuple[Place, int | None]]:
        """A partition that is newer than the snapshot is read from its start."""
        return [
            (
                (topic, p),
                self.reading.first_of((topic, p), start)
                if (topic, p) in self.reading.incarnations
                else start,
            )
            for topic, p, start in starts.items()
        ]

    def _chunks(self, firsts: Mapping[Place, int], ends: Seam) -> Iterator[RecordChunk]:
        ranges = [
            OffsetRange(*place, first, ends.get(place))
            for place, first in firsts.items()
            if first < ends.get(place)
        ]
        total, done = sum(one.end - one.first for one in ranges), 0
        positions = {(one.topic, one.partition): one.first for one in ranges}
        self.progress(PROGRESS, 0, total)
        for chunk in read_ranges(self.client_config, ranges, self.reading.definition.name, self.clock):
            yield chunk
            place, reached = (chunk.topic, chunk.partition), chunk.offsets[-1] + 1
            done += reached - positions[place]
            positions[place] = reached
            self.progress(PROGRESS, done, total)
        self.progress(PROGRESS, total, total)

    def _wait(self, definition: LiveTable, found: pa.Table) -> None:
        """Keeps what lies beyond the seam, until more has come; entities that were chosen may drop out."""
        beyond = found.filter(pa.array(found.column(SEGMENT).to_numpy() > 0))
        if not beyond.num_rows:  # as of nearly all chunks
            return
        self._waiting.append(beyond)
        self._waiting_records += beyond.num_rows
        if self._waiting_records > _WAITING_RECORDS:
            self._waiting = [sampled(definition, pa.concat_tables(self._waiting), self.chosen)]
            self._waiting_records = self._waiting[0].num_rows


def sampled(definition: LiveTable, rows: pa.Table, chosen: Chosen) -> pa.Table:
    """The rows of chosen entities."""
    return rows.filter(pa.array(chosen.holds(entities_of(definition, rows)), pa.bool_()))
