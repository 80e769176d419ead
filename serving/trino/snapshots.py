"""The snapshots that live views may name: the newest, and for a grace those before it.

A view is replaced moments after each commit, and a query that was planned on the old one still reads it. So
hot records are kept, by a lease, from the seam of the oldest snapshot on that is still answered for.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from thermocline.errors import LiveViewRefused
from thermocline.serving.hot.leases import ReaderLease, Terms

if TYPE_CHECKING:
    from thermocline.process.clock import Clock
    from thermocline.rules.definition import LiveTable
    from thermocline.rules.seam import Seam
    from thermocline.serving.cold.index import ColdIndex

__all__ = ["NamedSnapshot", "NamedSnapshots"]

GRACE_SECONDS: Final = 300.0
"""After its replacement: a few commits, the longest that most queries take, and little memory."""
WAIT_SECONDS: Final = 3.0
"""For a snapshot that a view names and that is not known here yet, beyond two looks at the catalog."""
WAIT_SECONDS_MAX: Final = 20.0
"""Less than servers wait for each other's answers."""
LOOK_AGAIN_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class NamedSnapshot:
    """What hot records are laid over, as `serving.hot.compatibility` has it."""

    snapshot_id: int
    seam: Seam
    source: str
    tombstones_from_ms: int
    definition: LiveTable
    definition_json: str

    @classmethod
    def of(cls, index: ColdIndex) -> NamedSnapshot:
        """The snapshot of an index."""
        return cls(
            index.snapshot_id,
            index.seam,
            index.source,
            index.tombstones_from_ms,
            index.definition,
            index.definition_json,
        )


class NamedSnapshots:
    """Those of one table. For any threads; ``add`` for one."""

    def __init__(self, table: str, folder: Path, clock: Clock, look_seconds: float) -> None:
        """``folder`` is the hot tier's; the catalog is asked every ``look_seconds``."""
        self._table = table
        self._folder = folder
        self._clock = clock
        self._wait_seconds = min(WAIT_SECONDS + 2 * look_seconds, WAIT_SECONDS_MAX)
        self._known: dict[int, NamedSnapshot] = {}
        self._replaced_at: dict[int, float] = {}
        self._lease: ReaderLease | None = None
        self._leased: int | None = None
        self._lock = threading.Lock()

    def add(self, newest: NamedSnapshot) -> None:
        """Takes the snapshot that is the newest now, and lets go of those that were replaced long ago."""
        now = self._clock.monotonic()
        with self._lock:
            for snapshot_id in self._known:
                if snapshot_id != newest.snapshot_id:
                    self._replaced_at.setdefault(snapshot_id, now)
            self._replaced_at.pop(newest.snapshot_id, None)
            self._known[newest.snapshot_id] = newest
            for snapshot_id, at in list(self._replaced_at.items()):
                if now - at > GRACE_SECONDS:
                    del self._known[snapshot_id], self._replaced_at[snapshot_id]
            oldest = next(iter(self._known.values()))
        if self._leased != oldest.snapshot_id:
            self._hold(oldest)
            self._leased = oldest.snapshot_id

    def named(self, snapshot_id: int) -> NamedSnapshot:
        """The snapshot that a view names; waits a little for one that is not known yet.

        Raises:
            LiveViewRefused: it was replaced too long ago, or before this server started.
        """
        deadline = self._clock.monotonic() + self._wait_seconds
        while (found := self._known.get(snapshot_id)) is None:
            if self._clock.monotonic() >= deadline:
                detail = (
                    f"snapshot {snapshot_id}, which the view names, is not known to the server: it was "
                    f"replaced more than {GRACE_SECONDS:g} s ago or before the server started, or it is not "
                    "indexed yet"
                )
                raise LiveViewRefused(table=self._table, detail=detail)
            self._clock.sleep(LOOK_AGAIN_SECONDS)
        return found

    def definition(self, version: int) -> LiveTable:
        """The definition of that version; waits a little for one that is not known yet.

        Raises:
            LiveViewRefused: no snapshot of it is known.
        """
        deadline = self._clock.monotonic() + self._wait_seconds
        while True:
            # The newest first: of a table that was dropped and created again, older ones are another table's.
            for one in reversed(list(self._known.values())):
                if one.definition.version == version:
                    return one.definition
            if self._clock.monotonic() >= deadline:
                detail = f"version {version} of its definition is not known to the server"
                raise LiveViewRefused(table=self._table, detail=detail)
            self._clock.sleep(LOOK_AGAIN_SECONDS)

    def newest(self) -> NamedSnapshot | None:
        """The last one that was added."""
        with self._lock:
            current = [one for one in self._known if one not in self._replaced_at]
            return self._known[current[-1]] if current else None

    def close(self) -> None:
        """Ends the lease."""
        if self._lease is not None:
            self._lease.release()

    def _hold(self, oldest: NamedSnapshot) -> None:
        if self._lease is None:
            terms = Terms(os.getpid(), oldest.snapshot_id, oldest.seam.to_json())
            self._lease = ReaderLease(self._folder, terms)
        else:
            self._lease.serve(oldest.snapshot_id, oldest.seam)
