"""A thread that works until it is told to stop, and whose error is not lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Background:
    """Runs ``work(stop)`` in a thread; used as a context manager, it is stopped and joined at its end."""

    def __init__(self, name: str, work: Callable[[threading.Event], None]) -> None:
        self._work = work
        self._stop = threading.Event()
        self._error: BaseException | None = None
        # A daemon, so that an interrupted join does not keep the process.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_running(self) -> bool:
        """Whether it still works."""
        return self._thread.is_alive()

    def start(self) -> Self:
        """Begins the work."""
        self._thread.start()
        return self

    def check(self) -> None:
        """Raises the error that ended the work, if one did."""
        if self._error is not None:
            raise self._error

    def finish(self) -> None:
        """Tells it to stop, waits until it has, and raises the error that ended it, if one did."""
        self._stop.set()
        self._thread.join()
        self.check()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._work(self._stop)
        except BaseException as error:  # noqa: BLE001 -- handed to the thread that asks
            self._error = error
