"""``ingest run`` on a terminal: what it says of its steps, and that a JVM's own words don't stand there."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.behaviour.topic import Topic
from tests.brokers import Brokers
from thermocline.dev.broker import LocalKafka
from thermocline.ingest import activity
from thermocline.ingest.activity import Activity, Watcher
from thermocline.ingest.run import run
from thermocline.ingest.table.create import create_table
from thermocline.settings import Settings, load_settings

CONFIG = """
[kafka]
bootstrap_servers = "{servers}"
[catalog]
name = "{topic}"
uri = "sqlite:///catalog.db"
warehouse = "warehouse"
[spark]
master = "local[1]"
[ingest]
engine = "{engine}"
[tables.orders]
identifier = "app.orders"
topics = ["{topic}"]
key = ["id"]
buckets = 1
columns = {{ id = "int" }}
"""


@pytest.fixture(scope="module")
def kafka(brokers: Brokers) -> Iterator[LocalKafka]:
    with brokers.lent() as kafka:
        yield kafka


def three_orders(kafka: LocalKafka, folder: Path, topic: str, engine: str) -> Settings:
    """A table without rows, and a topic with three records."""
    (folder / "thermocline.toml").write_text(
        CONFIG.format(servers=kafka.bootstrap_servers, topic=topic, engine=engine)
    )
    kafka.create_topic(topic, 1)
    settings = load_settings(folder / "thermocline.toml")
    create_table(settings, "orders")
    producer = Topic(settings.kafka, topic)
    for number in (1, 2, 3):
        producer.send_raw(b'{"id": %d}' % number, b"{}")
    producer.flush()
    return settings


def test_each_step_of_a_batch_is_told(kafka: LocalKafka, tmp_path: Path) -> None:
    settings = three_orders(kafka, tmp_path, "steps", "local")
    told: list[Activity] = []
    with activity.watched(Watcher(told.append, tmp_path / "log")):
        run(settings, ["orders"], True, threading.Event())
    assert told == [
        Activity("starting the local engine"),
        Activity("orders: batch of 3 records: read", 0, 3),
        Activity("orders: batch of 3 records: read", 3, 3),
        Activity("orders: batch of 3 records: probe and write", 0, 1),
        Activity("orders: batch of 3 records: probe and write", 1, 1),
        Activity("orders: batch of 3 records: commit"),
        Activity("waiting for records"),
    ]


@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.full)])
def test_a_terminal_shows_them_and_no_words_of_a_jvm(kafka: LocalKafka, tmp_path: Path, engine: str) -> None:
    """Method: a real terminal, as wide as the lines; Spark's JVM warns of a module at each start."""
    three_orders(kafka, tmp_path, f"shown-{engine}", engine)
    shown, code = on_a_terminal(tmp_path, "ingest", "run", "--once")
    assert code == 0, shown
    assert f"starting {'Spark' if engine == 'spark' else 'the local engine'}" in shown
    assert "INFO thermocline.ingest.owner.table_batch: committed  table=orders" in shown
    assert "incubator" not in shown
    if engine == "spark":
        (path,) = re.findall(r"own words go into a file\s+path=(\S+)", shown)
        assert "incubator" in Path(path).read_text()


def on_a_terminal(folder: Path, *words: str) -> tuple[str, int]:
    """What a command shows on a terminal, and its exit code."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "400", "TMPDIR": str(folder)}
    with subprocess.Popen(
        [sys.executable, "-m", "thermocline", *words],
        cwd=folder,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as command:
        os.close(theirs)
        shown = b""
        while part := _read(ours):
            shown += part
        code = command.wait()
    os.close(ours)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode()), code


def _read(terminal: int) -> bytes:
    """Nothing once the command has ended."""
    try:
        return os.read(terminal, 65_536)
    except OSError:
        return b""
