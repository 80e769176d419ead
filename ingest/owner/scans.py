"""Shared scans: the batches of several tables that read the same part of the log are read once for all.

Tables share a scan where they have the same topics and the same seam. Their batches are planned from one look
at the log, and end at the same offsets, so that they share the next one, too. A table with another seam, as
one that had failed, is read alone, up to the same ends if its bounds let it. From then on it shares again.

A table that fails has read with the others, and fails alone. What fails for a scan as a whole, as where a
worker dies, may be one table's fault: each table is read alone then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from thermocline.failpoints import failpoint
from thermocline.ingest import activity
from thermocline.ingest.batch.batch import BatchResult
from thermocline.ingest.batch.plan import Bound, records_max_together, split_for_tasks
from thermocline.ingest.batch.read_task import KafkaRanges
from thermocline.ingest.batch.scan import Scan
from thermocline.ingest.owner.asked_once import asked_once
from thermocline.ingest.owner.table_batch import Look, Read, TableBatch, Wanted, batch_of
from thermocline.process.logs import fields

if TYPE_CHECKING:
    from thermocline.ingest.engine.engine import Engine
    from thermocline.ingest.owner.owner import Owner

__all__ = ["Outcome", "may_share", "step_together"]

Outcome = bool | Exception
"""Of a table's step: whether the log held more than its batch, or what it ended with."""

_logger = logging.getLogger(__name__)

_T = TypeVar("_T")


def may_share(owner: Owner) -> Hashable:
    """Tables of which this is the same are planned from one look at the log."""
    # Where the log ends is asked in another way for tables with keys.
    return owner.definition.topics, owner.definition.merging.is_keyed, id(owner.engine), id(owner.log)


def step_together(owners: Sequence[Owner]) -> Iterator[list[tuple[Owner, Outcome]]]:
    """One batch for each table; what came of them, those of each scan together, once all of it is done.

    Who ends it between two of them has had no batch of the tables that are left.
    """
    ready: list[Owner] = []
    for owner in owners:
        outcome = _prepared(owner)
        if outcome is None:
            ready.append(owner)
        else:
            yield [(owner, outcome)]
    for peers in _alike(ready, may_share):
        # Before the log is asked: what it gains from now on is newer.
        log, at_ms = peers[0].log, peers[0].clock.now_ms()
        planned = asked_once(log)
        for group in _alike(peers, lambda owner: owner.position.seam):
            records_max = records_max_together([_bound(owner) for owner in group])
            yield _SharedScan(group, Look(log, planned, at_ms, records_max)).run()


def _prepared(owner: Owner) -> Outcome | None:
    """None where its batch can be planned."""
    try:
        owner.prepare()
    except Exception as error:  # noqa: BLE001  whatever it is, it is this table's
        return error
    try:
        failpoint("owner.plan")
        owner.topics.look(owner)
        if owner.routing is not None:
            owner.routing.look(owner)
    except Exception as error:  # noqa: BLE001
        return _met(owner, error)
    return None if owner.definition.topics else False  # all were deleted, and there is no other one yet


def _met(owner: Owner, error: Exception) -> Outcome:
    try:
        return owner.met(error)
    except Exception as ending:  # noqa: BLE001
        return ending


def _bound(owner: Owner) -> Bound:
    return Bound(
        owner.settings.batch_records_max,
        owner.settings.batch_bytes_max,
        owner.bytes_per_record,
        owner.packed_bytes_per_record,
    )


class _Course:
    """A table's batch, and how far it is: it wants something read, or it is done."""

    def __init__(self, owner: Owner, batch: TableBatch) -> None:
        self.owner, self._batch = owner, batch
        self.outcome: Outcome = False
        self.wanted: Wanted | None = None
        self._go(lambda: next(batch))

    def go_on(self, read: Read | Exception) -> None:
        """With what came of what it wanted."""
        if isinstance(read, Exception):
            self._go(lambda: self._batch.throw(read))
        else:
            self._go(lambda: self._batch.send(read))

    def _go(self, go: Callable[[], Wanted]) -> None:
        self.wanted = None
        try:
            self.wanted = go()
        except StopIteration as done:
            self.outcome, self.owner.rewrites_met = done.value, 0
        except Exception as error:  # noqa: BLE001  whatever it is, it is this table's
            self.outcome = _met(self.owner, error)


class _SharedScan:
    """The batches of tables with the same seam, planned alike: read together, committed one by one."""

    def __init__(self, owners: Sequence[Owner], look: Look) -> None:
        self._look = look
        self._courses = [_Course(owner, batch_of(owner, look)) for owner in owners]

    def run(self) -> list[tuple[Owner, Outcome]]:
        """Until all are done."""
        # Twice: keys in several partitions may have to be decided by another scan.
        while waiting := [course for course in self._courses if course.wanted is not None]:
            for alike in _alike(waiting, _what_is_wanted):
                self._scan(alike)
        return [(course.owner, course.outcome) for course in self._courses]

    def _scan(self, courses: Sequence[_Course]) -> None:
        clock, engine = courses[0].owner.clock, courses[0].owner.engine
        try:
            found = _scanned(engine, courses)
        except Exception as error:  # noqa: BLE001
            found = [error] * len(courses)
        at = clock.monotonic()
        # The topics may have been recreated while they were read.
        self._look.again()  # safety: asked-again-after-reading
        for course, one in zip(courses, found, strict=True):
            course.go_on(Read(one, at, len(courses)) if isinstance(one, BatchResult) else one)


def _scanned(engine: Engine, courses: Sequence[_Course]) -> Sequence[BatchResult | Exception]:
    """What came of the tables' shares. Raises what ended the scan of a single table."""
    wanted = [course.wanted for course in courses if course.wanted is not None]
    ranges, name = wanted[0].ranges, courses[0].owner.definition.name
    title = name if len(courses) == 1 else f"{len(courses)} tables"
    activity.batch(title, sum(planned.end - planned.first for planned in ranges))
    source = KafkaRanges(split_for_tasks(ranges, engine.tasks, may_cut=wanted[0].may_cut))
    try:
        return engine.run(Scan(source, [one.share for one in wanted]))
    except Exception as error:
        if len(courses) == 1:
            raise
        text = "a scan that tables share failed as a whole; each is read alone"
        _logger.warning(text, extra=fields(tables=len(courses), detail=str(error)))
        return [one for course in courses for one in _alone(engine, course)]


def _alone(engine: Engine, course: _Course) -> Sequence[BatchResult | Exception]:
    try:
        return _scanned(engine, [course])
    except Exception as error:  # noqa: BLE001  whatever it is, it is this table's
        return [error]


def _what_is_wanted(course: _Course) -> Hashable:
    assert course.wanted is not None
    return course.wanted.ranges, course.wanted.may_cut  # safety: a-scan-reads-what-each-wants


def _alike(all_: Iterable[_T], of: Callable[[_T], Hashable]) -> Iterable[list[_T]]:
    """Those of which something is the same, together; in the order of the first of each."""
    found: dict[Hashable, list[_T]] = {}
    for one in all_:
        found.setdefault(of(one), []).append(one)
    return list(found.values())
