"""Cassandra with the rows of the benchmarked table, to compare lookups with."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import psutil

from benchmarks._load import ask_cassandra, fill_cassandra, with_server_cpu
from benchmarks._report import say
from thermocline.dev.java_server import JavaServer
from thermocline.dev.ports import HOST, free_ports
from thermocline.dev.workload import Event
from thermocline.jvm.jars import jars_of
from thermocline.jvm.java import find_java

LOCK: Final = Path(__file__).with_name("cassandra.lock")
FILLING: Final = 32
"""Connections that insert."""
# Of `cassandra.yaml`, all that one node on this machine needs; and the newer format of its files.
CONFIGURATION: Final = """\
cluster_name: benchmark
num_tokens: 16
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
commitlog_sync: periodic
commitlog_sync_period: 10s
commitlog_directory: {folder}/commitlog
data_file_directories: ["{folder}/data"]
hints_directory: {folder}/hints
saved_caches_directory: {folder}/saved_caches
cdc_raw_directory: {folder}/cdc
listen_address: {host}
rpc_address: {host}
storage_port: {storage_port}
native_transport_port: {port}
endpoint_snitch: SimpleSnitch
auto_snapshot: false
storage_compatibility_mode: NONE
sstable: {{selected_format: bti}}
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters: [{{seeds: "{host}:{storage_port}"}}]
"""
LOGGING: Final = """\
<configuration><appender name="OUT" class="ch.qos.logback.core.ConsoleAppender"><encoder>
<pattern>%d %-5level %logger{20} %msg%n</pattern></encoder></appender>
<root level="WARN"><appender-ref ref="OUT"/></root></configuration>
"""
# From Cassandra's own `jvm17-server.options`.
OPENED: Final = {
    "--add-exports": (
        "java.base/jdk.internal.misc java.base/java.lang.ref java.rmi/sun.rmi.registry java.sql/java.sql "
        "java.management.rmi/com.sun.jmx.remote.internal.rmi java.rmi/sun.rmi.server jdk.unsupported/sun.misc"
    ),
    "--add-opens": (
        "java.base/java.io java.base/java.lang java.base/java.lang.module java.base/java.lang.reflect "
        "java.base/java.nio java.base/java.util java.base/java.util.concurrent "
        "java.base/java.util.concurrent.atomic java.base/jdk.internal.loader java.base/jdk.internal.math "
        "java.base/jdk.internal.module java.base/jdk.internal.ref java.base/jdk.internal.reflect "
        "java.base/jdk.internal.util.jar java.base/sun.nio.ch java.rmi/sun.rmi.transport.tcp "
        "jdk.management/com.sun.management.internal"
    ),
}


class Cassandra(JavaServer):
    """One node that holds the rows."""

    start_seconds_max = 300.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "Cassandra", free_ports(1)[0])

    @property
    def probe_path(self) -> str:
        return "/"

    def environment(self) -> Mapping[str, str]:
        return os.environ

    def command(self) -> Sequence[str]:
        (storage_port,) = free_ports(1)
        text = CONFIGURATION.format(folder=self.folder, host=HOST, port=self.port, storage_port=storage_port)
        configuration, logging = self.folder / "cassandra.yaml", self.folder / "logback.xml"
        configuration.write_text(text)
        logging.write_text(LOGGING)
        opened = [f"{how}={one}=ALL-UNNAMED" for how, names in OPENED.items() for one in names.split()]
        return [
            str(find_java(versions=(17,)).executable),
            *opened,
            *("-Xms2g", "-Xmx2g", "-XX:+UseG1GC", "-Xss512k", "-Djdk.attach.allowAttachSelf=true"),
            f"-Dcassandra.config={configuration.as_uri()}",
            f"-Dcassandra.storagedir={self.folder}",
            f"-Dlogback.configurationFile={logging}",
            "-Dcassandra-foreground=yes",
            *("-Dcassandra.skip_wait_for_gossip_to_settle=0", "-Dcassandra.ring_delay_ms=1"),
            "-cp",
            os.pathsep.join(map(str, jars_of("cassandra", lock=LOCK, report=say))),
            "org.apache.cassandra.service.CassandraDaemon",
        ]

    def load_of(self, users: Sequence[tuple[int, str]], connections: int, seconds: float) -> dict[str, float]:
        """Lookups of these users over so many connections."""
        entities = [f"{app_id}\t{user_id}" for app_id, user_id in users]
        return with_server_cpu(
            lambda: ask_cassandra(self.address, entities, connections, seconds), self._cpu_seconds
        )

    @property
    def address(self) -> str:
        """Where it speaks its native protocol."""
        return f"{HOST}:{self.port}"

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection((HOST, self.port), timeout=1):
            return True
        return False

    def _cpu_seconds(self) -> float:
        assert self.pid is not None
        times = psutil.Process(self.pid).cpu_times()
        return times.user + times.system


@contextmanager
def cassandra_with(events: Iterable[Event]) -> Iterator[Cassandra]:
    """A node whose table has a row for each event; those of a user follow each other."""
    with TemporaryDirectory(prefix="thermocline-cassandra-") as folder, Cassandra(Path(folder)) as server:
        fill_cassandra(server.address, FILLING, map(_row, events))
        say("  Cassandra has the rows")
        yield server


def _row(event: Event) -> str:
    assert event.value is not None
    fields = json.loads(event.value)
    milliseconds = round(datetime.fromisoformat(fields["updated_at"]).timestamp() * 1000)
    return "\t".join([*map(str, event.row), fields["value"], str(milliseconds)])
