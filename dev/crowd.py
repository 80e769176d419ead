"""A crowd: threads that ask a server again and again, for as long as a block lasts."""

from __future__ import annotations

import threading
from typing import Self

__all__ = ["Crowd"]


class Crowd:
    """So many threads that each do `follow`, which ends soon once ``stop`` is set."""

    def __init__(self, number: int) -> None:
        self.stop = threading.Event()
        self._threads = [threading.Thread(target=self.follow, args=(one,)) for one in range(number)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join()

    def follow(self, one: int) -> None:
        """What the thread of that number does."""
        raise NotImplementedError
