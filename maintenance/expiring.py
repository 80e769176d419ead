"""Take old snapshots out of the metadata, in a commit of the owner's; their files stay (``sweep``)."""

from __future__ import annotations

import logging
import uuid
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from thermocline.errors import CommitRejected
from thermocline.failpoints import failpoint
from thermocline.iceberg.expired import ExpiryNote, remove_note, write_note
from thermocline.iceberg.leases import leased_snapshots
from thermocline.ingest.commit.change import TableChange
from thermocline.ingest.commit.commit import Landed, Rejected, Unknown
from thermocline.ingest.commit.unknown import notes
from thermocline.maintenance.expiry import EXPIRED_AT_ONCE_MAX, KeepRule, expirable
from thermocline.maintenance.owning import loader_of
from thermocline.maintenance.sweep import may_delete_files
from thermocline.process.logs import fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from thermocline.maintenance.journal import Journal
    from thermocline.maintenance.owning import Owning

__all__ = ["EXPIRED_MIN", "expire"]

EXPIRE_SECONDS: Final = 600.0
EXPIRED_MIN: Final = 20
"""Fewer wait: each expiry adds a snapshot of its own."""

_logger = logging.getLogger(__name__)


def expire(owner: Owning, journal: Journal, kept_seconds: float, expired_min: int) -> None:
    """Expire what is older, unless there is little of it, or something is in the way.

    Raises what says that the table is not ours, or that the commit is unknown.
    """
    journal.put_off("expire", EXPIRE_SECONDS)
    try:
        table, now_ms = loader_of(owner)(), journal.clock.now_ms()
        old = _old(table, kept_seconds, now_ms)
        current = table.current_snapshot()
        if len(old) < expired_min or current is None:
            return
        if current.snapshot_id != owner.position.snapshot_id:
            return
        # safety: noted-before-expired
        note = ExpiryNote.of(now_ms, str(uuid.uuid4()), old)
        write_note(table, note)
        failpoint("expiry.noted")
    except Exception as failure:  # noqa: BLE001  whatever it is, it must not end ingest
        journal.failed("expire", failure)
        return
    _commit(owner, journal, table, note, [snapshot.snapshot_id for snapshot in old])


def _old(table: Table, kept_seconds: float, now_ms: int) -> list[Snapshot]:
    """None where files may not be deleted, or a commit is unknown."""
    io, location = table.io, table.location()
    if not may_delete_files(table):
        return []
    if any(True for _ in notes(io, location)):  # safety: expiry-waits-for-unknown
        # Whether they landed is read in the history.
        _logger.warning("no snapshot expires while a commit is unknown", extra=fields(location=location))
        return []
    leased = leased_snapshots(io, location, now_ms)
    return expirable(table, leased, KeepRule(kept_seconds), now_ms)


def _commit(owner: Owning, journal: Journal, table: Table, note: ExpiryNote, expired: Sequence[int]) -> None:
    match owner.land(replace(TableChange.carrying_on(owner.position), expired=tuple(expired))):
        case Landed(snapshot_id, _):
            journal.add(expired=len(expired))
            if len(expired) == EXPIRED_AT_ONCE_MAX:
                journal.hasten("expire")
            _logger.info(
                "snapshots expired",
                extra=fields(table=owner.definition.name, snapshot_id=snapshot_id, expired=len(expired)),
            )
        case Rejected(error):
            with suppress(OSError):
                remove_note(table, note)
            if not isinstance(error, CommitRejected):
                raise error
            journal.failed("expire", error)
            journal.put_off("expire", EXPIRE_SECONDS)
        case Unknown(error):
            raise error
