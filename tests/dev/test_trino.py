"""The embedded Trino says why it fails, and outlives nobody; that it comes back is seen with the views."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.dev.starter import ends_with_its_starter
from thermocline.dev.trino import LocalTrino
from thermocline.errors import PortTaken, TrinoUnreachable

pytestmark = [pytest.mark.trino, pytest.mark.full]

TIMEOUT_SECONDS = 60.0


def test_a_trino_that_does_not_come_up_shows_the_end_of_its_log(tmp_path: Path) -> None:
    server = LocalTrino(tmp_path)
    (server.configuration / "access-control.properties").write_text("access-control.name=nobody\n")
    server.start()
    with pytest.raises(TrinoUnreachable) as caught:
        server.wait()
    server.stop()
    assert server.pid is None
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
        "from thermocline.dev.trino import LocalTrino\n"
        f"server = LocalTrino(pathlib.Path({str(tmp_path)!r}))\n"
        "server.start()\n"
        "print(server.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    assert ends_with_its_starter(program, TIMEOUT_SECONDS)
