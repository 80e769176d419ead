"""Checks of what is done with bad records, and with those that change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thermocline.rules.definition.table import LiveTable

__all__ = ["problems"]


def problems(table: LiveTable) -> Iterator[str]:
    """What is wrong with the options of `PolicyOptions`, a sentence for each problem."""
    if table.suppress_unchanged and not table.has_key:
        yield "suppress_unchanged needs a key: without one, no row replaces another"
