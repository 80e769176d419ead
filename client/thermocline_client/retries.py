"""Decides when a request is repeated. Requests only read, or start a job by its id, so repeating is safe."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final


@dataclass(frozen=True, slots=True)
class Retries:
    """How often and for how long a client repeats a request: up to ``attempts_max`` attempts in all.

    The wait before each further attempt doubles, from ``wait_seconds_first`` to at most ``wait_seconds_max``,
    and is at least what the server asks for. No attempt begins later than ``seconds_max`` after the first.
    ``Retries(attempts_max=1)`` repeats nothing.
    """

    attempts_max: int = 4
    seconds_max: float = 20.0
    wait_seconds_first: float = 0.1
    wait_seconds_max: float = 5.0

    def wait_seconds(self, attempts: int, elapsed: float, retry_after: float | None) -> float | None:
        """Returns the seconds to wait before the next attempt; None if there is none.

        There is none, either, if the server asks for a longer wait than the time that is left.
        """
        if attempts >= self.attempts_max:
            return None
        doubled = min(self.wait_seconds_first * 2 ** min(attempts - 1, 60), self.wait_seconds_max)
        # Spread, so that clients that failed together don't come back together.
        wait = max(doubled * random.uniform(0.5, 1.0), retry_after or 0.0)
        return wait if elapsed + wait <= self.seconds_max else None


DEFAULT: Final = Retries()


def retry_after_seconds(header: str | None, now: datetime | None = None) -> float | None:
    """Returns the seconds that a ``Retry-After`` header asks for, also as a date; None if it has neither.

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
