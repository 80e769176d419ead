"""Runs functions in a process of its own, beside this one, at a lower priority."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Final, TypeVar

from thermocline.errors import EngineFailed
from thermocline.process.memory import return_freed_memory

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

T = TypeVar("T")

_NICENESS: Final = 10
"""Batches go first where the cores do not suffice."""
STOP_SECONDS: Final = 5.0
"""For temporary files to be removed; a request to a store may take longer, and is not waited for."""


class BackgroundProcess:
    """One process, which comes up with the first function and runs one after the other until `stop`."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")  # this process has threads, which a fork breaks
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="background")
        self._process: SpawnProcess | None = None
        self._connection: Connection | None = None
        self._is_stopped = False

    def start(self, task: Callable[[], T]) -> Future[T]:
        """What the function gives or raises, later. Function and result have to be picklable."""
        return self._thread.submit(self._call, task)

    def stop(self) -> None:
        """Ends what runs; what it wrote into the store stays behind, named by nothing."""
        self._is_stopped = True
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._process is not None:
            self._process.terminate()
            self._process.join(STOP_SECONDS)
            self._process.kill()
            self._process.join()

    def _call(self, task: Callable[[], T]) -> T:
        if self._process is None or not self._process.is_alive():
            self._connection, theirs = self._context.Pipe()
            process = self._context.Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
            self._process = process  # not before: `stop` can end only a process that was started
            theirs.close()
            if self._is_stopped:
                process.terminate()
        assert self._connection is not None
        try:
            self._connection.send(pickle.dumps(task))
            done, error = self._connection.recv()
        except (EOFError, OSError) as gone:
            self._process.join()
            detail = f"it ended with {self._process.exitcode}"
            raise EngineFailed(engine="the process beside ingest", detail=detail) from gone
        if error is not None:
            raise error
        result: T = done
        return result


def _end(*_: object) -> None:
    """So that what runs removes its temporary files."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(128 + signal.SIGTERM)


def _serve(connection: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to both; the parent ends this one
    signal.signal(signal.SIGTERM, _end)
    with suppress(OSError):
        os.nice(_NICENESS)
    with suppress(EOFError, ConnectionError):  # the parent has ended
        while True:
            task = connection.recv()
            try:
                connection.send((pickle.loads(task)(), None))  # noqa: S301  made by our parent a moment ago
            except Exception as error:  # noqa: BLE001  whatever it is, it is raised by the future
                connection.send((None, error))
            return_freed_memory()
