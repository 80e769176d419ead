"""A real Trino of our own, for the demo and the tests: one process that coordinates and works."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from thermocline.dev.ports import HOST, is_free, ports_of
from thermocline.dev.process import GuardedProcess
from thermocline.dev.server import Server
from thermocline.dev.trino_tree import trino_tree
from thermocline.errors import PortTaken, TrinoUnreachable
from thermocline.jvm.jars import Report, in_silence
from thermocline.jvm.trino_java import TRINO_VERSIONS, find_trino_java

# The quickest to start and the smallest: 320 MB resident at rest. With more memory it is a server's Java.
_SMALL_FLAGS = ("-XX:ReservedCodeCacheSize=128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_JVM_FLAGS = (
    "-Xms64m",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:-OmitStackTraceInFastThrow",
    "-Djdk.attach.allowAttachSelf=true",
    "-XX:+EnableDynamicAgentLoading",
    "-Djdk.nio.maxCachedBufferSize=2000000",
    "--add-modules=jdk.incubator.vector",
    "--enable-native-access=ALL-UNNAMED",
)


@dataclass(frozen=True, slots=True)
class Release:
    """One of the Trinos that can be had here: how its files come, and what starts it."""

    java_versions: tuple[int, ...]
    tree: Callable[..., Path]
    main: str


WITH_KAFKA = Release(TRINO_VERSIONS, trino_tree, "io.trino.server.TrinoServer")
"""Trino 476: both connectors, tables of format version 2."""
_REQUEST_TIMEOUT_SECONDS = 2.0


class LocalTrino(Server):
    """One Trino on a folder: started, stopped, killed and started again on the same port.

    It does not outlive this process, however that ends. Its catalogs, rights and limits are the files that
    `thermocline views config` writes, which must be in `configuration` before it starts.

        trino = LocalTrino(folder / "trino")
        write_files(trino_files(settings), trino.configuration)
        with trino:
            connect(host=trino.host, port=trino.port, user="thermocline")
    """

    start_seconds_max = 300.0  # 8 s on a quiet machine; the first start reads 540 MB from the disk

    def __init__(
        self,
        folder: Path,
        *,
        release: Release = WITH_KAFKA,
        memory_gb: int = 1,
        environment: Mapping[str, str] | None = None,
        report: Report = in_silence,
    ) -> None:
        """Takes the folder for configuration and log; fetches Trino, and a Java for it, if need be.

        Args:
            memory_gb: Of its heap. With one it starts quickly and stays small; measure nothing on it.
            environment: Variables that the files name as `${ENV:NAME}`, on top of this process's own.

        Raises:
            DependencyMissing: no Java that fits, or a Trino that could not be fetched.
        """
        super().__init__(folder, "the embedded Trino", "trino.log")
        self._java = find_trino_java(release.java_versions, report=report)
        self._tree = release.tree(java=self._java, report=report)
        self._main = release.main
        self._memory_gb = memory_gb
        self._is_small = memory_gb == 1
        self.environment = dict(environment or {})
        self.configuration.mkdir(parents=True, exist_ok=True)
        (self.port,) = ports_of(self.folder, 1)

    @property
    def host(self) -> str:
        """For clients; only this machine's."""
        return HOST

    @property
    def url(self) -> str:
        """Its address, for clients; the same after a restart."""
        return f"http://{HOST}:{self.port}"

    @property
    def configuration(self) -> Path:
        """The folder for what `thermocline views config` writes; the server's own settings are there too."""
        return self.folder / "etc"

    def start(self) -> None:
        """Starts it; returns before it answers: see `wait`.

        Raises:
            PortTaken: another process listens on the port that this folder's Trino had before.
        """
        assert self.pid is None, "Trino runs already"
        if not is_free(self.port):
            raise PortTaken(host=HOST, port=self.port)
        (self.folder / "tmp").mkdir(exist_ok=True)
        (self.configuration / "config.properties").write_text(
            _CONFIG_PROPERTIES.format(
                host=HOST,
                port=self.port,
                query_mb=250 * self._memory_gb,
                headroom_mb=200 * self._memory_gb,
            )
            + (_SMALL_PROPERTIES if self._is_small else "")
        )
        (self.configuration / "log.properties").write_text(_LOG_PROPERTIES)
        self._process = GuardedProcess(
            self._command(),
            log_path=self.log_path,
            # Trino looks for some of its files in `etc` of where it runs.
            folder=self.folder,
            environment={**os.environ, **self.environment},
        )

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/v1/info", timeout=_REQUEST_TIMEOUT_SECONDS) as answer:  # noqa: S310
                return json.load(answer)["starting"] is False
        except (OSError, ValueError):  # it does not listen yet, or not with all of its parts
            return False

    def _command(self) -> list[str]:
        folders = {
            "config": self.configuration / "config.properties",
            "log.levels-file": self.configuration / "log.properties",
            "plugin.dir": self._tree / "plugin",
            "java.io.tmpdir": self.folder / "tmp",
        }
        return [
            str(self._java.executable),
            f"-Xmx{self._memory_gb}g",
            *(_SMALL_FLAGS if self._is_small else ()),
            *_JVM_FLAGS,
            *(f"-D{name}={path}" for name, path in folders.items()),
            *("-cp", f"{self._tree / 'lib'}/*", self._main),
        ]

    def _failure(self, detail: str) -> TrinoUnreachable:
        return TrinoUnreachable(url=self.url, detail=detail)


_CONFIG_PROPERTIES = """\
node.environment=local
node.id=local
node.bind-ip={host}
node.internal-address={host}
coordinator=true
node-scheduler.include-coordinator=true
http-server.http.port={port}
discovery.uri=http://{host}:{port}
# Catalogs can be added by SQL, too.
catalog.management=dynamic
# Query memory and headroom share the heap.
query.max-memory={query_mb}MB
query.max-memory-per-node={query_mb}MB
memory.heap-headroom-per-node={headroom_mb}MB
# It keeps what it knows of each query, much where views are large, for 15 minutes: that would fill the heap.
query.min-expire-age=10s
query.max-history=20
# So it does of each query's tasks, and five times a second it looks through all of them.
task.info.max-age=30s
# Nobody reads the log of its requests.
http-server.log.enabled=false
"""

_SMALL_PROPERTIES = """\
# Where little is read, to divide it among threads costs more than it saves.
task.concurrency=1
"""

_LOG_PROPERTIES = """\
=WARN
"""
