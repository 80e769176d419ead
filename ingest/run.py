"""Ingest into some of the configured tables, in this process: each owned by itself, all on one engine."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from thermocline.errors import ExitCode, ThermoclineError
from thermocline.iceberg.catalog import open_table
from thermocline.iceberg.routed_tables import directory_in
from thermocline.ingest.claim.lease import StoppedWaiting
from thermocline.ingest.claim.opening import Opening
from thermocline.ingest.engine.engine import Engine, start_engine
from thermocline.ingest.owner.observers import Observers, wait_for
from thermocline.ingest.owner.observing import observers_of
from thermocline.ingest.owner.owner import Owner
from thermocline.ingest.owner.scans import catch_up
from thermocline.ingest.owner.turns import WATCH_SECONDS, WATCHES_PER_SECOND, IngestedTable, Opener, Turns
from thermocline.ingest.table.progress import is_up_to_date
from thermocline.kafka.log import Log
from thermocline.process.clock import Clock, SystemClock
from thermocline.settings.route import table_of_value

if TYPE_CHECKING:
    from thermocline.ingest.claim.lease import Say
    from thermocline.ingest.owner.upkeep import Upkeep
    from thermocline.rules.routes.directory import Directory
    from thermocline.settings import Settings

__all__ = ["Ended", "Hooks", "run"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ended:
    """How ingest into a table ended; ``error`` is what it stopped with, which has the exit code, too."""

    table: str
    exit_code: int
    error: ThermoclineError | None = None


@dataclass(frozen=True, slots=True)
class Hooks:
    """What else is done for each table, by its name.

    ``on_commit`` gives what is called after each commit that landed, and ``upkeep`` what has its turns
    between batches, but not with ``once``; none where it is None.
    """

    on_commit: Callable[[str], Callable[[], None]] = lambda _: lambda: None
    upkeep: Callable[[], Upkeep] | None = None


def run(
    settings: Settings,
    names: Sequence[str],
    once: bool,
    stop: threading.Event,
    clock: Clock | None = None,
    hooks: Hooks | None = None,
    standby: bool = False,
) -> tuple[Ended, ...]:
    """Own the tables and ingest into them until ``stop`` is set; how it ended for each.

    With ``once``, only up to the ends that the log has then; tables that may share scans do;
    `ExitCode.NOTHING_TO_DO` where the table is already there. Without it, errors that pass by themselves (a
    broker away, a catalog locked) are waited out; of a single table only once it is owned. Any other error
    stops the table that met it, which is as its last commit left it.

    With ``standby``, a table that another process owns is waited for, with the engine running; so is one that
    was lost to another.
    """
    running = _Running(settings, clock or SystemClock(), hooks or Hooks(), _engine_title(names))
    try:
        if once:
            return running.all_caught_up(names, stop)
        return running.followed(names, stop, standby)
    finally:
        running.stop_engine()
        wait_for(running.observers)


@dataclass(slots=True)
class _Running:
    """What the tables share. Engine and client of the log begin when the first table needs them."""

    settings: Settings
    clock: Clock
    hooks: Hooks
    title: str
    _engine: Engine | ThermoclineError | None = None
    _log: Log | None = field(default=None)
    observers: list[Observers] = field(default_factory=list)
    on_made: Callable[[Sequence[str]], None] = lambda _: None

    def followed(self, names: Sequence[str], stop: threading.Event, standby: bool) -> tuple[Ended, ...]:
        waits_out = standby or len(names) > 1 or any(name in self.settings.routes for name in names)

        def tables_of(some: Sequence[str]) -> list[IngestedTable]:
            return [
                IngestedTable(
                    name,
                    self.clock,
                    self._opener(name),
                    waits_out=waits_out,
                    is_standby=standby,
                    watch_seconds=max(WATCH_SECONDS, len(names) / WATCHES_PER_SECOND),
                )
                for name in some
            ]

        turns = Turns(tables_of(names), self.clock)
        self.on_made = lambda made: turns.add(tables_of(made))
        if standby:
            try:
                self._started_engine()
            except ThermoclineError as error:
                return tuple(Ended(name, error.exit_code, error) for name in names)
        turns.follow(stop)
        return tuple(
            Ended(one.name, ExitCode.DONE if one.error is None else one.error.exit_code, one.error)
            for one in turns.tables
        )

    def all_caught_up(self, names: Sequence[str], stop: threading.Event) -> tuple[Ended, ...]:
        """All of them together; then the tables that were made meanwhile, together."""
        waiting, ended = list(names), list[Ended]()
        self.on_made = waiting.extend
        while waiting:
            some, waiting[:] = tuple(waiting), ()
            ended += self._caught_up(some, stop)
        return tuple(ended)

    def stop_engine(self) -> None:
        if self._engine is not None and not isinstance(self._engine, ThermoclineError):
            self._engine.stop()

    def _caught_up(self, names: Sequence[str], stop: threading.Event) -> list[Ended]:
        ended: dict[str, Ended] = {}
        owners: dict[str, Owner] = {}
        try:
            for name in names:
                try:
                    found = self._owned(name, stop)
                except ThermoclineError as error:
                    ended[name] = Ended(name, error.exit_code, error)
                    continue
                if isinstance(found, ExitCode):
                    ended[name] = Ended(name, found)
                else:
                    owners[name] = found
            for owner, outcome in catch_up(list(owners.values()), stop):
                name = owner.definition.name
                ended[name] = _how(name, outcome)
                owners.pop(name).close(ended[name].error)
        finally:
            for owner in owners.values():
                owner.close()
        return [ended[name] for name in names]

    def _owned(self, name: str, stop: threading.Event) -> Owner | ExitCode:
        """The owner of a table; or the exit code, where there is nothing to do, or no time for it."""
        if stop.is_set():
            return ExitCode.PARTLY_DONE
        # Known without an engine, and without taking the table from its owner.
        if is_up_to_date(self.settings, name, self.clock):
            if name in self.settings.routes:
                directory = directory_in(open_table(self.settings, name).properties, name)
                self._made(name, directory)  # safety: routed-of-an-idle-directory
            return ExitCode.NOTHING_TO_DO
        try:
            opening = self._opening(name)
            opening.claim.wait_until_free(stop)
        except StoppedWaiting:
            return ExitCode.PARTLY_DONE
        return self._owner(opening)

    def _opener(self, name: str) -> Opener:
        lines = iter((_logger.info,))  # a standby watches its owner again and again

        def say(line: str) -> None:
            next(lines, _logger.debug)(line)

        return Opener(
            lambda: self._opening(name, say), lambda opening: self._owner(opening, self.hooks.upkeep)
        )

    def _opening(self, name: str, say: Say | None = None) -> Opening:
        self._log = self._log or Log(self.settings.kafka)
        return Opening.of(self.settings, name, self.clock, self._log, say)

    def _owner(self, opening: Opening, upkeep: Callable[[], Upkeep] | None = None) -> Owner:
        owner = Owner.take(opening, self._started_engine(), self.clock)
        try:
            self._equip(owner, opening.claim.name, upkeep)
        except BaseException as error:
            owner.close(error if isinstance(error, ThermoclineError) else None)  # safety: half-owned-is-freed
            raise
        return owner

    def _equip(self, owner: Owner, name: str, upkeep: Callable[[], Upkeep] | None) -> None:
        owner.on_commit = self.hooks.on_commit(name)
        owner.observers = observers_of(owner, self.settings)
        self.observers = [*(one for one in self.observers if not one.have_ended), owner.observers]
        if upkeep is not None:
            owner.upkeep = upkeep()
        routing = owner.routing
        if routing is not None:
            routing.on_made = lambda _: self._made(name, routing.directory)
            # Earlier owners made them, which may have been since the settings were read.
            self._made(name, routing.directory)  # safety: routed-of-other-owners

    def _made(self, route: str, directory: Directory) -> None:
        """Take up those tables of a route that this process does not have yet, unless they are denied."""
        known = self.settings.tables
        new = [value for value in directory.names if table_of_value(route, value) not in known]
        self.settings = self.settings.with_routed(route, new, directory.columns)
        self.on_made([name for name in self.settings.tables if name not in known])

    def _started_engine(self) -> Engine:
        """Started once: where that fails, or where it dies, it fails for all tables."""
        if self._engine is None:
            try:
                self._engine = start_engine(self.settings, self.title)
            except ThermoclineError as error:
                self._engine = error
        if isinstance(self._engine, ThermoclineError):
            raise self._engine
        # A dead JVM looks like a catalog that does not answer, and would be waited out for ever.
        self._engine.check()
        return self._engine


def _how(name: str, outcome: ExitCode | Exception) -> Ended:
    """Raises what is none of our errors."""
    if isinstance(outcome, ThermoclineError):
        return Ended(name, outcome.exit_code, outcome)
    if isinstance(outcome, Exception):
        raise outcome
    return Ended(name, outcome)


def _engine_title(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} tables"
