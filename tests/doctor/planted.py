"""A deployment with problems planted in it, and a shell in which fixes are pasted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.doctor.kafka_tools import TOOLS
from thermocline.dev.broker import LocalKafka
from thermocline.dev.ports import free_ports

ROOT = Path(__file__).parents[2]
CONFIG = """
[kafka]
bootstrap_servers = "{servers}"
[catalog]
uri = "sqlite:///catalog.db"
warehouse = "warehouse"
[ingest]
engine = "local"
[serving]
port = {port}
[tables.profiles]
identifier = "app.profiles"
topics = ["{topic}"]
key = ["app_id", "user_id"]
{more}
[tables.profiles.columns]
app_id = "int"
user_id = "string"
value = "string"
"""
WELL = {"cleanup.policy": "delete", "retention.ms": "604800000"}


class GuardedKafka(LocalKafka):
    """A broker with rights: whoever comes without a password may do everything, ada by herself nothing."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (self.sasl_port,) = free_ports(1, other_than=self.port)

    @property
    def guarded_servers(self) -> str:
        """Where ada has to log in."""
        return f"127.0.0.1:{self.sasl_port}"

    def _write_configuration(self) -> None:
        super()._write_configuration()
        file = self.folder / "server.properties"
        text = file.read_text()
        for setting in ("listeners", "advertised.listeners"):
            text = text.replace(f"\n{setting}=", f"\n{setting}=SASL://{self.guarded_servers},")
        text = text.replace("map=PLAINTEXT:PLAINTEXT", "map=SASL:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT")
        file.write_text(
            f"""{text}
inter.broker.listener.name=PLAINTEXT
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:admin
listener.name.sasl.sasl.enabled.mechanisms=PLAIN
listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule \
required user_ada="secret" user_admin="secret";
"""
        )

    def tools(self, folder: Path) -> None:
        """Kafka's tools, as an administrator has them on the path, and our command."""
        login = folder / "admin.properties"
        login.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=org.apache.kafka.common"
            '.security.plain.PlainLoginModule required username="admin" password="secret";\n'
        )
        with_login = f'case "$*" in *{self.guarded_servers}*) set -- "$@" --command-config {login};; esac'
        configs = " ".join(f"'{word}'" for word in self._command("kafka.admin.ConfigCommand"))
        _script(folder / "kafka-configs.sh", f'{with_login}\nexec {configs} "$@"')
        for name in TOOLS:
            of_python = f'exec "{sys.executable}" -m tests.doctor.kafka_tools {name} "$@"'
            _script(folder / name, f"cd {ROOT}\n{with_login}\n{of_python}")
        _script(folder / "thermocline", f'exec "{sys.executable}" -m thermocline "$@"')


@dataclass
class Deployment:
    """A configuration in a folder, and a shell with the tools that fixes name."""

    folder: Path
    tools: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        return self.folder / "thermocline.toml"

    def shell(self, script: str) -> str:
        """What a shell prints; what it gets is pasted, so a command that fails does not end it."""
        environment = {name: one for name, one in os.environ.items() if not name.startswith("THERMOCLINE_")}
        environment |= {
            "PATH": f"{self.tools}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            **self.environment,
        }
        done = subprocess.run(
            ["bash", "-s"],
            input=script,
            env=environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        print(script, done.stderr, sep="\n")
        return done.stdout

    def doctor(self, before: str = "") -> dict[str, Any]:
        """The report, in the shell that something was pasted into before."""
        command = f"{before}\nthermocline --config {self.file} doctor --json"
        out = self.shell(command)
        report: dict[str, Any] = json.loads(out[out.index('{\n  "checks"') :])
        return report


def findings(report: Mapping[str, Any], check: str) -> list[dict[str, Any]]:
    """What a check says that is not well."""
    (one,) = [one for one in report["checks"] if one["check"] == check]
    return [finding for finding in one["findings"] if finding["outcome"] in ("warning", "problem")]


def produce(servers: str, topic: str, records: Sequence[tuple[int, bytes]]) -> None:
    """Records by partition and key."""
    producer = Producer({"bootstrap.servers": servers})
    for partition, key in records:
        producer.produce(topic, key=key, value=b'{"value":"x"}', partition=partition)
    assert producer.flush(30) == 0


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)
