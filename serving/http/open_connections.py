"""The connections that an API process has open: a bound, and which one has to go when there are more.

One that asks for nothing costs a file and some kilobytes, so whoever opens thousands takes neither the memory
nor the files of those who ask. The one that goes is the one that has been of no use for longest.
"""

from __future__ import annotations

import logging
import resource
from collections import OrderedDict
from typing import Final, Protocol

from thermocline.process.logs import fields

__all__ = ["OpenConnections"]

# Of the files that the process may have open; the others are those of tables.
FILES_SHARE: Final = 0.5
# A flood is said once a minute, and not once for each of its connections.
SAID_SECONDS: Final = 60.0

log = logging.getLogger(__name__)


class Idle(Protocol):
    """A connection, as it is judged. ``answered_at`` is when it last was, by the loop's clock."""

    answered_at: float

    def is_idle(self) -> bool:
        """Whether nothing is being answered on it."""

    def close_idle(self) -> None:
        """Ends it."""


class OpenConnections:
    """Those of one worker, the one that is looked at first in front."""

    def __init__(self, count_max: int) -> None:
        self.count_max = min(count_max, _files_max())
        self._open: OrderedDict[Idle, float] = OrderedDict()  # with when it was last looked at
        self._said_at = -SAID_SECONDS

    def __len__(self) -> int:
        return len(self._open)

    def is_taken(self, connection: Idle, now: float) -> bool:
        """Adds a connection; False where there are too many, and all of them are being answered.

        An idle one is closed for it, if need be.
        """
        if len(self._open) >= self.count_max:
            self._say(now)
            idle = self._idle_longest()
            if idle is None:  # safety: connections-refused
                return False
            del self._open[idle]
            idle.close_idle()
        self._open[connection] = now
        return True

    def forget(self, connection: Idle) -> None:
        """It is closed."""
        self._open.pop(connection, None)

    def _idle_longest(self) -> Idle | None:
        """One that was not answered since it was last looked at; each is looked at twice at most.

        Those that were stay, and are looked at again when all others were. So nothing is kept in order as
        requests are answered.
        """
        for _ in range(2 * len(self._open)):
            connection, looked_at = next(iter(self._open.items()))
            # safety: connections-idle
            if connection.is_idle() and connection.answered_at <= looked_at:
                return connection
            self._open.move_to_end(connection)
            self._open[connection] = max(looked_at, connection.answered_at)
        return None

    def _say(self, now: float) -> None:
        if now - self._said_at >= SAID_SECONDS:
            self._said_at = now
            log.warning("too many connections: idle ones are closed", extra=fields(open=len(self._open)))


def _files_max() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return round(soft * FILES_SHARE)
