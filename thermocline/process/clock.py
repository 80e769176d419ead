"""The clock that is handed in, so that logic never asks the machine itself and tests need not wait."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Final, Protocol

from thermocline.failpoints import skew_ms

# Linux's monotonic clock stands still while the machine is suspended: what was read before would look fresh.
_MONOTONIC: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def iso_time(epoch_ms: int) -> str:
    """A time in UTC to the millisecond, as errors and commands write it."""
    at = datetime.fromtimestamp(epoch_ms / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Clock(Protocol):
    """Time as the logic sees it."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never going back; one machine's processes share it.

        A suspended machine's time passes too.
        """
        ...

    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970 in UTC; may jump."""
        ...

    def sleep(self, seconds: float) -> None:
        """Returns after so many seconds."""
        ...


class SystemClock:
    """The machine's time."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start."""
        return time.clock_gettime(_MONOTONIC)  # safety: suspended

    def now_ms(self) -> int:
        """Milliseconds since 1970 in UTC."""
        return time.time_ns() // 1_000_000 + skew_ms("clock")

    def sleep(self, seconds: float) -> None:
        """Waits."""
        time.sleep(seconds)
