"""Keeps a table in shape between the batches of its owner: what is due, one small step a turn.

    plan        in a thread: the files are measured, and what is worth a rewrite is ordered (``planning``)
    rewrite     on the engine, beside the batches (``rewriting``)
    land        in a turn: the rewrite becomes part of the table, in a commit of the owner's
    buckets     in a turn: the unit of work follows, once no file has the old number of buckets
    manifests   in a turn: those of a bucket are put together, in such a commit (``small_commits``, both)
    expire      in a turn: old snapshots leave the metadata, in such a commit (``expiring``)
    sweep       in a thread: files that no snapshot needs any more are deleted (``cleaning``)
    orphans     in a thread: files that no snapshot ever had are looked for, and deleted a day later
    quarantine  in a thread: the companion table's old snapshots expire and are swept (``quarantine``)

Nothing here can fail a batch: what goes wrong is logged, and tried again later (``journal``). Raised is what
a commit of a batch would raise, too: that the table is not ours any more, that others committed to it, that
a commit's outcome is unknown, that the catalog is down. And `MaintenanceBehind`, where rewrites have fallen
behind for good.
"""

from __future__ import annotations

from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from thermocline.maintenance.cleaning import Cleaning
from thermocline.maintenance.expiring import EXPIRED_MIN, expire
from thermocline.maintenance.journal import Done, Journal, Seen
from thermocline.maintenance.measures import forget, observe
from thermocline.maintenance.plan import Budget
from thermocline.maintenance.planning import DEBT_HOURS_MAX, Planning
from thermocline.maintenance.rewriting import Rewriting
from thermocline.maintenance.small_commits import order_manifests, raise_unit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from thermocline.maintenance.owning import Owning
    from thermocline.maintenance.plan import Plan, PlannedTask
    from thermocline.process.clock import Clock
    from thermocline.settings import MaintenanceSettings

__all__ = ["TableUpkeep"]


class TableUpkeep:
    """The upkeep of one table; see `ingest.owner.owner.Upkeep`."""

    def __init__(
        self,
        settings: MaintenanceSettings,
        clock: Clock,
        budget: Budget | None = None,
        orphans_approved: int | None = None,
        debt_hours_max: float = DEBT_HOURS_MAX,
        expired_min: int = EXPIRED_MIN,
        thread: Executor | None = None,
        journal: Journal | None = None,
    ) -> None:
        self._settings, self._expired_min = settings, expired_min
        self._thread = thread or ThreadPoolExecutor(1, thread_name_prefix="maintenance")
        self.journal = journal or Journal(clock)
        self.planning = Planning(settings, self.journal, self._thread, debt_hours_max)
        self.rewriting = Rewriting(settings, self.journal, budget or Budget())
        self.cleaning = Cleaning(settings, self.journal, self._thread, orphans_approved)
        self._measured: str | None = None

    @property
    def plan(self) -> Plan | None:
        """What is worth a rewrite, as it was last seen."""
        return self.planning.plan

    @property
    def done(self) -> Done:
        """Since the upkeep began."""
        return self.journal.done

    @property
    def seen(self) -> Seen:
        """As the table was last looked at."""
        return self.journal.seen

    def held(self) -> frozenset[str]:
        """The inputs of the rewrite that runs."""
        running = self.rewriting.running
        return frozenset() if running is None else running.held  # safety: inputs-are-held

    @property
    def is_busy(self) -> bool:
        """Whether something runs, or waits for its turn."""
        is_running = bool(self.waiting) or any(True for _ in self._futures())
        # One commit expires a part of what a neglected table has.
        return is_running or self.journal.is_due("plan") or self.journal.is_due("expire")

    @property
    def is_settled(self) -> bool:
        """Whether nothing runs whose end is not known yet."""
        return all(future.done() for future in self._futures())

    @property
    def waiting(self) -> int:
        """Rewrites that are planned or run."""
        return len(self.rewriting)

    @property
    def now_at(self) -> PlannedTask | None:
        """The rewrite that runs."""
        return None if self.rewriting.running is None else self.rewriting.running.task

    @property
    def slowdown(self) -> float:
        """By how much commits should be farther apart."""
        return self.planning.slowdown

    def turn(self, owner: Owning) -> None:
        """What is due. Raises what says that the table is not ours, or that a commit is unknown.

        Also `MaintenanceBehind`.
        """
        name = self._measured = owner.definition.name
        self._turn(owner)
        observe(name, self.done, self.seen, self.plan, self.journal.clock.now_ms() / 1000)
        self.planning.check(name)

    def close(self) -> None:
        """A rewrite that runs is left alone: its files are named by nothing. What deletes files ends soon."""
        self.cleaning.close()  # Python waits for its threads before it ends
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._measured is not None:
            forget(self._measured)

    def _turn(self, owner: Owning) -> None:
        self.rewriting.land(owner)
        self.cleaning.collect()
        if (planned := self.planning.collect()) is not None:
            self.rewriting.take(*planned)
        if self.rewriting.running is None:
            self._go_on(owner)
        self._plan_again(owner)
        order_manifests(owner, self.journal, self.planning.taken_together())
        if self.journal.is_due("expire"):
            expire(owner, self.journal, self._settings.snapshots_seconds, self._expired_min)
        running = self.rewriting.running
        self.cleaning.begin(owner, frozenset() if running is None else running.in_use)

    def _go_on(self, owner: Owning) -> None:
        """While no rewrite runs."""
        if self.planning.running is None and raise_unit(owner, self.journal):
            self.rewriting.forget()
        self.rewriting.start(owner)

    def _plan_again(self, owner: Owning) -> None:
        is_due = self.journal.is_due("plan") and (not self.waiting or self.journal.is_due("replan"))
        if self.planning.running is None and is_due:
            self.planning.begin(owner, self.rewriting.waiting)

    def _futures(self) -> Iterator[Future[Any]]:
        """What runs."""
        rewrite = self.rewriting.running
        running = (
            None if rewrite is None else rewrite.future,
            self.planning.running,
            self.cleaning.sweeping,
            self.cleaning.searching,
            self.cleaning.tending,
        )
        return (future for future in running if future is not None)
