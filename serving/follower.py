"""Follows the catalog: each new snapshot is indexed and published, and then the tailer learns of it.

It runs in a thread of its own, since indexing reads files and a catalog may hang; tailing must not wait
for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from serving.cold.index import publish, published_snapshot_id, source_of
from thermocline.catalog import current_state, definition_of, load_table, open_catalog
from thermocline.errors import InternalError, TableUnowned, ThermoclineError
from thermocline.logs import fields

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from thermocline.catalog import SnapshotState
    from thermocline.definition import LiveTable
    from thermocline.settings import CatalogSettings

# A commit is served this much later than it could be; the answers are right all the time.
FOLLOW_SECONDS: Final = 1.0
# A thread that hangs in the catalog is a daemon: the process does not wait longer for it.
STOP_SECONDS: Final = 2.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Published:
    """A snapshot that readers can switch to, the definition that goes with it, and the log that feeds it."""

    definition: LiveTable
    state: SnapshotState
    source: str


class Follower:
    """Knows the newest published snapshot, and what is wrong with the catalog if something is."""

    def __init__(self, settings: CatalogSettings, table: str, identifier: str, cold_folder: Path) -> None:
        self.newest: Published | None = None
        self.problem: ThermoclineError | None = None
        self._settings = settings
        self._table = table
        self._identifier = identifier
        self._cold_folder = cold_folder
        self._catalog: Catalog | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="follower", daemon=True)

    def start(self) -> None:
        """Begins to follow."""
        self._thread.start()

    def stop(self) -> None:
        """Stops following, within a bounded time."""
        self._stop.set()
        self._thread.join(STOP_SECONDS)

    def look(self) -> None:
        """Publishes the current snapshot if it is a new one.

        Raises:
            TableUnowned: the snapshot is older than the one that is served, or not ours.
            ThermoclineError: the catalog is away, or the table is missing.
        """
        if self._catalog is None:
            self._catalog = open_catalog(self._settings)
        table = load_table(self._catalog, self._table, self._identifier)
        state = current_state(table, self._table)
        if self.newest is not None and state.snapshot_id == self.newest.state.snapshot_id:
            return
        definition = definition_of(table, self._table)
        if not publish(self._cold_folder, table, definition, state):
            self._check_served(state.snapshot_id)
        self.newest = Published(definition, state, source_of(table, state))
        log.info(
            "snapshot published",
            extra=fields(
                table=self._table, snapshot_id=state.snapshot_id, definition_version=definition.version
            ),
        )

    def _check_served(self, snapshot_id: int) -> None:
        """Raises `TableUnowned` when something newer is served, which then stays in force."""
        served = published_snapshot_id(self._cold_folder)
        if served != snapshot_id:
            raise TableUnowned(
                table=self._table,
                snapshot_id=snapshot_id,
                detail=f"it is older than snapshot {served}, which is served: the table was rolled back or "
                "its catalog restored",
            )

    def _follow(self) -> None:
        while not self._stop.is_set():
            self._note(_problem_of(self.look))
            self._stop.wait(FOLLOW_SECONDS)

    def _note(self, problem: ThermoclineError | None) -> None:
        if problem is not None:
            self._catalog = None  # a connection that failed may stay broken
            if self.problem is None or self.problem.what != problem.what:
                log.warning(
                    "catalog cannot be followed; trying again",
                    extra=fields(table=self._table, code=problem.code, detail=problem.what),
                )
        self.problem = problem


def _problem_of(step: Callable[[], None]) -> ThermoclineError | None:
    try:
        step()
    except ThermoclineError as error:
        return error
    except Exception as error:
        # Storage and catalog clients raise what they like; the thread must outlive it and try again.
        log.exception("following the catalog failed")
        return InternalError(detail=f"{type(error).__name__}: {error}", where="serving.follower")
    return None
