"""Differences on compacted topics that compaction may explain: it went on while the log was read.

What a read path showed, or a commit read, may have been dropped for a newer record before the log was read
here. Where that may be, a second look at the log decides, once, for all keys in held.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from thermocline.kafka.facts import OffsetRange, RecordChunk
from thermocline.kafka.log import Log, read_ranges
from thermocline.rules.decode import decoder_for, records_table
from thermocline.rules.definition import KEY, PROVENANCE, LiveTable
from thermocline.verify.row_judge import Reason
from thermocline.verify.sample import entities_of

if TYPE_CHECKING:
    from thermocline.iceberg.reading import Place
    from thermocline.process.clock import Clock
    from thermocline.rules.seam import Seam
    from thermocline.schemas.registry import SchemaRegistry
    from thermocline.verify.finding import Finding
    from thermocline.verify.report import Report

__all__ = ["Origin", "UnconfirmedFindings", "offsets_of", "second_look"]

Origin = tuple["Place", int]
"""A partition and an offset."""
Offsets = Mapping[bytes, Collection[Origin]]

# Findings that wait for the second look; beyond it a table on a compacted topic is damaged as a whole, or not
# at all, and those that were looked at say which.
_UNCONFIRMED_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Unconfirmed:
    finding: Finding
    key: bytes
    origin: Origin | None
    since: Seam


@dataclass(slots=True)
class UnconfirmedFindings:
    """Findings about keys (or entities, by what their keys begin with) that hold only after a second look.

    ``is_by_value``: the table's key is not the one that compaction goes by.
    """

    compacted: Collection[str]
    is_by_value: bool
    report: Report
    _held: list[_Unconfirmed] = field(default_factory=list)

    def take(self, finding: Finding, key: bytes, origin: Origin | None, since: Seam) -> None:
        """A finding that something is there which comes from ``origin``; or, None, that something lacks.

        Something may lack for a record at or beyond ``since``, which another one was dropped for.
        """
        if not self.compacted:
            self.report.add(finding)
        elif len(self._held) < _UNCONFIRMED_MAX:
            self._held.append(_Unconfirmed(finding, key, origin, since))
        else:
            self.report.unjudged[Reason.COMPACTED] += 1

    def settle(self, look: Callable[[Collection[bytes]], Offsets]) -> None:
        """Reports what holds. ``look`` gives the places of all records of some keys."""
        held, self._held = self._held, []
        if not held:
            return
        offsets = look({one.key for one in held})
        for one in held:
            if self._is_explained(one, offsets.get(one.key, ())):  # safety: verify-compaction
                self.report.unjudged[Reason.COMPACTED] += 1
            else:
                self.report.add(one.finding)

    def _is_explained(self, held: _Unconfirmed, offsets: Collection[Origin]) -> bool:
        if held.origin is not None:
            return held.origin[0][0] in self.compacted and held.origin not in offsets
        return self.is_by_value or any(
            place[0] in self.compacted and offset >= held.since.get(place) for place, offset in offsets
        )


def second_look(
    log: Log,
    client_config: Mapping[str, Any],
    definition: LiveTable,
    firsts: Seam,
    clock: Clock,
    registry: SchemaRegistry | None = None,
) -> Callable[[Collection[bytes]], Offsets]:
    """What looks for keys in the log as it is then, from some offsets on, up to its ends."""

    def look(keys: Collection[bytes]) -> Offsets:
        starts, ends = log.starts(definition.topics), log.ends(definition.topics)
        ranges = [
            OffsetRange(topic, p, max(firsts.get((topic, p)), starts.get((topic, p))), end)
            for topic, p, end in ends.items()
        ]
        wanted = [one for one in ranges if one.first < one.end]
        chunks = read_ranges(client_config, wanted, definition.name, clock)
        return offsets_of(definition, chunks, keys, registry)

    return look


def offsets_of(
    definition: LiveTable,
    chunks: Iterator[RecordChunk],
    keys: Collection[bytes],
    registry: SchemaRegistry | None = None,
) -> dict[bytes, set[Origin]]:
    """Where the records of some keys or entities stand; of bad ones, too, where their keys are readable."""
    found: dict[bytes, set[Origin]] = {}
    decoder, wanted = decoder_for(definition, registry), pa.array(sorted(keys), pa.binary())
    # What orders a record is in its value, and without it the record would be bad.
    is_keyed = definition.key_from == "key" and not definition.merging.is_ordered
    for chunk in chunks:
        values = [None] * len(chunk.values) if is_keyed else chunk.values
        decoded = decoder.decode(chunk.keys, values, chunk.headers_of, chunk.topic)
        records = records_table(
            definition, decoded, chunk.topic, chunk.partition, chunk.offsets, chunk.timestamps_ms
        )
        place = (chunk.topic, chunk.partition)
        for names in (records.column(KEY).combine_chunks(), entities_of(definition, records)):
            is_wanted = pc.is_in(names, value_set=wanted)
            offsets = records.column(PROVENANCE[2]).filter(is_wanted).to_pylist()
            for name, offset in zip(names.filter(is_wanted).to_pylist(), offsets, strict=True):
                found.setdefault(name, set()).add((place, offset))
    return found
