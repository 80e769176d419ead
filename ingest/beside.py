"""Runs one function in a process of its own, beside this one, at a lower priority."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Final, TypeVar

from thermocline.errors import EngineFailed

T = TypeVar("T")

_NICENESS: Final = 10
"""Batches go first where the cores do not suffice."""


class Beside:
    """A process for each function, of which `stop` ends those that still run."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")  # this process has threads, which a fork breaks
        self._processes: set[Any] = set()

    def start(self, task: Callable[[], T]) -> Future[T]:
        """What the function gives or raises, later. Function and result have to be picklable."""
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_run, args=(pickle.dumps(task), sender), daemon=True)
        process.start()
        sender.close()
        self._processes.add(process)
        future: Future[T] = Future()
        threading.Thread(target=self._wait, args=(process, receiver, future), daemon=True).start()
        return future

    def stop(self) -> None:
        """Ends what runs; its files stay behind, named by nothing."""
        for process in list(self._processes):
            process.terminate()
            process.join()

    def _wait(self, process: Any, receiver: Connection, future: Future[T]) -> None:
        try:
            done, error = receiver.recv()
        except (EOFError, OSError):
            process.join()
            done, error = None, EngineFailed(engine="a process", detail=f"it ended with {process.exitcode}")
        process.join()
        self._processes.discard(process)
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(done)


def _run(task: bytes, sender: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to both; the parent ends this one
    with suppress(OSError):
        os.nice(_NICENESS)
    try:
        sender.send((pickle.loads(task)(), None))  # noqa: S301  made by our parent a moment ago
    except Exception as error:  # noqa: BLE001  whatever it is, it is raised by the future
        sender.send((None, error))
