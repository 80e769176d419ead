"""Work for a table's status that takes requests to the store: in a thread of its own, while somebody looks.

Following does not wait for it, however slow the store is.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from thermocline.process.logs import fields

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["WANTED_MS", "Beside", "Run", "in_thread", "is_wanted"]

WANTED_MS: Final = 60_000
"""So long after somebody looked last, it is still asked for. A page that is open looks every five seconds."""
Run = Callable[[Callable[[], None]], None]

log = logging.getLogger(__name__)


def in_thread(work: Callable[[], None]) -> None:
    """Does the work beside everything else; the process does not wait for it when it ends."""
    threading.Thread(target=work, name="beside", daemon=True).start()


def is_wanted(mark: Path, now_ms: int) -> bool:
    """Whether somebody looked lately, as the file says that they touch."""
    try:
        wanted_ms = mark.stat().st_mtime * 1000
    except OSError:
        return False
    return now_ms - wanted_ms < WANTED_MS  # safety: status-asked-while-wanted


class Beside:
    """Does one piece of work at a time, for one thread that hands it in."""

    def __init__(self, run: Run = in_thread) -> None:
        """``run`` does what takes long."""
        self._run = run
        self._is_working = threading.Lock()

    def begin(self, work: Callable[[], None]) -> bool:
        """Begins the work, which raises nothing; whether it has: not while an earlier one goes on."""
        if not self._is_working.acquire(blocking=False):  # safety: status-asked-once-at-a-time
            return False
        try:
            self._run(lambda: self._done(work))
        except RuntimeError as error:  # the system has no thread left
            self._is_working.release()
            log.warning("the store not asked for the status", extra=fields(detail=str(error)))
            return False
        return True

    def _done(self, work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            self._is_working.release()
