"""Clients that only hold connections: others are answered meanwhile, and what is held is let go of."""

from __future__ import annotations

import http.client
import json
import multiprocessing
import resource
import socket
import ssl
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from tests.certificates import Authority
from tests.serving.small_lake import create_table, lake_settings, until
from thermocline.serving.process.server import serve
from thermocline.settings import Settings

ANSWER_SECONDS_MAX: Final = 60.0
# Ten thousand that send a byte each half second would be a flood, and no slow clients.
DRIP_SECONDS: Final = 0.5
DRIP_SECONDS_OF_MANY: Final = 5.0
# Beside connections: files of tables, sockets that wait to be closed, those of the others who ask.
OTHER_FILES_MAX: Final = 200
DOCUMENT: Final = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST: Final = (
    b"POST /v1/tables/profiles/rows:batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
)
# What each sends at once, and then, byte by byte, for ever.
HOSTILE: Final = {
    "silent": (b"", b""),
    "a request line without an end": (b"G", b"E"),
    "headers without an end": (b"GET /livez HTTP/1.1\r\nHost: localhost\r\nx-a: ", b"a"),
    "a body without an end": (
        POST + b"Content-Length: 4000000\r\n\r\n",
        b" ",
    ),
    "a chunk without an end": (
        POST + b"Transfer-Encoding: chunked\r\n\r\nffff\r\n",
        b" ",
    ),
}
GARBAGE: Final = (b"\x00\xff" * 100, b"\r\n" * 100, b"GET\r\n\r\n", b"x" * 70_000, b"PRI * HTTP/2.0\r\n\r\n")


@dataclass
class Running:
    """A server in processes of its own, with one worker."""

    settings: Settings
    context: ssl.SSLContext | None
    held: list[socket.socket] = field(default_factory=list)
    address: str = "127.0.0.1"

    def connected(self) -> socket.socket:
        place = "127.0.0.1", self.settings.serving.port
        plain = socket.create_connection(place, ANSWER_SECONDS_MAX, (self.address, 0))
        return plain if self.context is None else self.context.wrap_socket(plain, server_hostname="localhost")

    def ask(self, path: str = "/v1/tables") -> Any:
        """Over a new connection."""
        connection = http.client.HTTPConnection("localhost")
        connection.sock = self.connected()
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            assert answer.status == http.client.OK
            return json.loads(answer.read())
        finally:
            connection.close()

    def seconds(self, times: int) -> list[float]:
        found = []
        for _ in range(times):
            began_at = time.monotonic()
            assert self.ask() == {"tables": ["profiles"]}
            found.append(time.monotonic() - began_at)
        return found

    @property
    def worker(self) -> psutil.Process:
        return psutil.Process(self.ask("/status")["tables"]["profiles"]["worker_pid"])


@contextmanager
def serving(folder: Path, is_secure: bool, **changes: Any) -> Iterator[Running]:
    settings = lake_settings(folder, "profiles")
    create_table(settings, "profiles")
    context = None
    if is_secure:
        authority = Authority(folder / "authority")
        pair = authority.issue(names=["localhost"])
        changes |= {"tls_certificate": pair.certificate, "tls_key": pair.key}
        context = ssl.create_default_context(cafile=authority.file)
    serving = settings.serving.model_copy(update=changes)
    running = Running(settings.model_copy(update={"serving": serving}), context)
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(running.settings,))
    process.start()

    def is_up() -> bool:
        with suppress(OSError, http.client.HTTPException):
            return running.ask() is not None
        return False

    try:
        until(is_up)
        yield running
    finally:
        process.terminate()
        process.join(ANSWER_SECONDS_MAX)
        process.kill()
        process.join()


@contextmanager
def dripping(held: list[tuple[socket.socket, bytes]], seconds: float) -> Iterator[None]:
    """Each of these connections sends another byte now and then."""
    stop = threading.Event()

    def drip() -> None:
        while not stop.wait(seconds):
            for connection, byte in held:
                with suppress(OSError):
                    connection.send(byte)

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def is_closed(connection: socket.socket) -> bool:
    """Whether the server ended it; an error that it was told before is read."""
    connection.setblocking(False)
    try:
        while connection.recv(65_536):
            pass
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        pass
    return True


def hold(running: Running, stack: ExitStack, count: int) -> list[tuple[socket.socket, bytes]]:
    """Connections of all hostile kinds."""
    held = []
    for number in range(count):
        begun, byte = list(HOSTILE.values())[number % len(HOSTILE)]
        connection = stack.enter_context(running.connected())
        with suppress(OSError):  # it may have been closed for a later one
            connection.sendall(begun)
        held.append((connection, byte))
    return held


def trial(running: Running, count: int, times: int, drip_seconds: float = DRIP_SECONDS) -> dict[str, float]:
    """What it took.

    Whoever asks right behind those who come (``behind_ms``) waits until these have had their turn: 0.1 ms of
    the processor each, and 0.3 to 0.5 ms where a body begins, whose endpoint waits for it. Over TLS, each
    of them waited for its own handshake here before the next one came, so that nobody is far behind.
    """
    connections_max = running.settings.serving.connections_max
    serving, worker = running.settings.serving, running.worker
    alone = running.seconds(times)
    before = worker.memory_info().rss
    with ExitStack() as stack:
        held = hold(running, stack, count)
        (behind,) = running.seconds(1)
        grown = worker.memory_info().rss - before
        unread = [stack.enter_context(running.connected()) for _ in range(10)]
        for connection in unread:  # ten megabytes of answers that nobody reads
            connection.settimeout(0.5)
            with suppress(OSError):
                connection.sendall(DOCUMENT * 1_000)
        with dripping([(connection, byte) for connection, byte in held if byte], drip_seconds):
            for content in GARBAGE:
                connection = stack.enter_context(running.connected())
                with suppress(OSError):
                    connection.sendall(content)
                held.append((connection, b""))
            among = running.seconds(times)
            assert worker.num_fds() <= min(count, connections_max) + OTHER_FILES_MAX
            until_closed = time.monotonic() + serving.request_seconds_max + ANSWER_SECONDS_MAX
            open_ = [connection for connection, _ in held]
            while open_ := [connection for connection in open_ if not is_closed(connection)]:
                assert time.monotonic() < until_closed, f"{len(open_)} connections are still held"
                assert running.ask() == {"tables": ["profiles"]}
                time.sleep(0.1)
    until(lambda: worker.num_fds() <= OTHER_FILES_MAX)
    assert running.worker.pid == worker.pid
    return {
        "ratio": statistics.median(among) / statistics.median(alone),
        "behind_ms": 1000 * behind,
        "alone_ms": 1000 * statistics.median(alone),
        "longest_ms": 1000 * max(among),
        "bytes_per_connection": grown / min(count, connections_max),
    }


@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "TLS"])
def test_who_holds_connections_holds_up_nobody_and_is_closed_in_time(tmp_path: Path, is_secure: bool) -> None:
    """Method: more connections than there may be, of all kinds; each then has three seconds for a request."""
    bounds = {"connections_max": 150, "connections_per_address_max": 1_000}
    with serving(tmp_path, is_secure, **bounds, request_seconds_max=3.0) as running:
        print(trial(running, count=300, times=20))


@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "TLS"])
def test_one_address_does_not_take_the_connections_of_others(tmp_path: Path, is_secure: bool) -> None:
    with (
        serving(tmp_path, is_secure, connections_max=20, request_seconds_max=60.0) as running,
        ExitStack() as stack,
    ):
        running.address = "127.0.0.2"
        patient = http.client.HTTPConnection("localhost")
        patient.sock = stack.enter_context(running.connected())
        running.address = "127.0.0.1"
        held = [stack.enter_context(running.connected()) for _ in range(60)]
        running.address = "127.0.0.2"
        assert running.seconds(5)
        assert 0 < sum(not is_closed(one) for one in held) <= 10, "an address has half of all at most"
        patient.request("GET", "/livez")
        assert patient.getresponse().status == http.client.OK, "it is older, and idle for longer"


@pytest.mark.full
@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "TLS"])
def test_ten_thousand_connections_hold_up_nobody(tmp_path: Path, is_secure: bool) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 20_000:
        pytest.skip("a process may not have so many files open here")
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        bounds = {"connections_max": 10_000, "connections_per_address_max": 20_000}
        with serving(tmp_path, is_secure, **bounds, request_seconds_max=120.0) as running:
            print(trial(running, 10_000, times=100, drip_seconds=DRIP_SECONDS_OF_MANY))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, soft)
