"""Say from time to time what is worth doing: the files are measured in a thread, and ``plan`` weighs them.

Also says how far rewrites are behind, and what follows from that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from thermocline.errors import ForeignSnapshot, MaintenanceBehind
from thermocline.iceberg.catalog import current_state
from thermocline.iceberg.read_counts import read_rates
from thermocline.maintenance.journal import RETRY_SECONDS
from thermocline.maintenance.manifests import buckets_together
from thermocline.maintenance.measure import Measurer
from thermocline.maintenance.owning import loader_of
from thermocline.maintenance.plan import Budget, Costs, Plan, Reads, plan_of
from thermocline.process.logs import fields

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table

    from thermocline.ingest.commit.change import ManifestContent
    from thermocline.maintenance.journal import Journal
    from thermocline.maintenance.owning import Owning
    from thermocline.rules.definition import LiveTable
    from thermocline.settings import MaintenanceSettings

__all__ = ["BEHIND_PLANS", "DEBT_HOURS_MAX", "PLAN_SECONDS", "Planning", "Waiting"]

PLAN_SECONDS: Final = 30.0
"""Between two plans: measuring reads what is new in the metadata."""
REPLAN_SECONDS: Final = 600.0
"""Between them where the rewrites of the first one are not done yet."""
DEBT_HOURS_WARN: Final = 6.0
"""Of one core, for all rewrites that are worth it."""
DEBT_HOURS_SLOW: Final = 12.0
DEBT_HOURS_MAX: Final = 24.0
"""A day of work: within a day a rewrite has to pay for itself, so this can't be made good any more."""
BEHIND_PLANS: Final = 6
"""So many plans in a row above it, none below the one before, stop ingest: about an hour."""
SLOWDOWN: Final = 4.0
"""By which commits are farther apart then: fewer and larger files, for fewer rewrites."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Waiting:
    """What rewrites say to the next plan.

    What they may still spend, for how many hours buckets have been worth a rewrite, and which files are left
    out, since rewrites of them failed.
    """

    budget: Budget
    hours: Mapping[int, float]
    left_out: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Planned:
    plan: Plan
    io: FileIO
    measuring_seconds: float
    metadata_bytes: int
    buckets_together: dict[ManifestContent, int]


class Planning:
    """Of one table. ``plan`` is the newest one."""

    def __init__(
        self, settings: MaintenanceSettings, journal: Journal, thread: Executor, debt_hours_max: float
    ) -> None:
        self.settings = settings
        self.plan: Plan | None = None
        self._buckets_together: dict[ManifestContent, int] = {}
        self.behind_plans = 0
        self._journal, self._thread = journal, thread
        self._debt_hours_max = debt_hours_max
        self._measurer: Measurer | None = None
        self.running: Future[_Planned] | None = None

    @property
    def slowdown(self) -> float:
        """By how much commits should be farther apart: more of them would only add to the debt."""
        return SLOWDOWN if self._debt_hours >= DEBT_HOURS_SLOW else 1.0

    @property
    def _debt_hours(self) -> float:
        return 0.0 if self.plan is None else self.plan.debt_seconds / 3600

    def begin(self, owner: Owning, waiting: Waiting) -> None:
        """In the thread."""
        self.running = self._thread.submit(self._plan, loader_of(owner), owner.definition, waiting)

    def collect(self) -> tuple[Plan, FileIO] | None:
        """A plan that is ready, once, with the io of the table that was loaded for it.

        Raises `ForeignSnapshot`.
        """
        if self.running is None or not self.running.done():
            return None
        running, self.running = self.running, None
        try:
            planned = running.result()
        except ForeignSnapshot:
            self._journal.put_off("plan", RETRY_SECONDS)
            raise
        except Exception as error:  # noqa: BLE001  whatever it is, it must not end ingest
            self._journal.failed("plan", error)
            return None
        self._take(planned)
        return planned.plan, planned.io

    def taken_together(self) -> dict[ManifestContent, int]:
        """What the last plan says of manifests (`TableChange.buckets_together`), once."""
        together, self._buckets_together = self._buckets_together, {}
        return together

    def check(self, name: str) -> None:
        """Raises `MaintenanceBehind` where rewrites have fallen behind for good."""
        if self.behind_plans >= BEHIND_PLANS:
            hours = round(self._debt_hours, 1)
            raise MaintenanceBehind(table=name, hours=hours, max_hours=self._debt_hours_max)

    def _plan(self, load: Callable[[], Table], definition: LiveTable, waiting: Waiting) -> _Planned:
        if self._measurer is None or self._measurer.definition != definition:
            self._measurer = Measurer(definition)
        clock = self._journal.clock
        table = load()
        current_state(table, definition.name)  # what others made of it is not ours to plan for
        counted = read_rates(table.io, table.location(), clock.now_ms())
        reads = Reads.of(self.settings, definition, counted)
        began = clock.monotonic()
        measured = self._measurer.measure(table, clock.now_ms())
        measuring_seconds = clock.monotonic() - began
        plan = plan_of(
            measured.without(waiting.left_out),
            self.settings.target_file_bytes,
            reads,
            Costs(),
            waiting.budget,
            waiting.hours,
        )
        together = buckets_together(measured, definition.buckets_written)
        return _Planned(plan, table.io, measuring_seconds, measured.metadata_bytes, together)

    def _take(self, planned: _Planned) -> None:
        before = self._debt_hours
        self.plan, self._buckets_together = planned.plan, planned.buckets_together
        self._journal.note(measuring_seconds=planned.measuring_seconds, metadata_bytes=planned.metadata_bytes)
        self._journal.put_off("plan", PLAN_SECONDS)
        self._journal.put_off("replan", REPLAN_SECONDS)
        is_worse = self._debt_hours >= max(before, self._debt_hours_max)
        self.behind_plans = self.behind_plans + 1 if is_worse else 0
        if self._debt_hours >= DEBT_HOURS_WARN:
            _logger.warning(
                "maintenance is behind",
                extra=fields(debt_hours=round(self._debt_hours, 1), commit_interval_factor=self.slowdown),
            )
