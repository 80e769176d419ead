"""The metrics of maintenance, set from what upkeep has done and planned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import Gauge

from thermocline.process.metrics import REGISTRY

if TYPE_CHECKING:
    from thermocline.maintenance.journal import Done, Seen
    from thermocline.maintenance.plan import Plan

__all__ = ["forget", "observe"]

_TABLE: Final = ("table",)


def _gauge(name: str, meaning: str) -> Gauge:
    return Gauge(f"thermocline_maintenance_{name}", meaning, _TABLE, registry=REGISTRY)


DEBT: Final = _gauge("debt_seconds", "Time that all worthwhile rewrites would take one core, in seconds.")
WANTED: Final = _gauge("wanted_rewrites", "Buckets that are worth rewriting.")
LAST_TURN: Final = _gauge("last_turn_timestamp_seconds", "Unix time at which maintenance last had a turn.")
MEASURING: Final = _gauge(
    "measuring_seconds", "Time it last took to read what was new in the manifests, in seconds."
)
METADATA_BYTES: Final = _gauge(
    "metadata_bytes",
    "Size of the table's metadata file, of its snapshot's manifests and of their list, in bytes.",
)
WAITING_BYTES: Final = _gauge(
    "waiting_bytes", "Approximate size of the expired files that wait to be deleted, in bytes."
)
ORPHAN_BYTES: Final = _gauge(
    "orphan_bytes", "Size of the orphans that were found and are not deleted yet, in bytes."
)
# Since the process took the table.
REWRITES: Final = _gauge("rewrites", "Rewrites that landed.")
DROPPED: Final = _gauge("dropped_rewrites", "Rewrites whose work was discarded.")
MANIFEST_REWRITES: Final = _gauge("manifest_rewrites", "Rewrites that put manifests in order of buckets.")
FAILURES: Final = _gauge("failures", "Maintenance steps that failed and are tried again.")
SECONDS: Final = _gauge("rewrite_seconds", "Time spent on rewrites, in seconds.")
READ_BYTES: Final = _gauge("read_bytes", "Size of the files that rewrites read, in bytes.")
WRITTEN_BYTES: Final = _gauge("written_bytes", "Size of the files that rewrites wrote, in bytes.")
DEAD_ROWS: Final = _gauge("removed_dead_rows", "Deleted rows that rewrites dropped from the files.")
EXPIRED: Final = _gauge("expired_snapshots", "Expired snapshots that were taken out of the table's metadata.")
SWEPT: Final = _gauge("swept_files", "Files of expired snapshots that were deleted.")
ORPHANS: Final = _gauge("deleted_orphans", "Orphans that were deleted.")
_GAUGES: Final = tuple(metric for metric in globals().values() if isinstance(metric, Gauge))


def observe(table: str, done: Done, seen: Seen, plan: Plan | None, now_seconds: float) -> None:
    """After a turn."""
    for gauge, value in (
        (MEASURING, seen.measuring_seconds),
        (METADATA_BYTES, seen.metadata_bytes),
        (WAITING_BYTES, seen.waiting_bytes),
        (ORPHAN_BYTES, seen.orphan_bytes),
    ):
        if value is not None:
            gauge.labels(table).set(value)
    LAST_TURN.labels(table).set(now_seconds)
    if plan is not None:
        DEBT.labels(table).set(plan.debt_seconds)
        WANTED.labels(table).set(len(plan.wanted))
    REWRITES.labels(table).set(done.rewrites)
    DROPPED.labels(table).set(done.dropped)
    MANIFEST_REWRITES.labels(table).set(done.manifest_rewrites)
    FAILURES.labels(table).set(done.failures)
    SECONDS.labels(table).set(done.seconds)
    READ_BYTES.labels(table).set(done.read_bytes)
    WRITTEN_BYTES.labels(table).set(done.written_bytes)
    DEAD_ROWS.labels(table).set(done.dead_rows)
    EXPIRED.labels(table).set(done.expired)
    SWEPT.labels(table).set(done.swept_files)
    ORPHANS.labels(table).set(done.orphans)


def forget(table: str) -> None:
    """Nobody in this process maintains the table any more."""
    for gauge in _GAUGES:
        gauge.remove_by_labels({"table": table})
