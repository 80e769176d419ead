"""The read point of an answer: the snapshot, its seam, and how far the log was read beyond it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from thermocline.errors import BadParameter, NotReady
from thermocline.rules.seam import Seam
from thermocline.rules.topic_patterns import finds

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable

__all__ = [
    "ReadPoint",
    "check_partitions",
    "check_topics",
    "ends_before",
    "includes",
    "parse_read_after",
]

HEADER: Final = "Thermocline-Read-After"
READ_AFTER: Final = re.compile(r"([A-Za-z0-9._-]{1,249})/(\d{1,10})@(\d{1,19})", re.ASCII)
SNAPSHOT_ID: Final = re.compile(r"-?[0-9]{1,19}")
READ_AFTER_MAX: Final = 1000
"""Records that one request may wait for: far beyond any partition count, far below a costly header."""


@dataclass(frozen=True, slots=True)
class ReadPoint:
    """Exactly what an answer reflects: the snapshot, and each partition's records in [seam, end).

    Two reads of a table at equal read points are equal.
    """

    snapshot_id: int
    seam: Seam
    end: Seam

    @classmethod
    def parse(cls, text: str) -> ReadPoint:
        """From the JSON that an answer, a header or a seal of an extract carries.

        Raises:
            BadParameter: when it is not of that form.
        """
        try:
            fields: dict[str, Any] = json.loads(text)
            snapshot_id, seam, end = (fields[name] for name in ("snapshot_id", "seam", "end"))
            return cls(_snapshot_id(snapshot_id), Seam.from_dict(seam), Seam.from_dict(end))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            problem = 'it is not of the form {"snapshot_id": "...", "seam": {...}, "end": {...}}'
            raise BadParameter(name="read_point", problem=problem) from error

    def to_dict(self) -> dict[str, object]:
        """The form in JSON answers; the snapshot id is a string, since JSON readers round long integers."""
        seam, end = self.seam.to_dict(), self.end.to_dict()
        return {"snapshot_id": str(self.snapshot_id), "seam": seam, "end": end}

    def to_header(self) -> str:
        """The same as one line of compact JSON, for the Thermocline-Read-Point header and ``--at``."""
        return json.dumps(self.to_dict(), separators=(",", ":"))


def parse_read_after(text: str) -> dict[tuple[str, int], int]:
    """From ``topic/partition@offset, ...`` to the highest offset named of each (topic, partition).

    An answer includes those records when its end lies beyond each of the offsets.

    Raises:
        BadParameter: when it is not of that form.
    """
    wanted: dict[tuple[str, int], int] = {}
    parts = text.split(",")
    if len(parts) > READ_AFTER_MAX:
        raise BadParameter(name=HEADER, problem=f"more than {READ_AFTER_MAX} records")
    for part in parts:
        match = READ_AFTER.fullmatch(part.strip())
        if match is None:
            problem = f'"{part.strip()}" is not of the form topic/partition@offset'
            raise BadParameter(name=HEADER, problem=problem)
        place = (match[1], int(match[2]))
        wanted[place] = max(wanted.get(place, 0), int(match[3]))
    return wanted


def includes(end: Seam, wanted: Mapping[tuple[str, int], int]) -> bool:
    """Whether an answer with this end includes all records that ``parse_read_after`` gave."""
    return all(end.get(place) > offset for place, offset in wanted.items())


def ends_before(end: Seam, wanted: Mapping[tuple[str, int], int]) -> tuple[str, ...]:
    """The partitions that an answer with this end does not include enough of: TOPIC/PARTITION@END."""
    return tuple(
        f"{topic}/{partition}@{end.get((topic, partition))}"
        for (topic, partition), offset in wanted.items()
        if end.get((topic, partition)) <= offset
    )


def check_topics(definition: LiveTable, wanted: Mapping[tuple[str, int], int]) -> None:
    """Makes sure that each record wanted is of a topic that feeds the table.

    Raises:
        BadParameter: it is of another.
        NotReady: a pattern of the table finds its topic, which is not part of the table yet, or has left it.
    """
    for topic, _ in wanted:
        if topic not in definition.topics:
            if finds(definition.topic_patterns, topic):
                detail = f"topic {topic} is not part of it yet, or has left it"
                raise NotReady(
                    table=definition.name, detail=f"{detail}; ingest finds new ones in some seconds"
                )
            raise BadParameter(name=HEADER, problem=f"the table is not fed from topic {topic}")


def check_partitions(end: Seam, wanted: Mapping[tuple[str, int], int]) -> None:
    """Makes sure that each record wanted is of a partition that an answer reflects. Raises `BadParameter`."""
    for topic, partition in wanted:
        if (topic, partition) not in end:
            count = sum(of == topic for of, _, _ in end.items())
            problem = f"topic {topic} has no partition {partition}; there are {count}, numbered from 0"
            raise BadParameter(name=HEADER, problem=problem)


def _snapshot_id(text: object) -> int:
    if not isinstance(text, str) or SNAPSHOT_ID.fullmatch(text) is None:
        raise ValueError("a snapshot id is a string of digits")
    return int(text)
