"""Checks of a definition: a sentence for each problem, in a module for each part of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from thermocline.rules.definition.checks import format as format_
from thermocline.rules.definition.checks import layout, policy, row, source

if TYPE_CHECKING:
    from thermocline.rules.definition.table import LiveTable

__all__ = ["problems_of"]


def problems_of(table: LiveTable, declared: Sequence[str], key_format: str | None) -> Iterator[str]:
    """Every problem, not only the first; ``declared`` columns and ``key_format`` as they are given."""
    yield from layout.problems(table)
    yield from source.problems(table)
    yield from format_.problems(table, key_format)
    yield from row.problems(table, declared)
    yield from policy.problems(table)
