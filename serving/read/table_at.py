"""A live table at one read point, which all reads of many rows are written on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from thermocline.rules.read_point import ReadPoint
from thermocline.serving.read.changes import Changes
from thermocline.serving.read.extract import Extract
from thermocline.serving.read.selection import Selection

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable
    from thermocline.serving.hot.pinned import PinnedHot
    from thermocline.serving.read.look import ColdSide
    from thermocline.serving.read.wanted import Wanted

__all__ = ["ReadableTable", "TableAt"]


class ReadableTable(Protocol):
    """A table at a read point. It can be scanned several times, also at once, and gives the same rows."""

    @property
    def definition(self) -> LiveTable:
        """The definition of the snapshot's rows."""
        ...

    @property
    def read_point(self) -> ReadPoint:
        """What all scans reflect."""
        ...

    def scan(self, wanted: Wanted) -> Extract:
        """The rows that a caller wants, as Arrow batches, whole or bucket by bucket. To be closed.

        Raises:
            BadParameter: as `Selection.of`.
            NotPermitted: the caller may not have them.
        """
        ...


@dataclass(frozen=True, slots=True)
class TableAt:
    """A snapshot and a pinned hot tier laid over it; see `ReadableTable`.

    ``age_seconds`` is how old it was when it was pinned. Scans spill below ``spill_folder``, which need not
    exist.
    """

    cold: ColdSide
    hot: PinnedHot
    age_seconds: float
    spill_folder: Path

    @property
    def definition(self) -> LiveTable:
        """See `ReadableTable`."""
        return self.cold.index.definition

    @property
    def read_point(self) -> ReadPoint:
        """See `ReadableTable`."""
        index = self.cold.index
        return ReadPoint(index.snapshot_id, index.seam, self.hot.end.merged_max(index.seam))

    def scan(self, wanted: Wanted, on_close: Callable[[], None] = lambda: None) -> Extract:
        """See `ReadableTable`; closing it also lets go of the hot tier, and calls ``on_close``.

        Raises also `NotReady` where the hot tier can't be laid over the snapshot.
        """
        selection = Selection.of(self.definition, wanted)
        parts = (self.cold, self.hot, selection, self.age_seconds, self.spill_folder, on_close)
        return Extract(*parts) if wanted.since is None else Changes(*parts, since=wanted.since.seam)
