"""The tables of one API worker: each with its reader, what its tailer says, and the worker's lease.

All of it is below ``<state_dir>/<table>``, as ``layout`` has it.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from thermocline.errors import (
    ForeignSchema,
    ForeignSnapshot,
    NotReady,
    ReadPointGone,
    TableMissing,
    TableRestricted,
    ThermoclineError,
    UnknownTable,
)
from thermocline.iceberg.catalog import open_table
from thermocline.iceberg.leases import SnapshotLease
from thermocline.iceberg.read_counts import ReadCounts, write_counts
from thermocline.process import metrics
from thermocline.process.clock import SystemClock
from thermocline.process.logs import fields
from thermocline.serving.cold.folder import ColdFolder
from thermocline.serving.cold.row_store import RowStore
from thermocline.serving.hot.file_version import file_version
from thermocline.serving.hot.leases import ReaderLease
from thermocline.serving.hot.pinned import hold
from thermocline.serving.hot.view import HotReader
from thermocline.serving.read.answer import age_or_none
from thermocline.serving.read.caller import Caller
from thermocline.serving.read.extract import Extract
from thermocline.serving.read.lookup import TableReader
from thermocline.serving.read.private import changes
from thermocline.serving.read.table_at import TableAt
from thermocline.serving.store import measures
from thermocline.serving.store.layout import COLD, HOT, ROWS, SPILL, TAILER_STATUS
from thermocline.serving.store.storage import storage_named
from thermocline.serving.tail.feed import Abandoned, IsAbandoned

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from thermocline.process.clock import Clock
    from thermocline.rules.definition import LiveTable
    from thermocline.rules.seam import Seam
    from thermocline.serving.cold.index import ColdIndex, Snapshots
    from thermocline.serving.read.wanted import Wanted
    from thermocline.settings import Settings

# That a snapshot is replaced and its hot records go just then happens hardly once; twice is another fault.
PIN_ATTEMPTS: Final = 3
# A seal takes a second at most while the tailer runs; a little more where it is busy.
SEAL_WAIT_SECONDS: Final = 5.0
_FOUND: Final = (None, ForeignSchema.code, ForeignSnapshot.code)
"""What a look at the catalog met where it found the table."""
_GONE: Final = "it can't be told any more"
STANDING: Final = (
    "ingest_lag_seconds",
    "tailer_lag_seconds",
    "lag_time_from",
    "headroom_seconds",
    "headroom_limit",
    "retention_seconds",
)
"""What ``/status`` has of a table beside its tailer, as the tailer said it."""
COUNTED_MS: Final = 600_000
"""So long a worker counts lookups and extracts before it leaves the counts beside the table."""

OpenChanges = Callable[["Wanted", IsAbandoned], Extract]
LeaveCounts = Callable[[str, ReadCounts, int], bool]
"""Takes the table's location, the counts, and until when they were made, in milliseconds since 1970.

Does not wait for it, since catalog and store may not answer; False where it can't begin now.
"""

log = logging.getLogger(__name__)


class CountsThread:
    """Leaves counts beside the tables of a process, one table's at a time. Nobody waits for it."""

    def __init__(self) -> None:
        self._busy = threading.Lock()

    def begin(self, table: str, leave: Callable[[], None]) -> bool:
        """Begins; False where what was begun before is not over. A failure is logged."""
        if not self._busy.acquire(blocking=False):
            return False

        def run() -> None:
            try:
                leave()
            except Exception as error:  # noqa: BLE001  # as where only reading is allowed
                log.debug("reads could not be counted", extra=fields(table=table, detail=str(error)))
            finally:
                self._busy.release()

        try:
            threading.Thread(target=run, name="counts", daemon=True).start()
        except RuntimeError:  # the system allows no more threads
            self._busy.release()
            return False
        return True


class ServedTable:
    """One table."""

    def __init__(
        self,
        definition: LiveTable,
        folder: Path,
        snapshots: Snapshots,
        clock: Clock,
        stale_after_seconds: float,
        leave_counts: LeaveCounts = lambda *_: True,
        open_io: Callable[[], FileIO] | None = None,
        open_changes: OpenChanges | None = None,
    ) -> None:
        """``definition`` is the one in force when the server started; ``snapshots`` is where they appear.

        ``leave_counts`` takes what was asked for lately to where maintenance finds it. Long extracts leave a
        lease by ``open_io``; none without it. ``open_changes`` reads what changed since a read point.
        """
        self.name = definition.name
        self._definition = definition
        self._folder = folder
        self._clock = clock
        self._leave_counts = leave_counts
        self._open_io = open_io
        self._open_changes = open_changes
        self._tailer_said: tuple[object, dict[str, Any]] = None, {}
        self._lease: ReaderLease | None = None
        self._leased: ColdIndex | None = None  # the snapshot that the lease names
        self._is_missing = False  # in the catalog
        self._is_gone = False
        self._is_restricted = False
        self._reader = TableReader(
            self.name,
            snapshots,
            lambda: HotReader.open(folder / HOT, definition),
            clock,
            stale_after_seconds,
            is_filled=lambda: bool(self.tailer().get("caught_up_to_start_ends")),
            tailer_problem=self._tailer_problem,
        )

    @property
    def folder(self) -> Path:
        """Where its tailer leaves what it knows."""
        return self._folder

    @property
    def definition(self) -> LiveTable:
        """The definition that answers are given by now; it may be altered while the server runs."""
        try:
            return self._reader.cold.index.definition
        except NotReady:
            return self._definition

    def stored_definition(self) -> LiveTable:
        """The same, of a table that carries one. Raises `NotReady` where none could be read yet."""
        try:
            return self._reader.cold.index.definition
        except NotReady:
            if self.catalog_problem() is not None:
                raise
            return self._definition

    def catalog_problem(self) -> str | None:
        """Why the table can't be read from the catalog and has not been; None where it can or was."""
        problem = self.tailer().get("catalog_problem")
        if not problem or (problem["code"] != TableMissing.code and self.location is not None):
            return None
        return f"[{problem['code']}] {problem['what']}"

    def check_ready(self) -> None:
        """Raises `NotReady` unless a lookup would be answered now, also where the table was dropped."""
        try:
            self.reader.check_ready()
        except TableMissing as error:
            raise NotReady(table=self.name, detail=error.what) from error

    @property
    def location(self) -> str | None:
        """The table's, by the snapshot that is served; None before the first one."""
        try:
            return self._reader.cold.index.location
        except NotReady:
            return None

    @property
    def reader(self) -> TableReader:
        """What answers lookups. Raises as ``check_exists``."""
        self.check_exists()
        return self._reader

    def check_exists(self) -> None:
        """Raises `TableMissing` when the table was dropped while the server runs.

        What is held of it would go on answering as long as its files are there, and never say that it is old.
        Raises `TableRestricted` when the catalog does not let us read all of it any more.
        """
        if self._is_restricted:  # safety: restricted-refused
            identifier, detail = self._definition.identifier, "it has read restrictions by now"
            raise TableRestricted(table=self.name, identifier=identifier, detail=detail)
        if self._is_gone:  # safety: dropped-refused
            raise TableMissing(table=self.name, identifier=self._definition.identifier)

    def refresh(self) -> None:
        """Moves to the newest snapshot, and then tells the tailer which one is served. Reads files."""
        said = self.tailer()
        problem = (said.get("catalog_problem") or {}).get("code")
        # Else nobody knows: the tailer has just started, the catalog is down, or whatever else went wrong.
        if problem == TableMissing.code:
            self._is_missing = True
        elif problem == TableRestricted.code:
            self._is_restricted = True
        elif "catalog_problem" in said and problem in _FOUND:  # safety: dropped-until-seen
            self._is_missing = self._is_restricted = False
        with suppress(NotReady):  # told to whoever asks
            self._switch()
        # One that was created again under the name is another table, so what is held must be of that first.
        # safety: recreated-refused
        self._is_gone = self._is_missing or (self._is_gone and self._reader.is_behind())
        with suppress(NotReady):
            self._count(self._reader.cold.index.location)

    def extract(self, wanted: Wanted, floor: Seam, is_abandoned: IsAbandoned = lambda: False) -> Extract:
        """Begins an extract of the newest snapshot and all that is hot now; waits for a seal.

        ``floor`` is what ``reader.end()`` said, which refuses as a lookup does: an extract reaches at least
        as far as a lookup of that moment.

        Raises:
            Abandoned: ``is_abandoned`` said so before it began.
            BadParameter: as `Selection.of`.
            ReadPointGone: what changed since the wanted read point can't be told (any more).
            NotReady: there is no snapshot yet, or no seal came in time, or the hot tier is being read again
                and is still behind the floor.
            StorageFailed: a disk fails or is full.
        """
        if wanted.since is not None:
            return self._changes(wanted, floor, is_abandoned)
        for attempt in range(PIN_ATTEMPTS):
            if is_abandoned():
                raise Abandoned
            try:
                with storage_named(self.name):
                    return self._extract(wanted, floor)
            except NotReady as error:
                if attempt + 1 == PIN_ATTEMPTS:
                    raise self._reader.not_ready(error.detail) from error
        raise AssertionError("unreachable")

    def tailer(self) -> Mapping[str, Any]:
        """What the tailer last said of itself; empty before it first did, or where that can't be read."""
        path = self._folder / TAILER_STATUS
        try:
            version = file_version(path)
            known, status = self._tailer_said
            if version is None or version != known:
                status = msgspec.json.decode(path.read_bytes())
                self._tailer_said = version, status
        except (OSError, msgspec.DecodeError):
            return {}
        return status

    def _tailer_problem(self) -> str:
        """What keeps the tailer from reading on, or how much is still to be read; or nothing."""
        status = self.tailer()
        for problem in (status.get("problem"), status.get("catalog_problem")):
            if problem:
                return f"[{problem['code']}] {problem['what']}"
        if status.get("paused"):
            return "the tailer pauses: serving.hot_bytes_max is used up, or the disk is nearly full"
        left = status.get("offsets_to_ready", 0)
        return f"{left:,} offsets are still to be read" if left else ""

    def status(self) -> dict[str, Any]:
        """The table's part of ``/status``."""
        said = self.tailer()
        status: dict[str, Any] = {"ready": True, "tailer": said, "worker_pid": os.getpid()}
        status |= {name: said.get(name) for name in STANDING}
        try:
            look = self.reader.look(())
        except ThermoclineError as error:
            return {**status, "ready": False, "problem": error.what}
        index = look.cold.index
        return {
            **status,
            "read_point": look.read_point.to_dict(),
            "age_seconds": age_or_none(look.age_seconds),
            "stale": look.is_stale,
            "snapshot": {
                "snapshot_id": str(index.snapshot_id),
                "timestamp_ms": index.timestamp_ms,
                "watermark_ms": index.watermark_ms,
                "files": sum(map(len, index.buckets.values())),
                "rows": index.rows,
                "definition_version": index.definition.version,
            },
        }

    def measure(self) -> None:
        """Sets the table's gauges to what is so now."""
        tailer = self.tailer()
        measures.HOT_RECORDS.labels(self.name).set(tailer.get("hot_records", 0))
        measures.HOT_GENERATIONS.labels(self.name).set(tailer.get("generations", 0))
        measures.PAUSED.labels(self.name).set(bool(tailer.get("paused")))
        measures.HOT_BYTES_MAX.labels(self.name).set(tailer.get("hot_bytes_max", 0))
        measures.CATALOG_PROBLEM.labels(self.name).set(bool(tailer.get("catalog_problem")))
        metrics.HOT_BYTES.labels(self.name).set(tailer.get("hot_bytes", 0))
        measures.measure_standing(self.name, tailer)
        for stage, count in tailer.get("bad", {}).items():
            metrics.BAD_RECORDS.labels(self.name, stage).set(count)
        try:
            look = self.reader.look(())
        except ThermoclineError:
            metrics.AGE_SECONDS.labels(self.name).set(math.inf)
            measures.STALE.labels(self.name).set(1)
            return
        metrics.AGE_SECONDS.labels(self.name).set(look.age_seconds)
        measures.STALE.labels(self.name).set(look.is_stale)
        metrics.SEAM_OFFSET.set(self.name, look.read_point.seam)
        metrics.END_OFFSET.set(self.name, look.read_point.end)

    def close(self) -> None:
        """Lets go of the lease and of the files."""
        self._reader.close()
        if self._lease is not None:
            self._lease.release()

    def _extract(self, wanted: Wanted, floor: Seam) -> Extract:
        cold = self.reader.cold
        index = cold.index
        self._reader.counts.extracts += 1
        topics = index.definition.topics
        pin = hold(self._folder / HOT, self.name, index.snapshot_id, index.seam, self._clock, topics)
        hot = pin.open(SEAL_WAIT_SECONDS)
        with ExitStack() as on_error:
            on_error.callback(hot.close)
            age_seconds = hot.age_seconds(self._clock.monotonic())
            release = self._leased_while_read(index)
            on_error.callback(release)
            # Checked against this snapshot: the next may have more columns.
            extract = TableAt(cold, hot, age_seconds, self._folder / SPILL).scan(wanted, release)
            # The floor may be of the snapshot before, which had topics that left.
            if not extract.read_point.end.at_least(floor.only(topics)):
                detail = "the hot tier is being read again and is still behind earlier answers"
                raise NotReady(table=self.name, detail=detail)
            on_error.pop_all()
        return extract

    def _changes(self, wanted: Wanted, floor: Seam, is_abandoned: IsAbandoned) -> Extract:
        """Read from table and log, since the hot tier doesn't reach back to an earlier seam."""
        assert self._open_changes is not None
        self.check_exists()
        self._reader.counts.extracts += 1
        try:
            extract = self._open_changes(wanted, is_abandoned)
        except ReadPointGone:
            if wanted.caller.sees_all(self.name):
                raise
            # Its words may be about records of others.
            # safety: changes-gone-said
            raise ReadPointGone(table=self.name, detail=_GONE, which="since") from None
        end = extract.read_point.end
        if not end.at_least(floor.only(end.topics)):  # the floor may have topics that left since
            extract.close()
            raise NotReady(table=self.name, detail="the log ends before earlier answers did")
        return extract

    def _leased_while_read(self, index: ColdIndex) -> Callable[[], None]:
        """A lease of the snapshot, for when its files are read for long; what releases it."""
        if self._open_io is None:
            return lambda: None
        purpose = f"extract of {self.name}"
        lease = SnapshotLease.begin(self._open_io, index.location, index.snapshot_id, purpose, self._clock)
        return lease.release

    def _count(self, location: str) -> None:
        now_ms, counts = self._clock.now_ms(), self._reader.counts
        if now_ms - counts.since_ms < COUNTED_MS:
            return
        if self._leave_counts(location, counts, now_ms):  # else it counts on
            self._reader.counts = ReadCounts(now_ms)

    def _switch(self) -> None:
        self._reader.refresh()  # safety: lease-written-again
        index = self._reader.cold.index
        if index is self._leased:
            return
        if self._lease is None:
            self._lease = ReaderLease.of_reader(self._folder / HOT, index.snapshot_id, index.seam)
        else:
            self._lease.serve(index.snapshot_id, index.seam)
        self._leased = index  # once it is written: a lease that could not be is tried again


class Tables:
    """The tables by name, in the order of the configuration."""

    def __init__(
        self, tables: Sequence[ServedTable], stores: Sequence[RowStore] = (), since: str = ""
    ) -> None:
        """``stores`` are closed with them. ``since`` says from when on these are the tables."""
        self._tables = {table.name: table for table in tables}
        self._stores = stores
        self._since = since

    def __iter__(self) -> Iterator[ServedTable]:
        return iter(self._tables.values())

    def __getitem__(self, name: str) -> ServedTable:
        """Raises `UnknownTable`."""
        table = self._tables.get(name)
        if table is None:
            raise UnknownTable(table=name, known=tuple(self._tables), since=self._since)
        return table

    def known_to(self, caller: Caller) -> Iterator[ServedTable]:
        """Those with which a caller may do anything."""
        return (table for table in self if caller.knows(table.name))

    def read_by(self, caller: Caller, name: str) -> ServedTable:
        """A table with which a caller may do anything. Raises `UnknownTable`, also where they may not."""
        if not caller.knows(name) or name not in self._tables:  # safety: caller-unknown-table
            known = tuple(table.name for table in self.known_to(caller))
            of_client = not caller.is_operator
            raise UnknownTable(table=name, known=known, since=self._since, of_client=of_client)
        return self._tables[name]

    def close(self) -> None:
        """Lets go of all of them."""
        for table in self:
            table.close()
        for store in self._stores:
            store.close()


def open_tables(settings: Settings, definitions: Mapping[str, LiveTable], since: str = "") -> Tables:
    """The configured tables, as an API worker serves them; ``since`` as `Tables` has it."""
    clock, counts_thread = SystemClock(), CountsThread()

    def open_io(name: str) -> Callable[[], FileIO]:
        # Through the catalog, since some hand out credentials with the table.
        return lambda: open_table(settings, name).io

    def leave_counts(name: str) -> LeaveCounts:
        process = f"{socket.gethostname()}-{os.getpid()}"

        def leave(location: str, counts: ReadCounts, now_ms: int) -> bool:
            return counts_thread.begin(
                name, lambda: write_counts(open_io(name)(), location, process, counts, now_ms)
            )

        return leave

    folder, bytes_max = settings.serving.state_dir, settings.serving.rows_bytes_max
    stores = {name: RowStore(folder / name / ROWS, name, bytes_max) for name in definitions}
    return Tables(
        [
            ServedTable(
                definition,
                settings.serving.state_dir / name,
                ColdFolder(settings.serving.state_dir / name / COLD, name, open_io(name), stores[name]),
                clock,
                settings.serving.stale_after_seconds,
                leave_counts(name),
                open_io(name),
                partial(changes, settings, name),
            )
            for name, definition in definitions.items()
        ],
        tuple(stores.values()),
        since,
    )
