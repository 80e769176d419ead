"""One round of maintenance by a process of its own, for cron and the like, within a budget."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from thermocline.errors import ExitCode
from thermocline.ingest.claim.lease import StoppedWaiting
from thermocline.ingest.claim.ownership import Claim, Owned
from thermocline.ingest.commit.commit import Landed, Outcome
from thermocline.ingest.engine.engine import start_engine
from thermocline.ingest.owner.lineage.observer import lineage_of
from thermocline.ingest.owner.observers import Observers, wait_for
from thermocline.ingest.owner.position import Position
from thermocline.maintenance.journal import Done
from thermocline.maintenance.upkeep import TableUpkeep
from thermocline.upsert.files_by_bucket import live_files

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.ingest.claim.lease import Say
    from thermocline.ingest.commit.change import TableChange
    from thermocline.ingest.engine.engine import Engine
    from thermocline.maintenance.plan import Budget
    from thermocline.process.clock import Clock
    from thermocline.rules.definition import LiveTable
    from thermocline.settings import Settings

__all__ = ["OwnedTable", "maintain"]

_TURN_SECONDS = 0.1

Progress = Callable[[TableUpkeep], None]


@dataclass(slots=True)
class OwnedTable:
    """A table that this process owns for maintenance alone (`maintenance.owning.Owning`)."""

    owned: Owned
    engine: Engine
    position: Position
    observers: Observers = field(default_factory=Observers)

    @classmethod
    def of(cls, owned: Owned, engine: Engine, observers: Observers | None = None) -> OwnedTable:
        """As the table is, right after it was taken."""
        files = live_files(owned.table, owned.state.snapshot_id, owned.definition.name)
        return cls(owned, engine, Position.of(owned.state, files), observers or Observers())

    @property
    def definition(self) -> LiveTable:
        """Of the table."""
        return self.owned.definition

    @property
    def table(self) -> Table:
        """As it was when it was taken."""
        return self.owned.table

    def land(self, change: TableChange) -> Outcome:
        """Commit. Raises `OwnerLost`."""
        self.owned.lease.check()
        outcome = self.owned.committer.commit(self.position.snapshot_id, self.position.seam, change)
        if isinstance(outcome, Landed):
            self.position = self.position.after(outcome, change)
            self.owned.definition = change.definition or self.owned.definition
            self.observers.landed(outcome, change)
        return outcome


def maintain(
    settings: Settings,
    name: str,
    budget: Budget,
    clock: Clock,
    stop: threading.Event,
    orphans_approved: int | None = None,
    say: Say | None = None,
    progress: Progress = lambda _: None,
) -> tuple[Done, ExitCode]:
    """Rewrite what is worth it, expire and sweep; what was done, and how it ended.

    Partly done where the budget, a failure or ``stop`` left something that is worth a rewrite. ``progress``
    is called many times a second. ``orphans_approved`` is for `maintenance.orphans.remove_orphans`.

    Raises:
        TableHeld: another process owns the table, as ``ingest run`` does, which maintains it by itself.
        ThermoclineError: what taking the table, or a commit, raises.
    """
    claim = Claim.of(settings, name, clock, say)
    try:
        claim.wait_until_free(stop)
    except StoppedWaiting:
        return Done(), ExitCode.PARTLY_DONE
    engine = start_engine(settings, name)
    try:
        owned = claim.take(engine.jvm)
        upkeep = TableUpkeep(settings.maintenance, clock, budget, orphans_approved, debt_hours_max=inf)
        observers = _observers_of(owned, settings, clock)
        try:
            site = OwnedTable.of(owned, engine, observers)
            upkeep.turn(site)
            while upkeep.is_busy and not stop.wait(_TURN_SECONDS):
                upkeep.turn(site)
                progress(upkeep)
        finally:
            owned.release()
            observers.end()
            wait_for([observers])
            upkeep.close()
    finally:
        engine.stop()
    left = stop.is_set() or upkeep.plan is None or bool(upkeep.plan.wanted) or upkeep.done.failures > 0
    if upkeep.done == Done():
        return upkeep.done, ExitCode.PARTLY_DONE if left else ExitCode.NOTHING_TO_DO
    return upkeep.done, ExitCode.PARTLY_DONE if left else ExitCode.DONE


def _observers_of(owned: Owned, settings: Settings, clock: Clock) -> Observers:
    if not settings.lineage.url:
        return Observers()
    return Observers(lineage_of(settings, owned.definition, owned.table, clock))
