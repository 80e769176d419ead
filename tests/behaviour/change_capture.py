"""Kafka Connect with Debezium's connector and Apicurio's converters, and Apicurio Registry, all real."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import tarfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import httpx

from thermocline.dev.ports import HOST, free_ports
from thermocline.dev.process import GuardedProcess, end_of
from thermocline.jvm.cache import cache_folder, made_once
from thermocline.jvm.jars import jars_of
from thermocline.jvm.java import JavaHome, find_java
from thermocline.jvm.trino_java import find_trino_java

LOCK: Final = Path(__file__).with_name("debezium.lock")
FLAGS: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
START_SECONDS_MAX: Final = 240.0  # some 10 s on a quiet machine
STOP_SECONDS_MAX: Final = 30.0
REQUEST_SECONDS_MAX: Final = 90.0  # Connect's own bound for what it is asked
POLL_SECONDS: Final = 0.2
LOGGING: Final = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %m (%c)%n%ex
rootLogger.level = WARN
rootLogger.appenderRef.console.ref = console
"""
WORKER: Final = """\
bootstrap.servers={bootstrap_servers}
listeners=http://{address}
plugin.path={plugins}
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
offset.storage.file.filename={folder}/offsets
offset.flush.interval.ms=500
"""


class JavaServer:
    """A server on Java with an address for HTTP; it ends with `stop`, or with this process."""

    def __init__(self, name: str, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir()
        self.address = f"{HOST}:{free_ports(1)[0]}"
        self.http = httpx.Client(base_url=f"http://{self.address}", timeout=REQUEST_SECONDS_MAX)
        self._name = name
        self._log = folder / "log"
        self._process: GuardedProcess | None = None

    def run(self, java: JavaHome, *words: str, folder: Path | None = None, **variables: str) -> None:
        """Returns at once; see `wait`."""
        self._process = GuardedProcess(
            [str(java.executable), *FLAGS, *words],
            log_path=self._log,
            folder=folder,
            environment={**os.environ, **variables},
        )

    def wait(self, path: str) -> None:
        """Returns when it answers there."""
        self.wait_for(lambda: self.is_there(path), "it answers")

    def is_there(self, path: str) -> bool:
        try:
            return self.http.get(path).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not condition():
            is_over = self._process is None or self._process.exit_code is not None
            if is_over or time.monotonic() > deadline:
                raise AssertionError(f"{self._name}: not true: {what}; {end_of(self._log)}")
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        self.http.close()
        if self._process is not None:
            self._process.end(signal.SIGTERM, STOP_SECONDS_MAX)
            self._process = None


class LocalRegistry(JavaServer):
    """Apicurio Registry, which keeps its schemas in memory."""

    def __init__(self, folder: Path) -> None:
        super().__init__("Apicurio Registry", folder)

    def start(self) -> None:
        host, _, port = self.address.partition(":")
        self.run(
            find_trino_java(),
            *("-jar", "quarkus-run.jar"),
            folder=_unpacked("registry"),
            QUARKUS_HTTP_HOST=host,
            QUARKUS_HTTP_PORT=port,
            QUARKUS_MANAGEMENT_HOST=host,
            QUARKUS_MANAGEMENT_PORT="0",  # any
        )


class LocalConnect(JavaServer):
    """A standalone worker of Kafka Connect; connectors are made through its API."""

    def __init__(self, folder: Path, bootstrap_servers: str, registry: str) -> None:
        """``registry``: the address of the one that its converters ask."""
        super().__init__("Kafka Connect", folder)
        self.registry = registry
        self._bootstrap_servers = bootstrap_servers

    def start(self) -> None:
        java = find_java()
        jars = [*jars_of("kafka", java=java), *jars_of("connect", java=java, lock=LOCK)]
        (self.folder / "log4j2.properties").write_text(LOGGING)
        worker = self.folder / "worker.properties"
        worker.write_text(
            WORKER.format(
                bootstrap_servers=self._bootstrap_servers,
                address=self.address,
                plugins=_plugins(),
                folder=self.folder,
            )
        )
        self.run(
            java,
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}",
            *("-cp", ":".join(map(str, jars)), "org.apache.kafka.connect.cli.ConnectStandalone", str(worker)),
        )

    def connect(self, name: str, config: Mapping[str, str]) -> None:
        self._ask("PUT", f"/connectors/{name}/config", config)
        self.wait_for_state(name, "RUNNING")

    def halt(self, name: str) -> None:
        self._ask("PUT", f"/connectors/{name}/stop")
        self.wait_for_state(name, "STOPPED")

    def restart_from_a_snapshot(self, name: str) -> None:
        """A connector that was halted forgets how far it was."""
        self._ask("DELETE", f"/connectors/{name}/offsets")
        self._ask("PUT", f"/connectors/{name}/resume")
        self.wait_for_state(name, "RUNNING")

    def wait_for_state(self, name: str, state: str) -> None:
        def is_there() -> bool:
            answer = self.http.get(f"/connectors/{name}/status")
            if answer.status_code != httpx.codes.OK:
                return False
            found = answer.json()
            tasks = found["tasks"]
            assert not any(task["state"] == "FAILED" for task in tasks), tasks[0]["trace"]
            return bool(found["connector"]["state"] == state and (state != "RUNNING" or tasks))

        self.wait_for(is_there, f"{name} is {state}")

    def _ask(self, method: str, path: str, body: Any = None) -> None:
        answer = self.http.request(method, path, json=body)
        assert answer.is_success, answer.text


def _plugins() -> Path:
    """A folder with the connector and the converters, each with its own jars."""

    def make(tree: Path) -> None:
        shutil.copytree(_unpacked("connector"), tree / "connector")
        (tree / "converter").mkdir()
        for jar in jars_of("converter", lock=LOCK):
            shutil.copy2(jar, tree / "converter")

    name = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
    return made_once(cache_folder() / "connect" / name, make)


def _unpacked(group: str) -> Path:
    """What is in the one archive of a group."""
    (archive,) = jars_of(group, lock=LOCK)

    def make(tree: Path) -> None:
        with tarfile.open(archive) as members:
            members.extractall(tree, filter="data")

    return made_once(archive.parent.with_name(f"{archive.parent.name}-unpacked") / "tree", make)
