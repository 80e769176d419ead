"""The wait before something that ended by itself is started again."""

from __future__ import annotations

from typing import Final

# What ends at once is started again after these, doubled each time up to the last.
BACK_OFF_SECONDS_MIN: Final = 0.5
BACK_OFF_SECONDS_MAX: Final = 30.0
# What lived longer than this did not end at once.
HEALTHY_SECONDS: Final = 60.0


class BackOff:
    """The pauses of one process, or of one thread."""

    def __init__(self) -> None:
        self._seconds = BACK_OFF_SECONDS_MIN

    def after(self, lived_seconds: float) -> float:
        """The seconds to wait now, after it lived for so long."""
        if lived_seconds > HEALTHY_SECONDS:
            self._seconds = BACK_OFF_SECONDS_MIN
        pause_seconds = self._seconds
        self._seconds = min(2 * pause_seconds, BACK_OFF_SECONDS_MAX)
        return pause_seconds
