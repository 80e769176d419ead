"""The disk under the hot tier: its room, a lock, what was touched."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

Stamp = tuple[int, int]
"""Of a file: another one whenever it was touched or replaced."""


def free_bytes(folder: Path) -> int:
    """What can still be written to the disk that the folder is on."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def try_lock(path: Path) -> IO[bytes] | None:
    """The file, locked until it is closed or the process ends; None where another one holds it."""
    lock = path.open("wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        return None
    return lock


def touch(path: Path) -> None:
    """Gives the file another stamp. Raises FileNotFoundError where there is none."""
    os.utime(path)


def stamps(folder: Path) -> Iterator[tuple[Path, Stamp]]:
    """The folder's files; one that goes meanwhile is left out."""
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                status = entry.stat()
                yield Path(entry.path), (status.st_ino, status.st_mtime_ns)
