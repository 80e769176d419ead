"""Lookups and extracts without a server: a command is its own tailer.

It fixes a read point, reads the log from that snapshot's seam to those ends into a hot tier of its own, and
answers with the classes of the server. The tier lives in a temporary folder and goes with the command.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import msgspec

from thermocline.errors import NotReady, ReadAfterTimeout, ReadPointGone, TombstonesGone
from thermocline.iceberg.catalog import (
    TOMBSTONES_PROPERTY,
    current_state,
    definition_of,
    open_table,
    state_of,
)
from thermocline.iceberg.foreign_schema import check_schema
from thermocline.iceberg.leases import SnapshotLease
from thermocline.kafka.log import Log
from thermocline.process.clock import SystemClock
from thermocline.process.private_folder import temporary_folder
from thermocline.rules.identity import (
    check_log,
    check_not_compacted,
    check_not_superseded,
    check_source,
    check_tombstones,
    has_rows_to_delete,
)
from thermocline.rules.read_point import (
    check_partitions,
    check_topics,
    ends_before,
    includes,
    parse_read_after,
)
from thermocline.rules.seam import Seam
from thermocline.serving.cold.folder import ColdFolder, publish
from thermocline.serving.cold.manifest import source_of
from thermocline.serving.hot.pinned import hold
from thermocline.serving.hot.tier import HotTier
from thermocline.serving.hot.view import HotReader
from thermocline.serving.read.answer import answer_json, explained_json, refused_json
from thermocline.serving.read.encode import encoded
from thermocline.serving.read.entity import entity_of
from thermocline.serving.read.explained import explain, looked
from thermocline.serving.read.extract import Extract
from thermocline.serving.read.fetched import own_folder
from thermocline.serving.read.lookup import TableReader
from thermocline.serving.read.sight import Sight
from thermocline.serving.read.since import check_log_since, check_readable_since, state_since
from thermocline.serving.read.table_at import TableAt
from thermocline.serving.read.wanted import Wanted
from thermocline.serving.store.layout import COLD, HOT, SPILL
from thermocline.serving.store.storage import storage_named
from thermocline.serving.tail.feed import Feed, IsAbandoned, fill_until
from thermocline.serving.tail.unreadable import Unreadable

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.iceberg.catalog import SnapshotState
    from thermocline.rules.definition import LiveTable
    from thermocline.rules.read_point import ReadPoint
    from thermocline.serving.read.look import Look
    from thermocline.settings import Settings

FOLDER_PREFIX: Final = "thermocline-"
# The seal is made before it is waited for.
SEAL_WAIT_SECONDS: Final = 1.0
# As of now, what compaction drops while the log is read has come again behind the ends: reading on finds it,
# and each time there is less to read. Transactions leave gaps, too, so there this is all that can be done.
READS_MAX: Final = 4  # safety: private-reads-on


def lookup(
    settings: Settings, table: str, parameters: Mapping[str, str], read_after: str | None = None
) -> dict[str, Any]:
    """One entity's or one row's answer as of now, in the form of the server's JSON.

    What was acknowledged before the command began is included.

    Raises:
        RowNotFound: a whole key was given, and there is no such row.
        ReadAfterTimeout: the answer does not include the records that ``read_after`` names.
        ThermoclineError: a parameter is wrong, a source is unavailable, or the log does not fit the table.
    """
    with opened(settings, table) as private:
        return private.lookup(parameters, read_after)


def explained(
    settings: Settings, table: str, parameters: Mapping[str, str], read_after: str | None = None
) -> dict[str, Any]:
    """The same with where each row came from, in the form of the server's JSON. Raises as ``lookup``."""
    with opened(settings, table) as private:
        return private.explained(parameters, read_after)


def refused(settings: Settings, table: str, count_max: int) -> dict[str, Any]:
    """The refused records that are not committed yet, in the form of the server's JSON.

    Raises:
        ThermoclineError: a source is unavailable, or the log does not fit the table.
    """
    with opened(settings, table) as private:
        return private.refused(count_max)


def extract(
    settings: Settings,
    table: str,
    wanted: Wanted | None,
    format_name: str,
    sink: BinaryIO,
    at: ReadPoint | None,
    progress: Callable[[int], None],
    coding: str | None = None,
) -> ReadPoint:
    """Writes what is wanted of a table, None for all, telling the rows so far; where it was read.

    As of now, or as of ``at``; compressed, if a coding is named.

    Raises:
        ReadPointGone: what changed since the read point that is wanted can't be told (any more).
        ReadPointGone: that snapshot, or a record up to those ends, is not there (any more).
        ThermoclineError: what is wanted is wrong, a source is unavailable, or the log does not fit the table.
    """
    wanted = wanted or Wanted()
    with opened(settings, table, at, wanted.since) as private:
        return private.extract(wanted, format_name, sink, progress, coding)


def changes(settings: Settings, table: str, wanted: Wanted, is_abandoned: IsAbandoned) -> Extract:
    """What changed since the wanted read point, as of now. To be closed, with all that it is read from.

    A server's: what it reads of the log is below its state folder, which has room for as much.

    Raises:
        Abandoned: ``is_abandoned`` said so while the log was read.
        ReadPointGone: that can't be told (any more).
        ThermoclineError: what is wanted is wrong, a source is unavailable, or the log does not fit the table.
    """
    with ExitStack() as on_error:
        within = settings.serving.state_dir / table / SPILL
        reading = opened(settings, table, None, wanted.since, within, is_abandoned)
        private = on_error.enter_context(reading)
        on_close = ExitStack()
        extract = private.scan(wanted, on_close.close)
        on_close.push(on_error.pop_all())
        return extract


@dataclass(frozen=True, slots=True)
class Private:
    """A table at a read point that nobody else knows of; all that is read of it is as of there."""

    reader: TableReader
    at: TableAt

    @property
    def definition(self) -> LiveTable:
        """See `ReadableTable`."""
        return self.at.definition

    @property
    def read_point(self) -> ReadPoint:
        """See `ReadableTable`."""
        return self.at.read_point

    def lookup(self, parameters: Mapping[str, str], read_after: str | None = None) -> dict[str, Any]:
        """As the function ``lookup``."""
        entity = entity_of(self.definition, parameters)
        wanted = self._wanted(read_after)
        look, results = self.reader.lookup((entity,))
        self._check_includes(look, wanted, read_after)
        refused = self.reader.refused(look, wanted, results)
        content = answer_json(self.definition.name, look, entity, results[0], refused)
        answer: dict[str, Any] = msgspec.json.decode(content)
        return answer

    def explained(self, parameters: Mapping[str, str], read_after: str | None = None) -> dict[str, Any]:
        """As the function ``explained``."""
        entity = entity_of(self.definition, parameters)
        wanted = self._wanted(read_after)
        clock, sight = SystemClock(), Sight(self.definition)
        begun = looked(self.reader, entity, sight, clock)
        self._check_includes(begun.look, wanted, read_after)
        found = explain(self.reader, begun, sight, clock)
        refused = self.reader.refused(found.look, wanted, [found.live_rows])
        content = explained_json(self.definition.name, found, entity, refused)
        answer: dict[str, Any] = msgspec.json.decode(content)
        return answer

    def _wanted(self, read_after: str | None) -> Mapping[tuple[str, int], int]:
        wanted = parse_read_after(read_after) if read_after else {}
        check_topics(self.definition, wanted)
        return wanted

    def _check_includes(
        self, look: Look, wanted: Mapping[tuple[str, int], int], read_after: str | None
    ) -> None:
        """Raises `ReadAfterTimeout` where the answer does not include the records that it is to."""
        check_partitions(look.read_point.end, wanted)
        if not includes(look.read_point.end, wanted):
            log_ends = ends_before(look.read_point.end, wanted)
            raise ReadAfterTimeout(
                table=self.definition.name, wanted=str(read_after), waited_seconds=0.0, log_ends=log_ends
            )

    def refused(self, count_max: int) -> dict[str, Any]:
        """As the function ``refused``."""
        look = self.reader.look(())
        found = self.reader.refused_since(look.read_point, count_max)
        answer: dict[str, Any] = msgspec.json.decode(refused_json(self.definition.name, look, *found))
        return answer

    def extract(
        self,
        wanted: Wanted,
        format_name: str,
        sink: BinaryIO,
        progress: Callable[[int], None],
        coding: str | None = None,
    ) -> ReadPoint:
        """As the function ``extract``."""
        stream = self.scan(wanted)
        for chunk in encoded(stream, format_name, coding):
            sink.write(chunk)
            progress(stream.rows)
        return stream.read_point

    def scan(self, wanted: Wanted, on_close: Callable[[], None] = lambda: None) -> Extract:
        """See `ReadableTable`. The block closes what it reads from."""
        return self.at.scan(wanted, on_close)


@contextmanager
def opened(
    settings: Settings,
    name: str,
    at: ReadPoint | None = None,
    since: ReadPoint | None = None,
    within: Path | None = None,
    is_abandoned: IsAbandoned = lambda: False,
) -> Iterator[Private]:
    """The table as of now, or as of ``at``, for as long as the block runs.

    Its hot side begins at the snapshot's seam; as of now, it may begin at that of an earlier read point. It
    is in a temporary folder of its own: of the system's, or ``within`` one.

    Raises what ``extract`` raises, and `Abandoned`.
    """
    with ExitStack() as until_the_end:
        with storage_named(name):
            place = _placed(settings, name, at, until_the_end, since)
            ends = place.log_ends if at is None else at.end
            private = _filled(settings, place, ends, until_the_end, within, is_abandoned)
        yield private


@contextmanager
def opened_together(settings: Settings, names: Sequence[str]) -> Iterator[dict[str, Private]]:
    """Several tables as of the same moment, by name: the ends of all are known before any is read.

    Tables of the same topic end at the same offsets. Raises what ``extract`` raises.
    """
    tables: dict[str, Private] = {}
    with ExitStack() as until_the_end:
        places = []
        for name in names:
            with storage_named(name):
                places.append(_placed(settings, name, None, until_the_end))
        latest = reduce(Seam.merged_max, (place.log_ends for place in places), Seam())
        for place in places:
            name = place.definition.name
            with storage_named(name):
                ends = _of_places(latest, place.log_ends)
                tables[name] = _filled(settings, place, ends, until_the_end)
        yield tables


@dataclass(frozen=True, slots=True)
class _Place:
    """A table's snapshot, leased, and the log that goes on from it."""

    table: Table
    definition: LiveTable
    state: SnapshotState
    at: ReadPoint | None
    log: Log
    log_ends: Seam
    since: _Since | None = None

    def nothing_unreadable(self) -> Unreadable:
        """To take up the bad records from the seam on, or from that of the earlier read point."""
        earlier = self.at if self.since is None else self.since.point
        return Unreadable(self.state.seam, Seam() if earlier is None else earlier.end)


@dataclass(frozen=True, slots=True)
class _Since:
    """A read point from which on the log is read, and what its snapshot says of itself."""

    point: ReadPoint
    state: SnapshotState

    def check(self, definition: LiveTable, log: Log) -> None:
        """Raises `ReadPointGone` where the log no longer tells all since."""
        check_log_since(definition, self.state, self.point, log, SystemClock().now_ms())


def _placed(
    settings: Settings,
    name: str,
    at: ReadPoint | None,
    until_the_end: ExitStack,
    since: ReadPoint | None = None,
) -> _Place:
    clock = SystemClock()
    table = open_table(settings, name)
    definition = definition_of(table, name)
    check_schema(table, definition)  # safety: foreign-schema-private
    state = current_state(table, name) if at is None else _state_at(table, definition, at)
    purpose = f"a command that reads {name}"
    lease = SnapshotLease.begin(lambda: table.io, table.location(), state.snapshot_id, purpose, clock)
    until_the_end.callback(lease.release)
    log = Log(settings.kafka)
    earlier = None if since is None else _Since(since, state_since(table, definition, since))
    if earlier is not None:
        earlier.check(definition, log)
    ends = _checked_ends(definition, state, at, log)
    return _Place(table, definition, state, at, log, ends, earlier)


def _filled(
    settings: Settings,
    place: _Place,
    ends: Seam,
    until_the_end: ExitStack,
    within: Path | None = None,
    is_abandoned: IsAbandoned = lambda: False,
) -> Private:
    clock = SystemClock()
    table, definition, state = place.table, place.definition, place.state
    name = definition.name
    since = place.since
    start = _of_places(state.seam if since is None else since.point.seam, ends)
    folder = until_the_end.enter_context(own_folder(within) if within else temporary_folder(FOLDER_PREFIX))
    publish(folder / COLD, table, definition, state)
    times = (state if since is None else since.state).partition_times
    source = source_of(table, state)
    tier = HotTier.open(folder / HOT, definition, start, clock, source=source, partition_times=times)
    until_the_end.callback(tier.close)
    pin = hold(folder / HOT, name, state.snapshot_id, state.seam, clock, definition.topics)
    until_the_end.callback(pin.release)
    unreadable = place.nothing_unreadable()
    feed = Feed(tier, definition, settings.registry.client(), unreadable)
    _fill(feed, place, settings, start, ends, is_abandoned)
    if since is not None:
        since.check(definition, place.log)  # safety: since-after-reading
        check_readable_since(name, state, since.state, unreadable)
    elif place.at is not None and unreadable.without_schema:  # safety: at-readable
        raise ReadPointGone(
            table=name, detail=f"{unreadable.without_schema}, and may have been readable then"
        )
    hot = until_the_end.enter_context(pin.open(SEAL_WAIT_SECONDS))
    reader = TableReader(
        name,
        ColdFolder(folder / COLD, name, lambda: table.io),
        lambda: HotReader.open(folder / HOT, definition),
        clock,
        settings.serving.stale_after_seconds,
        is_filled=lambda: True,
    )
    reader.refresh()
    at = TableAt(reader.cold, hot, hot.age_seconds(clock.monotonic()), folder / SPILL)
    return Private(reader, at)


def _of_places(offsets: Seam, places: Seam) -> Seam:
    """The offsets of the partitions of ``places``, 0 where there is none."""
    return Seam(
        {(topic, partition): offsets.get((topic, partition)) for topic, partition, _ in places.items()}
    )


def _fill(
    feed: Feed,
    place: _Place,
    settings: Settings,
    start: Seam,
    ends: Seam,
    is_abandoned: IsAbandoned,
) -> None:
    """Reads [start, ends); as of now, on to newer ends while compaction may have dropped what was there."""
    definition, state, at, log = place.definition, place.state, place.at, place.log
    for _ in range(READS_MAX):
        gaps = fill_until(
            feed,
            settings.kafka.client_config(),
            start,
            ends,
            settings.serving.hot_bytes_max,
            is_abandoned,
        )
        # Still so: it is the table's log, and no tombstone is missing; nor what a later record replaced.
        log_ends = _checked_ends(definition, state, at, log)  # safety: private-after-reading
        try:
            now_ms = SystemClock().now_ms()
            check_not_superseded(definition, state, ends, log_ends, gaps, log, now_ms)
        except ReadPointGone:
            if at is not None:  # safety: private-superseded
                raise
        else:
            return
        start, ends = ends, _of_places(log_ends, ends)
    if not definition.transactional:
        detail = "compaction drops records of its topics faster than they can be read"
        raise NotReady(table=definition.name, detail=detail)


def _state_at(table: Table, definition: LiveTable, at: ReadPoint) -> SnapshotState:
    snapshot = table.snapshot_by_id(at.snapshot_id)
    if snapshot is None:
        raise ReadPointGone(
            table=definition.name, detail=f"the table has no snapshot {at.snapshot_id} any more"
        )
    state = state_of(snapshot, definition.name)
    if state.seam != at.seam:
        raise ReadPointGone(
            table=definition.name,
            detail=f"the seam of snapshot {at.snapshot_id} is {state.seam}, not {at.seam}",
        )
    if state.definition_version != definition.version:
        raise ReadPointGone(table=definition.name, detail="the table's definition was altered since")
    # The table says as of now which lost tombstones don't matter; of the snapshot, what was said before it.
    since_ms = json.loads(table.properties.get(TOMBSTONES_PROPERTY, "{}"))
    before = {topic: at_ms for topic, at_ms in since_ms.items() if at_ms <= state.timestamp_ms}
    return replace(state, tombstones_since_ms=before)


def _checked_ends(definition: LiveTable, state: SnapshotState, at: ReadPoint | None, log: Log) -> Seam:
    """The log's ends, once it is the table's and holds all from the snapshot's seam on."""
    if at is None:
        # safety: private-tombstones
        _, ends = check_log(definition.name, state, log, definition, SystemClock().now_ms())
        return ends
    _, ends = check_source(definition.name, state, log, definition.topics)
    check_not_compacted(definition, log)
    if not (ends.at_least(at.end) and at.end.at_least(at.seam)):
        raise ReadPointGone(table=definition.name, detail=f"the log ends at {ends}, before {at.end}")
    _check_tombstones_until(definition, state, at.end, log)  # safety: private-tombstones-at
    return ends


def _check_tombstones_until(definition: LiveTable, state: SnapshotState, end: Seam, log: Log) -> None:
    """Makes sure that the log still has each tombstone between a snapshot and the end of a read point."""
    if has_rows_to_delete(state, definition):
        try:
            check_tombstones(definition, state, end, log, SystemClock().now_ms())
        except TombstonesGone as error:
            raise ReadPointGone(table=definition.name, detail=error.what) from error
