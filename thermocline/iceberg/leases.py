"""Leases: small objects beside a table that say which snapshots somebody still needs, and until when.

A lease is a JSON object with ``snapshots``, of which each has its id and until when it is needed, in
milliseconds since 1970. Published views leave theirs in ``thermocline/views``, readers in
``thermocline/leases``, where anybody else may leave one, too. What a lease names is neither expired nor, once
it is, are its files deleted. It is written with the table's own FileIO: nobody but the owner touches the
table's metadata.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from thermocline.errors import first_line
from thermocline.iceberg.files import StoredFile, beside, delete_files, listed_folder, read_file, write_file
from thermocline.process.logs import fields

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from thermocline.process.clock import Clock

__all__ = [
    "READERS",
    "VIEWS",
    "HeldLease",
    "SnapshotLease",
    "forget_leases",
    "held_leases",
    "lease_path",
    "leased_snapshots",
    "read_lease",
    "write_lease",
]

VIEWS: Final = "views"
READERS: Final = "leases"

LEASED_AFTER_SECONDS: Final = 60.0
"""A read that is over by then needs no lease: an expired snapshot's files stay for ten minutes at least."""
RENEWED_SECONDS: Final = 300.0
HELD_MS: Final = 3 * int(1000 * RENEWED_SECONDS)
"""From each renewal on; so long the files stay of a reader that died."""
RELEASE_SECONDS_MAX: Final = 5.0
"""What a store that hangs may cost a reader at its end; then the lease ends by itself."""

_PREFIX: Final = "reader-"

_logger = logging.getLogger(__name__)

# Raised by content that is no lease.
_DAMAGED: Final = (ValueError, KeyError, TypeError, AttributeError)


def lease_path(location: str, folder: str, name: str) -> str:
    """Where a lease is, below the table's location."""
    return beside(location, folder, f"{name}.json")


def write_lease(io: FileIO, path: str, holder: Mapping[str, str], snapshots: Mapping[str, int]) -> None:
    """Write a lease in place of the one before; ``holder`` is for people. Raises `OSError`."""
    write_file(io, path, json.dumps({**holder, "snapshots": dict(snapshots)}).encode())


def read_lease(io: FileIO, path: str) -> dict[str, int]:
    """The snapshots of a lease and until when each is needed.

    Raises `OSError` where it can't be read, and `ValueError` where it is damaged.
    """
    content = read_file(io, path)
    try:
        found = json.loads(content)["snapshots"]
        return {str(int(snapshot_id)): int(until_ms) for snapshot_id, until_ms in found.items()}
    except _DAMAGED as error:
        raise ValueError(f"{path} is no lease: {error}") from error


def leased_snapshots(io: FileIO, location: str, now_ms: int) -> frozenset[int]:
    """The snapshots that leases name which have not ended.

    Raises `OSError` where leases can't be read, and `ValueError` where one is damaged: then nobody knows.
    """
    found: set[int] = set()
    for folder in (VIEWS, READERS):
        for file in _leases(io, location, folder):
            try:
                lease = read_lease(io, file.path)
            except FileNotFoundError:  # released since it was listed
                continue
            except ValueError:
                if not _is_left_behind(file, now_ms):
                    raise
                continue
            found |= {int(one) for one, until_ms in lease.items() if until_ms > now_ms}
    return frozenset(found)


def forget_leases(io: FileIO, location: str, before_ms: int) -> None:
    """Delete leases of readers that died: those written before that. Raises `OSError`."""
    old = [file.path for file in _leases(io, location, READERS) if _is_reader_of(file, before_ms)]
    delete_files(io, old)


def _leases(io: FileIO, location: str, folder: str) -> list[StoredFile]:
    return listed_folder(io, beside(location, folder))


def _is_left_behind(file: StoredFile, now_ms: int) -> bool:
    """Whether a reader died while it wrote it: one that lives writes its lease again in time."""
    return _is_reader_of(file, now_ms - HELD_MS)


def _is_reader_of(file: StoredFile, before_ms: int) -> bool:
    is_readers = file.path.rpartition("/")[2].startswith(_PREFIX)
    return is_readers and file.modified_ms is not None and file.modified_ms < before_ms


@dataclass(frozen=True, slots=True)
class HeldLease:
    """A lease, for people: who holds it, and until when each snapshot is needed, in milliseconds since 1970.

    ``kind`` is `VIEWS` or `READERS`.
    """

    kind: str
    holder: str
    snapshots: Mapping[int, int]


def held_leases(io: FileIO, location: str, now_ms: int, count_max: int) -> tuple[HeldLease, ...]:
    """At most so many of the leases that have not ended. Raises `OSError`; what is damaged is left out."""
    found: list[HeldLease] = []
    for folder in (VIEWS, READERS):
        for file in _leases(io, location, folder)[: count_max - len(found)]:
            with suppress(FileNotFoundError, *_DAMAGED):
                said = json.loads(read_file(io, file.path))
                needed = {int(one): int(until_ms) for one, until_ms in said["snapshots"].items()}
                holder = str(said.get("view") or said.get("reader") or file.path.rpartition("/")[2])
                if any(until_ms > now_ms for until_ms in needed.values()):
                    found.append(HeldLease(folder, holder, needed))
    return tuple(found)


class SnapshotLease:
    """Keeps one snapshot for a reader, from when it has read for a minute until `release`; see `begin`."""

    def __init__(
        self, open_io: Callable[[], FileIO], location: str, snapshot_id: int, purpose: str, clock: Clock
    ) -> None:
        self._open_io = open_io
        self._location = location
        self._snapshot_id = snapshot_id
        self._holder = {"reader": f"{purpose}, process {os.getpid()} on {socket.gethostname()}"}
        self._clock = clock
        self._path = lease_path(location, READERS, f"{_PREFIX}{uuid.uuid4()}")
        self._is_released = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="reader-lease", daemon=True)

    @classmethod
    def begin(
        cls, open_io: Callable[[], FileIO], location: str, snapshot_id: int, purpose: str, clock: Clock
    ) -> Self:
        """Watch over a read that begins. Where no lease can be written, it goes on without one.

        ``open_io`` is called in a thread, and only if the read takes long; again after each failure.
        """
        lease = cls(open_io, location, snapshot_id, purpose, clock)
        lease._thread.start()
        return lease

    def release(self) -> None:
        """The read is over. May be repeated."""
        self._is_released.set()
        self._thread.join(RELEASE_SECONDS_MAX)

    def _keep(self) -> None:
        io: FileIO | None = None
        is_written = is_told = False
        wait_seconds = LEASED_AFTER_SECONDS
        while not self._is_released.wait(wait_seconds):
            wait_seconds = RENEWED_SECONDS
            try:
                io = io or self._open_io()
                until_ms = self._clock.now_ms() + HELD_MS
                write_lease(io, self._path, self._holder, {str(self._snapshot_id): until_ms})
                is_written = True
            except Exception as error:  # noqa: BLE001  whatever it is, the read goes on
                io = None  # what a catalog granted of the store may have ended: it is granted again
                if not is_told:
                    self._tell(error)
                is_told = True
        if is_written:
            with suppress(Exception):  # then it ends by itself
                delete_files(io or self._open_io(), [self._path])

    def _tell(self, error: Exception) -> None:
        _logger.warning(
            "reading without a lease",
            extra=fields(snapshot_id=self._snapshot_id, path=self._path, detail=first_line(error)),
        )
