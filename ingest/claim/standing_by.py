"""The trace of a standby: a small object beside the table that says that a process waits to take it over.

It is for people and decides nothing: who may commit is in the owner's lease and the table's epoch. So it is
written seldom, by a thread of its own, and a store that refuses it holds up no takeover. Each table has one,
of whichever standby came first; one that is not written again counts as gone (`Holder.is_gone`).
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from math import inf
from typing import TYPE_CHECKING, Final

from thermocline.iceberg.files import delete_files, write_file
from thermocline.iceberg.holder import Holder, standby_of, standby_path
from thermocline.process.logs import fields

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from thermocline.process.clock import Clock

__all__ = ["END_SECONDS_MAX", "StandbyTrace"]

WRITTEN_SECONDS: Final = 120.0
"""A standby asks for the owner's lease a hundred times as often."""
END_SECONDS_MAX: Final = 2.0
"""What a store that hangs may cost a process that ends, for all its tables; then traces end by themselves."""

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class StandbyTrace:
    """That of one table. Not for several threads at once."""

    name: str
    clock: Clock
    _us: Holder | None = None
    _written_at: float = -inf
    _place: tuple[FileIO, str] | None = None
    _working: threading.Thread | None = None

    def leave(self, io: FileIO, location: str) -> None:
        """Say that this process stands by, if that is due."""
        now = self.clock.monotonic()
        if self._working is not None and self._working.is_alive():
            return
        if now - self._written_at < WRITTEN_SECONDS:  # safety: standby-seldom
            return
        self._written_at, self._place = now, (io, location)
        said = datetime.fromtimestamp(self.clock.now_ms() / 1000, UTC).isoformat(timespec="seconds")
        us = self._us or replace(Holder.this_process(WRITTEN_SECONDS), since=said)
        us = self._us = replace(us, renewed=said, renewals=us.renewals + 1)
        self._begin(lambda: _write(io, location, us, self.clock.now_ms()))

    def remove(self) -> None:
        """The process stands by no more: it has taken the table, or ends."""
        us, place, before = self._us, self._place, self._working
        if us is None or place is None:
            return
        self._us, self._written_at = None, -inf

        def remove() -> None:
            if before is not None:
                before.join()
            _remove(*place, us.owner)

        self._begin(remove)

    def wait(self, seconds: float) -> None:
        """Return once what was begun is done, or after so long."""
        if self._working is not None:
            self._working.join(max(seconds, 0))

    def _begin(self, step: Callable[[], None]) -> None:
        def work() -> None:
            try:
                step()
            except Exception as error:  # noqa: BLE001  a store raises what it likes, and nothing hangs on it
                _logger.debug(
                    "trace of the standby not kept", extra=fields(table=self.name, detail=str(error))
                )

        self._working = threading.Thread(target=work, name=f"standby of {self.name}", daemon=True)
        self._working.start()


def _write(io: FileIO, location: str, us: Holder, now_ms: int) -> None:
    there = standby_of(io, location)
    if there is None or there.owner == us.owner or there.is_gone(now_ms):  # safety: standby-first
        write_file(io, standby_path(location), json.dumps(asdict(us)).encode())


def _remove(io: FileIO, location: str, owner: str) -> None:
    there = standby_of(io, location)
    if there is not None and there.owner == owner:
        delete_files(io, [standby_path(location)])
