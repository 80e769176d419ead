"""Maintenance seen from outside: what it would do and why, and when it last did it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from thermocline.errors import BadParameter
from thermocline.iceberg.catalog import definition_of, open_table
from thermocline.iceberg.expired import last_expiry_ms, waiting_bytes, waiting_notes
from thermocline.iceberg.files import store_named
from thermocline.iceberg.lineage import lineage
from thermocline.iceberg.orphan_note import seen_orphan_bytes
from thermocline.iceberg.read_counts import read_rates
from thermocline.maintenance.measure import BucketMeasure, Measurer, TableMeasure
from thermocline.maintenance.plan import Budget, CostModel, Costs, Plan, Reads, plan_of
from thermocline.process.clock import SystemClock

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.settings import MaintenanceSettings, Settings

__all__ = ["Examined", "LastRuns", "examine"]


@dataclass(frozen=True, slots=True)
class LastRuns:
    """When something was last done, in milliseconds since 1970; None where nothing says it was.

    ``waiting_snapshots`` are expired ones whose files wait to be deleted, and take about ``waiting_bytes``.
    ``orphan_bytes`` are those of orphans that were seen, and are not deleted yet.
    """

    rewritten_ms: int | None
    expired_ms: int | None
    waiting_snapshots: int
    waiting_bytes: int
    orphan_bytes: int


@dataclass(frozen=True, slots=True)
class Examined:
    """A table as it is, and what is worth doing about it; ``measuring_seconds`` is what looking took."""

    table: Table
    settings: MaintenanceSettings
    measured: TableMeasure
    measuring_seconds: float
    reads: Reads
    plan: Plan

    def model(self, bucket: BucketMeasure) -> CostModel:
        """What a bucket costs its readers."""
        return CostModel.of(bucket, self.measured, self.settings.target_file_bytes, self.reads, Costs())

    def bucket(self, number: int, name: str) -> BucketMeasure:
        """One bucket; without files where no row is in it. Raises `BadParameter`."""
        buckets = definition_of(self.table, name).buckets
        if not 0 <= number < buckets:
            problem = f"the buckets of {name} are 0 to {buckets - 1}"
            raise BadParameter(name="BUCKET", problem=problem)
        return self.measured.buckets.get(number, BucketMeasure(number, ()))

    def last_runs(self) -> LastRuns:
        """When it was last rewritten and expired, by its history. Raises `OSError`."""
        rewrites = [link.snapshot.timestamp_ms for link in lineage(self.table) if link.is_rewrite]
        waiting = list(waiting_notes(self.table))
        return LastRuns(
            max(rewrites, default=None),
            last_expiry_ms(self.table),
            sum(len(note.snapshots) for note in waiting),
            waiting_bytes(self.table, waiting),
            seen_orphan_bytes(self.table),
        )


def examine(settings: Settings, name: str, budget: Budget | None = None) -> Examined:
    """Measure a table, from its metadata alone, and plan. Raises `StorageFailed` and the catalog's errors."""
    table = open_table(settings, name)
    ours = settings.maintenance
    definition = definition_of(table, name)
    clock = SystemClock()
    now_ms, began = clock.now_ms(), clock.monotonic()
    with store_named(name):
        measured = Measurer(definition).measure(table, now_ms)
        measuring_seconds = clock.monotonic() - began
        rates = read_rates(table.io, table.location(), now_ms)
    reads = Reads.of(ours, definition, rates)
    planned = plan_of(measured, ours.target_file_bytes, reads, Costs(), budget)
    return Examined(table, ours, measured, measuring_seconds, reads, planned)
