"""A real Apache Kafka broker of our own, for `dev`, the demo, the tests and the benchmarks."""

from __future__ import annotations

import base64
import signal
import subprocess
import uuid
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from thermocline.dev.ports import HOST, free_ports, is_free, ports_of
from thermocline.dev.process import GuardedProcess
from thermocline.dev.server import Server
from thermocline.errors import KafkaUnreachable, PortTaken
from thermocline.jvm.jars import Report, in_silence, jars_of
from thermocline.jvm.java import JavaHome, find_java

_JVM_FLAGS = ("-Xms64m", "-Xmx256m", "-Xss512k", "-XX:MaxDirectMemorySize=64m", "-XX:+UseSerialGC")
# The quickest to start and the smallest: 160 MB resident, against 205 MB with the default ones.
_SMALL_FLAGS = ("-XX:TieredStopAtLevel=1",)

_REQUEST_TIMEOUT_SECONDS = 30.0


class LocalKafka(Server):
    """One broker on a data folder: started, stopped, killed and started again on the same data and port.

    It is broker and KRaft controller in one process, and does not outlive this process, however that
    ends. Topics are not created by themselves.

        with LocalKafka(folder / "kafka") as kafka:
            kafka.create_topic("profiles", 4, {"message.timestamp.type": "LogAppendTime"})
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        java: JavaHome | None = None,
        is_small: bool = True,
        report: Report = in_silence,
    ) -> None:
        """Takes the folder for data, configuration and log; fetches the broker's jars if they are not there.

        Args:
            port: Where it listens. Without one, at the folder's own: a free one at first, then the same.
            is_small: It starts quickly and stays small; measure nothing on it.

        Raises:
            DependencyMissing: no Java that fits, or jars that could not be fetched.
        """
        super().__init__(folder, "the embedded broker", "kafka.log")
        self._flags = (*_JVM_FLAGS, *(_SMALL_FLAGS if is_small else ()))
        self._java = java or find_java()
        self._classpath = ":".join(map(str, jars_of("kafka", java=self._java, report=report)))
        # Nobody but the broker itself asks the controller, so its port need not stay the same.
        self.port, self._controller_port = (
            (port, *free_ports(1, other_than=port)) if port else ports_of(self.folder, 2)
        )
        self._admin_client: AdminClient | None = None

    @property
    def bootstrap_servers(self) -> str:
        """Its address, for clients; the same after a restart."""
        return f"{HOST}:{self.port}"

    def start(self) -> None:
        """Starts the broker, formatting an empty folder first; returns before it answers: see `wait`.

        Raises:
            PortTaken: another process listens on a port that this folder's broker had before.
            KafkaUnreachable: the folder could not be formatted.
        """
        assert self.pid is None, "the broker runs already"
        for port in (self.port, self._controller_port):
            if not is_free(port):
                raise PortTaken(host=HOST, port=port)
        self._write_configuration()
        if not (self.folder / "data" / "meta.properties").exists():
            self._format()
        command = self._command("kafka.Kafka", str(self.folder / "server.properties"))
        self._process = GuardedProcess(command, log_path=self.log_path)

    def topics(self) -> dict[str, int]:
        """The number of partitions of each topic, by its name.

        Raises:
            KafkaException: it does not answer.
        """
        found = self.admin.list_topics(timeout=_REQUEST_TIMEOUT_SECONDS).topics
        return {name: len(topic.partitions) for name, topic in found.items()}

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Creates a topic and returns when the broker serves it.

        Raises:
            KafkaException: as the broker says, for one that a topic of this name exists.
        """
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        self.admin.create_topics([topic], operation_timeout=_REQUEST_TIMEOUT_SECONDS)[name].result(
            _REQUEST_TIMEOUT_SECONDS
        )

    def delete_topic(self, name: str) -> None:
        """Deletes a topic; one created afterwards under this name is another one, with another topic id.

        Raises:
            KafkaException: as the broker says, for one that there is no such topic.
        """
        self.admin.delete_topics([name], operation_timeout=_REQUEST_TIMEOUT_SECONDS)[name].result(
            _REQUEST_TIMEOUT_SECONDS
        )

    @property
    def admin(self) -> AdminClient:
        """A client for what this class has no method for.

        It is kept: one that is collected while one of its futures is awaited never answers.
        """
        if self._admin_client is None:
            self._admin_client = AdminClient(
                {
                    "bootstrap.servers": self.bootstrap_servers,
                    "reconnect.backoff.ms": 50,
                    "reconnect.backoff.max.ms": 200,
                    "log_level": 0,
                }
            )
        return self._admin_client

    def _answers(self) -> bool:
        try:
            return bool(self.admin.list_topics(timeout=1.0).brokers)
        except KafkaException:
            return False

    def _end(self, how: signal.Signals) -> None:
        super()._end(how)
        self._admin_client = None

    def _write_configuration(self) -> None:
        (self.folder / "server.properties").write_text(
            _SERVER_PROPERTIES.format(
                host=HOST, port=self.port, controller_port=self._controller_port, data=self.folder / "data"
            )
        )
        (self.folder / "log4j2.properties").write_text(
            files(__package__).joinpath("log4j2.properties").read_text()
        )

    def _format(self) -> None:
        with self.log_path.open("ab") as log:
            ended = subprocess.run(
                self._command(
                    "kafka.tools.StorageTool",
                    *("format", "-t", _new_cluster_id(), "-c", str(self.folder / "server.properties")),
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=self.start_seconds_max,
                check=False,
            )
        if ended.returncode != 0:
            raise self._failed("the embedded broker's folder could not be formatted")

    def _command(self, main: str, *arguments: str) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}"
        return [str(self._java.executable), *self._flags, logging, "-cp", self._classpath, main, *arguments]

    def _failure(self, detail: str) -> KafkaUnreachable:
        return KafkaUnreachable(bootstrap_servers=self.bootstrap_servers, detail=detail)


def _new_cluster_id() -> str:
    """A random UUID as Kafka writes it; a leading hyphen would read as an option of the storage tool."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")


_SERVER_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller_port}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
# One broker holds the only replica of everything.
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
# Small: as few threads, files and buffers as work.
offsets.topic.num.partitions=4
transaction.state.log.num.partitions=4
num.network.threads=2
num.io.threads=2
background.threads=2
log.cleaner.threads=1
log.cleaner.dedupe.buffer.size=2097152
log.segment.bytes=134217728
log.index.size.max.bytes=1048576
# Quick: no waiting for more members of a group; a killed broker is let in again after 3 s, not 9.
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
"""
