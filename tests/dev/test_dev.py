"""``thermocline dev``, as a user types it: a real broker in the foreground, which leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from thermocline.dev.ports import free_ports

pytestmark = pytest.mark.jvm

TIMEOUT_SECONDS = 60.0
CONFIG = """
[kafka]
bootstrap_servers = "broker.example:9092"
[catalog]
uri = "sqlite:///catalog.db"
warehouse = "warehouse"
[tables.profiles]
identifier = "app.profiles"
topics = ["profiles", "orders"]
dead_letter_topic = "letters"
key = ["id"]
[tables.profiles.columns]
id = "int"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the command is typed; its temporary folders come into ``tmp``."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "typed").mkdir()
    return tmp_path / "typed"


@contextmanager
def typed(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command. It is killed at last, and its broker with it, where that has not ended."""
    environment = {name: value for name, value in os.environ.items() if name != "THERMOCLINE_CONFIG"}
    with subprocess.Popen(
        [sys.executable, "-m", "thermocline", "dev", *arguments],
        cwd=folder,
        env={**environment, "TMPDIR": str(folder.parent / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        try:
            yield command
        finally:
            command.kill()


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """The command, and the document that it printed when it was ready."""
    with typed(folder, *arguments, "--json") as command:
        assert command.stdout is not None
        yield command, json.loads(command.stdout.readline())


def end(command: subprocess.Popen[str], how: signal.Signals) -> int:
    """Its exit code, once it and all that it started are gone."""
    started = psutil.Process(command.pid).children(recursive=True)
    assert any("kafka.Kafka" in process.cmdline() for process in started)
    command.send_signal(how)
    code = command.wait(TIMEOUT_SECONDS)
    _, alive = psutil.wait_procs(started, TIMEOUT_SECONDS)
    assert not alive
    return code


def write(servers: str, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    producer.produce(topic, value=value, partition=0, timestamp=1)
    assert producer.flush(TIMEOUT_SECONDS) == 0


def read(servers: str, topic: str) -> tuple[str | bytes | None, int]:
    """The first record's value and its time in ms."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(TIMEOUT_SECONDS)
        assert message is not None
        assert message.error() is None
        return message.value(), message.timestamp()[1]
    finally:
        consumer.close()


@pytest.mark.parametrize("how", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)])
def test_a_topic_can_be_written_and_read_and_a_signal_ends_all_of_it(
    folder: Path, how: signal.Signals
) -> None:
    """Records get the broker's time, as live views want it. No process, folder or listener is left behind."""
    (port,) = free_ports(1)
    began_ms = int(time.time() * 1000)
    with running(folder, "--port", str(port), "--topic", "clicks:3", "--topic", "other") as (command, ready):
        servers = ready["bootstrap_servers"]
        assert servers == f"127.0.0.1:{port}"
        assert ready["pid"] == command.pid
        assert ready["data"] is None
        assert ready["topics"] == [
            {"topic": "clicks", "partitions": 3, "created": True},
            {"topic": "other", "partitions": 2, "created": True},
        ]
        write(servers, "clicks", b"value")
        value, written_ms = read(servers, "clicks")
        assert value == b"value"
        assert written_ms >= began_ms
        assert end(command, how) == 0
    assert list((folder.parent / "tmp").iterdir()) == []
    assert list(folder.iterdir()) == []
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.full
def test_a_folder_keeps_topics_and_records_whatever_the_port(folder: Path) -> None:
    """It is stopped in order. The second time nothing is created, though more partitions are asked for."""
    with running(folder, "--port", str(free_ports(1)[0]), "--data", "kafka", "--topic", "kept:1") as (
        command,
        ready,
    ):
        write(ready["bootstrap_servers"], "kept", b"value")
        assert end(command, signal.SIGTERM) == 0
    assert (folder / "kafka" / "data" / ".kafka_cleanshutdown").exists()
    with running(folder, "--port", str(free_ports(1)[0]), "--data", "kafka", "--topic", "kept:4") as (
        command,
        again,
    ):
        assert again["bootstrap_servers"] != ready["bootstrap_servers"]
        assert again["data"] == str(folder / "kafka")
        assert again["topics"] == [{"topic": "kept", "partitions": 1, "created": False}]
        assert read(again["bootstrap_servers"], "kept")[0] == b"value"
        assert end(command, signal.SIGTERM) == 0


@pytest.mark.full
def test_a_folder_in_which_a_broker_runs_takes_no_second_one_which_would_end_both(folder: Path) -> None:
    with running(folder, "--port", str(free_ports(1)[0]), "--data", "kafka", "--topic", "kept:1") as (
        command,
        ready,
    ):
        with typed(folder, "--port", str(free_ports(1)[0]), "--data", "kafka") as second:
            out, err = second.communicate(timeout=TIMEOUT_SECONDS)
        assert (second.returncode, out) == (2, "")
        assert err.startswith("Error [bad-parameter]: --data: a broker runs in kafka already")
        write(ready["bootstrap_servers"], "kept", b"value")
        assert end(command, signal.SIGTERM) == 0


@pytest.mark.full
def test_the_topics_of_the_configuration_are_created_and_another_kafka_in_it_is_said(folder: Path) -> None:
    (folder / "thermocline.toml").write_text(CONFIG)
    (port,) = free_ports(1)
    with typed(folder, "--port", str(port), "--topic", "orders:1") as command:
        assert command.stderr is not None
        told = []
        for line in command.stderr:
            told.append(line.rstrip())
            if "export" in line:
                assert end(command, signal.SIGTERM) == 0
        assert command.stdout is not None
        assert command.stdout.read() == ""
    assert told == [
        f"Kafka is ready at 127.0.0.1:{port}",
        "topic   profiles, 2 partitions",
        "topic   orders, 1 partition",
        "topic   letters, 2 partitions",
        "log     deleted when it stops; --data PATH keeps it",
        f"stop    Ctrl-C, or from another terminal: kill {command.pid}",
        "note    the configuration names broker.example:9092; to use this Kafka instead:",
        f"        export THERMOCLINE_KAFKA__BOOTSTRAP_SERVERS=127.0.0.1:{port}",
        "stopping the broker",
    ]


@pytest.mark.full
def test_a_topic_that_the_broker_refuses_is_named_and_nothing_is_left(folder: Path) -> None:
    arguments = ("--port", str(free_ports(1)[0]), "--topic", "a.b", "--topic", "a_b")
    with typed(folder, *arguments, "--json") as command:
        out, err = command.communicate(timeout=TIMEOUT_SECONDS)
    error = json.loads(err)
    assert (command.returncode, out, error["code"]) == (2, "", "config-invalid")
    assert "a_b" in error["what"]
    assert "collides" in error["what"]
    assert list((folder.parent / "tmp").iterdir()) == []


@pytest.mark.full
def test_a_port_taken_by_another_is_named(folder: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with typed(folder, "--port", str(port)) as command:
            out, err = command.communicate(timeout=TIMEOUT_SECONDS)
    assert (command.returncode, out) == (2, "")
    assert err.startswith(
        f"Error [port-taken]: can't listen on 127.0.0.1:{port}: it is in use by another process."
    )
    assert list((folder.parent / "tmp").iterdir()) == []
