"""Notes the runs of a table: each batch is one, and so is each rewrite that lands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from thermocline.errors import CommitUnknown, ThermoclineError
from thermocline.ingest.owner.lineage.events import Events
from thermocline.ingest.owner.lineage.happened import Committed, Happened, run_id_at
from thermocline.ingest.owner.lineage.post import Post
from thermocline.ingest.owner.lineage.sending import Sender
from thermocline.ingest.owner.observers import Observer
from thermocline.process.masking import mask_password

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.ingest.batch.plan import Batch
    from thermocline.ingest.commit.change import TableChange
    from thermocline.ingest.commit.commit import Landed
    from thermocline.ingest.owner.lineage.happened import EventType
    from thermocline.kafka.facts import OffsetRange
    from thermocline.process.clock import Clock
    from thermocline.rules.definition import LiveTable
    from thermocline.settings import Settings

__all__ = ["LineageObserver", "Putting", "lineage_of"]


class Putting(Protocol):
    """What takes note of what happened, at once and without an error (`sending.Sender`)."""

    def put(self, *happened: Happened) -> None:
        """Takes note."""
        ...

    def close(self) -> None:
        """Nothing more happens."""
        ...


@dataclass(frozen=True, slots=True)
class _Run:
    """A batch that is under way."""

    id: str
    ranges: tuple[OffsetRange, ...]


class LineageObserver(Observer):
    """Says when a run begins and how it ends; commits that move no row are no runs."""

    def __init__(self, sender: Putting, clock: Clock) -> None:
        self._sender, self._clock = sender, clock
        self._batch: _Run | None = None
        self._topics: tuple[str, ...] | None = None  # once any came or left

    def began(self, batch: Batch) -> None:
        """A run of ingest begins."""
        now_ms = self._clock.now_ms()
        self._batch = _Run(run_id_at(now_ms), batch.ranges)
        self._put("START", self._batch, now_ms)

    def landed(self, landed: Landed, change: TableChange) -> None:
        """The run of ingest ends well; or a rewrite did, of which nothing was said before."""
        if change.definition is not None:
            self._topics = change.definition.topics
        if change.kind == "rewrite":
            self._rewritten(Committed.of(landed, change), change.began_ms)
        elif self._batch is not None and change.alter is None:  # the run's batch comes after such a commit
            run, self._batch = self._batch, None
            done = Committed.of(landed, change)
            self._put("COMPLETE", run, self._clock.now_ms(), done)

    def passed_over(self) -> None:
        """The run of ingest ends well, and wrote nothing."""
        if self._batch is not None:
            run, self._batch = self._batch, None
            self._put("COMPLETE", run, self._clock.now_ms())

    def failed(self, error: BaseException) -> None:
        """The run of ingest ends badly, unless it had landed already."""
        if self._batch is None:
            return
        run, self._batch = self._batch, None
        # What was interrupted, or got no answer, may have landed all the same.
        is_failure = isinstance(error, Exception) and not isinstance(error, CommitUnknown)
        ended: EventType = "FAIL" if is_failure else "ABORT"  # safety: lineage-unknown-is-no-failure
        self._put(ended, run, self._clock.now_ms(), error=_said(error))

    def close(self) -> None:
        """Sends what is left, for a moment."""
        self._sender.close()

    def _put(
        self, type_: EventType, run: _Run, now_ms: int, done: Committed | None = None, error: str = ""
    ) -> None:
        topics = self._topics
        self._sender.put(
            Happened("ingest", type_, run.id, now_ms, run.ranges, done, error=error, topics=topics)
        )

    def _rewritten(self, done: Committed, since_ms: int | None) -> None:
        now_ms = self._clock.now_ms()
        began_ms = now_ms if since_ms is None else since_ms
        id_ = run_id_at(began_ms)
        self._sender.put(
            Happened("rewrite", "START", id_, began_ms),
            Happened("rewrite", "COMPLETE", id_, now_ms, committed=done),
        )


def lineage_of(settings: Settings, definition: LiveTable, table: Table, clock: Clock) -> LineageObserver:
    """What sends the lineage of a table that was just taken; it begins at once."""
    events = Events(settings, definition, table.location())
    sender = Sender(definition.name, events.of, Post(settings.lineage))
    return LineageObserver(sender, clock)


def _said(error: BaseException) -> str:
    """What is said of it elsewhere: its cause, which is in the log, may quote data."""
    if isinstance(error, ThermoclineError):
        return mask_password(f"{error.code}: {error.what}")
    return type(error).__name__  # safety: lineage-errors-without-data
