"""Topics that a table's patterns find: which of them came, and which were deleted, by what a cluster says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from thermocline.rules.topic_patterns import added_to, found_by_pattern

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable

__all__ = ["Rotated", "Topics", "only_there", "rotated", "without"]


class Topics(Protocol):
    """What knows a cluster's topics (`thermocline.kafka.log.Log`)."""

    def names(self) -> frozenset[str]:
        """All that the user may describe."""
        ...

    def missing(self, topics: Sequence[str]) -> tuple[str, ...]:
        """Those of these that don't exist, by what the cluster says of each."""
        ...


@dataclass(frozen=True, slots=True)
class Rotated:
    """The topics that came, and those that were deleted, each in the order of names or of the definition."""

    came: tuple[str, ...]
    gone: tuple[str, ...]


def rotated(definition: LiveTable, log: Topics) -> Rotated:
    """What the cluster has now against what the definition names. Nothing where it has no pattern.

    Raises `TopicForbidden` where a topic is not listed, and the user may not ask whether it exists.
    """
    if not definition.topic_patterns:
        return Rotated((), ())
    listed = log.names()
    unlisted = [topic for topic in found_by_pattern(definition) if topic not in listed]
    return Rotated(added_to(definition, listed), log.missing(unlisted))


def only_there(definition: LiveTable, log: Topics) -> LiveTable:
    """The definition without the topics that its patterns found and that were deleted, for questions."""
    return without(definition, rotated(definition, log).gone)


def without(definition: LiveTable, gone: Sequence[str]) -> LiveTable:
    """The definition without these topics."""
    if not gone:
        return definition
    return replace(definition, topics=tuple(topic for topic in definition.topics if topic not in gone))
