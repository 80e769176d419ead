"""Everything of Thermocline on this machine: a broker, a table, and ingest and serving as real processes.

What the demo, the behaviour suite and the benchmarks run on; the processes are the commands that a user would
type, on a configuration file that stays in the folder.
"""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx

from thermocline.dev.broker import LocalKafka
from thermocline.dev.guard import guard_of, release
from thermocline.dev.rest_catalog import RestAddress
from thermocline.dev.spark_cluster import LocalSparkCluster
from thermocline.dev.trino import LocalTrino
from thermocline.errors import EngineFailed
from thermocline.jvm.jars import Report, in_silence
from thermocline.settings import Settings, load_settings
from thermocline.views.config import trino_files

HOST = "127.0.0.1"
TABLE = "profiles"
TOPIC = "profiles"
TRINO_ADMIN = "admin"
"""The user of the stack's Trino who may do everything; others may only read views."""
# Spark, a first commit and a first cold index take some 15 s on a quiet machine.
READY_TIMEOUT_SECONDS = 180.0
# A batch that is being run is finished first, and Spark ends in a second or two.
STOP_TIMEOUT_SECONDS = 60.0
_POLL_SECONDS = 0.1
_REQUEST_TIMEOUT_SECONDS = 5.0
NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For requests on this machine: httpx would load the system's certificates each time, for 45 ms of CPU."""
_TAIL_LINES = 20  # of a process's log, in an error


class Command:
    """One ``thermocline`` command as a process of its own; its words go to a log file."""

    def __init__(
        self, config: Path, log_path: Path, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self.log_path = log_path
        self._words = " ".join(arguments)
        with log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "thermocline", "--config", str(config), "--log-json", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                # Its own session: a signal for the terminal's group is ours to pass on, in our order.
                start_new_session=True,
            )
        self._guard = guard_of(self.process.pid)
        self._is_told_to_stop = False

    def check(self) -> None:
        """Raises `EngineFailed` when the process has ended."""
        code = self.process.poll()
        if code is not None:
            tail = "\n".join(self.log_path.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
            detail = f"it ended with {code}; its log {self.log_path} ends with\n{tail}"
            raise EngineFailed(engine=f"`thermocline {self._words}`", detail=detail)

    def tell_to_stop(self) -> None:
        """SIGTERM, once: a second one would stop it in the middle of what it does."""
        if not self._is_told_to_stop and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self._is_told_to_stop = True

    def stop(self) -> int:
        """SIGTERM, and SIGKILL where that takes too long; the exit code."""
        self.tell_to_stop()
        try:
            code = self.process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            return self.kill()
        release(self._guard)
        return code

    def kill(self) -> int:
        """SIGKILL for the process alone, as a crash would; the exit code."""
        self.process.kill()
        code = self.process.wait()
        release(self._guard)
        return code


@dataclass(frozen=True, slots=True)
class StackOptions:
    """What a stack is made of.

    With memory for a Trino there is one, the table has format version 2, and ingest publishes its views. With
    a REST catalog, the table is in its store instead of in the folder. Spark's JVM starts quickly, unless it
    is to be measured: then it is as a user's, with what ``spark_conf`` adds. With a cluster, Spark's tasks
    run there. Replicas are servers of the same table, which share nothing: each has its own port and state
    folder. A broker that is handed in runs already, and goes on when the stack has stopped. With a live
    catalog, servers are one, and queries share no snapshot. With an API key, servers admit by
    the file ``clients.toml`` of the folder, and are asked with it.
    """

    partitions: int = 4
    buckets: int = 8
    commit_interval_seconds: float = 10.0
    workers: int = 1
    catalog: str = "lake"
    trino_gb: int = 0
    engine: str = "spark"
    lease_seconds: float = 60.0
    is_measured: bool = False
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    rest: RestAddress | None = None
    views_hot: str = "kafka"
    cluster: LocalSparkCluster | None = None
    replicas: int = 1
    kafka: LocalKafka | None = None
    has_live_catalog: bool = False
    key: str | None = None
    report: Report = in_silence


class Stack:
    """A folder with a broker, a configuration and a table, and the commands that run on them.

    Use it as a context manager; the processes end with it, the broker last.
    """

    def __init__(self, folder: Path, options: StackOptions) -> None:
        self.folder = folder.absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        report, trino_gb = options.report, options.trino_gb
        self.kafka = options.kafka or LocalKafka(
            self.folder / "kafka", is_small=not options.is_measured, report=report
        )
        self._is_kafka_ours = options.kafka is None
        self.trino = (
            LocalTrino(self.folder / "trino", memory_gb=trino_gb, report=report) if trino_gb else None
        )
        self.urls = tuple(f"http://{HOST}:{_free_port()}" for _ in range(options.replicas))
        self.url = self.urls[0]
        self.config_path = self.folder / "thermocline.toml"
        self.key = options.key
        self._partitions = options.partitions
        self._commands: list[Command] = []
        self.config_path.write_text(
            _CONFIG.format(
                bootstrap_servers=self.kafka.bootstrap_servers,
                host=HOST,
                port=_port_of(self.url),
                workers=options.workers,
                clients="" if options.key is None else _CLIENTS,
                catalog=options.catalog,
                where=_SQLITE if options.rest is None else _rest_section(options.rest),
                table=TABLE,
                topic=TOPIC,
                spark=_spark_section(options),
                engine=options.engine,
                lease_seconds=options.lease_seconds,
                buckets=options.buckets,
                commit_interval_seconds=options.commit_interval_seconds,
                more=_READ_BY_TRINO if self.trino else "",
            )
            + (_VIEWS.format(url=self.trino.url) if self.trino else "")
            + (_HOT_FROM_SERVER if options.views_hot == "server" else "")
            + (_LIVE_CATALOG if options.has_live_catalog or options.views_hot == "server" else "")
        )
        self.settings: Settings = load_settings(self.config_path)

    def start(self) -> Self:
        """The broker, the topic, the table, Trino; ingest and serving are started by their own methods."""
        self.start_broker()
        if self.trino:
            self.start_trino()
        self.create_table()
        if self.trino:
            self.trino.wait()
        return self

    def start_broker(self) -> None:
        """The broker, with the topic."""
        if self._is_kafka_ours:
            self.kafka.start()
            self.kafka.wait()
        self.kafka.create_topic(TOPIC, self._partitions, {"message.timestamp.type": "LogAppendTime"})

    def start_trino(self) -> None:
        """Trino, with what ``views config`` writes; it takes queries some ten seconds later."""
        assert self.trino is not None
        folder = str(self.trino.configuration)
        self.run("views-config", "views", "config", folder, "--admin", TRINO_ADMIN)
        self.trino.environment |= trino_files(self.settings).secrets
        self.trino.start()

    def create_table(self) -> None:
        """The table, from the configuration."""
        self.run("table-create", "table", "create", TABLE)

    def command(
        self,
        log_name: str,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        config_path: Path | None = None,
    ) -> Command:
        """Start a ``thermocline`` command, with more environment variables, and stop it with the stack.

        It runs on the stack's configuration unless ``config_path`` names another one.
        """
        log_path = self.folder / f"{log_name}.log"
        started = Command(config_path or self.config_path, log_path, *arguments, environment=environment)
        self._commands.append(started)
        return started

    def run(self, log_name: str, *arguments: str) -> None:
        """Run a ``thermocline`` command to its end. Raises `EngineFailed` when that is not exit code 0."""
        command = self.command(log_name, *arguments)
        if command.process.wait() != 0:
            command.check()
        self._commands.remove(command)
        command.stop()

    def check(self) -> None:
        """Raises an error with the end of its log when the broker, Trino or a command has ended by itself."""
        self.kafka.check()
        if self.trino:
            self.trino.check()
        for command in self._commands:
            command.check()

    def ingest(self, *arguments: str) -> Command:
        """``thermocline ingest run`` on the table."""
        return self.command("ingest", "ingest", "run", TABLE, *arguments)

    def serve(self, replica: int = 0) -> Command:
        """``thermocline serve``; see `wait_until_ready`."""
        if not replica:
            return self.command("serve", "serve")
        serving = self.settings_of(replica).serving
        variables = {
            "THERMOCLINE_SERVING__PORT": str(serving.port),
            "THERMOCLINE_SERVING__STATE_DIR": str(serving.state_dir),
        }
        return self.command(f"serve-{replica + 1}", "serve", environment=variables)

    def settings_of(self, replica: int) -> Settings:
        """The settings that a replica runs by."""
        if not replica:
            return self.settings
        own = {
            "port": _port_of(self.urls[replica]),
            "state_dir": self.folder / "data" / f"serving-{replica + 1}",
        }
        return self.settings.model_copy(update={"serving": self.settings.serving.model_copy(update=own)})

    def get(
        self, path: str, replica: int = 0, tls: ssl.SSLContext | None = None
    ) -> tuple[int, Mapping[str, Any]]:
        """Status and JSON body of a GET, over TLS where that is given; (0, {}) where nobody listens."""
        try:
            url = f"{self.urls[replica]}{path}"
            if tls is not None:
                url = url.replace("http:", "https:", 1)
            headers = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
            verify = tls or NO_CERTIFICATES
            answer = httpx.get(url, headers=headers, timeout=_REQUEST_TIMEOUT_SECONDS, verify=verify)
        except httpx.TransportError:
            return 0, {}
        return answer.status_code, answer.json()

    def wait_until_ready(self, server: Command, tls: ssl.SSLContext | None = None) -> None:
        """Returns when the server answers for every table. Raises `EngineFailed` when it never does."""
        self.wait_for(lambda: self.get("/readyz", tls=tls)[0] == 200, "the server is ready", server)

    def wait_for(
        self,
        condition: Callable[[], bool],
        what: str,
        *watched: Command,
        timeout: float = READY_TIMEOUT_SECONDS,
    ) -> None:
        """Returns when the condition holds. Raises `EngineFailed` too late, or when a process ends."""
        deadline = time.monotonic() + timeout
        while not condition():
            for command in watched:
                command.check()
            if time.monotonic() > deadline:
                raise EngineFailed(engine="the embedded stack", detail=f"not within {timeout:g} s: {what}")
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """Stop everything that was started; what has ended already stays as it is."""
        for command in self._commands:
            command.tell_to_stop()
        for command in self._commands:
            command.stop()
        self._commands.clear()
        if self.trino:
            self.trino.stop()
        if self._is_kafka_ours:
            self.kafka.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def _rest_section(catalog: RestAddress) -> str:
    return f'type = "rest"\nuri = "{catalog.url}"\nproperties = {_inline(catalog.properties)}\n'


def _spark_section(options: StackOptions) -> str:
    cluster = options.cluster
    master, of_cluster = (cluster.url, cluster.conf) if cluster else ("local[2]", {})
    lines = [f'master = "{master}"']
    quick = {} if options.is_measured else _QUICK_SPARK
    if quick:
        # For who keeps the demo's folder and goes on with its configuration.
        lines.append("# defaultJavaOptions make a start quick; leave them out where ingest goes on for long.")
    return "\n".join([*lines, f"conf = {_inline({**of_cluster, **quick, **options.spark_conf})}", ""])


def _inline(table: Mapping[str, str]) -> str:
    pairs = ", ".join(f'"{name}" = "{value}"' for name, value in table.items())
    return f"{{ {pairs} }}" if pairs else "{}"


_SQLITE = """\
type = "sql"
uri = "sqlite:///data/catalog.db"
warehouse = "data/warehouse"
"""

_CLIENTS = 'clients_file = "clients.toml"\n'
_CONFIG = """\
[kafka]
bootstrap_servers = "{bootstrap_servers}"

[catalog]
name = "{catalog}"
{where}
[spark]
{spark}
[ingest]
engine = "{engine}"
lease_seconds = {lease_seconds}

[serving]
host = "{host}"
port = {port}
workers = {workers}
state_dir = "data/serving"
{clients}
[tables.{table}]
identifier = "app.{table}"
topics = ["{topic}"]
start = "earliest"
key = ["app_id", "user_id", "key"]
entity = ["app_id", "user_id"]
buckets = {buckets}
commit_interval_seconds = {commit_interval_seconds}
{more}
[tables.{table}.columns]
app_id = "int"
user_id = "string"
key = "string"
value = "string"
updated_at = "timestamptz"
"""

# Half of the CPU for a start and a first commit.
_QUICK_SPARK = {"spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}

_READ_BY_TRINO = """\
format_version = 2
"""

_VIEWS = """
[views]
enabled = true
url = "{url}"
"""

# It goes on with the section of views.
_LIVE_CATALOG = """
[serving.catalog]
enabled = true
min_interval_seconds = 0
"""

_HOT_FROM_SERVER = """\
hot = "server"
"""
