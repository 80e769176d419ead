"""The ages of answers over the last hour, one for each minute: a bounded ring that the tailer keeps."""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Final

__all__ = ["MINUTES", "RecentAges"]

MINUTES: Final = 60
_MINUTE_MS: Final = 60_000


class RecentAges:
    """The greatest age in each of the last minutes; None where nothing is known of one."""

    def __init__(self) -> None:
        self._minute = -1
        self._ages: deque[float | None] = deque(maxlen=MINUTES)

    def note(self, now_ms: int, age_seconds: float) -> None:
        """Takes what the age is now; an infinite one says nothing."""
        minute = now_ms // _MINUTE_MS
        if minute > self._minute:
            passed = min(minute - self._minute, MINUTES) if self._ages else 1
            self._ages.extend([None] * passed)
            self._minute = minute
        if math.isfinite(age_seconds):
            self._ages[-1] = round(max(self._ages[-1] or 0.0, age_seconds), 3)

    def to_dict(self) -> dict[str, Any]:
        """The ages, oldest first, and when the last of these minutes ends, in milliseconds since 1970."""
        return {"ends_ms": (self._minute + 1) * _MINUTE_MS, "seconds": list(self._ages)}
