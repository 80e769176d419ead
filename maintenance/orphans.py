"""Files below a table's location that no snapshot has, nor ever will: what crashes and lost answers left.

A file is deleted only when it was seen to be an orphan twice, a day apart, and is old; when its age is known;
when the place is the table's alone; and when all of them together are not surprisingly many. The first
sighting is a dry run: it is noted, and `thermocline maintain orphans` shows it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from thermocline.failpoints import failpoint
from thermocline.iceberg.expired import expired_snapshots, waiting_notes
from thermocline.iceberg.files import StoredFile, delete_files, listed_folder, place_of
from thermocline.iceberg.orphan_note import read_sightings, write_sightings
from thermocline.ingest.commit.purge import reasons_against
from thermocline.ingest.commit.unknown import BrokenNote, UnknownCommit
from thermocline.ingest.commit.unknown import notes as unknown_notes
from thermocline.maintenance.sweep import check_not_stopped, reachable_from
from thermocline.process.logs import fields

if TYPE_CHECKING:
    from threading import Event

    from pyiceberg.table import Table

__all__ = ["Orphan", "Orphans", "find_orphans", "remove_orphans"]

SEEN_APART_MS: Final = 86_400_000
"""Between the sighting and the deletion."""
AGE_MS_MIN: Final = 3 * 86_400_000
"""Longer than any batch, rewrite or extract of another tool takes to commit what it has written."""
SURPRISING_SHARE: Final = 0.1
SURPRISING_COUNT: Final = 100
"""More orphans than both, the share being of all files: somebody looks at them first."""
_ROOMS: Final = ("data", "metadata", "thermocline/moves")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Orphan:
    """A file that nothing names, and when it was first seen to be one."""

    path: str
    bytes: int
    modified_ms: int
    seen_ms: int

    def is_due(self, now_ms: int) -> bool:
        """Whether it was seen long enough ago."""
        return self.seen_ms <= now_ms - SEEN_APART_MS  # safety: orphans-seen-twice


@dataclass(frozen=True, slots=True)
class Orphans:
    """The orphans of a table, and how many files it has in all.

    ``shared`` says why the place may be another table's too; then nothing is deleted.
    """

    found: tuple[Orphan, ...]
    files: int
    shared: str = ""

    def due(self, now_ms: int) -> list[Orphan]:
        """Those that may be deleted."""
        return [orphan for orphan in self.found if orphan.is_due(now_ms)]

    def is_surprising(self, now_ms: int) -> bool:
        """Whether they are more than crashes explain."""
        count = len(self.due(now_ms))
        return count > max(SURPRISING_COUNT, SURPRISING_SHARE * self.files)


def find_orphans(table: Table, now_ms: int, stop: Event | None = None) -> Orphans:
    """Look for them. What is seen for the first time is noted as seen only by `remove_orphans`.

    Raises `OSError` where the store does not answer, `ValueError` where a note is damaged, and
    `maintenance.sweep.Stopped` where it is told to ``stop``.
    """
    shared = next((why for _, why in reasons_against(table.catalog, [table])), "")
    location = table.location().rstrip("/")
    # Listed first: what a commit names by the time the metadata is read is no orphan.
    listed = (file for room in _ROOMS for file in listed_folder(table.io, f"{location}/{room}", True))
    stored = [file for file in listed if _is_ours(file)]
    failpoint("orphans.listed")
    named = _named(table.refresh(), stop)
    seen = read_sightings(table)
    found = [
        Orphan(file.path, file.bytes, file.modified_ms, seen.get(file.path, (now_ms,))[0])
        for file in stored
        if place_of(file.path) not in named and _is_old(file, now_ms) and file.modified_ms is not None
    ]
    return Orphans(tuple(found), len(stored), shared)


def remove_orphans(table: Table, now_ms: int, approved: int | None = None, stop: Event | None = None) -> int:
    """Delete the orphans that are due, and note those that were seen for the first time; how many went.

    ``approved`` is how many somebody expects at most: then it is done even where they are surprisingly many.
    Raises what `find_orphans` raises, and `Stopped` also between two files.
    """
    orphans = find_orphans(table, now_ms, stop)
    name = ".".join(table.name())
    if orphans.shared:  # safety: orphans-not-shared
        _logger.warning("orphans are not looked for", extra=fields(table=name, detail=orphans.shared))
        return 0
    due = orphans.due(now_ms)
    if orphans.is_surprising(now_ms) and (
        approved is None or len(due) > approved
    ):  # safety: orphans-not-surprising
        _logger.warning(
            "surprisingly many orphans: nothing is deleted",
            extra=fields(table=name, orphans=len(due), files=orphans.files),
        )
        due = []
    deleted = delete_files(table.io, _until_stopped([orphan.path for orphan in due], stop))
    gone = {orphan.path for orphan in due}
    _note(table, [orphan for orphan in orphans.found if orphan.path not in gone])
    if deleted:
        _logger.info("orphans deleted", extra=fields(table=name, deleted_files=deleted))
    return deleted


def _until_stopped(paths: Iterable[str], stop: Event | None) -> Iterator[str]:
    for path in paths:
        check_not_stopped(stop)
        yield path


def _is_ours(file: StoredFile) -> bool:
    """Hidden files are others' bookkeeping, such as Hadoop's checksums beside local files."""
    return not file.path.rpartition("/")[2].startswith(".")


def _is_old(file: StoredFile, now_ms: int) -> bool:
    # safety: orphans-are-old
    return file.modified_ms is not None and file.modified_ms < now_ms - AGE_MS_MIN


def _named(table: Table, stop: Event | None) -> set[str]:
    """The places of all that the table needs, or may."""
    io, location, metadata = table.io, table.location(), table.metadata
    expired = expired_snapshots(waiting_notes(table))
    named = reachable_from(io, table.snapshots(), stop=stop).places()
    named |= reachable_from(io, expired.values(), but=named, may_be_gone=True, stop=stop).places()
    others = [table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)]
    others += [one.statistics_path for one in (*metadata.statistics, *metadata.partition_statistics)]
    # safety: orphans-spare-unknown
    others += [path for note in unknown_notes(io, location) for path in _files_of(note)]
    return named | {place_of(path) for path in others}


def _files_of(note: UnknownCommit | BrokenNote) -> tuple[str, ...]:
    if isinstance(note, BrokenNote):  # safety: orphans-wait-for-broken-notes
        detail = f"{note.path} can't be read ({note.detail}): see thermocline ingest reconcile"
        raise ValueError(detail)  # noqa: TRY004  (it is the content that is wrong)
    return note.files


def _note(table: Table, orphans: Iterable[Orphan]) -> None:
    write_sightings(table, {orphan.path: (orphan.seen_ms, orphan.bytes) for orphan in orphans})
