"""The topics of a hot tier: those that came and left while it is read, and those that count for a snapshot.

A topic has a number in the tier, which stands in the stored key of each of its records. It keeps the number
as long as a generation may hold such a record, also after it left the table. Whoever reads the tier for a
snapshot counts the topics of its definition alone: none that came later, and none that left before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from thermocline.serving.hot.record import NO_TOPIC

if TYPE_CHECKING:
    from thermocline.serving.hot.generation import Covered

__all__ = ["counting_topics", "numbered", "of_topics"]


def numbered(numbers: Sequence[str], held: Collection[str], wanted: Iterable[str]) -> tuple[str, ...]:
    """The topics by their numbers once the wanted ones have one, too.

    Those that are held keep theirs. Another number is given away again.
    """
    # safety: topic-number-kept
    kept = [topic if topic in held else NO_TOPIC for topic in numbers]
    free = [number for number, topic in enumerate(kept) if not topic]
    known = set(kept)
    for topic in (one for one in wanted if one not in known):
        if free:
            kept[free.pop(0)] = topic
        else:
            kept.append(topic)
    return tuple(kept)


def counting_topics(numbers: Sequence[str], topics: Sequence[str] | None) -> tuple[str, ...]:
    """The same with `NO_TOPIC` for each that is none of these; None: all count."""
    if topics is None:
        return tuple(numbers)
    counting = frozenset(topics)
    return tuple(topic if topic in counting else NO_TOPIC for topic in numbers)


def of_topics(covered: tuple[Covered, ...], topics: Sequence[str] | None) -> tuple[Covered, ...]:
    """What of it is of these topics; None: all."""
    if topics is None:
        return covered
    counting = frozenset(topics)
    return tuple(part for part in covered if part.topic in counting)
