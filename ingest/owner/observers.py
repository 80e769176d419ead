"""Observers of an owner, which hear of its batches and commits, and neither hold them up nor fail them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thermocline.ingest.batch.plan import Batch
    from thermocline.ingest.commit.change import TableChange
    from thermocline.ingest.commit.commit import Landed

__all__ = ["Observer", "Observers"]


class Observer:
    """Hears of an owner's batches and commits, in the owner's thread; does nothing by itself.

    Each of its methods returns at once and raises nothing: what takes time or may fail is for its own thread.
    """

    def began(self, batch: Batch) -> None:
        """A batch is about to be read."""

    def landed(self, landed: Landed, change: TableChange) -> None:
        """A commit landed: of the batch that began, or of something between two batches."""

    def failed(self, error: BaseException) -> None:
        """The batch that began ended with an error; whether it landed is for the error to say."""

    def close(self) -> None:
        """The owner has ended."""


class Observers:
    """Hands on to several, in their order."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

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

    def close(self) -> None:
        """The owner has ended."""
        for observer in self._observers:
            observer.close()
