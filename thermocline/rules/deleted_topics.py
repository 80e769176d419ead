"""Checks that a table has all of a topic that was deleted, by what was last known of the topic."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from thermocline.errors import TopicDeleted
from thermocline.process.clock import iso_time

if TYPE_CHECKING:
    from thermocline.rules.identity import Fed
    from thermocline.rules.seam import Seam

__all__ = ["check_drained"]


def check_drained(
    table: str,
    gone: Sequence[str],
    at: Fed,
    ends: Seam,
    held: Collection[str],
    now_ms: int,
    drained_ms_max: float,
) -> None:
    """Makes sure that the table has all of topics that were deleted.

    Where nobody has seen the ends of a topic, the time counts at which the table last held all that the log
    held: what was written after that is not known.

    Args:
        ends: where partitions of these topics were last seen to end.
        held: topics of which open transactions held records back at that time.
        drained_ms_max: how long ago, at most, that time may be.

    Raises:
        TopicDeleted: with each partition of which the table lacks records, or may.
    """
    is_recent = abs(now_ms - at.drained_ms) <= drained_ms_max  # safety: deleted-drained-recently
    unread = tuple(
        place
        for topic in gone
        # safety: deleted-held-back-before
        for place in _unread(topic, at.seam, ends, is_recent and topic not in held)
    )
    if unread:
        raise TopicDeleted(table=table, unread=unread, drained_at=iso_time(at.drained_ms))


def _unread(topic: str, seam: Seam, ends: Seam, is_drained: bool) -> Iterator[str]:
    known = [(partition, end) for of, partition, end in ends.items() if of == topic]
    for partition, end in known:
        read = seam.get((topic, partition))
        if read < end:  # safety: deleted-drained
            yield f"{topic}/{partition}@{read}-{end}"
    if not known and not is_drained:
        yield from (f"{topic}/{partition}@{read}-?" for of, partition, read in seam.items() if of == topic)
