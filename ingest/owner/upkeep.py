"""Upkeep of a table between its owner's batches, as the owner knows it; ``maintenance`` has the real one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from thermocline.ingest.owner.owner import Owner

__all__ = ["NoUpkeep", "Upkeep"]


class Upkeep(Protocol):
    """What keeps the table in shape between the batches of its owner (``maintenance.upkeep``)."""

    def held(self) -> frozenset[str]:
        """Data files that no batch may take out of the table."""
        ...

    @property
    def slowdown(self) -> float:
        """By how much commits should be farther apart than configured."""
        ...

    def turn(self, owner: Owner) -> None:
        """Do what is due, within a second: it is called about once a second, and after each batch.

        Raises what `Owner.land` raises.
        """
        ...

    def close(self) -> None:
        """There will be no more turns."""
        ...


class NoUpkeep:
    """Does nothing."""

    slowdown = 1.0

    def held(self) -> frozenset[str]:
        """No file."""
        return frozenset()

    def turn(self, owner: Owner) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""
