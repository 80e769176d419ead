"""Lookups: the cold rows of one snapshot with the hot records beyond its seam laid over them.

`TableReader` answers in steps, so that a server can take them where they belong. ``look`` opens one view of
the hot tier and takes all it needs from it, in microseconds. ``cold_rows`` may read files. ``overlay`` joins
both. The snapshot and its seam are fixed by ``look``, so the order and the time of the steps don't matter.
``refresh`` moves to a newer snapshot between requests; an answer never goes back behind an earlier one.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from time import sleep  # only to let other threads run
from typing import TYPE_CHECKING, Any, Final

import msgspec

from thermocline.bounded import Bounded
from thermocline.errors import NotReady
from thermocline.failpoints import failpoint
from thermocline.iceberg.files import local_path
from thermocline.iceberg.read_counts import ReadCounts
from thermocline.iceberg.shared_io import is_same_access
from thermocline.process.logs import fields
from thermocline.rules.fold import overlay
from thermocline.rules.read_point import ReadPoint
from thermocline.rules.seam import Seam
from thermocline.serving.cold.entity_rows import NO_ENTITY_ROWS, NO_ROWS, EntityRows, joined
from thermocline.serving.cold.row_json import RowJson
from thermocline.serving.hot.compatibility import incompatibility
from thermocline.serving.hot.refused import EVERY, Asked, RefusedRecords
from thermocline.serving.read.look import (
    ColdSide,
    HeldView,
    Hits,
    LaidRows,
    Look,
    Reached,
    comparable_end,
    counting,
    has_all_partitions,
)
from thermocline.serving.store import measures
from thermocline.serving.store.storage import STORAGE_ERRORS, failures_noted, storage_failed, storage_named

if TYPE_CHECKING:
    from pathlib import Path

    from thermocline.iceberg.files import Deletes
    from thermocline.process.clock import Clock
    from thermocline.serving.cold.entity_rows import JsonRows
    from thermocline.serving.cold.index import ColdFile, ColdIndex, Snapshots
    from thermocline.serving.cold.reader import Entity
    from thermocline.serving.hot.view import HotReader, HotView

log = logging.getLogger(__name__)

# The rows of the entities asked for most, as they are sent; in memory, per worker and table.
ENTITY_CACHE_BYTES_MAX: Final = 32 * 1024 * 1024
# The same with the hot records laid over them; each entry counts what it was made of, too.
LAID_ROWS_BYTES_MAX: Final = 16 * 1024 * 1024
# Asked for last, per worker and table: these are read again before a switch, 20 to 300 µs each.
WARM_ENTITIES_MAX: Final = 4_096
# A commit is served later by this at most; the hot tier has its records all the time.
WARM_SECONDS_MAX: Final = 2.0

# Topics that came are read within seconds; where one can't be, the snapshot is served as old as it is.
UNREAD_SECONDS_MAX: Final = 30.0

# In one answer, or one of each partition; the route of refused records gives more.
REFUSED_SHOWN_MAX: Final = 20

RENEW_SECONDS: Final = 30.0  # each time, the catalog is asked for the table


class TableReader:
    """Answers lookups of one table from a hot tier and the newest published cold index.

    ``snapshots`` is where its cold indexes are published. ``is_filled`` tells whether the hot tier has
    reached the log's ends as of its start; of each tier it is asked until it says so once.
    ``tailer_problem`` says what keeps the hot tier from being read, for whoever is refused. ``look`` and
    ``end`` belong to one thread, ``refresh`` to one; the others to any. ``counts`` is what was asked for,
    ``count`` adds to it.
    """

    def __init__(
        self,
        name: str,
        snapshots: Snapshots,
        open_hot: Callable[[], HotReader],
        clock: Clock,
        stale_after_seconds: float,
        is_filled: Callable[[], bool],
        tailer_problem: Callable[[], str] = lambda: "",
    ) -> None:
        self.name = name
        self._snapshots = snapshots
        self._open_hot = open_hot
        self._clock = clock
        self._stale_after_seconds = stale_after_seconds
        self._is_filled = is_filled
        self._tailer_problem = tailer_problem
        self._filled_tier: int | None = None
        self._hot: HotReader | None = None
        self._stamp: Any = None  # of the index that answers are given from
        self._latest: tuple[Any, ColdIndex | None] | None = None  # by its stamp, the last one that was loaded
        self._cold: ColdSide | None = None
        self._renew_at = -math.inf
        self._reached: Reached | None = None
        self._unread_since: float | None = None  # by the clock, that a new snapshot's topics are not read
        self._point_numbers = count()
        self.counts = ReadCounts(clock.now_ms())
        self._entities: Bounded[tuple[bytes, bytes], EntityRows] = Bounded(ENTITY_CACHE_BYTES_MAX)
        self._laid: Bounded[bytes, LaidRows] = Bounded(LAID_ROWS_BYTES_MAX)

    @property
    def hot(self) -> HotReader:
        """The hot tier. Raises `NotReady` before the tailer has begun."""
        if self._hot is None:
            raise self.not_ready("its tailer has not begun to read the log")
        return self._hot

    @property
    def cold(self) -> ColdSide:
        """The snapshot that answers are given from now. Raises `NotReady` before the first one."""
        if self._cold is None:
            raise self.not_ready("no snapshot of the table has been indexed yet")
        return self._cold

    def not_ready(self, detail: str) -> NotReady:
        """The error, with what keeps the tailer from going on."""
        return NotReady(table=self.name, detail="; ".join(filter(None, (detail, self._tailer_problem()))))

    def refresh(self) -> bool:
        """Moves to the newest published snapshot that the hot tier fits; whether it moved. Reads files.

        Raises what the store and the catalog raise, and:
            NotReady: the tailer has not begun.
        """
        failpoint("reader.refresh")
        if self._hot is None:
            self._hot = self._open_hot()
        self._hot.refresh()
        self._renew_reader()
        stamp = self._snapshots.stamp()
        if stamp is None or stamp == self._stamp:
            return False
        before = self._cold
        index = self._index_of(stamp)
        if index is None or (before and index is before.index):
            self._stamp = stamp
            return False
        if before and self._must_wait(index, before.index):  # safety: switch-when-fit
            return False  # tried again at the next call: the hot tier is being rebuilt, or reads new topics
        side = self._side(index, before)
        failpoint("reader.switch")
        self._cold = side
        self._stamp, self._latest = stamp, None
        self._unread_since = None  # safety: unread-each-time
        return True

    def _index_of(self, stamp: Any) -> ColdIndex | None:
        """The newest snapshot, read once for each stamp, however often the hot tier does not fit it yet."""
        if self._latest is None or self._latest[0] != stamp:
            self._latest = stamp, self._snapshots.latest(self._cold.index if self._cold else None)
        return self._latest[1]

    def _renew_reader(self) -> None:
        """Another one after a failure, if the catalog grants something else of the store by now."""
        side, now = self._cold, self._clock.monotonic()
        if side is None or not side.reader.has_failed or local_path(side.index.location) is not None:
            return
        if now >= self._renew_at:
            self._renew_at = now + RENEW_SECONDS
            reader = self._snapshots.reader()
            if not is_same_access(reader.io, side.reader.io):
                reader.warm([*side.index.files])
                self._cold = replace(side, reader=reader)  # safety: reader-renewed
            side.reader.has_failed = False

    def is_behind(self) -> bool:
        """Whether a newer snapshot is published than the one that answers are given from."""
        return bool(self._snapshots.stamp() != self._stamp)

    def check_ready(self) -> None:
        """Raises `NotReady` unless a lookup would be answered now."""
        self.look(())

    def look(self, entities: Sequence[Entity]) -> Look:
        """The hot side of an answer, from one view. Does not read files.

        Raises:
            NotReady: there is no index yet, or the hot tier does not reach back to its seam, or holds records
                of another definition, or has not yet come as far as an earlier answer.
            StorageFailed: the hot tier can't be read.
        """
        try:
            return self._look(entities)
        except STORAGE_ERRORS as error:
            raise storage_failed(self.name, error) from error

    def _look(self, entities: Sequence[Entity]) -> Look:
        cold = self.cold
        index = cold.index
        buckets = index.definition.buckets
        if any(entity.buckets != buckets for entity in entities):  # safety: entities-of-these-buckets
            raise self.not_ready("its number of buckets has just changed")
        with self.hot.view(index.definition.topics) as view:
            reached = self._reach(index, view)
            found = [self._found(view, reached, entity) for entity in entities]
            age_seconds = self._age_seconds(view, reached)
        is_stale = age_seconds > self._stale_after_seconds
        return Look(
            cold,
            entities,
            [hits for hits, _ in found],
            [rows for _, rows in found],
            reached.read_point,
            reached.read_point_json,
            reached.point_number,
            age_seconds,
            is_stale,
        )

    def _found(self, view: HotView, reached: Reached, entity: Entity) -> tuple[Hits, JsonRows | None]:
        """The hot rows of an entity; where it was asked for at this read point, also all its rows."""
        last = self._laid.get(entity.prefix)
        if last is not None and last.point_number == reached.point_number:  # safety: hits-again
            return last.hits, last.json
        return view.lookup(entity.bucket, entity.prefix, reached.index.seam), None

    def hold(self) -> HeldView:
        """A view that a lookup would be answered from now, left open. Raises as ``look``."""
        try:
            with ExitStack() as on_error:
                index = self.cold.index
                view = on_error.enter_context(self.hot.view(index.definition.topics))
                reached = self._reach(index, view)
                age_seconds = self._age_seconds(view, reached)
                held = HeldView(view, age_seconds, reached.index, reached.read_point)
                on_error.pop_all()
        except STORAGE_ERRORS as error:
            raise storage_failed(self.name, error) from error
        return held

    def end(self) -> Seam:
        """The end that an answer given now has at least. Raises as ``look``."""
        return self.look(()).read_point.end

    def refused(
        self, look: Look, wanted: Mapping[tuple[str, int], int], results: Sequence[JsonRows]
    ) -> RefusedRecords:
        """The refused records to tell whoever gets these results of, the newest of a partition first.

        Those up to the records that the answer was ``wanted`` to include: these themselves, and those that
        may be of the keys asked for. Where it was not wanted to include any, those since the seam that may
        be of the keys that have no rows. Some of each partition.
        """
        point = look.read_point
        if wanted:
            asked = Asked(tuple(entity.prefix for entity in look.entities), wanted)
            return self._refused_between(Seam(), _behind(wanted), _shared(point.end), asked)
        without = [one for one, rows in zip(look.entities, results, strict=True) if rows == NO_ROWS]
        if not without:
            return RefusedRecords()
        asked = Asked(tuple(entity.prefix for entity in without))
        return self._refused_between(point.seam, point.end, _shared(point.end), asked)

    def refused_up_to(self, wanted: Mapping[tuple[str, int], int]) -> RefusedRecords:
        """The newest refused records up to given ones: a given one that was refused is among them."""
        end = _behind(wanted)
        return self._refused_between(Seam(), end, _shared(end))

    def refused_since(self, point: ReadPoint, count_max: int) -> tuple[RefusedRecords, bool]:
        """The refused records since a read point's seam, some of each partition; whether there are more."""
        found = self._refused_between(point.seam, point.end, count_max + 1)
        has_more = len(found.listed) > count_max or bool(found.unlisted)  # safety: refused-beyond
        return found.cut(count_max), has_more

    def _refused_between(
        self, first: Seam, end: Seam, count_max_each: int, asked: Asked = EVERY
    ) -> RefusedRecords:
        definition = self.cold.index.definition
        try:
            with self.hot.view(definition.topics) as view:
                return view.refused(definition, first, end, count_max_each, asked)
        except STORAGE_ERRORS as error:
            raise storage_failed(self.name, error) from error

    def cached_rows(self, cold: ColdSide, entity: Entity) -> EntityRows | None:
        """The entity's cold rows, if they are known without reading."""
        fingerprint = cold.index.fingerprints.get(entity.bucket)
        if fingerprint is None:
            return NO_ENTITY_ROWS
        return self._entities.get((fingerprint, entity.prefix))

    def cold_rows(self, cold: ColdSide, entity: Entity) -> EntityRows:
        """The entity's cold rows. Reads files."""
        known = self.cached_rows(cold, entity)
        if known is not None:
            return known
        with failures_noted(cold.reader):
            rows = cold.reader.entity_rows(cold.index, entity, cold.rows.cold)
        return self._cached(cold, entity, rows)

    def _cached(self, cold: ColdSide, entity: Entity, rows: EntityRows) -> EntityRows:
        key = cold.index.fingerprints[entity.bucket], entity.prefix
        weight = len(entity.prefix) + rows.weight
        return self._entities.put(key, rows, weight)

    def overlay(self, look: Look, cold: Sequence[EntityRows]) -> list[JsonRows]:
        """The rows of each entity, sorted by key: its cold rows with its hits laid over them."""
        return [
            self._laid_over(look, entity, rows, hits)
            for entity, rows, hits in zip(look.entities, cold, look.hits, strict=True)
        ]

    def _laid_over(self, look: Look, entity: Entity, cold: EntityRows, hits: Hits) -> JsonRows:
        """The rows as they are sent; the last time's, where nothing has changed since."""
        form, last = look.cold.rows, self._laid.get(entity.prefix)
        # safety: laid-rows-again
        if last is not None and last.form is form and last.cold is cold and last.hits == hits:
            last.point_number = look.point_number
            return last.json
        json = _overlaid(form, entity, cold, hits) if hits else cold.json
        laid = LaidRows(entity, form, cold, hits, json, look.point_number)
        return self._laid.put(entity.prefix, laid, laid.weight).json

    def lookup(self, entities: Sequence[Entity]) -> tuple[Look, list[JsonRows]]:
        """All steps at once: the rows of each entity, and what they reflect. Reads files.

        Raises as ``look``, `StorageFailed` also where a file can't be read.
        """
        look = self.look(entities)
        with storage_named(self.name):
            cold = [self.cold_rows(look.cold, entity) for entity in entities]
        self.count(entities)
        return look, self.overlay(look, cold)

    def known(self, entity: Entity) -> tuple[Look, JsonRows] | None:
        """The rows of an entity and what they reflect, if no file is to be read. Raises as ``look``."""
        look = self.look((entity,))
        (rows,) = look.known
        if rows is not None:
            return look, rows
        cold = self.cached_rows(look.cold, entity)
        if cold is None:
            cold = look.cold.reader.known_rows(look.cold.index, entity)
            if cold is None:
                return None
            self._cached(look.cold, entity, cold)
        return look, self.overlay(look, (cold,))[0]

    def count(self, entities: Sequence[Entity]) -> None:
        """Notes that these are answered."""
        for entity in entities:
            self.counts.lookups[entity.bucket] += 1

    def close(self) -> None:
        """Closes the files that are kept open; a lookup that still goes on opens its own again."""
        if self._cold is not None:
            self._cold.reader.keep_only(())

    def _age_seconds(self, view: HotView, reached: Reached) -> float:
        # Nobody knows how much of a partition that is not read yet lies behind the seam.
        is_whole = reached.has_all_partitions
        return view.age_seconds(self._clock.monotonic()) if is_whole else math.inf

    def _side(self, index: ColdIndex, before: ColdSide | None) -> ColdSide:
        """A snapshot made ready: what lookups in its new files need is loaded before they are switched."""
        if before and before.index.location == index.location:
            reader = before.reader
            reader.keep_only([*before.index.files, *index.files])
            known = {_warmed(file) for file in before.index.files}
        else:
            reader = self._snapshots.reader()
            known = set()
        with failures_noted(reader):
            reader.warm([file for file in index.files if _warmed(file) not in known])
        if before and before.index.definition_json == index.definition_json:  # safety: form-again
            form = before.rows
        else:
            form = RowJson(index.definition)
        side = ColdSide(index, reader, form)
        if before and before.index.definition.key == index.definition.key:
            self._warm_rows(side, before)
        return side

    def _warm_rows(self, side: ColdSide, before: ColdSide) -> None:
        """Reads what was asked for lately in the buckets that changed, as far as time and the cache allow.

        So neither a commit nor a rewrite shows in the lookups that follow it. What can't be read now, lookups
        will meet.
        """
        fingerprints, old = side.index.fingerprints, before.index.fingerprints
        asked = (one.entity for one in self._laid.values()[-WARM_ENTITIES_MAX:])
        buckets = side.index.definition.buckets
        changed = [
            one
            for one in asked
            if one.buckets == buckets and fingerprints.get(one.bucket) != old.get(one.bucket)
        ]
        end, left = self._clock.monotonic() + WARM_SECONDS_MAX, ENTITY_CACHE_BYTES_MAX
        count = 0
        try:
            # In the order of the files, which decodes each row group once.
            for entity in sorted(changed, key=lambda one: (one.bucket, one.prefix)):
                if left <= 0 or self._clock.monotonic() > end:
                    break
                left -= self.cold_rows(side, entity).weight
                count += 1
                sleep(0)  # lets the event loop go first
        except STORAGE_ERRORS as error:
            log.info("rows could not be warmed", extra=fields(table=self.name, detail=str(error)))
        measures.ROWS_WARMED.labels(self.name).inc(count)

    def _must_wait(self, index: ColdIndex, before: ColdIndex) -> bool:
        """Whether the snapshot before answers, and the new one can't yet, or only as of long ago.

        The latter while topics that came are read for the first time; it does not wait for long.
        """
        (is_fit, is_read), (was_fit, was_read) = self._fits(index), self._fits(before)
        if not is_fit or is_read or not (was_fit and was_read):
            self._unread_since = None
            return was_fit and not is_fit
        now = self._clock.monotonic()
        if self._unread_since is None:
            self._unread_since = now
        return now - self._unread_since < UNREAD_SECONDS_MAX

    def _fits(self, index: ColdIndex) -> tuple[bool, bool]:
        """Whether the hot tier can be laid over a snapshot, and was once read to the end for it."""
        with self.hot.view(index.definition.topics) as view:
            age_seconds = view.age_seconds(self._clock.monotonic())
            return incompatibility(index, view) is None, math.isfinite(age_seconds)

    def _check_fit(self, index: ColdIndex, view: HotView) -> None:
        problem = incompatibility(index, view)
        if problem is None and view.tier != self._filled_tier:  # safety: filled-again
            if self._is_filled():
                self._filled_tier = view.tier
            else:
                problem = "the hot tier is still reading the log up to its end"
        if problem is not None:
            raise self.not_ready(problem)

    def _reach(self, index: ColdIndex, view: HotView) -> Reached:
        """What an answer from this view and this snapshot reaches, once they are known to fit.

        Views share their start and end as objects as long as nothing was written: then the last one holds.
        """
        last = self._reached
        is_same_snapshot = last is not None and last.index is index
        if last is not None and is_same_snapshot and last.start is view.start and last.hot_end is view.end:
            return last
        self._check_fit(index, view)
        if last is not None and is_same_snapshot and last.hot_end == view.end:
            self._reached = replace(last, start=view.start, hot_end=view.end)
            return self._reached
        self._reached = self._reach_more(index, view, last)
        return self._reached

    def _reach_more(self, index: ColdIndex, view: HotView, last: Reached | None) -> Reached:
        """As `_reach`, of another snapshot or a hot tier that goes on. Raises `NotReady` if it goes back."""
        end = view.end.merged_max(index.seam)
        # safety: behind-earlier-answers
        if last is not None and not end.at_least(comparable_end(index, last)):
            raise self.not_ready("the hot tier is being read again and is still behind earlier answers")
        read_point = ReadPoint(index.snapshot_id, index.seam, end)
        read_point_json = msgspec.json.encode(read_point.to_dict())
        number = next(self._point_numbers)  # unique, whichever thread looks
        has_all = has_all_partitions(index, view)
        return Reached(index, view.start, view.end, read_point, read_point_json, number, has_all)


def _warmed(file: ColdFile) -> tuple[Path, Deletes | None]:
    """What is loaded of a file before a snapshot is switched to."""
    return file.footer, file.data.deletes


def _behind(wanted: Mapping[tuple[str, int], int]) -> Seam:
    return Seam({place: offset + 1 for place, offset in wanted.items()})


def _shared(end: Seam) -> int:
    """How many refused records of each partition an answer lists."""
    return max(1, REFUSED_SHOWN_MAX // max(1, len(end)))


def _overlaid(form: RowJson, entity: Entity, cold: EntityRows, hits: Hits) -> JsonRows:
    rows = cold.by_key()
    winners = {
        key: form.hot(entity, key, row, rows.get(key)) if row is not None and row.payload else None
        for key, row in counting(cold, hits)
    }
    return joined(overlay(rows, winners).values())
