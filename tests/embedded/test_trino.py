"""The embedded Trino is a real one: it comes back on its port, says why it fails, and outlives nobody."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
import trino.dbapi

from tests.embedded.newer_trino import newer_trino
from thermocline.catalog import open_catalog
from thermocline.embedded.trino import LocalTrino
from thermocline.errors import PortTaken, TrinoUnreachable
from thermocline.settings import CatalogSettings
from views.lake import lake_properties
from views.properties import rendered

pytestmark = pytest.mark.trino

TIMEOUT_SECONDS = 60.0


def answer(server: LocalTrino, sql: str) -> list[Any]:
    connection = trino.dbapi.connect(host=server.host, port=server.port, user="anybody")
    with closing(connection), closing(connection.cursor()) as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def test_it_answers_again_on_the_same_port_after_a_crash(tmp_path: Path) -> None:
    """The second start stands for a start of its own, which would be the same."""
    server = LocalTrino(tmp_path)
    with server:
        address = server.url
        server.kill()
        assert server.pid is None
        server.start()
        server.wait()
        assert server.url == address
        assert answer(server, "SELECT 1") == [[1]]
    assert server.pid is None


def test_the_newer_one_writes_and_reads_deletion_vectors(tmp_path: Path) -> None:
    """Its catalog comes from a variable, as what is secret does."""
    settings = CatalogSettings(
        uri=f"sqlite:///{tmp_path / 'catalog.db'}", warehouse=str(tmp_path / "warehouse")
    )
    open_catalog(settings, may_create=True).create_namespace("app")
    properties = lake_properties(settings, "lake").plain
    url = properties["iceberg.jdbc-catalog.connection-url"]
    properties["iceberg.jdbc-catalog.connection-url"] = "${ENV:TRINO_LAKE_URL}"
    server = newer_trino(tmp_path, environment={"TRINO_LAKE_URL": url})
    (server.configuration / "catalog").mkdir()
    (server.configuration / "catalog" / "lake.properties").write_text(rendered(properties))
    with server:
        answer(server, "CREATE TABLE lake.app.t (a int) WITH (format_version = 3)")
        answer(server, "INSERT INTO lake.app.t VALUES 1, 2, 3")
        answer(server, "DELETE FROM lake.app.t WHERE a = 2")
        assert sorted(answer(server, "SELECT a FROM lake.app.t")) == [[1], [3]]
        assert ["PUFFIN"] in answer(server, 'SELECT file_format FROM lake.app."t$files"')


def test_a_trino_that_does_not_come_up_shows_the_end_of_its_log(tmp_path: Path) -> None:
    server = LocalTrino(tmp_path)
    (server.configuration / "access-control.properties").write_text("access-control.name=nobody\n")
    server.start()
    with pytest.raises(TrinoUnreachable) as caught:
        server.wait()
    server.stop()
    assert "nobody" in caught.value.cause


def test_a_port_taken_by_another_is_named(tmp_path: Path) -> None:
    server = LocalTrino(tmp_path)
    with socket.socket() as other:
        other.bind((server.host, server.port))
        other.listen()
        with pytest.raises(PortTaken) as caught:
            server.start()
    assert caught.value.port == server.port


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    """Goal: no Trino is left behind. Method: its starter is killed, so it has no chance to clean up."""
    program = (
        "import sys, time, pathlib\n"
        "from thermocline.embedded.trino import LocalTrino\n"
        f"server = LocalTrino(pathlib.Path({str(tmp_path)!r}))\n"
        "server.start()\n"
        "print(server.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        os.kill(pid, 0)
        starter.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(pid)


def is_alive(pid: int) -> bool:
    """A process that ended and that nobody has waited for yet is not alive."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
