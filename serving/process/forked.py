"""A process of the server: a fork of one that has imported what it runs (`serving.process.preload`)."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import wait
from typing import Any

# The command's script is run again in each process, and imports the command line.
multiprocessing.set_forkserver_preload(["thermocline.cli", "thermocline.serving.process.preload"])
# The process that forks says how one ended, soon after it did.
_EXIT_CODE_SECONDS_MAX = 1.0


class Forked:
    """A process that runs from its construction on.

    Whether it runs, the kernel says: if the process that forked it dies, it goes on, and so does the server.
    """

    def __init__(self, name: str, target: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self.name = name
        forks = multiprocessing.get_context("forkserver")
        self._process = forks.Process(target=target, args=arguments, name=name)
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid
        self._handle: int | None = None
        with suppress(ProcessLookupError):  # it has ended already
            self._handle = os.pidfd_open(self.pid)

    def has_ended(self, within_seconds: float = 0.0) -> bool:
        """Whether it has, or does while this waits."""
        return self._handle is None or bool(wait([self._handle], within_seconds))

    def send(self, number: signal.Signals) -> None:
        """Nothing where it has ended."""
        if self._handle is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def close(self) -> int | None:
        """To be called once it has ended; its exit code, None where nobody can say."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        self._process.join(_EXIT_CODE_SECONDS_MAX)
        return self._process.exitcode
