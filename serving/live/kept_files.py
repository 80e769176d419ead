"""The files of the snapshots as of now: kept for as long as a query may read them, and then removed.

Nobody says when a query ends. So a file stays for ``files_seconds`` after it was last named to anybody, and
so does the table's own snapshot below, by the server's lease (`iceberg.live_files`).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from thermocline.iceberg.files import delete_files, listed_folder
from thermocline.iceberg.leases import read_lease, write_lease
from thermocline.iceberg.live_files import live_folder, live_lease
from thermocline.serving.store import measures

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.process.clock import Clock

__all__ = ["KeptFiles"]

RENEWED_AHEAD_SECONDS: Final = 300.0
"""A lease is written for so much longer than it has to last, so that it isn't written for each snapshot."""
REMOVED_AT_ONCE: Final = 1_000
"""So that a step ends soon; the others follow with the next one."""


class KeptFiles:
    """The files of one table's snapshots in this server's folder.

    For one thread at a time, but for `look` and `remove`, which ask the store.
    """

    def __init__(self, table: Table, name: str, server: str, clock: Clock, files_seconds: float) -> None:
        """``name`` is what the configuration calls the table, ``server`` tells this server from others."""
        self._io = table.io
        self._location = table.location()
        self._name = name
        self._clock = clock
        self.server = server
        self.files_seconds = files_seconds
        self.folder = live_folder(self._location, server)
        self._lease_path = live_lease(self._location, server)
        self._holder = {"reader": f"live catalog of process {os.getpid()} on {socket.gethostname()}"}
        self._leased_until: dict[int, float] = {}  # by the id of the snapshot below, by the monotonic clock
        self._named_at: dict[str, float] = {}
        self._left_behind: Sequence[str] | None = None  # None before it was looked for
        self._look_at = 0.0

    @property
    def has_any(self) -> bool:
        """Whether there are files left to be removed, as far as it is known."""
        return self._left_behind is None or bool(self._named_at)

    def go_on_in(self, table: Table) -> bool:
        """Reach the files as the catalog grants it by now; False where the table is elsewhere."""
        if self._location != table.location():
            return False
        self._io = table.io
        return True

    def name(self, paths: Iterable[str], below: int) -> None:
        """Keep these files, and the table's own snapshot below them, from now on.

        Raises `OSError` where the lease can't be written.
        """
        now = self._clock.monotonic()
        until = now + self.files_seconds
        if self._leased_until.get(below, 0.0) <= until:  # safety: live-leased-before-named
            self._lease(below, until + RENEWED_AHEAD_SECONDS)
        self._named_at.update(dict.fromkeys(paths, now))

    def count(self, written: Collection[str]) -> None:
        """Take up files that were written; where no snapshot comes to name one, it goes, too."""
        now = self._clock.monotonic()
        for path in written:
            self._named_at.setdefault(path, now)
        measures.LIVE_FILES_WRITTEN.labels(self._name).inc(len(written))

    def look(self) -> None:
        """Find what an earlier process of this server left. Raises `OSError`. For any thread.

        Now and then that is what a store did late: a file that it was sent, and asked to delete, long before.
        """
        now = self._clock.monotonic()
        if self._left_behind is None or now >= self._look_at:  # safety: live-found-late
            found = listed_folder(self._io, self.folder, is_recursive=True)
            self._left_behind = [file.path for file in found]
            self._look_at = now + self.files_seconds

    def look_again(self) -> None:
        """Find, with the next look, what is there that is not known. For any thread."""
        self._left_behind = None

    def take_old(self) -> list[str]:
        """The files that were last named too long ago, at most `REMOVED_AT_ONCE`; they are not kept any more.

        What was left behind is taken for named when this is first told of it.
        """
        now = self._clock.monotonic()
        if self._left_behind:
            for path in self._left_behind:
                self._named_at.setdefault(path, now)  # safety: live-left-behind
            self._left_behind = ()
        old = (path for path, at in self._named_at.items() if at + self.files_seconds < now)
        taken = list(islice(old, REMOVED_AT_ONCE))
        for path in taken:
            del self._named_at[path]
        return taken

    def remove(self, paths: Sequence[str]) -> None:
        """Delete files that were taken; those that can't be now, later. For any thread."""
        removed = delete_files(self._io, paths)  # safety: live-files-age
        if removed < len(paths):
            self.look_again()
        measures.LIVE_FILES_REMOVED.labels(self._name).inc(removed)

    def _lease(self, below: int, until: float) -> None:
        now, now_ms = self._clock.monotonic(), self._clock.now_ms()
        before = self._leased_until or self._leased_before(now, now_ms)
        wanted = {id_: at for id_, at in before.items() if at > now} | {below: until}
        snapshots = {str(id_): now_ms + int(1000 * (at - now)) for id_, at in wanted.items()}
        write_lease(self._io, self._lease_path, self._holder, snapshots)
        self._leased_until = wanted

    def _leased_before(self, now: float, now_ms: int) -> dict[int, float]:
        """What an earlier process of this server leased: its queries may go on."""
        try:
            found = read_lease(self._io, self._lease_path)
        except (FileNotFoundError, ValueError):  # a damaged one says nothing
            return {}
        return {int(id_): now + (until_ms - now_ms) / 1000 for id_, until_ms in found.items()}
