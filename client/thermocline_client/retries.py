"""When a request is repeated. All requests only read, so that repeating one is always safe."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final


@dataclass(frozen=True, slots=True)
class Retries:
    """Bounds in number and time; between attempts a client waits longer each time, and as the server says.

    ``Retries(attempts_max=1)`` is none.
    """

    attempts_max: int = 4
    seconds_max: float = 20.0
    wait_seconds_first: float = 0.1
    wait_seconds_max: float = 5.0

    def wait_seconds(self, attempts: int, elapsed: float, retry_after: float | None) -> float | None:
        """How long to wait before the next attempt; None where there is to be none.

        Also none where the server asks for more patience than there is time.
        """
        if attempts >= self.attempts_max:
            return None
        doubled = min(self.wait_seconds_first * 2 ** min(attempts - 1, 60), self.wait_seconds_max)
        # Spread, so that clients that failed together don't come back together.
        wait = max(doubled * random.uniform(0.5, 1.0), retry_after or 0.0)
        return wait if elapsed + wait <= self.seconds_max else None


DEFAULT: Final = Retries()


def retry_after_seconds(header: str | None, now: datetime | None = None) -> float | None:
    """What a ``Retry-After`` header says, in seconds or as a date; None where it says nothing.

    Source: RFC 9110, section 10.2.3.
    """
    if header is None:
        return None
    if header.strip().isdigit():
        return float(header)
    try:
        at = parsedate_to_datetime(header)
    except ValueError:
        return None
    return max(0.0, (at.astimezone(UTC) - (now or datetime.now(UTC))).total_seconds())
