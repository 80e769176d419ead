"""The one way of records into a hot tier: decode and append. The tailer takes it, and a private tier too."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from thermocline.errors import HotBytesExceeded, NotReady
from thermocline.kafka.facts import OffsetRange, TopicRecords
from thermocline.kafka.log import read_ranges
from thermocline.process.clock import SystemClock
from thermocline.rules.decode import AskedSchemas, decoder_for
from thermocline.rules.seam import Seam
from thermocline.serving.hot.tier import DISK_FREE_BYTES_MIN

if TYPE_CHECKING:
    from thermocline.kafka.facts import RecordChunk
    from thermocline.rules.decode import Decoded
    from thermocline.rules.definition import LiveTable
    from thermocline.schemas.registry import SchemaRegistry
    from thermocline.serving.hot.tier import HotTier
    from thermocline.serving.tail.unreadable import Unreadable


IsAbandoned = Callable[[], bool]
"""Asked again and again while something is read for somebody."""


class Abandoned(Exception):
    """Nobody waits any more for what is read."""


class Feed:
    """Appends records to a tier, and counts them; bad ones, by stage, and filtered ones are left out."""

    def __init__(
        self,
        tier: HotTier,
        definition: LiveTable,
        registry: SchemaRegistry | None = None,
        unreadable: Unreadable | None = None,
    ) -> None:
        self.records = 0
        self.bad: Counter[str] = Counter()
        self.filtered = 0
        self.tier = tier
        # Behind the last chunk of each partition that had a record of the table; at first, what the tier has
        # may have some anywhere.
        self._own_end = {(topic, p): offset for topic, p, offset in tier.end.items()}
        self.table = definition.name
        self._unreadable = unreadable
        self._asked = None if registry is None else AskedSchemas(registry)
        self._decoder = decoder_for(definition, self._asked)

    def take(
        self,
        chunks: Sequence[RecordChunk],
        positions: Seam,
        reached_end_at: Mapping[tuple[str, int], float],
    ) -> None:
        """Appends the good records of the chunks and the positions behind them, all at once."""
        read = TopicRecords.of_each(chunks)
        decoded = [self._decode(records) for records in read]
        for records, part in zip(read, decoded, strict=True):
            self._note_own(records, part)  # before it can be seen at the tier's end
        self.tier.append(list(zip(read, decoded, strict=True)), positions, reached_end_at)
        self.records += sum(len(records.offsets) for records in read)
        self.filtered += sum(len(part.filtered) for part in decoded)
        self.bad.update(bad.stage.value for part in decoded for bad in part.bad)

    def reached(self, seam: Seam) -> Seam:
        """A seam, further on where nothing that was read behind it is the table's.

        Ingest has read that, too, and commits later that it did.
        """
        end = self.tier.end
        return Seam(
            {
                (topic, p): offset
                if self._own_end.get((topic, p), offset) > offset
                else max(offset, end.get((topic, p)))
                for topic, p, offset in seam.items()
            }
        )

    def _note_own(self, records: TopicRecords, decoded: Decoded) -> None:
        first = 0
        for chunk in records.chunks:
            end = first + len(chunk.offsets)
            others = bisect_left(decoded.filtered, end) - bisect_left(decoded.filtered, first)
            if others < end - first:
                self._own_end[chunk.topic, chunk.partition] = chunk.offsets[-1] + 1
            first = end

    def _decode(self, records: TopicRecords) -> Decoded:
        decoded = self._decoder.decode(records.keys, records.values, records.headers_of, records.topic)
        lacks_schema = self._asked is not None and self._asked.lacked_any()
        if self._unreadable is not None and decoded.bad:
            self._unreadable.note(records, decoded.bad, lacks_schema)
        return decoded


def fill_until(
    feed: Feed,
    client_config: Mapping[str, Any],
    start: Seam,
    ends: Seam,
    hot_bytes_max: int,
    is_abandoned: IsAbandoned = lambda: False,
) -> frozenset[tuple[str, int]]:
    """Reads [start, ends) into a private tier and seals it; ``ends`` were asked of the log just now.

    The tier ends at ``start``, and has every partition of ``ends``. A pin that was held before is satisfied
    by the seal. Gives the partitions with gaps: not each of their offsets came as a record.

    Raises:
        Abandoned: ``is_abandoned``, asked again and again, said so.
        HotBytesExceeded: it is more than may be held.
        NotReady: the disk is nearly full.
        OffsetsGone: the log no longer reaches back to the start.
        RangeIncomplete: an end was not reached.
        RegistryUnreachable: a schema is needed that can't be asked for.
    """
    clock = SystemClock()
    asked_at = clock.monotonic()
    tier, table = feed.tier, feed.table
    ranges = [OffsetRange(topic, p, start.get((topic, p)), end) for topic, p, end in ends.items()]
    missing = {(part.topic, part.partition): part.end - part.first for part in ranges}
    for chunk in read_ranges(client_config, ranges, table, clock):
        if is_abandoned():
            raise Abandoned
        missing[chunk.topic, chunk.partition] -= len(chunk.offsets)
        feed.take([chunk], Seam({(chunk.topic, chunk.partition): chunk.offsets[-1] + 1}), {})
        if tier.hot_bytes >= hot_bytes_max:
            raise HotBytesExceeded(table=table, limit_bytes=hot_bytes_max)
        if not tier.has_disk_for(DISK_FREE_BYTES_MIN):  # sooner than tailers on the same disk pause
            free = f"{2 * DISK_FREE_BYTES_MIN >> 20} MB"
            raise NotReady(table=table, detail=f"the disk of {tier.folder} has less than {free} free")
    tier.append([], ends, {(topic, p): asked_at for topic, p, _ in ends.items()})
    tier.seal()
    return frozenset(place for place, count in missing.items() if count)
