"""Failed credentials slow down the address that they come from, and no other one.

After a few failures, what comes from there is refused for a second, after the next one for two, and so on up
to half a minute. What is refused is no failure. Ten quiet minutes, and all is forgotten.

Keys can't be guessed; this keeps those who try from taking the server's time, and shows them in its metrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from thermocline.serving.access.budget import SECOND_NS

if TYPE_CHECKING:
    from collections.abc import Callable

    from thermocline.serving.access.shared_cells import Places, SharedCells

FAILURES_FREE: Final = 5
"""A person who mixes up keys, or a program's few processes that begin with an old one."""
WAIT_SECONDS_FIRST: Final = 1.0
WAIT_SECONDS_MAX: Final = 30.0
QUIET_SECONDS: Final = 600.0
KINDS: Final = 2
"""Of counts, in each row: failures, and the time of the last one."""
_DOUBLINGS_MAX: Final = 10
_QUIET_NS: Final = round(QUIET_SECONDS * SECOND_NS)
_ANY: Final = 1 << 62


class Failures:
    """Those of all addresses. An address that finds no place takes that of the one that failed longest ago.

    Times are nanoseconds of the clock.
    """

    def __init__(self, shared: SharedCells, area: int, key_of: Callable[[str], int]) -> None:
        self._shared = shared
        self._cells = shared.cells
        self._key_of = key_of
        self._places: Places = shared.places(area, self._last)
        self._own_until = shared.free_cells + shared.own

    def add(self, identity: str, now: int) -> None:
        """One more from there."""
        key = self._key_of(identity)
        row = self._places.find(key)
        if row is None:
            row = self._places.take(key, now - 1, _ANY)
        if row == self._places.overflow:  # who gives places away is frozen; nobody else is to suffer for it
            return
        count, last = self._own(row, 0), self._own(row, 1)
        is_forgotten = self._cells[last] <= self._since(row, now)  # safety: failures-forgotten
        self._cells[count] = 1 if is_forgotten else self._cells[count] + 1
        self._cells[last] = now
        self._cells[self._own_until] = max(self._cells[self._own_until], self._until(row, now)[1])

    def refused(self, identity: str, now: int) -> tuple[int, int]:
        """How often it failed, and for how many nanoseconds more it is refused; 0 where it is not."""
        if now >= max(self._shared.read(self._shared.free_cells)):  # nobody is
            return 0, 0
        row = self._places.find(self._key_of(identity))
        if row is None:
            return 0, 0
        failures, until = self._until(row, now)
        return failures, max(until - now, 0)

    def _until(self, row: int, now: int) -> tuple[int, int]:
        """How often it failed, and until when it is refused."""
        since = self._since(row, now)
        counts = self._shared.read(self._shared.counts(row, 0))
        times = self._shared.read(self._shared.counts(row, 1))
        failures = sum(count for count, at in zip(counts, times, strict=True) if at > since)
        if failures < FAILURES_FREE:
            return failures, 0
        doublings = min(failures - FAILURES_FREE, _DOUBLINGS_MAX)
        wait_seconds = min(WAIT_SECONDS_FIRST * 2**doublings, WAIT_SECONDS_MAX)
        return failures, max(times) + round(wait_seconds * SECOND_NS)

    def _since(self, row: int, now: int) -> int:
        """Failures up to then don't count: they are old, or another address's, which had the row before."""
        return max(self._cells[row + 1], now - _QUIET_NS)  # safety: failures-of-another

    def _last(self, row: int) -> int:
        return max(self._shared.read(self._shared.counts(row, 1)))

    def _own(self, row: int, kind: int) -> int:
        return self._shared.counts(row, kind) + self._shared.own
