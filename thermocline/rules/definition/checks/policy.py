"""Checks of what is done with bad records, and with those that change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from thermocline.rules.contract.modes import Mode

if TYPE_CHECKING:
    from thermocline.rules.definition.table import LiveTable

__all__ = ["problems"]


def problems(table: LiveTable) -> Iterator[str]:
    """What is wrong with the options of `PolicyOptions`, a sentence for each problem."""
    if table.suppress_unchanged and not table.has_key:
        yield "suppress_unchanged needs a key: without one, no row replaces another"
    yield from table.contract.problems(table.format, table.value_schema is not None)
    is_kept = table.on_error.contract == "quarantine"
    if table.contract.uses(Mode.QUARANTINE, table.format) and not is_kept:
        yield (
            'a contract with "quarantine" needs on_error = "quarantine" for the stage contract, not '
            f'"{table.on_error.contract}"'
        )
