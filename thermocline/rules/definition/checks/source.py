"""Checks of where a table's records come from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from thermocline.rules.topic_patterns import TOPIC_NAME

if TYPE_CHECKING:
    from thermocline.rules.definition.table import LiveTable

__all__ = ["problems"]


def problems(table: LiveTable) -> Iterator[str]:
    """What is wrong with the options of `SourceOptions`, a sentence for each problem."""
    has_any = table.topics or table.topic_patterns
    if not has_any or len(set(table.topics)) < len(table.topics):
        yield "topics must name at least one topic, and each once"
    yield from (f'"{name}" is not a topic name' for name in table.topics if not TOPIC_NAME.fullmatch(name))
