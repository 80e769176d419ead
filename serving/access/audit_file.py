"""The audit log in files: ``audit.jsonl``, and ``audit-000001.jsonl``, … which were set aside, oldest first.

All processes of a server, and of other servers that share the folder, write to one file. A lock makes them
take turns; who has it appends whole lines, and sets the file aside before it would become too large. So no
line is torn or lost by a rotation, and the lines of a process stay in order. A line that a killed process
left half is cut off by the next one that writes.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from thermocline.process.logs import fields

if TYPE_CHECKING:
    from pathlib import Path

    from thermocline.serving.access.audit_sink import Line

__all__ = ["FileSink", "LockFile"]

CURRENT: Final = "audit.jsonl"
LOCK: Final = "audit.lock"
_SET_ASIDE: Final = re.compile(r"audit-(\d{6,12})\.jsonl")
_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600
# The end of the last whole line is looked for in steps of this.
_STEP_BYTES: Final = 65_536

log = logging.getLogger(__name__)


class LockFile:
    """A file by which processes take turns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Waits for the lock, for as long as it takes: the kernel takes it from a process that ends.

        Raises OSError where the file can't be made.
        """
        while True:
            if self._descriptor is None:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._descriptor = os.open(self._path, flags, _FILE_MODE)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            if _is_named(self._path, self._descriptor):
                return
            self.close()  # somebody has removed it: others may lock another one

    def release(self) -> None:
        """Lets the next one in."""
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Lets go of the file, too."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class FileSink:
    """Appends to the file of a folder, which is made for this user alone if it does not exist.

    It waits for its turn without a bound: the log says when that takes too long.
    """

    def __init__(self, folder: Path, rotate_bytes: int, keep_files: int) -> None:
        self._folder = folder
        self._current = folder / CURRENT
        self._rotate_bytes = rotate_bytes
        self._keep_files = keep_files
        self._lock = LockFile(folder / LOCK)
        self._descriptor: int | None = None

    def write(self, lines: Sequence[Line]) -> None:
        """See `Sink`. What is written is on the disk."""
        content = b"".join(line.text for line in lines)
        with self._held():
            file = self._open_current()
            size = _end_of_lines(file)
            if size and size + len(content) > self._rotate_bytes:
                self._rotate()
                file, size = self._open_current(), 0
            try:
                _write_all(file, content)
                os.fdatasync(file)
            except OSError:
                with suppress(OSError):  # else whoever writes next cuts off the half line
                    os.ftruncate(file, size)  # safety: audit-all-or-nothing
                raise

    def close(self) -> None:
        """See `Sink`."""
        self._close_current()
        self._lock.close()

    @contextmanager
    def _held(self) -> Iterator[None]:
        try:
            self._lock.acquire()
        except FileNotFoundError:  # nobody has made the folder yet, or somebody has removed it
            self._folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()

    def _open_current(self) -> int:
        """The file as it is named now: another process may have set aside what was open here."""
        if self._descriptor is not None and not _is_named(
            self._current, self._descriptor
        ):  # safety: audit-current
            self._close_current()
        if self._descriptor is None:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor = os.open(self._current, flags, _FILE_MODE)
            os.fchmod(self._descriptor, _FILE_MODE)
        return self._descriptor

    def _close_current(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _rotate(self) -> None:
        """Sets the file aside under the next number, and deletes the oldest ones beyond ``keep_files``."""
        names = (path.name for path in self._folder.iterdir())
        numbers = sorted(int(match[1]) for match in map(_SET_ASIDE.fullmatch, names) if match)
        numbers.append(numbers[-1] + 1 if numbers else 1)
        self._current.rename(self._folder / _name(numbers[-1]))
        self._close_current()
        for number in numbers[: -self._keep_files]:
            with suppress(FileNotFoundError):
                (self._folder / _name(number)).unlink()


def _is_named(path: Path, descriptor: int) -> bool:
    """Whether an open file has that path still."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _name(number: int) -> str:
    return f"audit-{number:06}.jsonl"


def _write_all(file: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(file, left) :]


def _end_of_lines(file: int) -> int:
    """The size of the file, once half a line at its end is cut off."""
    size = os.fstat(file).st_size
    if not size or os.pread(file, 1, size - 1) == b"\n":
        return size
    end = size
    while end:
        start = max(0, end - _STEP_BYTES)
        found = os.pread(file, end - start, start).rfind(b"\n")
        if found >= 0:
            end = start + found + 1
            break
        end = start
    os.ftruncate(file, end)  # safety: audit-half-line
    log.warning("half a line at the end of the audit log was cut off", extra=fields(bytes=size - end))
    return end
