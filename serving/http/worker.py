"""The state that the endpoints of one API process share: tables at their newest snapshots; threads."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

from thermocline.errors import ReadAfterTimeout, ServerBusy
from thermocline.iceberg.files import local_path
from thermocline.process.clock import SystemClock
from thermocline.rules.read_point import (
    check_partitions,
    check_topics,
    ends_before,
    includes,
    parse_read_after,
)
from thermocline.serving.cold.entity_rows import NO_ROWS
from thermocline.serving.cold.threads import ReadingThreads
from thermocline.serving.hot.disk_room import disk_room
from thermocline.serving.hot.refused import RefusedRecords
from thermocline.serving.http.extract_slots import ExtractSlots
from thermocline.serving.http.guard import OPEN, Guard
from thermocline.serving.http.site.shared import SharedPages
from thermocline.serving.jobs.job import State
from thermocline.serving.jobs.runner import stores
from thermocline.serving.read.explained import explain, looked
from thermocline.serving.read.sight import Sights
from thermocline.serving.status.gather import StatusRoom
from thermocline.serving.store import measures
from thermocline.serving.store.layout import shared_pages
from thermocline.serving.store.storage import storage_named
from thermocline.serving.tail.refreshing import Refreshes, pause_between

if TYPE_CHECKING:
    from pyiceberg.io.pyarrow import PyArrowFileIO

    from thermocline.serving.cold.entity_rows import EntityRows, JsonRows
    from thermocline.serving.cold.reader import Entity
    from thermocline.serving.live.channel import LiveChannel
    from thermocline.serving.read.caller import Caller
    from thermocline.serving.read.explained import Explained
    from thermocline.serving.read.look import Look
    from thermocline.serving.read.lookup import TableReader
    from thermocline.serving.read.tables import ServedTable, Tables
    from thermocline.settings import ServingSettings

T = TypeVar("T")

# A new snapshot or a status of the tailer is noticed within this; each look is one stat call per table.
REFRESH_SECONDS: Final = 0.1
# The tailer commits every 20 ms; looking twice as often costs a waiting request microseconds.
READ_AFTER_POLL_SECONDS: Final = 0.01
# A partition that a topic gains is read within about two seconds. One that isn't by then does not exist.
PARTITION_SECONDS_MAX: Final = 4.0
# Of local files: reads take turns at the interpreter for half of their time, and with four threads a lookup
# takes a tenth more of the processor than with two. With one, each lookup would wait for a batch.
LOCAL_READS_MAX: Final = 2
# Of files in a store: a read waits for its request alone.
STORE_READS_MAX: Final = 4
# Of rows that are looked through on the event loop: half a millisecond.
ROWS_BYTES_AT_ONCE: Final = 32_768
# Entities whose rows are waited for, a batch's all at once: a second's work where nothing is in memory. More
# would only wait longer than their callers do.
COLD_WAITING_MAX: Final = 1_000
# Of these, an explained lookup takes as many: where each row is takes four times as long to read as the rows.
EXPLAINED_ENTITIES: Final = 5


@dataclass(slots=True)
class _Place:
    """This machine, or a bucket of a store: one that does not answer holds up no tables in others.

    ``waiting`` counts the entities whose rows are waited for, an explained one as `EXPLAINED_ENTITIES`.
    """

    reads: ReadingThreads
    refreshes: ReadingThreads
    waiting: int = 0


class Worker:
    """One per API process; all methods run on the event loop, and none reads a file there."""

    def __init__(
        self,
        tables: Tables,
        settings: ServingSettings,
        io: PyArrowFileIO,
        live: LiveChannel | None = None,
        guard: Guard = OPEN,
    ) -> None:
        """``io`` reaches the store of extract jobs; ``live`` asks for snapshots as of now."""
        self.tables = tables
        self.live = live
        self.sights = Sights()
        self.pages = SharedPages(shared_pages())
        self.statuses = StatusRoom(settings.stale_after_seconds, SystemClock())
        self.guard = guard
        self._settings = settings
        self.stale_after_seconds = settings.stale_after_seconds
        # One makes a part, another one may still close an extract that is over.
        self.extract_threads = ThreadPoolExecutor(2 * settings.extracts_max, "extract")
        self.extract_slots = ExtractSlots(settings)
        names = [table.name for table in tables]
        self.jobs = stores(settings, names, SystemClock(), io)
        self._read_after_seconds_max = settings.read_after_seconds_max
        self._places: dict[str, _Place] = {}
        self._has_refreshed = asyncio.Event()

    async def refreshed(self, seconds_max: float) -> None:
        """Returns once every table was brought to its newest snapshot, or this has failed, or time is up."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._has_refreshed.wait(), seconds_max)

    async def refresh_forever(self) -> None:
        """Keeps every table at its newest snapshot. A failure is logged and tried again."""
        refreshes = Refreshes()
        waiting = {table.name for table in self.tables}
        pause_seconds = pause_between(REFRESH_SECONDS, len(waiting))

        async def refresh_forever(table: ServedTable) -> None:
            while True:
                with refreshes.of(table.name):
                    await self._place_of(table.location, table.name).refreshes.run(table.refresh)
                waiting.discard(table.name)
                if not waiting:
                    self._has_refreshed.set()
                await asyncio.sleep(pause_seconds)

        await asyncio.gather(*map(refresh_forever, self.tables))

    def close(self) -> None:
        """Ends the threads and lets go of the tables."""
        for place in self._places.values():
            place.reads.close()
            place.refreshes.close()
        self.extract_threads.shutdown(cancel_futures=True)
        self.tables.close()

    def disk_room(self) -> dict[str, object]:
        """As `disk_room` has it; empty where the disk does not answer."""
        with suppress(OSError):
            return disk_room(self._settings, len(list(self.tables)))
        return {}

    def measure_jobs(self) -> None:
        """Sets the gauges of extract jobs to what is so now. Reads files."""
        for name, store in self.jobs.items():
            counts = Counter(job.state for job in store.jobs())
            for state in State:
                measures.EXTRACT_JOBS.labels(name, state).set(counts[state])

    async def looked_up(
        self, caller: Caller, reader: TableReader, entities: Sequence[Entity]
    ) -> tuple[Look, list[JsonRows]]:
        """As ``TableReader.lookup``, without reading files on the event loop; what the caller sees of it.

        Raises `ServerBusy` where files are to be read, and too many wait for that already; `NotPermitted`
        where the caller's grant does not fit the table.
        """
        if caller.sees_all(reader.name):
            return await self._looked_up(reader, entities)
        sight = self.sights.of(caller, reader.cold.index.definition)
        # Nothing of an entity that is not theirs is looked at, so that not even the time tells of it.
        seen = [entity for entity in entities if sight.may_see(entity)]
        look, found = await self._looked_up(reader, seen)
        sight = self.sights.of(caller, look.cold.index.definition)  # it may have just been altered
        distinct = {entity.prefix: one for entity, one in zip(seen, found, strict=True)}
        if sum(map(len, distinct.values())) <= ROWS_BYTES_AT_ONCE:
            rows = {prefix: sight.rows(one) for prefix, one in distinct.items()}
        else:  # others are answered meanwhile
            rows = await asyncio.to_thread(
                lambda: {prefix: sight.rows(one) for prefix, one in distinct.items()}
            )
        return look, [rows.get(entity.prefix, NO_ROWS) for entity in entities]

    def refused(
        self,
        caller: Caller,
        reader: TableReader,
        look: Look,
        wanted: Mapping[tuple[str, int], int],
        results: Sequence[JsonRows],
    ) -> RefusedRecords:
        """As ``TableReader.refused``; none for who sees a part, since it isn't known whose they are."""
        if not caller.sees_all(reader.name):  # safety: sight-refused
            return RefusedRecords()
        return reader.refused(look, wanted, results)

    async def _looked_up(
        self, reader: TableReader, entities: Sequence[Entity]
    ) -> tuple[Look, list[JsonRows]]:
        look = reader.look(entities)
        found = (reader.cached_rows(look.cold, entity) for entity in entities)
        cold = [rows for rows in found if rows is not None]
        if len(cold) < len(entities):

            def read() -> list[EntityRows]:
                with storage_named(reader.name):
                    return [reader.cold_rows(look.cold, entity) for entity in entities]

            cold = await self._read(reader.name, look, len(entities), read)
        reader.count(entities)
        return look, reader.overlay(look, cold)

    async def explained(self, caller: Caller, reader: TableReader, entity: Entity) -> Explained:
        """As ``explain``, without reading files on the event loop. Raises as ``looked_up``."""
        clock = SystemClock()
        sight = self.sights.of(caller, reader.cold.index.definition)
        begun = looked(reader, entity, sight, clock)
        sight = self.sights.of(caller, begun.look.cold.index.definition)  # it may have just been altered
        read = partial(explain, reader, begun, sight, clock)
        weight = EXPLAINED_ENTITIES * len(begun.look.entities)  # safety: explained-weight
        found = await self._read(reader.name, begun.look, weight, read)
        reader.count(begun.look.entities)
        return found

    async def _read(self, table: str, look: Look, weight: int, read: Callable[[], T]) -> T:
        """What comes of reading files for what was looked for, by threads. Raises `ServerBusy`.

        ``weight``: for how many entities it counts while it waits.
        """
        place = self._place_of(look.cold.index.location, table)
        if place.waiting >= COLD_WAITING_MAX:  # safety: lookups-bounded
            raise ServerBusy.of_lookups(table, COLD_WAITING_MAX)
        place.waiting += weight
        try:
            return await place.reads.run(read)
        finally:
            place.waiting -= weight

    def _place_of(self, location: str | None, table: str) -> _Place:
        """Where a table is; one of which that is not known yet is in a place of its own."""
        if location is None:
            return self._place(f"table {table}", 0)
        if unknown := self._places.pop(f"table {table}", None):
            unknown.refreshes.close()
        if local_path(location) is not None:
            return self._place("", LOCAL_READS_MAX)
        return self._place(urlsplit(location).netloc, STORE_READS_MAX)

    def _place(self, name: str, reads_max: int) -> _Place:
        if name not in self._places:
            self._places[name] = _Place(ReadingThreads(reads_max), ReadingThreads(1))
        return self._places[name]

    async def read_after(self, reader: TableReader, text: str | None) -> Mapping[tuple[str, int], int]:
        """Waits, within the bound, until an answer includes the records that a request names; gives these.

        Raises:
            BadParameter: the header is wrong, or names a partition that does not feed the table.
            ReadAfterTimeout: the bound is over.
        """
        if text is None:
            return {}
        wanted, seconds_max = parse_read_after(text), self._read_after_seconds_max
        check_topics(reader.cold.index.definition, wanted)
        clock = asyncio.get_running_loop().time
        began_at = clock()
        while not includes((look := reader.look(())).read_point.end, wanted):
            waited_seconds = clock() - began_at
            # Read to its end since the request came: what is not there now, the log did not hold then.
            is_log_read = look.age_seconds < waited_seconds
            if is_log_read and waited_seconds > min(seconds_max, PARTITION_SECONDS_MAX):
                check_partitions(look.read_point.end, wanted)
            if waited_seconds > seconds_max:
                log_ends = ends_before(look.read_point.end, wanted) if is_log_read else ()
                raise ReadAfterTimeout(
                    table=reader.name, wanted=text, waited_seconds=seconds_max, log_ends=log_ends
                )
            await asyncio.sleep(READ_AFTER_POLL_SECONDS)
        return wanted
