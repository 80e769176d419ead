"""The journal of a table's upkeep: what was done and seen, and when each step is due."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from thermocline.errors import first_line
from thermocline.process.logs import fields

if TYPE_CHECKING:
    from thermocline.process.clock import Clock

__all__ = ["RETRY_SECONDS", "Done", "Journal", "Seen", "Step"]

RETRY_SECONDS: Final = 60.0
"""After something failed."""
_DOUBLINGS_MAX: Final = 16
"""Of that: no step waits for so long."""

Step = Literal["plan", "replan", "rewrite", "raise", "manifests", "expire", "sweep", "orphans", "quarantine"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Done:
    """What was done since a table's upkeep began."""

    rewrites: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    files_before: int = 0
    files_after: int = 0
    dead_rows: int = 0
    expired: int = 0
    swept_files: int = 0
    swept_bytes: int = 0
    orphans: int = 0
    """Deleted."""
    manifest_rewrites: int = 0
    seconds: float = 0.0
    """Of rewrites."""
    dropped: int = 0
    """Rewrites whose work was thrown away."""
    failures: int = 0
    """Steps that are tried again."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the table was like when it was last looked at; None before that."""

    measuring_seconds: float | None = None
    """To read what was new in its manifests."""
    metadata_bytes: int | None = None
    waiting_bytes: int | None = None
    """About what the files of expired snapshots take that are not deleted yet."""
    orphan_bytes: int | None = None


class Journal:
    """Of one table, kept by all steps of its upkeep. A step that was never put off is due."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.done = Done()
        self.seen = Seen()
        self.due: dict[Step, float] = {}
        """By the monotonic clock."""
        self._failed_in_a_row: Counter[Step] = Counter()

    def is_due(self, step: Step) -> bool:
        """Whether its time has come."""
        return self.clock.monotonic() >= self.due.get(step, 0.0)

    def put_off(self, step: Step, seconds: float) -> None:
        """It is due so many seconds from now."""
        self.due[step] = self.clock.monotonic() + seconds

    def hasten(self, step: Step) -> None:
        """It is due at once."""
        self.due[step] = 0.0

    def add(self, **more: float) -> None:
        """Count more of what was done, by the names of `Done`."""
        self.done = replace(self.done, **{name: getattr(self.done, name) + more[name] for name in more})

    def note(self, **seen: Any) -> None:
        """Keep what was seen, by the names of `Seen`."""
        self.seen = replace(self.seen, **seen)

    def succeeded(self, step: Step) -> None:
        """The next failure of it is the first one in a row."""
        del self._failed_in_a_row[step]

    def failed(self, step: Step, error: Exception, seconds_max: float | None = None) -> float:
        """It is tried again in `RETRY_SECONDS`, unless somebody puts it off for longer; in how many seconds.

        Where there is a maximum, in twice as long after each failure in a row, up to that.
        """
        doublings = min(self._failed_in_a_row[step], _DOUBLINGS_MAX)
        seconds = RETRY_SECONDS if seconds_max is None else min(RETRY_SECONDS * 2**doublings, seconds_max)
        self._failed_in_a_row[step] += 1
        self.put_off(step, seconds)
        self.add(failures=1)
        _logger.warning(
            "maintenance will try again",
            extra=fields(what=step, error=type(error).__name__, detail=first_line(error)),
        )
        return seconds
