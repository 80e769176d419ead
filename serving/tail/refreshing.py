"""Refreshes of tables that are tried again and again, whatever they raise."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from thermocline.process.logs import fields

if TYPE_CHECKING:
    import threading

# With many tables each is looked at less often: a look takes some 0.1 ms. Records are read at each request.
REFRESHES_PER_SECOND: Final = 200

log = logging.getLogger(__name__)


class Refreshes:
    """Logs a failure once, until the table's refresh succeeds again."""

    def __init__(self) -> None:
        self._failing: set[str] = set()

    @contextmanager
    def of(self, table: str) -> Iterator[None]:
        """One refresh of the table; the caller tries again later if it fails."""
        try:
            yield
        except Exception:
            if table not in self._failing:
                log.exception("refresh failed", extra=fields(table=table))
            self._failing.add(table)
        else:
            self._failing.discard(table)


def pause_between(seconds: float, tables: int) -> float:
    """How long after one refresh of a table the next follows, at least so many seconds."""
    return max(seconds, tables / REFRESHES_PER_SECOND)


def refresh_until(stop: threading.Event, table: str, refresh: Callable[[], None], seconds: float) -> None:
    """Refreshes a table every so many seconds until told to stop."""
    refreshes = Refreshes()
    while not stop.is_set():
        with refreshes.of(table):
            refresh()
        stop.wait(seconds)
