"""Taking a table, and giving it back: the lease, the epoch, and what an owner before left unsettled.

    claim = Claim.of(settings, name, clock)     the table as it is; checks that need no ownership come here
    claim.wait_until_free()                     nobody holds the table
    owned = claim.take(jvm)                     our epoch: no earlier owner can commit from here on
    owned.release()

`own_table` does all of it around a block, with a small JVM, for commands that need no Spark.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from thermocline.errors import ForeignSnapshot
from thermocline.failpoints import failpoint
from thermocline.iceberg.catalog import (
    SnapshotState,
    current_state,
    definition_of,
    epoch_of,
    load_table,
    open_table,
)
from thermocline.iceberg.rewrite import Rewrite, resume_state
from thermocline.ingest.claim.lease import OwnerLease, Say
from thermocline.ingest.claim.reconcile import Settled, settle_unknown
from thermocline.ingest.commit.commit import Committer, Outcome, Rejected, landed
from thermocline.ingest.commit.java import JavaCatalog, small_jvm
from thermocline.ingest.commit.java_metadata import JavaMetadata
from thermocline.kafka.log import Log
from thermocline.process.logs import fields

if TYPE_CHECKING:
    import threading

    from pyiceberg.table import Table

    from thermocline.ingest.commit.change import Onto
    from thermocline.process.clock import Clock
    from thermocline.rules.definition import LiveTable
    from thermocline.settings import Settings

REWRITES_MAX: Final = 5
"""By others, met in a row, by batches or while one was looked at: somebody rewrites all the time."""

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class TakenTable:
    """A table right after it was taken. ``settled`` is what became of unknown commits of owners before."""

    definition: LiveTable
    table: Table
    state: SnapshotState
    settled: tuple[Settled, ...]


@dataclass(slots=True)
class Owned(TakenTable):
    """A table that this process owns, and what it needs to change it."""

    committer: Committer
    jvm: Any
    catalog: JavaCatalog
    log: Log
    lease: OwnerLease

    def release(self) -> None:
        """Free the table for others at once."""
        self.lease.release()


@contextmanager
def own_table(
    settings: Settings, name: str, clock: Clock, onto: Onto | None = None, say: Say | None = None
) -> Iterator[Owned]:
    """Own the table for as long as the block runs. The log is not checked against it.

    Args:
        onto: a snapshot that carries a seam; it becomes the current one by this, to go on from there. Where
            another one than it says is the current one by then, the table is not taken.
        say: gets a line when an owner has to be waited for.

    Raises:
        TableHeld: another owner lives.
        OwnerLost: another process took the table at the same moment.
        ForeignSnapshot: the current snapshot (or ``onto``) carries no seam, or the table was rolled back.
    """
    claim = Claim.of(settings, name, clock, say)
    claim.wait_until_free()
    with small_jvm(settings.catalog) as jvm:
        owned = claim.take(jvm, onto)
        try:
            yield owned
        finally:
            owned.release()


@dataclass(slots=True)
class Claim:
    """A table that this process wants to own. The epoch is read first: who takes it from then on is met.

    ``rewrite`` is what others made of the table since our newest snapshot, once it was proved to be the same.
    """

    settings: Settings
    name: str
    table: Table
    definition: LiveTable
    epoch_seen: int
    lease: OwnerLease
    rewrite: Rewrite | None = None

    @classmethod
    def of(cls, settings: Settings, name: str, clock: Clock, say: Say | None = None) -> Claim:
        """The table as it is now."""
        table = open_table(settings, name)
        definition = definition_of(table, name)
        lease = OwnerLease(
            table.io, table.location(), name, settings.ingest.lease_seconds, clock, say or _into_the_log
        )
        return cls(settings, name, table, definition, epoch_of(table.properties, name), lease)

    def look_again(self) -> None:
        """Take the table as it is now, where an owner lives whose end is waited for."""
        self.table = load_table(self.table.catalog, self.name, self.definition.identifier)
        self.lease.io = self.table.io
        self.definition = definition_of(self.table, self.name)
        self.epoch_seen, self.rewrite = epoch_of(self.table.properties, self.name), None

    def state(self) -> SnapshotState:
        """What our newest snapshot says, also where others have rewritten files on top of it since.

        Raises `ForeignSnapshot` where the table can't be continued, and `StorageFailed`.
        """
        state, self.rewrite = resume_state(self.table, self.definition, self.name)
        return state

    def wait_until_free(self, stop: threading.Event | None = None) -> None:
        """Return once nobody holds the table. Raises `TableHeld` when somebody does, and lives.

        Raises `StoppedWaiting` when ``stop`` is set meanwhile, and `StorageFailed`.
        """
        self.lease.wait_until_free(stop)

    def take(self, jvm: Any, onto: Onto | None = None, log: Log | None = None) -> Owned:
        """Take the epoch, say so in the lease, and settle what owners before left unknown.

        ``log`` is of the configured cluster; a client of its own otherwise.

        Raises what `own_table` raises, and `CommitUnknown`, after which it may be tried again.
        """
        # The owner before may have raised the number of buckets while it was waited for.
        self.table = load_table(self.table.catalog, self.name, self.definition.identifier)
        self.definition = definition_of(self.table, self.name)
        catalog = JavaCatalog(jvm, self.settings.catalog)
        load = partial(catalog.load, self.definition.identifier, self.definition.name)
        store = JavaMetadata(jvm, load)
        committer = Committer(store, self.name, self.definition.version, self.table)
        log = log or Log(self.settings.kafka)
        taken = self.take_as(committer, onto)
        return Owned(
            taken.definition,
            taken.table,
            taken.state,
            taken.settled,
            committer=committer,
            jvm=jvm,
            catalog=catalog,
            log=log,
            lease=self.lease,
        )

    def take_as(self, committer: Committer, onto: Onto | None = None) -> TakenTable:
        """The same with a committer to the table, whatever the store behind it."""
        if onto is None and self.rewrite is None:
            self.state()  # where it can't be continued, this says from where it can
        self.lease.check_still_free()
        done = landed(self._taken(committer, onto))
        if self.rewrite is not None:
            say_taken_over(self.name, self.rewrite, done.snapshot_id)
        _logger.info(
            "ownership taken",
            extra=fields(
                table=self.name,
                epoch=committer.epoch,
                snapshot_id=done.snapshot_id,
                seam=done.seam.to_dict(),
            ),
        )
        failpoint("ownership.taken")
        self.lease.hold(committer.epoch)
        try:
            table = load_table(self.table.catalog, self.name, self.definition.identifier)
            return TakenTable(
                definition=definition_of(table, self.name),
                table=table,
                state=current_state(table, self.name),
                settled=settle_unknown(table, self.name),
            )
        except BaseException:
            self.lease.release()
            raise

    def _taken(self, committer: Committer, onto: Onto | None) -> Outcome:
        def take() -> Outcome:
            return committer.take_ownership(self.epoch_seen, self.lease.epoch_floor, onto or self.rewrite)

        outcome = take()
        for _ in range(REWRITES_MAX):
            is_foreign = isinstance(outcome, Rejected) and isinstance(outcome.error, ForeignSnapshot)
            if onto is not None or not is_foreign:
                break
            # What came since the table was read is looked at in its turn.
            self.table = load_table(self.table.catalog, self.name, self.definition.identifier)
            self.state()
            outcome = take()
        return outcome


def say_taken_over(name: str, rewrite: Rewrite, snapshot_id: int) -> None:
    """A line in the log: from where on the table is ours again."""
    _logger.info(
        "rewrite of another writer taken over",
        extra=fields(table=name, snapshot_id=snapshot_id, ours=rewrite.ours, others=list(rewrite.others)),
    )


def _into_the_log(line: str) -> None:
    _logger.info(line)
