"""A clock that a test moves."""

from __future__ import annotations


class ManualClock:
    """Time that moves only when it is told to, or slept through."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._started_ms = now_ms
        self._elapsed_seconds = 0.0

    def monotonic(self) -> float:
        """Seconds from an arbitrary start."""
        return self._elapsed_seconds

    def now_ms(self) -> int:
        """Milliseconds since 1970 in UTC."""
        return self._started_ms + round(self._elapsed_seconds * 1000)

    def sleep(self, seconds: float) -> None:
        """Returns at once, with both clocks moved on."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Moves both clocks on."""
        assert seconds >= 0
        self._elapsed_seconds += seconds
