"""How much of each partition an answer of a view must include, and how much it may."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from embedded.demo.view_door import Seen, View
from embedded.oracle import Acknowledged

Place = tuple[str, int]
"""A topic's partition."""


@dataclass(slots=True)
class _Partition:
    """Its records in their order: the offset of each, its time, and how many rows there are after it.

    A time is the latest so far: the broker's clock may have been set back.
    """

    offsets: list[int] = field(default_factory=list)
    times_ms: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    keys: set[bytes] = field(default_factory=set)

    def add(self, record: Acknowledged) -> None:
        if record.value is None:
            self.keys.discard(record.key)
        else:
            self.keys.add(record.key)
        self.offsets.append(record.offset)
        self.times_ms.append(max(record.timestamp_ms, self.times_ms[-1] if self.times_ms else 0))
        self.counts.append(len(self.keys))

    def cut(self, count: int) -> int:
        """The next offset after so many records."""
        return self.offsets[count - 1] + 1 if count else 0


class Cuts:
    """All that was acknowledged, by the time at which the broker had it.

    A view reads each partition up to one offset, its cut. It lies beyond all that was acknowledged when the
    view was asked, save what the full view's margin leaves out, and before what came after the answer.
    """

    def __init__(self, records: Iterable[Acknowledged], margin_ms: int) -> None:
        """Takes the records partition by partition, in the order of the offsets."""
        self._partitions: dict[Place, _Partition] = {}
        self._margin_ms = margin_ms
        for record in records:
            self._partitions.setdefault((record.topic, record.partition), _Partition()).add(record)

    @property
    def places(self) -> Sequence[Place]:
        """The partitions that have records."""
        return tuple(self._partitions)

    @property
    def newest_ms(self) -> int:
        """When the broker had the last record."""
        return max((partition.times_ms[-1] for partition in self._partitions.values()), default=0)

    def least(self, place: Place, seen: Seen) -> int:
        """The least cut that the answer may have."""
        partition = self._partitions[place]
        count = bisect_left(partition.offsets, seen.acknowledged.get(place))
        if seen.view is View.LIVE:
            count = min(count, bisect_left(partition.times_ms, seen.asked_ms - self._margin_ms))
        return partition.cut(count)

    def most(self, place: Place, seen: Seen) -> int:
        """The greatest cut that the answer may have."""
        partition = self._partitions[place]
        return partition.cut(bisect_right(partition.times_ms, seen.answered_ms))

    def row_counts(self, seen: Seen) -> tuple[int, int]:
        """The fewest and the most rows that the view may have had."""
        spans = [
            self._row_counts(place, self.least(place, seen), self.most(place, seen)) for place in self.places
        ]
        return sum(fewest for fewest, _ in spans), sum(most for _, most in spans)

    def _row_counts(self, place: Place, least: int, most: int) -> tuple[int, int]:
        partition = self._partitions[place]
        first, last = (bisect_left(partition.offsets, cut) for cut in (least, most))
        # Before its first record it has none.
        counts = [partition.counts[count - 1] if count else 0 for count in range(first, max(first, last) + 1)]
        return min(counts), max(counts)
