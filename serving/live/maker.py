"""Makes the snapshots of one table as of now, each over the one before; calls of one moment share one."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from thermocline.errors import NotReady, StorageFailed, first_line
from thermocline.iceberg.snapshot_writer import SnapshotWriter
from thermocline.serving.live.metadata import live_metadata, table_metadata
from thermocline.serving.live.overlay import Overlay
from thermocline.serving.store import measures

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from thermocline.process.clock import Clock
    from thermocline.rules.read_point import ReadPoint
    from thermocline.serving.cold.index import ColdIndex
    from thermocline.serving.live.kept_files import KeptFiles
    from thermocline.serving.read.look import HeldView
    from thermocline.serving.read.tables import ServedTable

__all__ = ["Made", "SnapshotMaker"]

_ID_BITS: Final = 62
"""Of a snapshot's random number, which is positive as Iceberg's own are."""


@dataclass(frozen=True, slots=True)
class Made:
    """A snapshot of a table as of now; ``with_all`` and ``with_refs`` are its metadata as JSON.

    ``begun_at`` is of the monotonic clock: it holds all that had been read by then.
    """

    snapshot_id: int
    read_point: ReadPoint
    with_all: bytes
    with_refs: bytes
    paths: tuple[str, ...]
    begun_at: float


@dataclass(frozen=True, slots=True)
class _Below:
    """The table's own snapshot, and what writes others over it."""

    index: ColdIndex
    metadata: Mapping[str, Any]
    snapshot: Snapshot
    writer: SnapshotWriter
    table: Table


class SnapshotMaker:
    """The snapshots of one table. For any threads; one at a time makes, the others wait for what it makes."""

    def __init__(
        self,
        served: ServedTable,
        open_table: Callable[[], Table],
        files: Callable[[Table], KeptFiles],
        clock: Clock,
        min_interval_seconds: float,
    ) -> None:
        """``open_table`` asks the catalog, ``files`` makes what keeps the files of a table.

        A call gets a snapshot that is not older than ``min_interval_seconds``.
        """
        self.name = served.name
        self._served = served
        self._open_table = open_table
        self._files_of = files
        self._files: KeptFiles | None = None
        self._clock = clock
        self._min_interval_seconds = min_interval_seconds
        self._making = threading.Lock()
        self._refreshing = threading.Lock()
        self._below: _Below | None = None
        self._overlay: Overlay | None = None
        self._made: Made | None = None

    def current(self) -> Made:
        """The table as of now, or of `min_interval_seconds` ago at most. Its files are kept from now on.

        Raises:
            NotReady: as a lookup; or the snapshot below is not in the catalog's table any more.
            StorageFailed: the store, or a disk, fails.
            CatalogUnreachable, TableMissing: the table can't be loaded.
        """
        asked_at = self._clock.monotonic()
        with self._making:
            made = self._made
            # safety: live-shared
            if made is None or made.begun_at < asked_at - self._min_interval_seconds:
                made = self._made = self._make()
            assert self._files is not None
            try:
                self._files.name(made.paths, made.read_point.snapshot_id)
            except OSError as error:
                raise self._failed(error) from error
            return made

    def refresh(self) -> None:
        """Move to the newest snapshot of the table. Reads files."""
        with self._refreshing:
            self._served.refresh()

    def close(self) -> None:
        """Let go of the table."""
        self._served.close()

    def tend(self) -> None:
        """Remove the files that nobody needs any more. Asks the store; raises `OSError`.

        Where the last snapshot's own files go, since nobody asked for so long, the next is made from nothing.
        """
        with self._making:
            files = self._files
            if files is None:
                return
            old = files.take_old()
            # safety: live-begun-again
            if self._made is not None and not set(old).isdisjoint(self._made.paths):
                self._below = self._overlay = self._made = None
        files.remove(old)

    def _make(self) -> Made:
        begun_at = self._clock.monotonic()
        held = self._hold()
        try:
            return self._made_of(held, begun_at)
        except OSError as error:
            raise self._failed(error) from error
        finally:
            held.view.__exit__(None, None, None)

    def _failed(self, error: OSError) -> StorageFailed:
        # What a catalog granted of the store may have ended: the next call asks for the table again.
        self._below = self._overlay = None
        return StorageFailed(table=self.name, detail=first_line(error))

    def _hold(self) -> HeldView:
        try:
            return self._served.reader.hold()
        except NotReady:
            self.refresh()  # other processes of the server may have seen already what this one has not
            return self._served.reader.hold()

    def _made_of(self, held: HeldView, begun_at: float) -> Made:
        below, overlay = self._below, self._overlay
        if below is None or below.index is not held.index:
            below, overlay = self._begun(held.index), Overlay.of(held.index)
        assert overlay is not None
        assert self._files is not None
        last = self._made
        if last is not None and last.read_point == held.read_point and below is self._below:
            return replace(last, begun_at=begun_at)
        folder = self._files.folder
        overlay, written = overlay.advanced(held.view, below.table.io, folder)
        self._files.count(written)
        over = overlay.laid_over()
        snapshot = None
        if over.added or over.deletes:
            snapshot = below.writer.write(folder, secrets.randbits(_ID_BITS) + 1, over)
            self._files.count(snapshot.paths)
            measures.LIVE_SNAPSHOTS.labels(self.name).inc()
        now_ms = self._clock.now_ms()
        metadata = live_metadata(below.metadata, below.snapshot, overlay, snapshot, held.read_point, now_ms)
        location = f"{folder}/{metadata.snapshot_id}.metadata.json"
        self._below, self._overlay = below, overlay
        return Made(
            snapshot_id=metadata.snapshot_id,
            read_point=held.read_point,
            with_all=_answer(location, metadata.with_all),
            with_refs=_answer(location, metadata.with_refs),
            paths=(*overlay.paths(), *(snapshot.paths if snapshot is not None else ())),
            begun_at=begun_at,
        )

    def _begun(self, index: ColdIndex) -> _Below:
        """What is needed of a snapshot that is laid over from now on."""
        table = self._open_table()
        snapshot = table.snapshot_by_id(index.snapshot_id)
        if snapshot is None or str(table.metadata.table_uuid) != index.table_uuid:
            raise NotReady(table=self.name, detail="its newest snapshot is being read again")
        if self._files is None or not self._files.go_on_in(table):
            self._files = self._files_of(table)
        writer = SnapshotWriter(table.io, table.metadata, snapshot, self.name)
        metadata = table_metadata(table.io, table.metadata_location)
        return _Below(index, metadata, snapshot, writer, table)


def _answer(location: str, metadata: Mapping[str, object]) -> bytes:
    """The answer to whoever loads the table. Nothing reads the file at the location, and there is none."""
    return json.dumps({"metadata-location": location, "metadata": metadata, "config": {}}).encode()
