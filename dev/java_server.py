"""A server of ours that runs on Java and answers HTTP, on a folder and a port."""

from __future__ import annotations

import urllib.error
import urllib.request
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from thermocline.dev.ports import HOST, is_free, ports_of
from thermocline.dev.process import GuardedProcess
from thermocline.dev.server import Server
from thermocline.errors import EngineFailed, PortTaken

_REQUEST_TIMEOUT_SECONDS = 2.0
JVM_FLAGS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""The quickest to start and the smallest; measure nothing on it."""


class JavaServer(Server):
    """One server; see `Server`."""

    stop_seconds_max = 10.0

    def __init__(self, folder: Path, name: str, port: int | None = None) -> None:
        """Takes the folder; listens at `port`, else at one that the folder keeps."""
        super().__init__(folder, name, "server.log")
        (self.port,) = (port,) if port else ports_of(self.folder, 1)

    @property
    def url(self) -> str:
        """Its address, the same after a restart."""
        return f"http://{HOST}:{self.port}"

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

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(self.url + self.probe_path, timeout=_REQUEST_TIMEOUT_SECONDS).close()  # noqa: S310
        except urllib.error.HTTPError as refusal:
            refusal.close()
        except OSError:
            return False
        return True

    def _failure(self, detail: str) -> EngineFailed:
        return EngineFailed(engine=self.name, detail=detail)
