"""The metrics of maintenance, set from what upkeep has done and planned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import Gauge

from thermocline.process.metrics import REGISTRY

if TYPE_CHECKING:
    from maintenance.plan import Plan
    from maintenance.upkeep import Done

__all__ = ["observe"]

_TABLE: Final = ("table",)


def _gauge(name: str, meaning: str) -> Gauge:
    return Gauge(f"thermocline_maintenance_{name}", meaning, _TABLE, registry=REGISTRY)


_DEBT: Final = _gauge("debt_seconds", "How long all rewrites that are worth it would take one core.")
_WANTED: Final = _gauge("wanted_rewrites", "Buckets that are worth a rewrite.")
_LAST: Final = _gauge("last_turn_timestamp_seconds", "When maintenance last had a turn.")
# Since the process took the table.
_DONE: Final = {
    "rewrites": _gauge("rewrites", "Rewrites that landed."),
    "dropped": _gauge("dropped_rewrites", "Rewrites whose work was thrown away."),
    "failures": _gauge("failures", "Steps that failed, and are tried again."),
    "seconds": _gauge("rewrite_seconds", "Time spent on rewrites."),
    "read_bytes": _gauge("read_bytes", "Bytes of the files that rewrites read."),
    "written_bytes": _gauge("written_bytes", "Bytes of the files that rewrites wrote."),
    "dead_rows": _gauge("removed_dead_rows", "Deleted rows that rewrites left out."),
    "expired": _gauge("expired_snapshots", "Snapshots that left the metadata."),
    "swept_files": _gauge("swept_files", "Files of expired snapshots that were deleted."),
    "orphans": _gauge("deleted_orphans", "Orphans that were deleted."),
}


def observe(table: str, done: Done, plan: Plan | None, now_seconds: float) -> None:
    """After a turn."""
    _LAST.labels(table).set(now_seconds)
    if plan is not None:
        _DEBT.labels(table).set(plan.debt_seconds)
        _WANTED.labels(table).set(len(plan.wanted))
    for name, gauge in _DONE.items():
        gauge.labels(table).set(getattr(done, name))
