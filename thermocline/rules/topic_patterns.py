"""Topics by pattern: which entries of ``topics`` are names, and which topics a pattern finds.

An entry that Kafka would take as a topic's name is that topic. Anything else is a regular expression, of
which a topic's whole name must be a match. Topics of Kafka's own, which begin with two underscores, are found
by none.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable

__all__ = [
    "OWN_OF_KAFKA",
    "TOPIC_NAME",
    "added_to",
    "entries_of",
    "finds",
    "found_by_pattern",
    "named_in",
    "problems_of_entries",
    "split_entries",
]

TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")  # Kafka's own rule
OWN_OF_KAFKA: Final = "__"
_OWN_TOPICS: Final = (
    "__consumer_offsets",
    "__transaction_state",
    "__cluster_metadata",
    "__share_group_state",
)


def split_entries(entries: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names and the patterns among the entries, each in their order."""
    names = tuple(entry for entry in entries if TOPIC_NAME.fullmatch(entry))
    return names, tuple(entry for entry in entries if entry not in names)


def problems_of_entries(entries: Sequence[str], others: Iterable[str] = ()) -> Iterator[str]:
    """What is wrong with a file's entries; ``others`` are topics that must feed no table."""
    names, patterns = split_entries(entries)
    if len(set(patterns)) < len(patterns):
        yield "topics must name each pattern once"
    for pattern in patterns:
        problem = _problem_of(pattern)
        if problem:
            yield f'"{pattern}" is neither a topic name nor a regular expression: {problem}'
            continue
        own = [topic for topic in _OWN_TOPICS if _matches(pattern, topic)]
        if own:
            yield f'the pattern "{pattern}" matches {own[0]}, a topic of Kafka\'s own: make it narrower'
        for topic in others:
            if _matches(pattern, topic):  # safety: pattern-own-topics
                yield f'the pattern "{pattern}" matches {topic}, into which Thermocline writes'
        for name in names:
            if _matches(pattern, name):
                yield f'the pattern "{pattern}" matches {name}, which is named, too: leave the name out'


def finds(patterns: Sequence[str], topic: str) -> bool:
    """Whether one of the patterns matches the whole name."""
    return not topic.startswith(OWN_OF_KAFKA) and any(_matches(pattern, topic) for pattern in patterns)


def found_by_pattern(definition: LiveTable) -> tuple[str, ...]:
    """The topics of a table that its patterns find."""
    return tuple(topic for topic in definition.topics if finds(definition.topic_patterns, topic))


def added_to(definition: LiveTable, listed: Collection[str]) -> tuple[str, ...]:
    """The listed topics that the patterns find and that the table doesn't have, in the order of names."""
    has = set(definition.topics)
    return tuple(
        topic for topic in sorted(listed) if topic not in has and finds(definition.topic_patterns, topic)
    )


def named_in(definition: LiveTable) -> tuple[str, ...]:
    """The topics of a table that no pattern finds."""
    found = set(found_by_pattern(definition))
    return tuple(topic for topic in definition.topics if topic not in found)


def entries_of(definition: LiveTable) -> tuple[str, ...]:
    """The entries that a file has for the definition: the names that no pattern finds, then the patterns."""
    return (*named_in(definition), *definition.topic_patterns)


def _problem_of(pattern: str) -> str:
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return str(error)
    return "" if pattern else "it is empty"


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _matches(pattern: str, topic: str) -> bool:
    return _compiled(pattern).fullmatch(topic) is not None
