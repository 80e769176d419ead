"""The audit log on standard output, which all processes of a server share.

A lock makes them take turns, and who has it keeps it until the line that was begun is whole. Lines go out in
pieces that a pipe takes as a whole, so lines of other programs on the same pipe do not get between, either,
but for those of a batch that are longer than such a piece.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from thermocline.serving.access.audit_file import LockFile
from thermocline.serving.access.audit_sink import SinkFailed

if TYPE_CHECKING:
    from pathlib import Path

    from thermocline.serving.access.audit_sink import Line

__all__ = ["StdoutSink"]

# A reader that takes nothing for so long has stopped reading; it is asked again.
UNTAKEN_SECONDS_MAX: Final = 1.0


class StdoutSink:
    """Writes to a descriptor, by default that of standard output, whole lines at a time."""

    def __init__(self, lock: Path, descriptor: int | None = None) -> None:
        self._lock = LockFile(lock)
        self._is_within_line = False  # and then the lock is held
        self._descriptor = sys.__stdout__.fileno() if descriptor is None and sys.__stdout__ else descriptor
        self._left: list[bytes] = []  # pieces, the next one last

    def write(self, lines: Sequence[Line]) -> None:
        """See `Sink`."""
        if not self._left:
            self._left = list(reversed([*_pieces([line.text for line in lines])]))
        if not self._is_within_line:
            self._lock.acquire()
        try:
            while self._left:
                self._write_some()
        finally:
            if not self._is_within_line:  # safety: audit-line-whole
                self._lock.release()

    def close(self) -> None:
        """See `Sink`."""
        self._lock.close()

    def _write_some(self) -> None:
        """Writes of the next piece what is taken of it."""
        if self._descriptor is None:
            raise SinkFailed("this process has no standard output")
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        if not poll.poll(1_000 * UNTAKEN_SECONDS_MAX):
            raise SinkFailed("nobody reads standard output")
        piece = self._left[-1]
        written = os.write(self._descriptor, piece)
        self._is_within_line = not piece[:written].endswith(b"\n")
        self._left.pop()
        if written < len(piece):
            self._left.append(piece[written:])


def _pieces(lines: Sequence[bytes]) -> Iterator[bytes]:
    """Lines together, as many as a pipe takes as a whole; a longer line in pieces of that size."""
    together: list[bytes] = []
    size = 0
    for line in lines:
        if together and size + len(line) > select.PIPE_BUF:
            yield b"".join(together)
            together, size = [], 0
        if len(line) > select.PIPE_BUF:
            yield from (line[at : at + select.PIPE_BUF] for at in range(0, len(line), select.PIPE_BUF))
            continue
        together.append(line)
        size += len(line)
    if together:
        yield b"".join(together)
