"""Deletes the files of snapshots that were expired long enough ago, unless any other snapshot has them.

What may go is looked for in the expired snapshots alone, and kept where a snapshot names it that the metadata
still has, or one that was expired lately: whoever reads that may still open it. How long that is counts from
when a sweep first saw that the metadata does not have it: its commit may have landed long after it was noted.
Nothing that a commit brings meanwhile can be among it. Each step may be repeated: a note goes only when all
of its files are gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from pyiceberg.manifest import read_manifest_list

from thermocline.failpoints import failpoint
from thermocline.iceberg.expired import (
    ExpiryNote,
    expired_snapshots,
    forget_history,
    gone_since_ms,
    mark_gone,
    remove_note,
    to_history,
    waiting_bytes,
    waiting_notes,
)
from thermocline.iceberg.files import can_list, listed_files, place_of
from thermocline.iceberg.leases import leased_snapshots
from thermocline.process.logs import fields

if TYPE_CHECKING:
    from threading import Event

    from pyiceberg.io import FileIO
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from thermocline.process.clock import Clock

__all__ = [
    "Reachable",
    "Stopped",
    "Swept",
    "check_not_stopped",
    "may_delete_files",
    "reachable_from",
    "sweep",
]

HISTORY_MS: Final = 90 * 86_400_000
"""For so long it stays known what expired snapshots said: Kafka rarely holds records that are older."""
UNLANDED_MS_MAX: Final = 86_400_000
"""A note whose snapshots the metadata still has after that: its commit did not land."""
REFUSED_MAX: Final = 256
"""Files of one note that the store keeps, before the rest of them waits for the next sweep: each may take a
minute to fail."""
_AT_ONCE: Final = 16
"""Requests to the store: on an object store each takes the time of an answer, whatever its size."""

T = TypeVar("T")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep did: files deleted, and bytes of those of which the metadata says it."""

    files: int = 0
    bytes: int = 0
    waiting: int = 0
    """Notes whose files are kept for longer."""
    waiting_bytes: int = 0
    """About what these files take."""
    refused: OSError | None = None
    """What the store said of the first file that it kept. Its note waits, too; others were gone on with."""


class Stopped(Exception):
    """The process is about to end."""


@dataclass(slots=True)
class Reachable:
    """What snapshots name: data and delete files with their bytes, manifests, and lists of manifests."""

    files: dict[str, int]
    manifests: dict[str, int]
    lists: set[str]

    def places(self) -> set[str]:
        """Where all of it is: a file has one place, however its path is written."""
        return {place_of(path) for path in (*self.files, *self.manifests, *self.lists)}

    def without(self, places: Collection[str]) -> Reachable:
        """What is not at one of these places."""
        return Reachable(
            {path: size for path, size in self.files.items() if place_of(path) not in places},
            {path: size for path, size in self.manifests.items() if place_of(path) not in places},
            {path for path in self.lists if place_of(path) not in places},
        )


def reachable_from(
    io: FileIO,
    snapshots: Iterable[Snapshot],
    but: Collection[str] = (),
    may_be_gone: bool = False,
    stop: Event | None = None,
) -> Reachable:
    """What snapshots name, but what is at these places: manifests there are not even read.

    Raises `OSError` where a file can't be read; where it ``may_be_gone`` and is, it is passed over. Raises
    `Stopped`.
    """

    def unless_gone(read: Callable[[], Iterable[T]]) -> Iterable[T]:
        check_not_stopped(stop)
        try:
            return list(read())
        except FileNotFoundError:
            if not may_be_gone:
                raise
            return []

    found = Reachable({}, {}, set())
    manifests: dict[str, ManifestFile] = {}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found.lists = {one.manifest_list for one in snapshots}
        read = pool.map(lambda path: unless_gone(lambda: _manifests(io, path)), found.lists)
        for some in read:
            manifests |= {one.manifest_path: one for one in some if place_of(one.manifest_path) not in but}
        found.manifests = {path: one.manifest_length for path, one in manifests.items()}
        listed = pool.map(lambda one: unless_gone(lambda: listed_files(io, one)), manifests.values())
        for files in listed:
            found.files |= {file.path: file.bytes for file in files}
    return found.without(but)


def sweep(
    load: Callable[[], Table],
    keep_files_ms: int,
    clock: Clock,
    in_use: Collection[str] = (),
    stop: Event | None = None,
) -> Swept:
    """Delete what only snapshots had that were expired longer ago than that, and that no lease names.

    ``load`` gives the table as it is then. Files ``in_use``, which a rewrite is reading, stay. Raises what
    ``load`` raises, `OSError` where the store does not answer, `ValueError` where a lease is damaged, and
    `Stopped` where it is told to ``stop``; the next sweep deletes what is left.
    """
    table = load()
    now_ms = clock.now_ms()  # no earlier: what is gone by now may have gone just before it was loaded
    # Read after the metadata: what has expired by then is noted by now, and what expires meanwhile is in it.
    noted = list(waiting_notes(table))  # safety: notes-after-the-metadata
    check_not_stopped(stop)
    if not may_delete_files(table):
        return _swept(table, noted)
    io = table.io
    leased = leased_snapshots(io, table.location(), now_ms)
    held = {snapshot.snapshot_id for snapshot in table.snapshots()}
    waiting: list[ExpiryNote] = []
    due: list[ExpiryNote] = []
    for note in noted:
        since_ms = _gone_since_ms(table, note, held, now_ms)
        is_due = since_ms is not None and since_ms <= now_ms - keep_files_ms  # safety: swept-since-gone
        if note.without(leased) != note.snapshots:  # safety: swept-not-leased
            is_due = False
        (due if is_due else waiting).append(note)
    if not due:
        return _swept(table, waiting)
    kept = reachable_from(io, table.snapshots(), stop=stop).places()  # safety: sweep-keeps-reachable
    # Of these, a sweep that ended halfway, with files_seconds shorter than it is now, may have deleted some.
    # safety: sweep-keeps-lately-expired
    kept |= reachable_from(
        io, expired_snapshots(waiting).values(), but=kept, may_be_gone=True, stop=stop
    ).places()
    # A batch may have replaced the deletes that a rewrite began with. What is left becomes an orphan.
    kept |= {place_of(path) for path in in_use}  # safety: sweep-keeps-what-is-in-use
    failpoint("sweep.known")
    files = size = 0
    refused: OSError | None = None
    for note in due:
        # A snapshot that the metadata still has was never expired: that commit did not land.
        gone = note.without(held)
        dead = reachable_from(io, gone, but=kept, may_be_gone=True, stop=stop)
        deleted, error = _all_deleted(io, dead, stop)
        files += deleted
        if error is not None:  # safety: swept-note-last
            refused = refused or error
            waiting.append(note)
            continue
        size += sum(dead.files.values()) + sum(dead.manifests.values())
        to_history(table, replace(note, snapshots=gone))
    forget_history(table, now_ms - HISTORY_MS)
    _logger.info("swept", extra=fields(table=".".join(table.name()), deleted_files=files, deleted_bytes=size))
    return replace(_swept(table, waiting, files, size), refused=refused)


def _swept(table: Table, waiting: Sequence[ExpiryNote], files: int = 0, size: int = 0) -> Swept:
    return Swept(files, size, len(waiting), waiting_bytes(table, waiting))


def _gone_since_ms(table: Table, note: ExpiryNote, held: Collection[int], now_ms: int) -> int | None:
    """When a note's snapshots were first seen to be gone; it is marked so. None where they are not gone.

    What is still ``held`` after a day was never expired, and is not noted any more.
    """
    since_ms = gone_since_ms(table, note)
    if since_ms is not None:
        return since_ms
    gone = note.without(held)
    if len(gone) < len(note.snapshots) and note.expired_ms > now_ms - UNLANDED_MS_MAX:
        return None
    if not gone:
        remove_note(table, note)
        return None
    mark_gone(table, note, now_ms)
    return now_ms


def check_not_stopped(stop: Event | None) -> None:
    """Raises `Stopped` where the event is set."""
    if stop is not None and stop.is_set():
        raise Stopped


def may_delete_files(table: Table) -> bool:
    """Whether the table's files are its own, and its leases can be found.

    Other tables may use its files where that property says no.
    """
    is_alone = table.properties.get("gc.enabled", "true").lower() != "false"
    return is_alone and can_list(table.io)  # safety: expiry-finds-leases


def _manifests(io: FileIO, manifest_list: str) -> Iterator[ManifestFile]:
    return read_manifest_list(io.new_input(manifest_list))


def _all_deleted(io: FileIO, dead: Reachable, stop: Event | None) -> tuple[int, OSError | None]:
    """As `_deleted`, up to the first kind of which the store keeps something.

    Files go before the manifests that name them, so that a crash leaves nothing unnamed.
    """
    deleted = 0
    for paths in (dead.files, dead.manifests, dead.lists):
        some, error = _deleted(io, paths, stop)
        deleted += some
        failpoint("sweep.deleted")
        if error is not None:
            return deleted, error
    return deleted, None


def _deleted(io: FileIO, paths: Iterable[str], stop: Event | None) -> tuple[int, OSError | None]:
    """How many files were there, and are deleted; what the store said of the first that it keeps."""
    refused: list[OSError] = []

    def delete(path: str) -> int:
        check_not_stopped(stop)
        if len(refused) >= REFUSED_MAX:
            return 0
        try:
            io.delete(path)
        except FileNotFoundError:
            return 0
        except OSError as error:
            refused.append(error)
            return 0
        return 1

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return sum(pool.map(delete, list(paths))), next(iter(refused), None)
