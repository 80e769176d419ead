"""One thread at a time makes the snapshots of a table; the others wait for it, but not for ever.

A store that stands still answers nobody, and a request to it can't be broken off. So whoever waits leaves
after a while, and nobody begins to wait for a thread that has been busy for longer than that. Whoever waited
for what failed then is told the same: otherwise each of them would try it, one after the other.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import TYPE_CHECKING, NamedTuple

from thermocline.errors import LoadTimeout, ThermoclineError

if TYPE_CHECKING:
    from thermocline.process.clock import Clock

__all__ = ["Turns"]


class _Failure(NamedTuple):
    error: ThermoclineError
    at: float


class Turns:
    """The turns of one table. For any threads."""

    def __init__(self, table: str, clock: Clock, seconds_max: float) -> None:
        """``seconds_max`` is how long anybody waits for a turn."""
        self._table = table
        self._clock = clock
        self._seconds_max = seconds_max
        self._lock = threading.Lock()
        self._begun_at: float | None = None
        self._failure: _Failure | None = None

    @contextmanager
    def turn(self, asked_at: float) -> Iterator[None]:
        """The caller's turn; ``asked_at``, of the monotonic clock, is when it asked for one.

        Raises:
            LoadTimeout: another thread has had its turn for too long.
            ThermoclineError: what another turn raised that ended after this one was asked for.
        """
        if not self._lock.acquire(timeout=self._patience_seconds()):
            raise LoadTimeout(table=self._table, seconds=self._seconds_max)
        try:
            failure = self._failure
            if failure is not None and failure.at > asked_at:  # safety: live-failure-shared
                raise copy(failure.error)
            self._begun_at = self._clock.monotonic()
            yield
        except ThermoclineError as error:
            if self._begun_at is not None:
                # A copy has no traceback, which would keep all that was in memory.
                self._failure = _Failure(copy(error), self._clock.monotonic())
            raise
        finally:
            self._begun_at = None
            self._lock.release()

    @contextmanager
    def between(self) -> Iterator[None]:
        """While it is nobody's turn, however long that takes."""
        with self._lock:
            yield

    def _patience_seconds(self) -> float:
        begun_at = self._begun_at
        if begun_at is None:
            return self._seconds_max
        # safety: live-stuck-at-once
        return max(0.0, begun_at + self._seconds_max - self._clock.monotonic())
