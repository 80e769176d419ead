"""Makes the snapshots of one table as of now, each over the one before; calls of one moment share one."""

from __future__ import annotations

import json
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

from thermocline.errors import NotReady, ReadPointGone, StorageFailed, first_line
from thermocline.iceberg.files import deleted_on_error, read_file
from thermocline.iceberg.live_files import live_folder
from thermocline.iceberg.snapshot_writer import SnapshotWriter, write_files
from thermocline.rules.read_point import includes
from thermocline.serving.live.metadata import LOAD, LOAD_UNTIL, live_metadata, table_metadata
from thermocline.serving.live.overlay import NewRecords, Overlay
from thermocline.serving.live.turns import Turns
from thermocline.serving.store import measures

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from thermocline.process.clock import Clock
    from thermocline.rules.read_point import ReadPoint
    from thermocline.serving.cold.index import ColdIndex
    from thermocline.serving.live.kept_files import KeptFiles
    from thermocline.serving.live.passed_on import PassedOn
    from thermocline.serving.read.look import HeldView
    from thermocline.serving.read.tables import ServedTable

__all__ = ["Intervals", "Loaded", "Made", "SnapshotMaker"]

_ID_BITS: Final = 62
"""Of a snapshot's random number, which is positive as Iceberg's own are."""
_TOKEN_BYTES: Final = 8
_LOAD: Final = re.compile(r"([a-z0-9]{1,64})-([0-9a-f]{16})", re.ASCII)
_LOOKS_MAX: Final = 10
"""The snapshot below is replaced while one looks at it once in a while; ten times is another fault."""
_HOUR_SECONDS: Final = 3_600.0


class Loaded(NamedTuple):
    """What whoever loads a table is told, as JSON; of another answer the ``tag`` is another one."""

    tag: str
    answer: bytes


@dataclass(frozen=True, slots=True)
class Made:
    """A snapshot of a table as of now; ``begun_at``, of the monotonic clock: it holds all read until then.

    It was made at ``made_at``, and is as of now for longer where nothing came. ``load`` is the name by which
    it can be loaded again. ``metadata`` is JSON, and is at ``location``, too. ``paths`` are its files, the
    metadata's included; ``written`` says how many of them are new.
    """

    load: str
    location: str
    metadata: bytes
    snapshot_id: int
    read_point: ReadPoint
    paths: tuple[str, ...]
    written: int
    begun_at: float
    made_at: float


@dataclass(frozen=True, slots=True)
class Intervals:
    """How old a snapshot may be that a call gets: ``min_seconds``, and longer where it writes much.

    ``files_per_hour_max``: the files that may be written for a table; None without a bound.
    """

    min_seconds: float = 0.0
    files_per_hour_max: int | None = None

    def seconds_after(self, made: Made) -> float:
        """For how long a snapshot is given again."""
        if self.files_per_hour_max is None:
            return self.min_seconds
        # safety: live-files-per-hour
        return max(self.min_seconds, made.written * _HOUR_SECONDS / self.files_per_hour_max)


@dataclass(frozen=True, slots=True)
class _Below:
    """The table's own snapshot, and what makes others over it."""

    index: ColdIndex
    metadata: Mapping[str, Any]
    snapshot: Snapshot
    writer: SnapshotWriter
    table: Table


@dataclass(frozen=True, slots=True)
class _Seen:
    """What one view of the hot tier holds beyond the last overlay, and the snapshot below."""

    below: _Below
    overlay: Overlay
    new: NewRecords
    read_point: ReadPoint


class SnapshotMaker:
    """The snapshots of one table. For any threads; one at a time makes, the others wait for what it makes."""

    def __init__(
        self,
        served: ServedTable,
        open_table: Callable[[], Table],
        files: Callable[[Table], KeptFiles],
        clock: Clock,
        intervals: Intervals,
        stale_after_seconds: float,
        load_seconds_max: float,
        passed_on: PassedOn | None = None,
    ) -> None:
        """``open_table`` asks the catalog, ``files`` makes what keeps the files of a table.

        Nothing is made of hot rows that are behind the log by more than ``stale_after_seconds``. Nobody waits
        for what another thread makes for longer than ``load_seconds_max``. Without ``passed_on``, whoever
        loads the table has to have access to its files.
        """
        self.name = served.name
        self._served = served
        self._open_table = open_table
        self._files_of = files
        self._files: KeptFiles | None = None
        self._former: list[KeptFiles] = []  # of where the table was before
        self._clock = clock
        self._intervals = intervals
        self._stale_after_seconds = stale_after_seconds
        self._passed_on = passed_on
        self._turns = Turns(served.name, clock, load_seconds_max)
        self._refreshing = threading.Lock()
        self._below: _Below | None = None
        self._overlay: Overlay | None = None
        self._made: Made | None = None

    def load(self, wanted: Mapping[tuple[str, int], int]) -> Loaded:
        """What the load of `current` is told. Raises as it does."""
        made = self.current(wanted)
        return self._loaded(made.load, made.location, made.metadata)

    def current(self, wanted: Mapping[tuple[str, int], int] = {}) -> Made:  # never changed
        """The table as of now, or a little before: see `Intervals`. Its files are kept from now on.

        It includes the records ``wanted``, by (topic, partition) the last offset.

        Raises:
            NotReady: as a lookup; the hot rows are stale, or do not reach the records wanted; or the snapshot
                below is not in the catalog's table any more.
            StorageFailed: the store, or a disk, fails.
            LoadTimeout: another thread makes a snapshot, and takes too long.
            CatalogUnreachable, TableMissing: the table can't be loaded.
        """
        asked_at = self._clock.monotonic()
        with self._turns.turn(asked_at):
            made = self._made
            if (
                made is None
                or not self._is_young(made, asked_at)
                or not includes(made.read_point.end, wanted)
            ):
                made = self._made = self._make()
            assert self._files is not None
            try:
                self._files.name(made.paths, made.read_point.snapshot_id)
            except OSError as error:
                raise self._failed(error) from error
        if not includes(made.read_point.end, wanted):  # safety: live-reads-after
            raise NotReady(table=self.name, detail="it does not reach the records asked for yet")
        return made

    def again(self, load: str) -> Loaded:
        """What an earlier load was told, of this server or another one.

        Half of the time for which its files stay, it can be loaded so, and is read until they go.

        Raises:
            ReadPointGone: there is none of that name, or it was made too long ago.
            StorageFailed: the store fails.
            CatalogUnreachable, TableMissing: the table can't be loaded.
        """
        match = _LOAD.fullmatch(load)
        if match is None:
            raise self._gone(load)
        below = self._below
        table = below.table if below is not None else self._open_table()
        location = _metadata_location(live_folder(table.location(), match[1]), match[2])
        try:
            content = read_file(table.io, location)
        except FileNotFoundError as error:
            raise self._gone(load) from error
        except OSError as error:
            raise self._failed(error) from error
        until_ms = int(json.loads(content)["properties"][LOAD_UNTIL])
        if self._clock.now_ms() > until_ms:  # safety: live-load-until
            raise self._gone(load)
        return self._loaded(load, location, content)

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
        for files in [*self._former, *([] if self._files is None else [self._files])]:
            files.look()
            with self._turns.between():
                old = files.take_old()
                # safety: live-begun-again
                if self._made is not None and not set(old).isdisjoint(self._made.paths):
                    self._below = self._overlay = self._made = None
                self._former = [one for one in self._former if one.has_any]
            files.remove(old)

    def _is_young(self, made: Made, asked_at: float) -> bool:
        # safety: live-shared
        return made.begun_at >= asked_at - self._intervals.seconds_after(made)

    def _make(self) -> Made:
        begun_at = self._clock.monotonic()
        try:
            seen = self._seen()
            last = self._made
            if last is not None and last.read_point == seen.read_point and self._is_nameable(last, begun_at):
                return replace(last, written=0, begun_at=begun_at)
            return self._made_of(seen, begun_at)
        except OSError as error:
            raise self._failed(error) from error

    def _is_nameable(self, made: Made, now: float) -> bool:
        """Whether it can still be loaded by its name for a while."""
        assert self._files is not None
        return now - made.made_at < self._files.files_seconds / 4  # safety: live-name-lasts

    def _failed(self, error: OSError) -> StorageFailed:
        # What a catalog granted of the store may have ended: the next call asks for the table again.
        self._below = self._overlay = None
        if self._files is not None:
            self._files.look_again()  # what was written until then may not have been deleted
        return StorageFailed(table=self.name, detail=first_line(error))

    def _loaded(self, load: str, location: str, metadata: bytes) -> Loaded:
        properties = self._passed_on.properties() if self._passed_on is not None else {}
        config = json.dumps(properties).encode()
        # safety: live-tag-of-grant
        tag = f"{load}-{crc32(config):08x}"
        named = json.dumps({"metadata-location": location}).encode()
        return Loaded(tag, named[:-1] + b', "metadata": ' + metadata + b', "config": ' + config + b"}")

    def _gone(self, load: str) -> ReadPointGone:
        return ReadPointGone(table=self.name, detail=f'there is no load "{load}", or its files go soon')

    def _seen(self) -> _Seen:
        """What is there now. The hot tier is held only while it is read."""
        for _ in range(_LOOKS_MAX):
            with self._held() as held:
                index, below, overlay = held.index, self._below, self._overlay
                if below is not None and overlay is not None and below.index is index:
                    return _Seen(below, overlay, overlay.new_records(held.view), held.read_point)
            below = self._begun(index)
            self._below, self._overlay = below, Overlay.of(index, below.table.format_version)
        raise NotReady(table=self.name, detail="its snapshots are replaced faster than they are read")

    @contextmanager
    def _held(self) -> Iterator[HeldView]:
        try:
            held = self._served.reader.hold()
        except NotReady:
            self.refresh()  # other processes of the server may have seen already what this one has not
            held = self._served.reader.hold()
        try:
            if held.age_seconds > self._stale_after_seconds:  # safety: live-not-stale
                detail = f"its hot rows are {held.age_seconds:.1f} s behind the log"
                raise NotReady(table=self.name, detail=detail)
            yield held
        finally:
            held.view.__exit__(None, None, None)

    def _made_of(self, seen: _Seen, begun_at: float) -> Made:
        below, files = seen.below, self._files
        assert files is not None
        overlay, written = seen.overlay.advanced(seen.new, below.table.io, files.folder)
        over = overlay.laid_over()
        snapshot = None
        token = secrets.token_hex(_TOKEN_BYTES)
        load = f"{files.server}-{token}"
        # Else each attempt in a store that is nearly full would take the room that there is.
        with deleted_on_error(below.table.io, written):  # safety: live-attempts-leave-nothing
            if over.added or over.deletes:
                snapshot = below.writer.snapshot(files.folder, secrets.randbits(_ID_BITS) + 1, over)
            now_ms = self._clock.now_ms()
            metadata = live_metadata(
                below.metadata, below.snapshot, overlay, snapshot, seen.read_point, now_ms
            )
            # Half of the time is left to queries that begin at the end of the other half.
            until_ms = now_ms + int(1000 * files.files_seconds / 2)
            metadata["properties"] |= {LOAD: load, LOAD_UNTIL: str(until_ms)}
            location, content = _metadata_location(files.folder, token), json.dumps(metadata).encode()
            contents = {**(snapshot.contents if snapshot is not None else {}), location: content}
            write_files(below.table.io, contents)
        files.count([*written, *contents])
        self._overlay = overlay
        measures.LIVE_SNAPSHOTS.labels(self.name).inc()
        bytes_written = sum(written.values()) + sum(map(len, contents.values()))
        measures.LIVE_BYTES_WRITTEN.labels(self.name).inc(bytes_written)
        return Made(
            load=load,
            location=location,
            metadata=content,
            snapshot_id=metadata["current-snapshot-id"],
            read_point=seen.read_point,
            paths=(*overlay.paths(), *contents),
            written=len(written) + len(contents),
            begun_at=begun_at,
            made_at=begun_at,
        )

    def _begun(self, index: ColdIndex) -> _Below:
        """What is needed of a snapshot that is laid over from now on."""
        table = self._open_table()
        snapshot = table.snapshot_by_id(index.snapshot_id)
        if snapshot is None or str(table.metadata.table_uuid) != index.table_uuid:
            raise NotReady(table=self.name, detail="its newest snapshot is being read again")
        if self._files is None or not self._files.go_on_in(table):
            self._former += [] if self._files is None else [self._files]
            self._files = self._files_of(table)
        writer = SnapshotWriter(table.io, table.metadata, snapshot, self.name)
        metadata = table_metadata(table.io, table.metadata_location)
        return _Below(index, metadata, snapshot, writer, table)


def _metadata_location(folder: str, token: str) -> str:
    return f"{folder}/{token}.metadata.json"
