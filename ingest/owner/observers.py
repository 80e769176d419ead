"""Observers of an owner, which hear of its batches and commits, and neither hold them up nor fail them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from thermocline.ingest.batch.plan import Batch
    from thermocline.ingest.commit.change import TableChange
    from thermocline.ingest.commit.commit import Landed

__all__ = ["Observer", "Observers", "wait_for"]

END_SECONDS_MAX: Final = 8.0
"""What receivers that hang may cost a process that ends, for all its tables."""
_BRIEF_SECONDS: Final = 0.5  # where nothing hangs, an observer has ended by then


class Observer:
    """Hears of an owner's batches and commits, in the owner's thread; does nothing by itself.

    Each of its methods raises nothing, and each but ``close`` returns at once: what takes time or may fail is
    for its own thread.
    """

    def began(self, batch: Batch) -> None:
        """A batch is about to be read."""

    def landed(self, landed: Landed, change: TableChange) -> None:
        """A commit landed: of the batch that began, or of something between two batches."""

    def passed_over(self) -> None:
        """The batch that began held nothing for the table, and ended without a commit."""

    def failed(self, error: BaseException) -> None:
        """The batch that began ended with an error; whether it landed is for the error to say."""

    def close(self) -> None:
        """The owner has ended. Called in a thread of its own, so that it may take some seconds."""


class Observers:
    """Hands on to several, in their order."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers
        self._ending: list[threading.Thread] = []

    @contextmanager
    def batch(self, batch: Batch) -> Iterator[None]:
        """Around a batch: it begins, and where an error ends it, that is said, too."""
        for observer in self._observers:
            observer.began(batch)
        try:
            yield
        except BaseException as error:
            for observer in self._observers:
                observer.failed(error)
            raise

    def landed(self, landed: Landed, change: TableChange) -> None:
        """A commit landed."""
        for observer in self._observers:
            observer.landed(landed, change)

    def passed_over(self) -> None:
        """A batch ended without a commit."""
        for observer in self._observers:
            observer.passed_over()

    def end(self) -> None:
        """The owner has ended. Returns soon, also where a receiver hangs; see `wait_for`."""
        for observer in self._observers:
            thread = threading.Thread(target=observer.close, name="end of an observer", daemon=True)
            thread.start()  # safety: observers-end-beside
            self._ending.append(thread)
        self.wait(time.monotonic() + _BRIEF_SECONDS)

    @property
    def have_ended(self) -> bool:
        """Whether all were told to end, and did."""
        return bool(self._ending) and not any(thread.is_alive() for thread in self._ending)

    def wait(self, until: float) -> None:
        """Returns once those that were told to end have ended, or at that time of `time.monotonic`."""
        for thread in self._ending:
            thread.join(max(until - time.monotonic(), 0))


def wait_for(ended: Iterable[Observers]) -> None:
    """Waits until all of them have ended, within a bounded time; what is left then ends with the process."""
    until = time.monotonic() + END_SECONDS_MAX
    for observers in ended:
        observers.wait(until)  # safety: observers-waited-for
