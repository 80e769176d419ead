"""Partition times, which decide between records of one key in several partitions.

The *partition time* at a record is the greatest time among the records of its partition up to that one, of
whatever key, bad ones and tombstones included. It counts from where the table began to read the partition on,
and never goes back; so a record that carries an old time counts as late as those before it in its partition.
It follows from the log alone. Each commit says how far the partitions had come, so that whoever reads on from
its seam finds the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np

from thermocline.rules.seam import Seam

__all__ = ["NO_TIME", "PartitionTimes", "RunningTimes"]

NO_TIME: Final = -1
"""Of a record without a time, and of a partition of which nothing was read."""

Place = tuple[str, int]
Times = np.ndarray[Any, np.dtype[np.int64]]


class PartitionTimes:
    """The partition time of each (topic, partition), in milliseconds. Immutable."""

    __slots__ = ("_times",)

    def __init__(self, times: Mapping[Place, int] | None = None) -> None:
        self._times = {place: ms for place, ms in (times or {}).items() if ms > NO_TIME}

    @classmethod
    def from_json(cls, text: str) -> PartitionTimes:
        """From what ``to_json`` writes."""
        return cls({(topic, partition): ms for topic, partition, ms in Seam.from_json(text).items()})

    def to_json(self) -> str:
        """In the form of a seam, times in the place of offsets."""
        return Seam(self._times).to_json()

    def get(self, place: Place) -> int:
        """The time of a (topic, partition); `NO_TIME` where it has none."""
        return self._times.get(place, NO_TIME)

    def advanced(self, to: Mapping[Place, int]) -> PartitionTimes:
        """With some partitions moved on; none goes back."""
        return PartitionTimes(self._times | {place: max(ms, self.get(place)) for place, ms in to.items()})

    def without(self, topics: Collection[str]) -> PartitionTimes:
        """The part that is of no topic of these."""
        return PartitionTimes({place: ms for place, ms in self._times.items() if place[0] not in topics})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartitionTimes) and self._times == other._times

    def __hash__(self) -> int:
        return hash(frozenset(self._times.items()))

    def __repr__(self) -> str:
        return f"PartitionTimes({self._times})"


class RunningTimes:
    """Partition times that go on with what is read: each partition's records in their order."""

    def __init__(self, start: PartitionTimes | None = None) -> None:
        self._times: dict[Place, int] = {}
        self._start = start or PartitionTimes()

    def take(self, place: Place, times_ms: Sequence[int]) -> Times:
        """The partition time at each of a partition's next records, of which these are the own times."""
        before = self.get(place)
        # safety: partition-time-runs
        running: Times = np.maximum.accumulate(np.maximum(np.asarray(times_ms, np.int64), before))
        if len(running):
            self._times[place] = int(running[-1])
        return running

    def get(self, place: Place) -> int:
        """The partition time after all that was taken."""
        return self._times.get(place, self._start.get(place))

    def now(self) -> PartitionTimes:
        """The partition times after all that was taken."""
        return self._start.advanced(self._times)

    def raise_to(self, place: Place, ms: int) -> None:
        """Go on from a time at least, which is known from elsewhere."""
        self._times[place] = max(ms, self.get(place))
