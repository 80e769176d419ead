"""The files of the snapshots as of now: kept for as long as a query may read them, and then removed.

Nobody says when a query ends. So a file stays for ``files_seconds`` after it was last named to anybody, and
so does the table's own snapshot below, by a lease in the table's ``thermocline/leases``. Each server has a
folder of its own in ``thermocline/live``, and its lease says, too, that this folder is in use: of a server
that is gone for good, maintenance removes the folder once the lease has run out.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from thermocline.iceberg.files import beside, delete_files, listed_folder
from thermocline.iceberg.leases import LIVE_PREFIX, READERS, lease_path, write_lease
from thermocline.serving.store import measures

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.iceberg.snapshot_writer import WrittenSnapshot
    from thermocline.process.clock import Clock

__all__ = ["LIVE_FOLDER", "KeptFiles"]

LIVE_FOLDER: Final = "live"
"""Below a table's ``thermocline`` folder."""
RENEWED_AHEAD_SECONDS: Final = 300.0
"""A lease is written for so much longer than it has to last, so that it isn't written for each snapshot."""
REMOVED_AT_ONCE: Final = 1_000
"""So that a step ends soon; the others follow with the next one."""


class KeptFiles:
    """The files of one table's snapshots in this server's folder. For one thread."""

    def __init__(self, table: Table, name: str, server: str, clock: Clock, files_seconds: float) -> None:
        """``name`` is what the configuration calls the table, ``server`` tells this server from others."""
        self._io = table.io
        self._location = table.location()
        self._name = name
        self._clock = clock
        self._files_seconds = files_seconds
        self.folder = beside(self._location, LIVE_FOLDER, server)
        self._lease_path = lease_path(self._location, READERS, f"{LIVE_PREFIX}{server}")
        self._holder = {"reader": f"live catalog of process {os.getpid()} on {socket.gethostname()}"}
        self._leased_until: dict[int, float] = {}  # by the id of the snapshot below, by the monotonic clock
        self._named_at: dict[str, float] = {}
        self._is_listed = False

    def is_of(self, table: Table) -> bool:
        """Whether these are files of that table as it is now."""
        return self._location == table.location()

    def name(self, paths: Iterable[str], below: int) -> None:
        """Keep these files, and the table's own snapshot below them, from now on.

        Raises `OSError` where the lease can't be written.
        """
        now = self._clock.monotonic()
        until = now + self._files_seconds
        if self._leased_until.get(below, 0.0) <= until:  # safety: live-leased-before-named
            self._lease(below, until + RENEWED_AHEAD_SECONDS)
        self._named_at.update(dict.fromkeys(paths, now))

    def count(self, written: Iterable[str], snapshot: WrittenSnapshot | None) -> None:
        """Count what was written for a snapshot."""
        paths = [*written, *(snapshot.paths if snapshot is not None else ())]
        # A file that no snapshot came to name goes, too.
        now = self._clock.monotonic()
        for path in paths:
            self._named_at.setdefault(path, now)
        measures.LIVE_FILES_WRITTEN.labels(self._name).inc(len(paths))
        measures.LIVE_SNAPSHOTS.labels(self._name).inc()

    def remove_old(self) -> int:
        """Delete the files that were last named too long ago; how many. Raises `OSError`.

        What an earlier process of this server left is taken for named when this one first looks.
        """
        now = self._clock.monotonic()
        if not self._is_listed:
            for file in listed_folder(self._io, self.folder, is_recursive=True):
                self._named_at.setdefault(file.path, now)  # safety: live-left-behind
            self._is_listed = True
        old = [path for path, at in self._named_at.items() if at + self._files_seconds < now]
        some = old[:REMOVED_AT_ONCE]
        removed = delete_files(self._io, some)  # safety: live-files-age
        for path in some:
            del self._named_at[path]
        measures.LIVE_FILES_REMOVED.labels(self._name).inc(removed)
        return removed

    def _lease(self, below: int, until: float) -> None:
        now, now_ms = self._clock.monotonic(), self._clock.now_ms()
        wanted = {id_: at for id_, at in self._leased_until.items() if at > now} | {below: until}
        snapshots = {str(id_): now_ms + int(1000 * (at - now)) for id_, at in wanted.items()}
        write_lease(self._io, self._lease_path, self._holder, snapshots)
        self._leased_until = wanted
