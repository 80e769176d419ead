"""Per-partition offsets: the seam of a snapshot, the ends of a log, and how they compare.

A ``Seam`` says for each topic partition the next offset: everything before it is in, that offset and all
after it are not. The same type carries a log's starts and ends and a tailer's positions.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, Protocol

from thermocline.errors import LogReplaced, OffsetsGone

__all__ = ["PLAIN_PARTITIONS_MAX", "Seam", "check_against_log", "packed", "unpacked"]

PLAIN_PARTITIONS_MAX: Final = 64
"""Every snapshot's summary stays in the metadata file, so a long seam is packed."""

Offsets = Mapping[tuple[str, int], int]


class Span(Protocol):
    """What a range of a partition's offsets has, the end excluded (``thermocline.kafka.log.OffsetRange``)."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def first(self) -> int: ...
    @property
    def end(self) -> int: ...


class Seam:
    """The next offset of each (topic, partition). Immutable, hashable, sorted."""

    __slots__ = ("_offsets",)

    def __init__(self, offsets: Offsets | None = None) -> None:
        self._offsets = dict(sorted((offsets or {}).items()))
        for topic, partition, offset in self.items():
            if partition < 0 or offset < 0:
                raise ValueError(f"{topic}/{partition}@{offset} is no place in a log")

    @classmethod
    def of(cls, topics: Mapping[str, Mapping[int, int]]) -> Seam:
        """From topic to {partition: next offset}."""
        return cls({(topic, p): offset for topic, parts in topics.items() for p, offset in parts.items()})

    @classmethod
    def from_dict(cls, topics: Mapping[str, Mapping[str, int]]) -> Seam:
        """From what ``to_dict`` gives: partitions are strings, as JSON's names are.

        Raises:
            ValueError: when it is not of that form.
        """
        if not isinstance(topics, dict) or not all(isinstance(parts, dict) for parts in topics.values()):
            raise ValueError("a seam is a JSON object of topics, each an object of partitions")
        offsets = {
            (topic, _index(p)): offset for topic, parts in topics.items() for p, offset in parts.items()
        }
        if not all(type(offset) is int for offset in offsets.values()):
            raise ValueError("a seam's offsets are integers")
        return cls(offsets)

    @classmethod
    def from_json(cls, text: str) -> Seam:
        """From either form that ``to_json`` writes.

        Raises:
            ValueError: when it is neither.
        """
        return cls.from_dict(json.loads(unpacked(text)))

    def to_json(self) -> str:
        """Plain JSON up to 64 partitions; above, the same deflated and in base64."""
        plain = json.dumps(self.to_dict(), separators=(",", ":"))
        return plain if len(self._offsets) <= PLAIN_PARTITIONS_MAX else packed(plain)

    def to_dict(self) -> dict[str, dict[str, int]]:
        """The form that HTTP and the command line show: ``{"profiles": {"0": 100}}``."""
        topics: dict[str, dict[str, int]] = {}
        for (topic, partition), offset in self._offsets.items():
            topics.setdefault(topic, {})[str(partition)] = offset
        return topics

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics, sorted."""
        return tuple(dict.fromkeys(topic for topic, _ in self._offsets))

    def items(self) -> Iterator[tuple[str, int, int]]:
        """(topic, partition, next offset), sorted."""
        return ((topic, partition, offset) for (topic, partition), offset in self._offsets.items())

    def get(self, place: tuple[str, int], default: int = 0) -> int:
        """The next offset of a (topic, partition); by default 0 where the seam has none."""
        return self._offsets.get(place, default)

    def covers(self, topic: str, partition: int, offset: int) -> bool:
        """Whether that record lies before the seam, so that a snapshot with this seam contains it."""
        return offset < self.get((topic, partition))

    def advanced(self, to: Offsets | Iterable[Span]) -> Seam:
        """This seam with some partitions moved on, to given offsets or over ranges that were read.

        Raises:
            ValueError: when a partition would move back, or a range doesn't begin at the seam.
        """
        ends = to if isinstance(to, Mapping) else self._ends_of(to)
        for place, offset in ends.items():
            if offset < self.get(place):
                raise ValueError(f"the seam of {place[0]}/{place[1]} can't go back to {offset}")
        return Seam({**self._offsets, **ends})

    def at_least(self, other: Seam) -> bool:
        """Whether no partition of the other lies beyond this one."""
        return all(self.get((topic, partition)) >= offset for topic, partition, offset in other.items())

    def merged_max(self, other: Seam) -> Seam:
        """The farther of both, partition by partition."""
        places = self._offsets.keys() | other._offsets.keys()
        return Seam({place: max(self.get(place), other.get(place)) for place in places})

    def without(self, topics: Collection[str]) -> Seam:
        """The part that is of no topic of these."""
        return Seam({place: offset for place, offset in self._offsets.items() if place[0] not in topics})

    def only(self, topics: Collection[str]) -> Seam:
        """The part that is of these topics; the same object where that is all of it."""
        found = {place: offset for place, offset in self._offsets.items() if place[0] in topics}
        return self if len(found) == len(self._offsets) else Seam(found)

    def _ends_of(self, ranges: Iterable[Span]) -> dict[tuple[str, int], int]:
        ends: dict[tuple[str, int], int] = {}
        for span in ranges:
            place = (span.topic, span.partition)
            known = ends.get(place, self._offsets.get(place))
            if known is not None and span.first != known:  # safety: span-order
                raise ValueError(f"a range of {place[0]}/{place[1]} begins at {span.first}, not at {known}")
            ends[place] = span.end
        return ends

    def __getitem__(self, place: tuple[str, int]) -> int:
        return self._offsets[place]

    def __contains__(self, place: object) -> bool:
        return place in self._offsets

    def __len__(self) -> int:
        return len(self._offsets)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Seam) and self._offsets == other._offsets

    def __hash__(self) -> int:
        return hash(tuple(self._offsets.items()))

    def __str__(self) -> str:
        return ", ".join(f"{topic}/{p}@{offset}" for topic, p, offset in self.items()) or "no partition"

    def __repr__(self) -> str:
        return f"Seam({', '.join(f'{topic}/{p}@{offset}' for topic, p, offset in self.items())})"


def packed(text: str) -> str:
    """A JSON object in less room, for a snapshot's summary: deflated, and in base64."""
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def unpacked(text: str) -> str:
    """The JSON object of a text that is one, or that `packed` gave. Raises `ValueError` for any other."""
    if text.startswith("{"):
        return text
    try:
        return zlib.decompress(base64.b64decode(text, validate=True)).decode()
    except zlib.error as error:
        raise ValueError(f"neither a JSON object nor a packed one: {error}") from error


def check_against_log(table: str, seam: Seam, starts: Seam, ends: Seam) -> None:
    """Checks that the log still holds everything from the seam on, and has not become shorter than it.

    A partition that the seam does not know is new: it is read from its first offset, so the log must
    still begin at 0.

    Raises:
        LogReplaced: when a topic lacks partitions of the seam, or the log ends before the seam.
        OffsetsGone: when the log now starts beyond the seam.
        Each with all the partitions that are concerned.
    """
    topics = {*starts.topics, *ends.topics}
    gone = [
        f"{topic}/{partition}@{offset}"
        for topic, partition, offset in seam.items()
        if topic in topics and (topic, partition) not in starts and (topic, partition) not in ends
    ]
    if gone:  # safety: partitions-shrunk
        raise LogReplaced.of_partitions(table, gone)
    gaps = [
        f"{topic}/{partition}@{seam.get((topic, partition))}-{log_start}"
        for topic, partition, log_start in starts.items()
        if seam.get((topic, partition)) < log_start  # safety: starts-check
    ]
    if gaps:
        raise OffsetsGone(table=table, gaps=tuple(gaps))
    cut = [
        f"{topic}/{partition}@{log_end}-{seam.get((topic, partition))}"
        for topic, partition, log_end in ends.items()
        if seam.get((topic, partition)) > log_end  # safety: ends-check
    ]
    if cut:
        raise LogReplaced.of_end(table, cut)


def _index(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f'"{text}" is not a partition')
    return int(text)
