"""Delete, in a thread, the files that no snapshot needs any more, and those that none ever had.

There, the companion table of bad records is tended, too.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Final

from thermocline.iceberg.leases import forget_leases
from thermocline.iceberg.live_files import forget_live_files
from thermocline.iceberg.orphan_note import seen_orphan_bytes
from thermocline.iceberg.read_counts import forget_counts
from thermocline.maintenance.orphans import remove_orphans
from thermocline.maintenance.owning import loader_of, quarantine_loader_of
from thermocline.maintenance.quarantine import tend_quarantine
from thermocline.maintenance.sweep import Swept, sweep

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.maintenance.journal import Journal
    from thermocline.maintenance.owning import Owning
    from thermocline.settings import MaintenanceSettings

__all__ = ["Cleaning"]

SWEEP_SECONDS: Final = 1_800.0
ORPHANS_SECONDS: Final = 21_600.0
"""It lists all files of the table."""
QUARANTINE_SECONDS: Final = 21_600.0
LEFT_KEPT_MS: Final = 86_400_000
"""Counts of servers that are gone, and leases of readers that are."""


class Cleaning:
    """Of one table: a sweep (``sweep``), a search (``orphans``) and its ``quarantine``, each when due."""

    def __init__(
        self,
        settings: MaintenanceSettings,
        journal: Journal,
        thread: Executor,
        orphans_approved: int | None,
    ) -> None:
        self._settings, self._journal, self._thread = settings, journal, thread
        self._orphans_approved = orphans_approved
        self._stop = Event()
        self.sweeping: Future[Swept] | None = None
        self.searching: Future[tuple[int, int]] | None = None
        self.tending: Future[None] | None = None

    def close(self) -> None:
        """What runs ends before its next file."""
        self._stop.set()

    def collect(self) -> None:
        """What is done."""
        if self.sweeping is not None and self.sweeping.done():
            self._swept(self.sweeping)
        if self.searching is not None and self.searching.done():
            self._searched(self.searching)
        if self.tending is not None and self.tending.done():
            self._tended(self.tending)

    def begin(self, owner: Owning, in_use: frozenset[str]) -> None:
        """What is due; files in use stay."""
        load, clock, files_seconds = loader_of(owner), self._journal.clock, self._settings.files_seconds
        if self.sweeping is None and self._journal.is_due("sweep"):
            keep_ms = int(1000 * files_seconds)
            self.sweeping = self._thread.submit(sweep, load, keep_ms, clock, in_use, self._stop)
        if self.searching is None and self._journal.is_due("orphans"):
            self.searching = self._thread.submit(self._search, load)
        if self.tending is None and self._journal.is_due("quarantine"):
            tend = partial(tend_quarantine, orphans_approved=self._orphans_approved, stop=self._stop)
            seconds = (self._settings.snapshots_seconds, files_seconds)
            self.tending = self._thread.submit(tend, quarantine_loader_of(owner), *seconds, clock)

    def _swept(self, sweeping: Future[Swept]) -> None:
        self.sweeping = None
        self._journal.put_off("sweep", SWEEP_SECONDS)
        try:
            swept = sweeping.result()
        except Exception as error:  # noqa: BLE001  whatever it is, it must not end ingest
            self._journal.failed("sweep", error, SWEEP_SECONDS)
            return
        self._journal.note(waiting_bytes=swept.waiting_bytes)
        self._journal.add(swept_files=swept.files, swept_bytes=swept.bytes)
        if swept.refused is not None:
            self._journal.failed("sweep", swept.refused, SWEEP_SECONDS)
        else:
            self._journal.succeeded("sweep")

    def _search(self, load: Callable[[], Table]) -> tuple[int, int]:
        """How many orphans went, and the bytes of those that are left."""
        table, now_ms = load(), self._journal.clock.now_ms()
        forget_counts(table.io, table.location(), now_ms - LEFT_KEPT_MS)
        forget_leases(table.io, table.location(), now_ms - LEFT_KEPT_MS)
        forget_live_files(table.io, table.location(), now_ms, now_ms - LEFT_KEPT_MS)
        deleted = remove_orphans(table, now_ms, self._orphans_approved, self._stop)
        return deleted, seen_orphan_bytes(table)

    def _searched(self, searching: Future[tuple[int, int]]) -> None:
        self.searching = None
        self._journal.put_off("orphans", ORPHANS_SECONDS)
        try:
            deleted, left_bytes = searching.result()
        except Exception as error:  # noqa: BLE001  whatever it is, it must not end ingest
            self._journal.failed("orphans", error, ORPHANS_SECONDS)
            return
        self._journal.succeeded("orphans")
        self._journal.note(orphan_bytes=left_bytes)
        self._journal.add(orphans=deleted)

    def _tended(self, tending: Future[None]) -> None:
        self.tending = None
        self._journal.put_off("quarantine", QUARANTINE_SECONDS)
        try:
            tending.result()
        except Exception as error:  # noqa: BLE001  whatever it is, it must not end ingest
            self._journal.failed("quarantine", error, QUARANTINE_SECONDS)
            return
        self._journal.succeeded("quarantine")
