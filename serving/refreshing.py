"""Refreshes of tables that are tried again and again, whatever they raise."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from thermocline.process.logs import fields

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
