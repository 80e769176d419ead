"""Follows the catalog: each new snapshot is indexed and published, and then the tailer learns of it.

It runs in a thread of its own, since indexing reads files and a catalog may hang; tailing must not wait
for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from thermocline.errors import ForeignSnapshot, InternalError, ThermoclineError
from thermocline.failpoints import failpoint
from thermocline.iceberg.catalog import current_state, definition_of, load_table, open_catalog
from thermocline.iceberg.foreign_schema import check_schema
from thermocline.process.logs import fields
from thermocline.rules.identity import tombstones_matter_from_ms
from thermocline.serving.cold.manifest import source_of
from thermocline.serving.store.storage import STORAGE_ERRORS, storage_failed

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from thermocline.iceberg.catalog import SnapshotState
    from thermocline.rules.definition import LiveTable
    from thermocline.rules.seam import Seam
    from thermocline.settings import CatalogSettings

# A commit is served this much later than it could be; the answers are right all the time.
FOLLOW_SECONDS: Final = 1.0
# Of all tables of a process: each reads the table's metadata, which takes milliseconds.
LOOKS_PER_SECOND: Final = 5
# A thread that hangs in the catalog is a daemon: the process does not wait longer for it.
STOP_SECONDS: Final = 2.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PublishedSnapshot:
    """A snapshot that readers can switch to, the definition that goes with it, and the log that feeds it."""

    definition: LiveTable
    state: SnapshotState
    source: str

    @property
    def seam(self) -> Seam:
        """What it contains of the log."""
        return self.state.seam

    @property
    def tombstones_from_ms(self) -> int:
        """From when on a missing tombstone may leave a row in it."""
        return tombstones_matter_from_ms(self.state, self.definition)

    @property
    def definition_json(self) -> str:
        """Its definition, as it is compared."""
        return self.definition.to_json()


class SnapshotPublisher(Protocol):
    """Where the indexes of a table's snapshots are published (`serving.cold.folder.ColdPublisher`)."""

    def publish(self, table: Table, definition: LiveTable, state: SnapshotState) -> bool:
        """Publishes a snapshot; False, with nothing changed, where it or a newer one is published."""
        ...

    def published_snapshot_id(self) -> int | None:
        """The newest one; None before the first."""
        ...


class CatalogTable:
    """A table in the catalog, on a connection that is kept until it fails."""

    def __init__(self, settings: CatalogSettings, name: str, identifier: str) -> None:
        self._settings = settings
        self._name = name
        self._identifier = identifier
        self._catalog: Catalog | None = None

    def load(self) -> Table:
        """The table as it is now. Raises `TableMissing` and `CatalogUnreachable`."""
        if self._catalog is None:
            self._catalog = open_catalog(self._settings)
        return load_table(self._catalog, self._name, self._identifier)

    def reconnect(self) -> None:
        """Lets the connection go, which may be broken; the next load opens another."""
        self._catalog = None


class Loader(Protocol):
    """What gives the table as it is now (`CatalogTable`)."""

    def load(self) -> Table:
        """The table as it is now. Raises `TableMissing` and `CatalogUnreachable`."""
        ...

    def reconnect(self) -> None:
        """Called when something failed."""
        ...


def look_seconds(tables: int) -> float:
    """How long after one look at a table the next follows in a process that follows so many."""
    return max(FOLLOW_SECONDS, tables / LOOKS_PER_SECOND)


class Follower:
    """Knows the newest published snapshot, and what is wrong with the catalog if something is.

    ``step`` is one look; started, it takes them in a thread of its own.
    """

    def __init__(
        self,
        table: str,
        loader: Loader,
        publisher: SnapshotPublisher,
        tables: int = 1,
        note: Callable[[Table], None] = lambda _: None,
    ) -> None:
        """``tables`` are followed by this process. ``note`` takes the table at each look and never raises."""
        self._note_table = note
        self.newest: PublishedSnapshot | None = None
        self.problem: ThermoclineError | None = None
        self.has_looked = False
        self._table = table
        self._loader = loader
        self._publisher = publisher
        self._seconds = look_seconds(tables)
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
            ForeignSnapshot: the snapshot is older than the one that is served, or not ours.
            ForeignSchema: another program changed the table's columns.
            ThermoclineError: the catalog is unavailable, or the table is missing.
        """
        failpoint("follower.look")
        table = self._loader.load()
        try:
            self._publish(table)
        finally:
            # Afterwards: it may ask the store, for which no snapshot waits.
            self._note_table(table)

    def _publish(self, table: Table) -> None:
        state = current_state(table, self._table)
        definition = definition_of(table, self._table)
        check_schema(table, definition)
        if self.newest is not None and state.snapshot_id == self.newest.state.snapshot_id:
            return
        if not self._publisher.publish(table, definition, state):
            self._check_served(state.snapshot_id)
        self.newest = PublishedSnapshot(definition, state, source_of(table, state))
        log.info(
            "snapshot published",
            extra=fields(
                table=self._table, snapshot_id=state.snapshot_id, definition_version=definition.version
            ),
        )

    def _check_served(self, snapshot_id: int) -> None:
        """Raises `ForeignSnapshot` when something newer is served, which then stays in force."""
        served = self._publisher.published_snapshot_id()
        if served != snapshot_id:
            raise ForeignSnapshot(
                table=self._table,
                snapshot_id=snapshot_id,
                detail=f"it is older than snapshot {served}, which is served: the table was rolled back or "
                "its catalog restored",
                is_served_newer=True,
            )

    def step(self) -> None:
        """Looks, and notes what is wrong, which the next step may mend. Raises nothing."""
        self._note(problem_of(self._table, self.look))

    def _follow(self) -> None:
        while not self._stop.is_set():
            self.step()
            self._stop.wait(self._seconds)

    def _note(self, problem: ThermoclineError | None) -> None:
        if problem is not None:
            self._loader.reconnect()
            if self.problem is None or self.problem.what != problem.what:
                log.warning(
                    "catalog cannot be followed; trying again",
                    extra=fields(
                        table=self._table, code=problem.code, detail=problem.what, next=problem.next
                    ),
                )
        self.problem = problem
        self.has_looked = True


def problem_of(table: str, step: Callable[[], None]) -> ThermoclineError | None:
    """What keeps a step at the table from being done, by a name of ours; None where it is done."""
    try:
        step()
    except ThermoclineError as error:
        return error
    except STORAGE_ERRORS as error:
        return storage_failed(table, error)
    except Exception as error:
        # Storage and catalog clients raise what they like; the thread must outlive it and try again.
        log.exception("following the catalog failed")
        return InternalError(
            detail=f"{type(error).__name__}: {error}", where="thermocline.serving.tail.follower"
        )
    return None
