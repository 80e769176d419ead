"""Passes on to engines, with each load, the access to the store that a table's own catalog grants readers.

A server that writes live files has more rights than its readers ought to have. So the catalog is asked as
somebody else, who may only read: by other properties of the connection, such as another ``credential``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from thermocline.errors import CatalogUnreachable

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.process.clock import Clock

__all__ = ["PassedOn"]

ASKED_AGAIN_SECONDS: Final = 60.0
"""What is granted mostly lasts an hour: a query that begins now can use nearly all of it."""
KEPT_SECONDS: Final = 900.0
"""So long the last grant goes on where the catalog can't be asked; the shortest that clouds give."""
_OF_STORES: Final = ("s3.", "gcs.", "adls.", "client.")
_OF_THE_CATALOG: Final = ("refresh-credentials", "signer", "remote-signing")
"""These send an engine to the table's own catalog, in which it has no session."""


class PassedOn:
    """The properties of one table's store that a reader is given. For any threads."""

    def __init__(self, open_as_reader: Callable[[], Table], ours: Mapping[str, str], clock: Clock) -> None:
        """``ours`` are the properties of the connection: what the catalog did not say is not told."""
        self._open_as_reader = open_as_reader
        self._ours = ours
        self._clock = clock
        self._asking = threading.Lock()
        self._granted: dict[str, str] = {}
        self._asked_at = -float("inf")

    def properties(self) -> Mapping[str, str]:
        """By the names of Iceberg's libraries.

        Raises `TableMissing`, and `CatalogUnreachable` where nothing is known that may still be in force.
        """
        with self._asking:
            now = self._clock.monotonic()
            if now - self._asked_at > ASKED_AGAIN_SECONDS:
                try:
                    found = self._open_as_reader().io.properties
                except CatalogUnreachable:
                    if now - self._asked_at > KEPT_SECONDS:  # safety: live-grant-in-force
                        raise
                else:
                    self._granted, self._asked_at = self._said_by_catalog(found), now
            return self._granted

    def _said_by_catalog(self, found: Mapping[str, str]) -> dict[str, str]:
        return {
            name: value
            for name, value in found.items()
            if name.startswith(_OF_STORES)
            and not any(part in name for part in _OF_THE_CATALOG)
            and self._ours.get(name) != value  # safety: live-own-keys-stay
        }
