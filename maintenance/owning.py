"""The owner's side of upkeep, as a protocol."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from thermocline.iceberg.catalog import load_table
from thermocline.ingest.quarantine import open_quarantine

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.ingest.commit.change import TableChange
    from thermocline.ingest.commit.commit import Outcome
    from thermocline.ingest.engine.engine import Engine
    from thermocline.ingest.owner.position import Position
    from thermocline.rules.definition import LiveTable

__all__ = ["Owning", "loader_of", "quarantine_loader_of"]


class Owning(Protocol):
    """The table's owner, between two of its commits (`ingest.owner.owner.Owner`)."""

    @property
    def definition(self) -> LiveTable:
        """Of the table."""
        ...

    @property
    def table(self) -> Table:
        """As it was when it was loaded last."""
        ...

    @property
    def engine(self) -> Engine:
        """What rewrites run on."""
        ...

    @property
    def position(self) -> Position:
        """The newest snapshot, and its files."""
        ...

    def land(self, change: TableChange) -> Outcome:
        """Commit."""
        ...


def loader_of(owner: Owning) -> Callable[[], Table]:
    """Loads the table again, also in a thread of its own."""
    definition = owner.definition
    return partial(load_table, owner.table.catalog, definition.name, definition.identifier)


def quarantine_loader_of(owner: Owning) -> Callable[[], Table]:
    """Loads the table's companion again, also in a thread of its own."""
    definition = owner.definition
    return partial(open_quarantine, owner.table.catalog, definition.name, definition.identifier)
