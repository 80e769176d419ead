"""Threads that read files for an event loop.

A thread pool's futures, with their locks and callbacks, would cost as much as half of what they wait for.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class ReadingThreads:
    """Works on what one event loop asks for, first come, first served."""

    def __init__(self, count: int) -> None:
        """Starts the threads."""
        self._waiting: SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"cold {number}", daemon=True) for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """What the work gives or raises. To be called on the event loop."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.put((future, work))
        return future

    def close(self) -> None:
        """Ends the threads when they have done what is waiting."""
        for _ in self._threads:
            self._waiting.put(None)

    def _work(self) -> None:
        while (item := self._waiting.get()) is not None:
            future, work = item
            result, error = None, None
            try:
                result = work()
            except BaseException as raised:  # noqa: BLE001  # it is raised where it is waited for
                error = raised
            if not future.get_loop().is_closed():
                future.get_loop().call_soon_threadsafe(_settle, future, result, error)
            del item, future, work, result, error  # while the thread waits, it keeps nothing alive


def _settle(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():  # nobody waits any more
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
