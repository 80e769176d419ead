"""Checks that hot records can be laid over a snapshot: of its log and definition, from its seam on, whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable
    from thermocline.rules.seam import Seam


class Snapshot(Protocol):
    """What hot records are to be laid over (`ColdIndex`, `PublishedSnapshot`)."""

    @property
    def seam(self) -> Seam:
        """The first offset that it does not contain, by partition."""

    @property
    def source(self) -> str:
        """The log that it is fed from."""

    @property
    def tombstones_from_ms(self) -> int:
        """From when on (ms) a missing tombstone may leave a row in it."""

    @property
    def definition(self) -> LiveTable:
        """The definition that goes with it."""

    @property
    def definition_json(self) -> str:
        """The same, as it is compared."""


class HotContent(Protocol):
    """What a hot tier holds (`serving.hot.tier.HotTier`, `serving.hot.view.HotView`)."""

    @property
    def start(self) -> Seam:
        """The first offset, by partition."""

    @property
    def source(self) -> str:
        """The log that the records come from, named as a snapshot names its own."""

    @property
    def complete_from_ms(self) -> int:
        """From when on (ms) no tombstone is missing."""

    @property
    def definition_json(self) -> str:
        """The definition that the records were decoded by."""


def incompatibility(snapshot: Snapshot, hot: HotContent) -> str | None:
    """Why these hot records can't be laid over this snapshot; None when they can."""
    if hot.definition_json != snapshot.definition_json:  # safety: hot-definition
        return (
            "the hot tier holds records of another definition than that of the snapshot, version "
            f"{snapshot.definition.version}; it is being read again"
        )
    if hot.source != snapshot.source:  # safety: hot-source
        return "the hot tier holds records of another log than the snapshot's; it is being read again"
    if hot.complete_from_ms > snapshot.tombstones_from_ms:  # safety: hot-complete
        return "the hot tier may lack deletes that compaction dropped; it is being read again"
    if not snapshot.seam.at_least(hot.start):  # safety: hot-reach
        return f"the hot tier begins at {hot.start}, beyond the snapshot's {snapshot.seam}"
    return None
