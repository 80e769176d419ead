"""Shared scans: the batches of several tables that read the same part of the log are read once for all.

Tables with the same topics are planned from one look at the log. Where they have the same seam, too, their
batches end at the same offsets, so that they share the next one, too. A table with another seam, as one that
had failed, is read to the same ends if its bounds let it. It shares the scan if its batch has a part in
common with that of others: then it is given its own ranges of what is read.

A table that fails has read with the others, and fails alone. What fails for a scan as a whole, as where a
worker dies, may be one table's fault: each table is read alone then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, TypeVar

from thermocline.errors import ExitCode, OffsetsGone
from thermocline.failpoints import failpoint
from thermocline.ingest import activity
from thermocline.ingest.batch.batch import BatchResult
from thermocline.ingest.batch.open_transactions import warn
from thermocline.ingest.batch.plan import Bound, records_max_together, split_for_tasks
from thermocline.ingest.batch.read_task import KafkaRanges
from thermocline.ingest.batch.scan import Scan, Share
from thermocline.ingest.owner.table_batch import Look, Read, TableBatch, Wanted, batch_of
from thermocline.kafka.facts import OffsetRange
from thermocline.process.logs import fields

if TYPE_CHECKING:
    import threading

    from thermocline.ingest.engine.engine import Engine
    from thermocline.ingest.owner.owner import Owner
    from thermocline.rules.seam import Seam

__all__ = ["Outcome", "catch_up", "may_share", "step_together"]

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
        at_ms = peers[0].clock.now_ms()
        yield from _SharedScans(peers, Look(peers[0].log, at_ms)).run()


def catch_up(owners: Sequence[Owner], stop: threading.Event) -> Iterator[tuple[Owner, ExitCode | Exception]]:
    """Batches of each table until it holds what the log holds now, and says so; how that ended, one by one.

    Where ``stop`` is set, those that are left are partly done.
    """
    goals: dict[int, Seam] = {}
    for owner in owners:
        owner.may_pass_over = False  # nobody would commit it later
        try:
            owner.topics.look(owner)
            goals[id(owner)] = owner.log.ends(owner.definition.topics)
        except Exception as error:  # noqa: BLE001  whatever it is, it is this table's
            yield owner, error
    left = {id(owner): owner for owner in owners if id(owner) in goals}
    while left:
        for stepped in step_together(list(left.values())):
            for owner, outcome in stepped:
                if isinstance(outcome, Exception):
                    yield left.pop(id(owner)), outcome
                elif owner.position.seam.at_least(goals[id(owner)]):
                    yield left.pop(id(owner)), _told(owner, ExitCode.DONE)
            if stop.is_set():
                yield from ((owner, _told(owner, ExitCode.PARTLY_DONE)) for owner in left.values())
                return


def _told(owner: Owner, code: ExitCode) -> ExitCode | Exception:
    """The same, after a warning of what an open transaction holds back."""
    try:
        warn(owner.definition.name, owner.log.open_transactions(owner.definition.topics))
    except Exception as error:  # noqa: BLE001  whatever it is, it is this table's
        return error
    return code


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


class _SharedScans:
    """The batches of tables that are planned from one look: read together as far as that spares reading."""

    def __init__(self, owners: Sequence[Owner], look: Look) -> None:
        self._look = look
        self._courses: list[_Course] = []
        for alike in _alike(owners, lambda owner: owner.at.seam):
            records_max = records_max_together([_bound(owner) for owner in alike])
            self._courses += [_Course(owner, batch_of(owner, look, records_max)) for owner in alike]

    def run(self) -> Iterator[list[tuple[Owner, Outcome]]]:
        """Until all are done; those that are, after each scan."""
        if done := self._done():
            yield done
        # Twice: keys in several partitions may have to be decided by another scan.
        while self._courses:
            for scan in _scans_of(self._courses):
                self._run(scan)
                if done := self._done():
                    yield done

    def _done(self) -> list[tuple[Owner, Outcome]]:
        done = [(course.owner, course.outcome) for course in self._courses if course.wanted is None]
        self._courses = [course for course in self._courses if course.wanted is not None]
        return done

    def _run(self, scan: _SharedScan) -> None:
        courses, owner = scan.courses, scan.courses[0].owner
        try:
            found = _scanned(owner.engine, scan)
        except Exception as error:  # noqa: BLE001
            found = [error] * len(courses)
        at = owner.clock.monotonic()
        # The topics may have been recreated while they were read.
        self._look.again()  # safety: asked-again-after-reading
        for course, one in zip(courses, found, strict=True):
            course.go_on(Read(one, at, len(courses)) if isinstance(one, BatchResult) else one)


class _SharedScan:
    """Batches that are read together: all from where the first of them begins to where the last one ends."""

    def __init__(self, courses: Sequence[_Course]) -> None:
        """Of batches that want the same."""
        wanted = courses[0].wanted
        assert wanted is not None
        self.courses = list(courses)
        self.ranges, self.may_cut = wanted.ranges, wanted.may_cut
        self.packed_bytes = _packed_bytes(courses)

    def takes(self, other: _SharedScan) -> bool:
        """Whether to read both together reads less than to read each, and holds no more than a batch may.

        Then the other's are among these.
        """
        both = _hull(self.ranges, other.ranges)
        packed_bytes, courses = self.packed_bytes + other.packed_bytes, [*self.courses, *other.courses]
        if (
            self.may_cut != other.may_cut
            or _size(both) >= _size(self.ranges) + _size(other.ranges)
            # safety: a-scan-of-several-seams-is-bounded
            or packed_bytes > min(course.owner.settings.batch_bytes_max for course in courses)
        ):
            return False
        self.ranges, self.packed_bytes, self.courses = both, packed_bytes, courses
        return True

    def shares(self) -> list[Share]:
        """Of each table, which has its own ranges of what is read."""
        wanted = [course.wanted for course in self.courses if course.wanted is not None]
        return [
            one.share
            if one.ranges == self.ranges
            # safety: a-share-has-its-own-ranges
            else replace(one.share, task=replace(one.share.task, within=one.ranges))
            for one in wanted
        ]


def _scans_of(courses: Sequence[_Course]) -> list[_SharedScan]:
    """The scans that read what these want, the largest first."""
    found: list[_SharedScan] = []
    alike = [_SharedScan(some) for some in _alike(courses, _what_is_wanted)]
    for scan in sorted(alike, key=lambda one: _size(one.ranges), reverse=True):
        if not any(other.takes(scan) for other in found):
            found.append(scan)
    return found


def _hull(ranges: Sequence[OffsetRange], others: Sequence[OffsetRange]) -> tuple[OffsetRange, ...]:
    """In each partition one range that has those of both."""
    found = {(one.topic, one.partition): one for one in ranges}
    for one in others:
        known = found.get((one.topic, one.partition), one)
        first, end = min(known.first, one.first), max(known.end, one.end)
        found[one.topic, one.partition] = OffsetRange(one.topic, one.partition, first, end)
    return tuple(found[place] for place in sorted(found))


def _size(ranges: Sequence[OffsetRange]) -> int:
    return sum(one.end - one.first for one in ranges)


def _packed_bytes(courses: Sequence[_Course]) -> float:
    """What is held of their batches, by the batches before; without end where that is not known."""
    found = 0.0
    for course in courses:
        of_record = course.owner.packed_bytes_per_record
        if of_record is None or course.wanted is None:
            return inf
        found += of_record * _size(course.wanted.ranges)
    return found


def _scanned(engine: Engine, scan: _SharedScan) -> Sequence[BatchResult | Exception]:
    """What came of the tables' shares. Raises what ended the scan of a single table."""
    courses, name = scan.courses, scan.courses[0].owner.definition.name
    title = name if len(courses) == 1 else f"{len(courses)} tables"
    activity.batch(title, _size(scan.ranges))
    source = KafkaRanges(split_for_tasks(scan.ranges, engine.tasks, may_cut=scan.may_cut))
    try:
        found = engine.run(Scan(source, scan.shares()))
    except Exception as error:
        if len(courses) == 1:
            raise
        text = "a scan that tables share failed as a whole; each is read alone"
        _logger.warning(text, extra=fields(tables=len(courses), detail=str(error)))
        return [one for course in courses for one in _alone(engine, course)]
    # What the log has lost may be before the batch of a table.
    return [
        # safety: gone-of-ones-own
        _alone(engine, course)[0] if isinstance(one, OffsetsGone) and _has_less(course, scan) else one
        for course, one in zip(courses, found, strict=True)
    ]


def _has_less(course: _Course, scan: _SharedScan) -> bool:
    return course.wanted is not None and course.wanted.ranges != scan.ranges


def _alone(engine: Engine, course: _Course) -> Sequence[BatchResult | Exception]:
    try:
        return _scanned(engine, _SharedScan([course]))
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
