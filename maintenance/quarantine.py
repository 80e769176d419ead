"""The quarantine: its old snapshots expire, and files that only they had, or none, are deleted.

Each batch with bad records adds a snapshot to the companion table. What a replay or a purge took out of the
quarantine is in the store until then. Nobody asks what its snapshots said, so no history of them is kept.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from thermocline.errors import TableMissing
from thermocline.iceberg.expired import ExpiryNote, forget_history, write_note
from thermocline.iceberg.leases import leased_snapshots
from thermocline.maintenance.expiry import EXPIRED_AT_ONCE_MAX, KeepRule, expirable
from thermocline.maintenance.orphans import remove_orphans
from thermocline.maintenance.sweep import check_not_stopped, may_delete_files, sweep

if TYPE_CHECKING:
    from threading import Event

    from pyiceberg.table import Table

    from thermocline.process.clock import Clock

__all__ = ["tend_quarantine"]


def tend_quarantine(
    load: Callable[[], Table],
    kept_seconds: float,
    files_seconds: float,
    clock: Clock,
    orphans_approved: int | None = None,
    stop: Event | None = None,
) -> None:
    """Expire what is older, sweep what has been expired for longer than that, and remove orphans.

    ``load`` gives the companion table as it is then. It may be written to meanwhile. ``orphans_approved`` is
    for `remove_orphans`, as of the table itself. Raises what ``load``, a commit, `sweep` and `remove_orphans`
    raise, and what the store said of a file that it keeps; the next call does what is left.
    """
    now_ms = clock.now_ms()
    try:
        table = load()
    except TableMissing:  # as ingest says itself where it needs it
        return
    while may_delete_files(table) and _expire(table, kept_seconds, now_ms):
        check_not_stopped(stop)
        table = load()
    swept = sweep(load, int(1000 * files_seconds), clock, stop=stop)
    forget_history(table, now_ms)
    remove_orphans(load(), now_ms, orphans_approved, stop)
    if swept.refused is not None:
        raise swept.refused


def _expire(table: Table, kept_seconds: float, now_ms: int) -> bool:
    """Whether there may be more."""
    leased = leased_snapshots(table.io, table.location(), now_ms)
    old = expirable(table, leased, KeepRule(kept_seconds, newest_kept=1), now_ms)
    if old:
        write_note(table, ExpiryNote.of(now_ms, str(uuid.uuid4()), old))
        table.maintenance.expire_snapshots().by_ids([one.snapshot_id for one in old]).commit()
    return len(old) == EXPIRED_AT_ONCE_MAX
