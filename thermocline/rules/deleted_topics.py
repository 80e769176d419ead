"""Checks that a table has all of a topic that was deleted, by what was last known of the topic."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from thermocline.errors import TopicDeleted
from thermocline.process.clock import iso_time
from thermocline.rules.seam import Seam

if TYPE_CHECKING:
    from thermocline.rules.identity import Fed

__all__ = ["Known", "check_drained"]


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a table's topics, beside what the table has.

    ``ends`` are where partitions were last seen to end, by whoever asks. ``least`` are offsets that are known
    to have been there, and say nothing of what came after them. ``held`` are topics of which open
    transactions held records back when the table last had all that the log had.
    """

    ends: Seam = field(default_factory=Seam)
    least: Seam = field(default_factory=Seam)
    held: Collection[str] = ()


def check_drained(
    table: str, gone: Sequence[str], at: Fed, known: Known, now_ms: int, drained_ms_max: float
) -> None:
    """Makes sure that the table has all of topics that were deleted.

    Where nobody has seen the ends of a topic, the time counts at which the table last held all that the log
    held: what was written after that is not known. It may be so long ago as ``drained_ms_max``.

    Raises:
        TopicDeleted: with each partition of which the table lacks records, or may.
    """
    is_recent = abs(now_ms - at.drained_ms) <= drained_ms_max  # safety: deleted-drained-recently
    unread = tuple(place for topic in gone for place in _unread(topic, at.seam, known, is_recent))
    if unread:
        raise TopicDeleted(table=table, unread=unread, drained_at=iso_time(at.drained_ms))


def _unread(topic: str, seam: Seam, known: Known, is_recent: bool) -> Iterator[str]:
    ends = known.ends.merged_max(known.least)
    lacking = [
        f"{topic}/{partition}@{seam.get((topic, partition))}-{end}"
        for of, partition, end in ends.items()
        if of == topic and seam.get((topic, partition)) < end  # safety: deleted-drained
    ]
    is_drained = is_recent and topic not in known.held  # safety: deleted-held-back-before
    if lacking:
        yield from lacking
    elif topic not in known.ends.topics and not is_drained:  # safety: deleted-least-is-not-all
        places = [f"{topic}/{partition}@{read}-?" for of, partition, read in seam.items() if of == topic]
        yield from places or [f"{topic}/0@0-?"]  # of which the table has read nothing
