"""Counts that the workers of a server share: 64-bit cells in a mapped file, without a lock to count.

Each worker has a column, in which it alone writes, and reads those of all: so no count is lost, and a worker
that stops at any point leaves what it counted. The system says which columns are taken: that of a worker that
died is free at once, and the next one goes on from its counts. While the configuration is read again, there
are twice as many workers.

A cell is read and written in one instruction. A worker may see what another one writes a moment later, but,
on x86-64, in the order of writing.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from mmap import mmap
from pathlib import Path
from typing import TYPE_CHECKING, Final

from thermocline.errors import InternalError

if TYPE_CHECKING:
    from thermocline.process.clock import Clock

CELL_BYTES: Final = 8
COLUMNS_PER_WORKER: Final = 2
"""One, and that of the worker that takes its place while it still answers."""
CLAIM_SECONDS_MAX: Final = 30.0
"""A worker that was told to end is killed within 20."""
_CLAIM_PAUSE_SECONDS: Final = 0.05
PROBES_MAX: Final = 16
"""Places that an identity may have: while half of all are free, so is one of them."""
# Who gives places away does so within microseconds. One that is frozen meanwhile must not hold up the others.
_LOCK_TRIES_MAX: Final = 200
_KEY_BYTES: Final = 16
_HEAD_CELLS: Final = 4
_VERSION: Final = 1
# Of a row: whose it is, and since when. Then, for each kind of count, a cell of each column.
_ROW_HEAD: Final = 2
_PRIVATE: Final = 0o600
# Bytes of the file that nothing is at, which workers lock; those below are the caller's.
_PLACES_LOCK: Final = 1 << 62
_COLUMN_LOCKS: Final = _PLACES_LOCK + 1

Area = tuple[int, int]
"""A number of places, and how many kinds of counts each has."""


class SharedCells:
    """The file as one worker has it. ``own`` is its column of ``columns``.

    ``cells`` are all of them. ``unpack`` reads a cell of each column, from a byte of ``buffer`` on. The first
    ones, from ``free_cells`` on, belong to no area. ``key`` is the file's own, and secret. For one thread.
    """

    def __init__(self, path: Path, workers: int, areas: Sequence[Area], clock: Clock) -> None:
        """Makes the file where there is none.

        Raises:
            InternalError: all columns stay taken.
            OSError: it can't be made.
        """
        self.columns = COLUMNS_PER_WORKER * workers
        self._areas = areas
        self.free_cells = _HEAD_CELLS
        starts, end = [], _HEAD_CELLS + self.columns
        for places, kinds in areas:
            starts.append(end)
            end += (places + 1) * self._row_cells(kinds)  # one more, for those that find none
        self._file = _opened(path, end * CELL_BYTES, self.columns)
        self.buffer = mmap(self._file, end * CELL_BYTES)
        self.cells: memoryview[int] = memoryview(self.buffer).cast("q")
        assert (self.cells[0], self.cells[1]) == (_VERSION, self.columns), "the file is another server's"
        self.key = bytes(self.buffer[2 * CELL_BYTES :][:_KEY_BYTES])
        self.unpack: Callable[..., tuple[int, ...]] = struct.Struct(f"{self.columns}q").unpack_from
        self._starts = starts
        self.own = self._claimed(clock)

    def places(self, number: int, busy_until: Callable[[int], int]) -> Places:
        """Those of an area, by its number; ``busy_until`` says of a row until when its counts matter."""
        count, kinds = self._areas[number]
        return Places(self, self._starts[number], count, self._row_cells(kinds), busy_until)

    def counts(self, row: int, kind: int) -> int:
        """The first of the cells of a kind of a row."""
        return row + _ROW_HEAD + kind * self.columns

    def read(self, first: int) -> tuple[int, ...]:
        """A cell of each column."""
        return self.unpack(self.buffer, first * CELL_BYTES)

    def try_lock(self, number: int) -> bool:
        """Whether a number below 2^62 is this worker's alone now, until it dies or unlocks it.

        One that it has already, it gets again.
        """
        return _try_lock(self._file, number)

    def unlock(self, number: int) -> None:
        """For the others to lock."""
        _unlock(self._file, number)

    @contextmanager
    def giving_places(self) -> Iterator[bool]:
        """Only one worker gives places away; False where another one does, and for longer than it should."""
        for _ in range(_LOCK_TRIES_MAX):
            if _try_lock(self._file, _PLACES_LOCK):
                break
            os.sched_yield()
        else:
            yield False
            return
        try:
            yield True
        finally:
            _unlock(self._file, _PLACES_LOCK)

    def close(self) -> None:
        """Gives the column back; what was counted stays."""
        self.cells.release()
        self.buffer.close()
        os.close(self._file)

    def _row_cells(self, kinds: int) -> int:
        return _ROW_HEAD + kinds * self.columns

    def _claimed(self, clock: Clock) -> int:
        deadline = clock.monotonic() + CLAIM_SECONDS_MAX
        while True:
            for column in range(self.columns):
                if _try_lock(self._file, _COLUMN_LOCKS + column):  # safety: limits-one-writer
                    return column
            if clock.monotonic() > deadline:
                raise InternalError(
                    detail=f"{self.columns} API processes run already", where="an API process"
                )
            clock.sleep(_CLAIM_PAUSE_SECONDS)


class Places:
    """The rows of an area, each of one key. A row is named by its first cell, which holds the key."""

    def __init__(
        self, shared: SharedCells, first: int, count: int, row_cells: int, busy_until: Callable[[int], int]
    ) -> None:
        self._shared = shared
        self._cells = shared.cells
        self._first = first
        self._count = count
        self._row_cells = row_cells
        self._busy_until = busy_until
        self.overflow = first + count * row_cells
        """The row that all share who find no place; it has no key."""

    def find(self, key: int) -> int | None:
        """The row of a key, if it has one."""
        for row in self._rows(key):
            found = self._cells[row]
            if found == key:
                return row
            if not found:
                return None
        return None

    def take(self, key: int, now: int, busy_max: int) -> int:
        """The row of a key, which it gets if it has none; perhaps `overflow`, for the moment.

        If others have all its places, it gets the one whose counts matter least, provided that they don't
        after ``busy_max``. They are left as they are.
        """
        with self._shared.giving_places() as is_alone:
            row = self.find(key)
            if row is not None or not is_alone:
                return self.overflow if row is None else row
            row = next((one for one in self._rows(key) if not self._cells[one]), None)
            if row is None:
                row = min(self._rows(key), key=self._busy_until)
                if self._busy_until(row) > busy_max:  # safety: limits-busy-kept
                    return self.overflow
            self._cells[row + 1] = now
            self._cells[row] = key
            return row

    def _rows(self, key: int) -> Iterator[int]:
        for probe in range(min(PROBES_MAX, self._count)):
            yield self._first + (key + probe) % self._count * self._row_cells


def _opened(path: Path, size: int, columns: int) -> int:
    """The file, which appears with all that it needs: no other worker sees a part of it."""
    with suppress(FileNotFoundError):
        return os.open(path, os.O_RDWR)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    file = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL, _PRIVATE)
    try:
        os.posix_fallocate(file, 0, size)  # a disk that is full later would kill whoever writes
        os.pwrite(file, struct.pack("2q", _VERSION, columns) + secrets.token_bytes(_KEY_BYTES), 0)
        with suppress(FileExistsError):
            os.link(unfinished, path)
    finally:
        os.close(file)
        unfinished.unlink()
    return os.open(path, os.O_RDWR)


def _try_lock(file: int, number: int) -> bool:
    """Locks a byte for this opening of the file: until it is closed, also by the end of the process."""
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, _lock(fcntl.F_WRLCK, number))
    except (BlockingIOError, PermissionError):
        return False
    return True


def _unlock(file: int, number: int) -> None:
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, _lock(fcntl.F_UNLCK, number))


def _lock(kind: int, number: int) -> bytes:
    """``struct flock``; of a lock that is no process's, the process is 0."""
    return struct.pack("hhqqi", kind, os.SEEK_SET, number, 1, 0)
