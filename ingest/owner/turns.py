"""Tables of one process take turns: each has its own owner, epoch and lease, and all share one engine.

A round gives each table that is due one batch, those farthest behind first, and with each of them those
that may share its scan (`scans`). A table that is still behind after its batch is due again in the next
round: none waits for more than one batch of each of the others. Between rounds, upkeep has its turns. What
stops a table stops that one alone.

Tables with the same interval are due at the same times, so that they can share scans.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import floor, inf
from typing import TYPE_CHECKING, Final

from thermocline.errors import CommitRejected, InternalError, OwnerLost, TableHeld, ThermoclineError
from thermocline.ingest.claim.standing_by import END_SECONDS_MAX, StandbyTrace
from thermocline.ingest.owner import measures
from thermocline.ingest.owner.scans import Outcome, may_share, step_together
from thermocline.process.logs import fields

if TYPE_CHECKING:
    from thermocline.ingest.claim.opening import Opening
    from thermocline.ingest.owner.owner import Owner
    from thermocline.process.clock import Clock

# A broker that restarts is back in some five seconds; asking sooner only fills the log.
RETRY_SECONDS: Final = 5.0
# A commit that Iceberg refuses again and again, on a table read again each time, will be refused for ever.
REJECTIONS_MAX: Final = 5
# Between two turns of upkeep; also what one may take, its commit included.
TURN_SECONDS: Final = 1.0
# With many tables a batch of some table is always due soon: upkeep that has waited so long goes first.
UPKEEP_WAITS_SECONDS_MAX: Final = 10.0
# While a lease is watched: often enough to see a clean end at once; of many tables not all so often.
WATCH_SECONDS: Final = 0.5
WATCHES_PER_SECOND: Final = 20
# A standby says so when it meets an owner, and from then on so often.
SAID_SECONDS: Final = 600.0

# Of a time that is a whole number of intervals, but for what floats can't say.
_ROUNDING: Final = 1e-6

_logger = logging.getLogger(__name__)


class Opener:
    """How a table comes to its owner."""

    def __init__(self, opening: Callable[[], Opening], take: Callable[[Opening], Owner]) -> None:
        """``opening`` makes the checks that need no ownership; ``take`` takes a table that is free."""
        self.opening = opening
        self.take = take


@dataclass(slots=True, eq=False)
class IngestedTable:
    """One table of the process: it is waited for, owned, and stops with an error, or when it is told to.

    ``error`` is what it stopped with. ``waits_out``: errors that pass by themselves are waited out before it
    is owned, too. ``is_standby``: so is the end of another owner, at first and whenever it is lost to one.
    """

    name: str
    clock: Clock
    opener: Opener | None = None
    owner: Owner | None = None
    waits_out: bool = False
    is_standby: bool = False
    watch_seconds: float = WATCH_SECONDS
    error: ThermoclineError | None = None
    due_at: float = -inf
    upkeep_at: float = inf
    trace: StandbyTrace | None = None
    _opening: Opening | None = None
    _rejections: int = 0
    _met_owner: tuple[object, ...] = ()
    _said_at: float = -inf

    @property
    def lag_records(self) -> float:
        """As its owner last saw it; of a table without one nobody knows."""
        return inf if self.owner is None else self.owner.lag_records

    @property
    def scan(self) -> Hashable:
        """Of tables that may share a scan, the same."""
        return id(self) if self.owner is None else may_share(self.owner)

    def maintain(self) -> None:
        """A turn of upkeep between two batches."""
        assert self.owner is not None
        self.owner.lease.check()
        self.owner.maintain()
        self._rest(self.owner)

    def met(self, error: ThermoclineError) -> bool:
        """Whether an error is waited out; it stops the table otherwise."""
        if self.is_standby and isinstance(error, TableHeld | OwnerLost):
            self._stand_by(error)
            return True
        self._rejections += isinstance(error, CommitRejected)
        is_owned = self.owner is not None
        if not error.retryable or self._rejections >= REJECTIONS_MAX or not (is_owned or self.waits_out):
            self.error = error
            return False
        _logger.warning("will try again", extra=fields(table=self.name, code=error.code, detail=str(error)))
        self.due_at, self.upkeep_at = self.clock.monotonic() + RETRY_SECONDS, inf
        self._opening = None  # with its access to the store, which may have ended
        if self.owner is not None:
            self.owner.must_reload = True
        return True

    def close(self) -> None:
        """Free the table, if it was owned here; an owner that was handed in is its opener's to close."""
        if self.trace is not None:
            self.trace.remove()
        if self.owner is not None and self.opener is not None:
            self.owner.close(self.error)
            self.owner = None

    def open(self) -> None:
        """A step towards owning the table."""
        assert self.opener is not None
        if self._opening is None:
            self._opening = self.opener.opening()
        lease = self._opening.claim.lease
        if lease.is_free():
            if self._met_owner:
                _logger.info("the owner has ended; taking over", extra=fields(table=self.name))
            # What is met from here on begins with a new look at the table.
            opening, self._opening = self._opening, None
            self.owner = self.opener.take(opening)
            self._met_owner = ()
            if self.trace is not None:
                self.trace.remove()
        else:
            self.due_at = self.clock.monotonic() + min(self.watch_seconds, lease.watch_seconds)

    def _stand_by(self, error: TableHeld | OwnerLost) -> None:
        """Wait for the end of an owner that was met."""
        now = self.clock.monotonic()
        self.due_at, self.upkeep_at = now + self.watch_seconds, inf
        if self.owner is not None:
            self.owner.close(error)
            self.owner = None
        if self._opening is not None:
            claim = self._opening.claim
            claim.look_again()
            self.trace = self.trace or StandbyTrace(self.name, self.clock)
            self.trace.leave(claim.table.io, claim.table.location())
        if isinstance(error, OwnerLost):
            _logger.warning("lost to another owner; standing by", extra=fields(**error.facts()))
            self._met_owner = (error.epoch_found,)
        elif (met := (error.host, error.pid, error.epoch)) != self._met_owner or (
            now - self._said_at >= SAID_SECONDS
        ):
            _logger.info("standing by until the owner ends", extra=fields(**error.facts()))
            self._met_owner, self._said_at = met, now

    def stepped(self, outcome: Outcome, began_at: float, started_at: float) -> None:
        """A batch of it was begun then, and this is what came of it; a turn of upkeep comes after it.

        Raises what the batch ended with. ``began_at`` is when the turns began.
        """
        assert self.owner is not None
        if isinstance(outcome, Exception):
            raise outcome
        owner = self.owner
        self._rejections = 0
        owner.maintain()
        interval_seconds = owner.settings.commit_interval_seconds * owner.upkeep.slowdown
        measures.commits_expected(self.name, interval_seconds)
        self.due_at = _next_due(began_at, started_at, interval_seconds)
        if outcome:
            self.due_at = self.clock.monotonic()
        self._rest(owner)

    def _rest(self, owner: Owner) -> None:
        now = self.clock.monotonic()
        self.upkeep_at = now + TURN_SECONDS
        if owner.must_reload:
            self.due_at = now


def _next_due(began_at: float, started_at: float, interval_seconds: float) -> float:
    """The next time at which all tables with that interval are due."""
    intervals = (started_at - began_at) / interval_seconds + _ROUNDING
    return began_at + (floor(intervals) + 1) * interval_seconds


StepTogether = Callable[[Sequence["Owner"]], Iterator[list[tuple["Owner", Outcome]]]]
"""`scans.step_together`."""


class Turns:
    """The turns of the tables that have not stopped."""

    def __init__(
        self, tables: Sequence[IngestedTable], clock: Clock, step_together: StepTogether = step_together
    ) -> None:
        self._all, self._running, self._clock = list(tables), list(tables), clock
        self._step_together, self._began_at = step_together, clock.monotonic()

    @property
    def tables(self) -> tuple[IngestedTable, ...]:
        """All tables, also those that have stopped."""
        return tuple(self._all)

    def add(self, tables: Sequence[IngestedTable]) -> None:
        """From the next round on, these have turns, too."""
        self._all += tables
        self._running += tables

    def follow(self, stop: threading.Event) -> None:
        """Until told to stop, or nothing is left that goes on; then each table is freed."""
        try:
            while self._running and not stop.is_set():
                self._round(stop)
        finally:
            for table in self._running:
                table.close()
            self._wait_for_traces()

    def _wait_for_traces(self) -> None:
        until = self._clock.monotonic() + END_SECONDS_MAX
        for table in self._all:
            if table.trace is not None:
                table.trace.wait(until - self._clock.monotonic())

    def _round(self, stop: threading.Event) -> None:
        now = self._clock.monotonic()
        due = [table for table in self._running if table.due_at <= now]
        together: dict[Hashable, list[IngestedTable]] = {}
        for table in sorted(due, key=lambda one: one.lag_records, reverse=True):
            together.setdefault(table.scan, []).append(table)
        for tables in together.values():
            if stop.is_set():
                return
            self._turn(tables, stop)
        if not due:
            self._rest(now, stop)

    def _turn(self, tables: Sequence[IngestedTable], stop: threading.Event) -> None:
        """A batch of each of these tables, or a step towards owning the only one."""
        if tables[0].owner is None:
            self._let(tables[0], tables[0].open)
            return
        of_owner = {id(table.owner): table for table in tables}
        started_at = self._clock.monotonic()
        for stepped in self._step_together([table.owner for table in tables if table.owner is not None]):
            for owner, outcome in stepped:
                table = of_owner[id(owner)]
                self._let(table, partial(table.stepped, outcome, self._began_at, started_at))
            if stop.is_set():
                return
            started_at = self._clock.monotonic()

    def _rest(self, now: float, stop: threading.Event) -> None:
        """A turn of upkeep, but for one that might not end before the next batch is due; or a wait."""
        batch_at = min(table.due_at for table in self._running)
        waiting = min(self._running, key=lambda one: one.upkeep_at)
        has_time = batch_at - now >= TURN_SECONDS
        if waiting.upkeep_at <= now and (has_time or now - waiting.upkeep_at > UPKEEP_WAITS_SECONDS_MAX):
            self._let(waiting, waiting.maintain)
        else:
            until = min(batch_at, waiting.upkeep_at) if has_time else batch_at
            stop.wait(until - now)

    def _let(self, table: IngestedTable, turn: Callable[[], None]) -> None:
        try:
            turn()
        except ThermoclineError as error:
            self._met(table, error)
        except Exception as bug:
            if len(self._all) == 1:
                raise
            _logger.exception(
                "ingest of a table failed with an unexpected error", extra=fields(table=table.name)
            )
            table.error = InternalError.of(bug, f"ingest of {table.name}")
            self._stopped(table, table.error)

    def _met(self, table: IngestedTable, error: ThermoclineError) -> None:
        try:
            is_waited_out = table.met(error)
        except ThermoclineError as another:  # as it looked at what it waits for
            error, is_waited_out = another, table.met(another)
        if not is_waited_out:
            self._stopped(table, error)

    def _stopped(self, table: IngestedTable, error: ThermoclineError) -> None:
        self._running.remove(table)
        table.close()
        if len(self._all) > 1:
            _logger.error(
                "ingest of a table stopped",
                extra=fields(
                    table=table.name,
                    code=error.code,
                    detail=error.what,
                    next=error.next,
                    others_running=len(self._running),
                ),
            )


def follow(owner: Owner, stop: threading.Event) -> None:
    """Batches and upkeep of a table that is owned already, until told to stop, or an error is raised."""
    table = IngestedTable(owner.definition.name, owner.clock, owner=owner)
    Turns([table], owner.clock).follow(stop)
    if table.error is not None:
        raise table.error
