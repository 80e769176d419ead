"""Notes of snapshots that left a table's metadata: which files they had, and what they said of the log.

Maintenance writes one before it expires snapshots, and marks it when it sees that they are gone: the commit
may have landed much later than it was noted. Their files are deleted long after that; then the note goes to
the table's history, for those who judge old records (``reading``). A note is of one table, by its UUID:
another one may have been made in the same place.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.table.snapshots import Snapshot

from thermocline.errors import first_line
from thermocline.iceberg.files import beside, listed_folder, read_file, write_file
from thermocline.process.logs import fields

if TYPE_CHECKING:
    from pyiceberg.table import Table

__all__ = [
    "ExpiryNote",
    "expired_lineage",
    "expired_snapshots",
    "forget_history",
    "gone_since_ms",
    "known_notes",
    "last_expiry_ms",
    "mark_gone",
    "remove_note",
    "to_history",
    "waiting_bytes",
    "waiting_notes",
    "write_note",
]

_WAITING: Final = "expired"
_HISTORY: Final = "history"
# Not .gz: PyArrow compresses by itself what is named so.
_ENDING: Final = ".json.zlib"
_MARK: Final = ".gone"
_TIME_DIGITS: Final = 15
_READS_AT_ONCE: Final = 16
"""Of three months there may be thousands of notes; an object store takes some 30 ms for each."""
_REMOVED_BYTES: Final = "removed-files-size"
"""In the summary that Iceberg itself writes: of the data and delete files that a commit removed."""
_KEPT: Final = ("operation", "thermocline.")
"""How what is kept of a summary begins where many snapshots are held: the rest counts files and rows."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ExpiryNote:
    """Snapshots that were, or were to be, expired together, noted at a time. Names sort by that time."""

    name: str
    expired_ms: int
    snapshots: tuple[Snapshot, ...]

    @classmethod
    def of(cls, expired_ms: int, unique: str, snapshots: Iterable[Snapshot]) -> ExpiryNote:
        """A new one."""
        return cls(f"{expired_ms:0{_TIME_DIGITS}}-{unique}", expired_ms, tuple(snapshots))

    def without(self, ids: Collection[int]) -> tuple[Snapshot, ...]:
        """Its snapshots but for these."""
        return tuple(one for one in self.snapshots if one.snapshot_id not in ids)


def write_note(table: Table, note: ExpiryNote) -> None:
    """Write a note, whose files wait from now on. Raises `OSError`."""
    _write(table, _WAITING, note)


def mark_gone(table: Table, note: ExpiryNote, now_ms: int) -> None:
    """Write down that the metadata does not have its snapshots any more. Raises `OSError`."""
    write_file(table.io, _mark_path(table, note), str(now_ms).encode())


def gone_since_ms(table: Table, note: ExpiryNote) -> int | None:
    """When its snapshots were seen to be gone; None where it is not marked, or half. Raises `OSError`."""
    try:
        digits = read_file(table.io, _mark_path(table, note)).decode()
    except FileNotFoundError:
        return None
    # A mark that a process died on may have lost its end, and so say that it is long ago.
    return int(digits) if digits.isdecimal() and len(digits) == len(str(note.expired_ms)) else None


def to_history(table: Table, note: ExpiryNote) -> None:
    """Its files are deleted; what its snapshots said stays. Raises `OSError`."""
    if note.snapshots:
        _write(table, _HISTORY, note)
    remove_note(table, note)


def remove_note(table: Table, note: ExpiryNote) -> None:
    """Remove a note of files that wait, its mark first. Raises `OSError`."""
    with suppress(FileNotFoundError):
        table.io.delete(_mark_path(table, note))
    table.io.delete(_path(table, _WAITING, note.name))


def waiting_notes(table: Table) -> Iterator[ExpiryNote]:
    """The table's notes whose files wait to be deleted, oldest first.

    One that is damaged is passed over with a warning: a process died while it wrote it, so nothing that it
    was to name had expired. Raises `OSError`.
    """
    return _notes(table, _WAITING)


def expired_lineage(table: Table, snapshot_id: int) -> Iterator[Snapshot]:
    """An expired snapshot and those before it, newest first, as far as they are known.

    They lack what Iceberg itself counts. Single ones may still be in the metadata. Notes are read as they are
    needed. Raises `OSError`.
    """
    known = {snapshot.snapshot_id: snapshot for snapshot in table.snapshots()}
    notes = known_notes(table)
    wanted: int | None = snapshot_id
    while wanted is not None:
        while wanted not in known:
            note = next(notes, None)
            if note is None:
                return
            known |= expired_snapshots([note])
        snapshot = known.pop(wanted)
        yield snapshot
        wanted = snapshot.parent_snapshot_id


def known_notes(table: Table) -> Iterator[ExpiryNote]:
    """Those that wait and then the history, each newest first, without what Iceberg itself counts.

    Raises `OSError`.
    """
    # In this order: a note may go from the one to the other meanwhile.
    return chain.from_iterable(
        _notes(table, folder, is_newest_first=True, is_trimmed=True) for folder in (_WAITING, _HISTORY)
    )


def expired_snapshots(notes: Iterable[ExpiryNote]) -> dict[int, Snapshot]:
    """The snapshots of notes, by id."""
    return {snapshot.snapshot_id: snapshot for note in notes for snapshot in note.snapshots}


def waiting_bytes(table: Table, notes: Iterable[ExpiryNote]) -> int:
    """About what the files take that only the snapshots of waiting notes have.

    By what each snapshot that followed one of them says that it removed; nothing but the notes is read.
    """
    waiting = expired_snapshots(notes)
    held = {snapshot.snapshot_id: snapshot for snapshot in table.snapshots()}
    followers = [one for one in (held | waiting).values() if one.parent_snapshot_id in waiting]
    summaries = [one.summary.additional_properties for one in followers if one.summary is not None]
    return sum(int(summary.get(_REMOVED_BYTES, "0")) for summary in summaries)


def forget_history(table: Table, before_ms: int) -> None:
    """Remove what is older from the history. Raises `OSError`."""
    for name in _names(table, _HISTORY):
        if _expired_ms(name) < before_ms:
            table.io.delete(_path(table, _HISTORY, name))


def last_expiry_ms(table: Table) -> int | None:
    """When snapshots were last expired, in milliseconds since 1970; None where nothing says so."""
    names = (name for folder in (_WAITING, _HISTORY) for name in _names(table, folder))
    return max(map(_expired_ms, names), default=None)


def _write(table: Table, folder: str, note: ExpiryNote) -> None:
    document = {
        "table-uuid": str(table.metadata.table_uuid),
        "expired-ms": note.expired_ms,
        "snapshots": [snapshot.model_dump(mode="json", by_alias=True) for snapshot in note.snapshots],
    }
    write_file(table.io, _path(table, folder, note.name), zlib.compress(json.dumps(document).encode()))


def _notes(
    table: Table, folder: str, is_newest_first: bool = False, is_trimmed: bool = False
) -> Iterator[ExpiryNote]:
    names = sorted(_names(table, folder), reverse=is_newest_first)
    with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
        for at in range(0, len(names), _READS_AT_ONCE):
            some = names[at : at + _READS_AT_ONCE]
            contents = pool.map(lambda name: _content(table, _path(table, folder, name)), some)
            for name, content in zip(some, contents, strict=True):
                if content is not None and (note := _read(table, name, content, is_trimmed)) is not None:
                    yield note


def _content(table: Table, path: str) -> bytes | None:
    try:
        return read_file(table.io, path)
    except FileNotFoundError:  # it went since it was listed
        return None


def _read(table: Table, name: str, content: bytes, is_trimmed: bool) -> ExpiryNote | None:
    """The note; None where it is damaged, or of another table."""
    try:
        document = json.loads(zlib.decompress(content))
        listed = map(_trimmed, document["snapshots"]) if is_trimmed else document["snapshots"]
        snapshots = tuple(Snapshot.model_validate(one) for one in listed)
        is_ours = document["table-uuid"] == str(table.metadata.table_uuid)
        expired_ms = document["expired-ms"]
    except (zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
        _logger.warning(
            "not a note of expired snapshots",
            extra=fields(name=name, detail=first_line(error)),
        )
        return None
    if is_ours:  # safety: notes-of-this-table
        return ExpiryNote(name, expired_ms, snapshots)
    return None


def _trimmed(snapshot: dict[str, Any]) -> dict[str, Any]:
    summary = snapshot.get("summary") or {}
    kept = {name: value for name, value in summary.items() if name.startswith(_KEPT)}
    return {**snapshot, "summary": kept or None}


def _names(table: Table, folder: str) -> Iterator[str]:
    for file in listed_folder(table.io, _folder(table, folder)):
        if file.path.endswith(_ENDING):
            yield file.path.rpartition("/")[2].removesuffix(_ENDING)


def _expired_ms(name: str) -> int:
    with suppress(ValueError):
        return int(name[:_TIME_DIGITS])
    return 0


def _folder(table: Table, folder: str) -> str:
    return beside(table.location(), folder)


def _path(table: Table, folder: str, name: str) -> str:
    return f"{_folder(table, folder)}/{name}{_ENDING}"


def _mark_path(table: Table, note: ExpiryNote) -> str:
    return f"{_folder(table, _WAITING)}/{note.name}{_MARK}"
