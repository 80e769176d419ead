"""Settle unknown commits: once main has moved past what they were planned on, the history tells.

A new owner's first commit moves main, and is made before this. A request that was still under way then either
landed before that, and is in the history, or hits a table that has moved on, and never can.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from thermocline.failpoints import failstep
from thermocline.iceberg.catalog import SUMMARY_BATCH, ancestors
from thermocline.iceberg.files import data_location
from thermocline.ingest.commit.unknown import BrokenNote, UnknownCommit, note_path, notes, remove_note
from thermocline.process.logs import fields

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

_COMMAND = "thermocline ingest reconcile {}"
_logger = logging.getLogger(__name__)


class Resolution(StrEnum):
    """What became of an unknown commit."""

    LANDED = "landed"
    NOT_LANDED = "not landed"  # proven: its files are deleted
    UNPROVEN = "unproven"  # the history doesn't reach back so far: its files are kept, for orphan removal
    OPEN = "open"  # main has not moved since: it may still land
    UNREADABLE = "unreadable"  # its note can't be read: its files are kept, for orphan removal


@dataclass(frozen=True, slots=True)
class Settled:
    """An unknown commit and what became of it."""

    batch_id: str
    ranges: str
    verdict: Resolution
    files_deleted: int
    note: str = ""
    """Of one whose note is unreadable: where that is."""


def settle_unknown(table: Table, name: str) -> tuple[Settled, ...]:
    """Settle every noted commit of a table that this process owns; ``table`` is as after taking ownership.

    Safe to repeat, and to be interrupted: a note goes last, and only when all of its files could be deleted.
    Notes that can't be read are settled the next time; they must not keep ingest from working.
    """
    done: list[Settled] = []
    try:
        for note in notes(table.io, table.location()):
            settled = _unreadable(name, note) if isinstance(note, BrokenNote) else _settle(table, name, note)
            done.append(settled)  # it stays done where the next is unread
    except OSError as error:
        _logger.warning("notes of unknown commits not read", extra=fields(table=name, detail=str(error)))
    for one in done:
        if one.verdict == Resolution.UNREADABLE:
            continue
        _logger.info(
            "unknown commit reconciled",
            extra=fields(
                table=name, batch_id=one.batch_id, verdict=one.verdict.value, files_deleted=one.files_deleted
            ),
        )
    return tuple(done)


def verdict_of(note: UnknownCommit, table: Table) -> Resolution:
    """What the table's history says of an unknown commit."""
    if any(_batch_of(snapshot) == note.batch_id for snapshot in table.snapshots()):
        return Resolution.LANDED  # though it may have been rolled back since  # safety: settle-landed
    current = table.current_snapshot()
    if current is None or current.snapshot_id == note.planned_on:  # safety: settle-after-main-moved
        return Resolution.OPEN
    history = (snapshot.snapshot_id for snapshot in ancestors(table))
    # safety: settle-unproven
    return Resolution.NOT_LANDED if note.planned_on in history else Resolution.UNPROVEN


def _unreadable(name: str, note: BrokenNote) -> Settled:
    """Says so each time, until somebody has deleted the note."""
    extra = fields(table=name, path=note.path, detail=note.detail, next=_COMMAND.format(name))
    _logger.warning("the note of an unknown commit can't be read", extra=extra)
    return Settled(note.batch_id, "", Resolution.UNREADABLE, 0, note.path)


def _elsewhere(table: Table, note: UnknownCommit) -> str | None:
    """A file that the note names and that is not below the table's folders."""
    roots = tuple(f"{root.rstrip('/')}/" for root in (table.location(), data_location(table)))
    paths = (path for path in note.files if not path.startswith(roots) or ".." in path.split("/"))
    return next(paths, None)


def _settle(table: Table, name: str, note: UnknownCommit) -> Settled:
    if elsewhere := _elsewhere(table, note):  # safety: settle-own-files
        path = note_path(table.location(), note.batch_id)
        return _unreadable(name, BrokenNote(path, f"it names {elsewhere}, which is no file of the table"))
    verdict = verdict_of(note, table)
    deleted = 0
    try:
        if verdict == Resolution.NOT_LANDED:
            for path in note.files:
                deleted += _delete(table.io, path)
        if verdict != Resolution.OPEN:
            remove_note(table.io, table.location(), note.batch_id)
    except OSError as error:  # what is left is settled the next time; it must not keep ingest from working
        _logger.warning(
            "unknown commit not reconciled", extra=fields(batch_id=note.batch_id, detail=str(error))
        )
    return Settled(note.batch_id, note.ranges, verdict, deleted)


def _delete(io: FileIO, path: str) -> bool:
    try:
        with failstep("settle.delete"):
            io.delete(path)
    except FileNotFoundError:  # an interrupted settling has deleted it  # safety: settle-note-last
        return False
    return True


def _batch_of(snapshot: Snapshot) -> str | None:
    return snapshot.summary.additional_properties.get(SUMMARY_BATCH) if snapshot.summary else None
