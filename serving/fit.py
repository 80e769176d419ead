"""Whether hot records can be laid over a snapshot: of its log and definition, from its seam on, and whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from serving.cold.index import ColdIndex
    from thermocline.seam import Seam


class Held(Protocol):
    """What a hot tier holds: where from, where the records come from, and by which definition."""

    @property
    def start(self) -> Seam:
        """The first offset, by partition."""

    @property
    def source(self) -> str:
        """The log, as ``ColdIndex.source`` names it."""

    @property
    def complete_from_ms(self) -> int:
        """From when on (ms) no tombstone is missing."""

    @property
    def definition_json(self) -> str:
        """The definition that the records were decoded by."""


def misfit(index: ColdIndex, hot: Held) -> str | None:
    """Why these hot records can't be laid over this snapshot; None when they can."""
    if hot.definition_json != index.definition_json:
        return (
            "the hot tier holds records of another definition than that of the snapshot, version "
            f"{index.definition.version}; it is being read again"
        )
    if hot.source != index.source:
        return "the hot tier holds records of another log than the snapshot's; it is being read again"
    if hot.complete_from_ms > index.tombstones_from_ms:
        return "the hot tier may lack deletes that compaction dropped; it is being read again"
    if not index.seam.at_least(hot.start):
        return f"the hot tier begins at {hot.start!r}, beyond the snapshot's {index.seam!r}"
    return None
