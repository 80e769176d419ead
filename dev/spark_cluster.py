"""A real Spark cluster of our own, for the demo and the tests: a standalone master and its workers.

They are the programs that PySpark ships. Of ours, executors find nothing: that comes with each session, as on
any cluster.
"""

from __future__ import annotations

import importlib.util
import json
import os
import time
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from thermocline.dev.java_server import JVM_FLAGS, JavaServer
from thermocline.dev.ports import HOST, ports_of
from thermocline.errors import EngineFailed
from thermocline.jvm.java import find_java

_REQUEST_TIMEOUT_SECONDS = 10.0
_POLL_SECONDS = 0.05


class LocalSparkCluster:
    """A master and workers of one core each, every one at an address of its own, as machines are.

    Use it as a context manager. Linux alone has all of these addresses.

    with LocalSparkCluster(folder / "spark") as cluster:
        SparkSettings(master=cluster.url, conf=PassThrough(cluster.conf))
    """

    def __init__(
        self,
        folder: Path,
        *,
        workers: int = 2,
        python: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Takes the folder.

        Args:
            python: Runs the tasks, instead of the session's. It has to have all that Thermocline needs.
            environment: More variables for executors.

        Raises:
            DependencyMissing: no Java that fits.
        """
        self._folder = folder.absolute()
        self._python = python
        self._environment = dict(environment or {})
        self._worker_count = workers
        self.master = _Master(self._folder / "master", self._environment)
        self.workers: list[SparkWorker] = []
        self._running = ExitStack()

    @property
    def url(self) -> str:
        """For ``spark.master``; the same after a restart."""
        return self.master.spark_url

    @property
    def conf(self) -> dict[str, str]:
        """For ``spark.conf``: nothing listens to other machines; executors are small and start quickly."""
        return {
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            **({"spark.pyspark.python": str(self._python)} if self._python else {}),
        }

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            starting.enter_context(self.master)
            for _ in range(self._worker_count):
                self._start_worker(starting)
            self._await_workers()
            self._running = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()

    def add_worker(self) -> SparkWorker:
        """One more worker, which has joined."""
        worker = self._start_worker(self._running)
        self._await_workers()
        return worker

    def alive_workers(self) -> int:
        """How many workers the master knows of."""
        return sum(worker["state"] == "ALIVE" for worker in self._state()["workers"])

    def applications(self) -> list[str]:
        """The ids of the sessions that the master has."""
        return [application["id"] for application in self._state()["activeapps"]]

    def check(self) -> None:
        """Raises `EngineFailed` when the master or a worker has ended by itself."""
        for server in (self.master, *self.workers):
            server.check()

    def _start_worker(self, running: ExitStack) -> SparkWorker:
        number = len(self.workers) + 1
        host = f"127.0.0.{number}"
        worker = SparkWorker(self._folder / f"worker-{number}", host, self.url, self._environment)
        self.workers.append(worker)
        running.callback(worker.stop)
        worker.start()
        return worker

    def _await_workers(self) -> None:
        deadline = time.monotonic() + self.master.start_seconds_max
        while self.alive_workers() < len(self.workers):
            self.check()
            if time.monotonic() > deadline:
                detail = f"{self.alive_workers()} of {len(self.workers)} workers joined"
                raise EngineFailed(engine="the embedded Spark cluster", detail=detail)
            time.sleep(_POLL_SECONDS)

    def _state(self) -> dict[str, Any]:
        address = f"{self.master.url}/json/"
        with urllib.request.urlopen(address, timeout=_REQUEST_TIMEOUT_SECONDS) as answer:  # noqa: S310
            state: dict[str, Any] = json.load(answer)
        return state


class _SparkDaemon(JavaServer):
    """What master and workers share: how Spark starts them, and a page that answers once they work."""

    def __init__(self, folder: Path, name: str, host: str, environment: Mapping[str, str]) -> None:
        self.rpc_port, page = ports_of(_made(folder), 2)
        super().__init__(folder, name, page)
        self.host = host
        self._environment = environment
        self._java = find_java()

    @property
    def url(self) -> str:
        """See `JavaServer`."""
        return f"http://{self.host}:{self.port}"

    @property
    def probe_path(self) -> str:
        """See `JavaServer`."""
        return "/json/"

    def environment(self) -> Mapping[str, str]:
        """See `JavaServer`."""
        log = self.folder / "log4j2.properties"
        log.write_text(files(__package__).joinpath("log4j2.properties").read_text())
        return {
            **os.environ,
            "SPARK_HOME": str(_spark_home()),
            "JAVA_HOME": str(self._java.home),
            "SPARK_LOCAL_IP": self.host,
            "SPARK_PUBLIC_DNS": self.host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": " ".join([f"-Dlog4j2.configurationFile={log}", *JVM_FLAGS[1:]]),
            **self._environment,
        }

    def spark_class(self, name: str, *arguments: str) -> list[str]:
        """The command that runs one of Spark's programs at this server's ports."""
        ports = ("--host", self.host, "--port", str(self.rpc_port), "--webui-port", str(self.port))
        return [
            str(_spark_home() / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{name}",
            *ports,
            *arguments,
        ]


class _Master(_SparkDaemon):
    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        super().__init__(folder, "the embedded Spark master", HOST, environment)

    @property
    def spark_url(self) -> str:
        return f"spark://{self.host}:{self.rpc_port}"

    def command(self) -> list[str]:
        return self.spark_class("master.Master")


class SparkWorker(_SparkDaemon):
    """One worker of one core. Its executors' logs are below ``work``."""

    def __init__(self, folder: Path, host: str, master: str, environment: Mapping[str, str]) -> None:
        super().__init__(folder, f"the embedded Spark worker at {host}", host, environment)
        self._master = master

    @property
    def work(self) -> Path:
        """A folder for each application, and in it one for each executor."""
        return self.folder / "work"

    def command(self) -> list[str]:
        """See `JavaServer`."""
        room = ("--cores", "1", "--memory", "1g", "--work-dir", str(self.work))
        return self.spark_class("worker.Worker", *room, self._master)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _spark_home() -> Path:
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent
