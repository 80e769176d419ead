"""A budget that refills with time, of which all workers take: a token bucket, in nanoseconds.

What is taken costs time: at 10 requests per second, a request costs 0.1 s. A budget is *due* at the time when
all that was taken is refilled; who asks may be ahead of the clock by a tolerance, from which the burst
follows. That is the generic cell rate algorithm, but for what the workers share: not the time that is due,
which two of them would overwrite, but its parts. Each has the sum of what it took, and an offset; the time
that is due is the sum of all sums and the largest offset. A worker that finds the budget refilled raises its
offset, so that the time that is due is now.

Workers that decide at once don't see what the others take. So in any time, at most ``workers - 1`` requests
more than the budget has are taken, however long that time is and however the workers are interrupted:

- The last one to read misses at most one request of each other worker, since a worker takes one at a time.
- The offset at the first request of that time is the largest one that ever counts in it.

The clock is read before the cells. If it were read after them, a worker that is frozen in between would set
an offset that is too high by all that the others took meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from thermocline.serving.access.shared_cells import CELL_BYTES

if TYPE_CHECKING:
    from thermocline.serving.access.shared_cells import SharedCells

SECOND_NS: Final = 1_000_000_000
KINDS: Final = 2
"""Of counts, in each row: what was taken, and the offset."""


class Budget:
    """One budget of a row. Times are nanoseconds of the clock, read before the call."""

    __slots__ = ("_buffer", "_cells", "_offset_at", "_own_offset", "_own_taken", "_taken_at", "_unpack")

    def __init__(self, shared: SharedCells, row: int, kind: int) -> None:
        """``kind`` is the first of its two."""
        taken, offset = shared.counts(row, kind), shared.counts(row, kind + 1)
        self._buffer = shared.buffer
        self._cells = shared.cells
        self._unpack = shared.unpack
        self._taken_at, self._offset_at = taken * CELL_BYTES, offset * CELL_BYTES
        self._own_taken, self._own_offset = taken + shared.own, offset + shared.own

    def due(self) -> int:
        """When all that was taken is refilled; long ago, if so for long."""
        taken = sum(self._unpack(self._buffer, self._taken_at))
        return taken + max(self._unpack(self._buffer, self._offset_at))

    def take(self, now: int, cost: int, tolerance: int) -> int:
        """Takes the cost and returns 0, or returns how much too early it is for that.

        ``tolerance`` is how far ahead of the clock the budget may be, before the cost.
        """
        # Sums first: of whoever's sum is read, the offset is there.
        taken = sum(self._unpack(self._buffer, self._taken_at))
        offset = max(self._unpack(self._buffer, self._offset_at))  # safety: limits-all-workers
        ahead = taken + offset - now
        if ahead < 0:  # safety: limits-refilled
            offset, ahead = now - taken, 0
        if ahead > tolerance:
            return ahead - tolerance
        self._cells[self._own_offset] = offset
        self._cells[self._own_taken] += cost
        return 0

    def spend(self, now: int, cost: int, ahead_max: int) -> None:
        """Takes the cost, whatever there is; the budget is ahead of the clock by ``ahead_max`` at most."""
        taken = sum(self._unpack(self._buffer, self._taken_at))
        ahead = taken + max(self._unpack(self._buffer, self._offset_at)) - now
        if ahead < 0:
            self._cells[self._own_offset] = now - taken
            ahead = 0
        self._cells[self._own_taken] += min(cost, max(ahead_max - ahead, 0))
