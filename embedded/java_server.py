"""A Java server of ours on a folder and a port: started, awaited, stopped, killed and started again."""

from __future__ import annotations

import signal
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from embedded.ports import HOST, is_free, ports_of
from embedded.process import GuardedProcess, end_of
from thermocline.errors import EngineFailed, PortTaken

START_TIMEOUT_SECONDS = 120.0  # a second or two on a quiet machine
_STOP_TIMEOUT_SECONDS = 10.0
_REQUEST_TIMEOUT_SECONDS = 2.0
_POLL_SECONDS = 0.05
JVM_FLAGS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""The quickest to start and the smallest; measure nothing on it."""


class JavaServer(ABC):
    """One server; use it as a context manager. It does not outlive this process, however that ends."""

    def __init__(self, folder: Path, name: str, port: int | None = None) -> None:
        """Takes the folder; listens at `port`, else at one that the folder keeps."""
        self.folder = folder.absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        (self.port,) = (port,) if port else ports_of(self.folder, 1)
        self._process: GuardedProcess | None = None

    @property
    def url(self) -> str:
        """Its address, the same after a restart."""
        return f"http://{HOST}:{self.port}"

    @property
    def log_path(self) -> Path:
        """Its log, over all starts."""
        return self.folder / "server.log"

    @property
    def pid(self) -> int | None:
        """None where it is not running."""
        return self._process.pid if self._process and self._process.exit_code is None else None

    @abstractmethod
    def command(self) -> Sequence[str]:
        """What starts it; its files are written first."""

    @abstractmethod
    def environment(self) -> Mapping[str, str]:
        """The variables that it gets."""

    @property
    @abstractmethod
    def probe_path(self) -> str:
        """What it answers as soon as it works, whatever the answer's status."""

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

    def start(self) -> None:
        """Starts it; returns before it answers: see `wait`.

        Raises:
            PortTaken: another process listens on the port that this folder's server had before.
        """
        assert self.pid is None, f"{self.name} runs already"
        if not is_free(self.port):
            raise PortTaken(host=HOST, port=self.port)
        self._process = GuardedProcess(
            self.command(), log_path=self.log_path, folder=self.folder, environment=self.environment()
        )

    def wait(self, timeout_seconds: float = START_TIMEOUT_SECONDS) -> None:
        """Returns when it answers. Raises `EngineFailed`, with the end of its log, when it never does."""
        deadline = time.monotonic() + timeout_seconds
        while not self._answers():
            self.check()
            if time.monotonic() > deadline:
                raise self._failed(f"it did not answer within {timeout_seconds:g} s")
            time.sleep(_POLL_SECONDS)

    def check(self) -> None:
        """Raises `EngineFailed`, with the end of its log, when it has ended by itself."""
        if self._process is not None and self._process.exit_code is not None:
            raise self._failed(f"it ended with {self._process.exit_code}")

    def stop(self) -> None:
        """Ends it cleanly; kills it if that takes too long. Does nothing where it is not running."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it at once, as a crash of its machine would."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.end(how, _STOP_TIMEOUT_SECONDS)
        self._process = None

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(self.url + self.probe_path, timeout=_REQUEST_TIMEOUT_SECONDS).close()  # noqa: S310
        except urllib.error.HTTPError as refusal:
            refusal.close()
        except OSError:
            return False
        return True

    def _failed(self, what_happened: str) -> EngineFailed:
        return EngineFailed(engine=self.name, detail=f"{what_happened}; {end_of(self.log_path)}")
