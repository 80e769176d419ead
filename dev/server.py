"""A server of ours on a folder: started, awaited, stopped, killed and started again."""

from __future__ import annotations

import signal
import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from thermocline.dev.process import GuardedProcess, end_of
from thermocline.errors import ThermoclineError

_POLL_SECONDS: Final = 0.05


class Server(ABC):
    """One server; use it as a context manager. It does not outlive this process, however that ends."""

    start_seconds_max = 120.0
    """Within which it answers; a few seconds are usual on a quiet machine."""
    stop_seconds_max = 40.0
    """After which one that does not stop is killed; a clean stop takes a few seconds."""

    def __init__(self, folder: Path, name: str, log_name: str) -> None:
        """Takes the folder; ``name`` is what errors call the server."""
        self.folder = folder.absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self._log_name = log_name
        self._process: GuardedProcess | None = None

    @property
    def log_path(self) -> Path:
        """Its log, over all starts."""
        return self.folder / self._log_name

    @property
    def pid(self) -> int | None:
        """None where it is not running."""
        return self._process.pid if self._process and self._process.exit_code is None else None

    @abstractmethod
    def start(self) -> None:
        """Starts it; returns before it answers: see `wait`."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether it works."""

    @abstractmethod
    def _failure(self, detail: str) -> ThermoclineError:
        """The error of a server that does not work."""

    def __enter__(self) -> Self:
        self.start()
        try:
            self.wait()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def wait(self) -> None:
        """Returns when it answers. Raises its error, with the end of its log, when it never does."""
        assert self._process is not None, "start it first"
        deadline = time.monotonic() + self.start_seconds_max
        while not self._answers():
            self.check()
            if time.monotonic() > deadline:
                raise self._failed(f"{self.name} did not answer within {self.start_seconds_max:g} s")
            time.sleep(_POLL_SECONDS)

    def check(self) -> None:
        """Raises its error, with the end of its log, when it has ended by itself."""
        if self._process is not None and self._process.exit_code is not None:
            raise self._failed(f"{self.name} ended with {self._process.exit_code}")

    def stop(self) -> None:
        """Ends it cleanly; kills it if that takes too long. Does nothing where it is not running."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it at once, as a crash of its machine would."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.end(how, self.stop_seconds_max)
        self._process = None

    def _failed(self, what_happened: str) -> ThermoclineError:
        return self._failure(f"{what_happened}; {end_of(self.log_path)}")
