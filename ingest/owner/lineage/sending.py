"""Sends what happened to one table, in order, in a thread of its own, from a queue that is bounded."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from thermocline.ingest.owner import measures
from thermocline.ingest.owner.lineage.post import EventRefused
from thermocline.process.repeated import Repeated

if TYPE_CHECKING:
    from thermocline.ingest.owner.lineage.events import Event
    from thermocline.ingest.owner.lineage.happened import Happened

__all__ = ["Posting", "Sender"]

WAITING_MAX: Final = 1_000
"""Two for each commit: those of eight hours with one a minute, in about a megabyte."""
AGAIN_SECONDS: Final = 30.0
"""So soon it is tried again; each new event has it tried at once."""
LAST_SECONDS: Final = 4.0
"""So long an owner that ends waits for its last events to be sent; a server that is well takes less."""


class Posting(Protocol):
    """What takes an event to its receiver (`post.Post`)."""

    def __call__(self, body: bytes) -> None:
        """Returns once it was taken; raises `EventRefused` where it never will be, or anything else."""
        ...

    def close(self) -> None:
        """Ends."""
        ...


class Sender:
    """Sends events; one that is not taken is sent again, and a failure is counted, no more.

    Of too many that wait, the oldest are dropped and counted, as is one that the receiver refuses.
    """

    def __init__(self, table: str, event_of: Callable[[Happened], Event], post: Posting) -> None:
        """Begins at once; ``event_of`` and ``post`` are called in the thread, and may raise."""
        self._table, self._event_of, self._post = table, event_of, post
        self._waiting: deque[Happened] = deque()
        self._lock, self._settled = threading.Lock(), threading.Event()
        measures.LINEAGE_FAILURES.labels(table)  # from 0 on
        measures.LINEAGE_DROPPED.labels(table)
        self._repeated = Repeated(f"sending the lineage of {table}", self._send, AGAIN_SECONDS, self._failed)
        self._repeated.start()

    def put(self, *happened: Happened) -> None:
        """Has these sent, soon; returns at once."""
        with self._lock:
            self._waiting.extend(happened)
            while len(self._waiting) > WAITING_MAX:  # safety: lineage-queue-bounded
                self._waiting.popleft()
                self._dropped()
            self._settled.clear()
        self._repeated.wake()

    def close(self) -> None:
        """Ends, once all is sent or was tried, within a bounded time; what was not sent is dropped."""
        self._settled.wait(LAST_SECONDS)  # safety: lineage-last-events
        self._repeated.close()
        self._post.close()
        with self._lock:
            self._dropped(len(self._waiting))
            self._waiting.clear()

    def _send(self) -> None:
        """Sends all that waits, up to the first that is not taken."""
        refused: EventRefused | None = None
        try:
            while (first := self._first()) is not None:
                try:
                    self._post(self._body_of(first))
                except EventRefused as error:
                    refused = error
                    self._dropped()
                self._took(first)
        except BaseException:
            self._settled.set()  # nobody waits for it to be tried again
            raise
        if refused is not None:
            raise refused

    def _first(self) -> Happened | None:
        with self._lock:
            if self._waiting:
                return self._waiting[0]
            self._settled.set()
            return None

    def _took(self, first: Happened) -> None:
        with self._lock:
            if self._waiting and self._waiting[0] is first:  # it may have been dropped meanwhile
                self._waiting.popleft()

    def _body_of(self, happened: Happened) -> bytes:
        try:
            return msgspec.json.encode(self._event_of(happened))
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise EventRefused(f"no event could be made of what happened: {what}") from error

    def _dropped(self, events: int = 1) -> None:
        measures.LINEAGE_DROPPED.labels(self._table).inc(events)

    def _failed(self, _: Exception) -> None:
        measures.LINEAGE_FAILURES.labels(self._table).inc()
