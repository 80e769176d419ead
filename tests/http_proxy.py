"""A proxy before an HTTP server: it counts requests, delays them, and loses or spoils some as it is told."""

from __future__ import annotations

import http.client
import random
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self, cast

HOST = "127.0.0.1"
SERVER_SECONDS_MAX = 300.0
"""A JVM that has just started, on a busy machine."""
SLOW_SECONDS = 0.5
"""Longer than any answer takes by itself, shorter than any time-out."""
KEPT_BYTES_MAX: Final = 1 << 20
"""Of a request's body in `HttpProxy.exchanges`; a larger one is not kept."""
_OF_A_CONNECTION: Final = ("transfer-encoding", "connection", "keep-alive", "expect")


class Fault(StrEnum):
    """What becomes of one request."""

    LOST = "it never reaches the server, and the connection ends"
    UNANSWERED = "it is carried out, and the connection ends without an answer"
    FAILED = "it is carried out, and the answer is 500"
    NO_GATEWAY = "it is carried out, and the answer is 502"
    TIMED_OUT = "it is carried out, and the answer is 504"
    BUSY_AFTER = "it is carried out, and the answer is 503"
    ERROR = "it never reaches the server, and the answer is 500"
    BUSY = "it never reaches the server, and the answer is 503"
    FULL = "it never reaches the server, and the answer is 507"
    CUT = "half of the answer comes, then the connection ends"
    SLOW = "it is carried out late, and answered"
    LATE = "the connection ends, and it reaches the server when that is told"
    SILENT = "nothing comes, and the connection stays"


_STATUS: Final[Mapping[Fault, int]] = {
    Fault.FAILED: 500,
    Fault.NO_GATEWAY: 502,
    Fault.TIMED_OUT: 504,
    Fault.BUSY_AFTER: 503,
    Fault.ERROR: 500,
    Fault.BUSY: 503,
    Fault.FULL: 507,
}
_CODES: Final[Mapping[int, str]] = {503: "SlowDown", 507: "XMinioStorageFull"}
_NOT_CARRIED_OUT: Final = (Fault.LOST, Fault.ERROR, Fault.BUSY, Fault.FULL)


@dataclass(frozen=True, slots=True)
class Request:
    """A request as its client sent it."""

    method: str
    target: str
    headers: Sequence[tuple[str, str]] = field(repr=False)
    body: bytes = field(repr=False)

    @property
    def range(self) -> str:
        """The range of bytes that it asks for; empty where it asks for all."""
        return next((value for name, value in self.headers if name.lower() == "range"), "")


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request that was answered or spoiled; ``body_bytes`` are of the server's answer."""

    request: Request
    fault: Fault | None
    status: int
    body_bytes: int


class RandomFaults:
    """Spoils a share of all requests, drawn from a seed; for `HttpProxy`'s ``decide``."""

    def __init__(self, seed: int, share: float, faults: Sequence[Fault]) -> None:
        self._random = random.Random(seed)
        self.share = share
        self._faults = faults

    def __call__(self, request: Request) -> Fault | None:
        return self._random.choice(self._faults) if self._random.random() < self.share else None


class NoWrites:
    """Of a store that takes ``after`` more writes and then none; for `HttpProxy`'s ``decide``."""

    def __init__(self, fault: Fault = Fault.FULL, after: int = 0) -> None:
        self._fault = fault
        self._left = after

    def __call__(self, request: Request) -> Fault | None:
        if request.method not in ("PUT", "POST"):
            return None
        self._left -= 1
        return self._fault if self._left < 0 else None


OF_A_STORE: Final = (
    *(Fault.LOST, Fault.UNANSWERED, Fault.FAILED, Fault.ERROR),
    *(Fault.BUSY, Fault.BUSY_AFTER, Fault.CUT, Fault.SLOW),
)

OF_A_CATALOG: Final = (
    *(Fault.LOST, Fault.UNANSWERED, Fault.FAILED, Fault.NO_GATEWAY, Fault.TIMED_OUT, Fault.BUSY_AFTER),
    *(Fault.ERROR, Fault.BUSY, Fault.SLOW, Fault.LATE),
)


class HttpProxy:
    """One proxy; use it as a context manager. ``decide`` is asked of each request, by one thread at a time.

    While ``is_away`` every connection ends at once. ``latency_seconds`` pass before each request is sent on.
    """

    def __init__(
        self,
        server_port: int,
        decide: Callable[[Request], Fault | None] = lambda request: None,
        latency_seconds: float = 0.0,
    ) -> None:
        self.server_port = server_port
        self.decide = decide
        self.latency_seconds = latency_seconds
        self.is_away = False
        self.exchanges: list[Exchange] = []
        self.spoilt: Counter[Fault] = Counter()
        self._late: list[Request] = []
        self._lock = threading.Lock()
        self._ends = threading.Event()
        self._listener = _Listener((HOST, 0), _Handler)
        self._listener.proxy = self
        self.url = f"http://{HOST}:{self._listener.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._listener.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.set()
        self._listener.shutdown()
        self._listener.server_close()

    def deliver_late(self) -> None:
        """Requests that were held back are carried out before this returns."""
        for request in self._late:
            with closing(self.connect()) as connection:
                self.answer_of(connection, request)
        self._late.clear()

    def connect(self) -> http.client.HTTPConnection:
        """A connection to the server."""
        return http.client.HTTPConnection(HOST, self.server_port, timeout=SERVER_SECONDS_MAX)

    def answer_of(
        self, connection: http.client.HTTPConnection, request: Request
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """The server's answer, with its body."""
        connection.putrequest(request.method, request.target, skip_host=True, skip_accept_encoding=True)
        for name, value in request.headers:
            if name.lower() not in (*_OF_A_CONNECTION, "content-length"):
                connection.putheader(name, value)
        if request.method in ("PUT", "POST"):
            connection.putheader("Content-Length", str(len(request.body)))
        connection.endheaders(request.body or None)
        answer = connection.getresponse()
        return answer, answer.read()

    def choose(self, request: Request) -> Fault | None:
        """What becomes of a request; one that is late is kept."""
        with self._lock:
            fault = self.decide(request)
            if fault is not None:
                self.spoilt[fault] += 1
        if fault == Fault.LATE:
            self._late.append(request)
        return fault

    def pause(self, fault: Fault | None) -> None:
        """Before a request is sent on."""
        if fault == Fault.SILENT:
            self._ends.wait()
        time.sleep(self.latency_seconds + (SLOW_SECONDS if fault == Fault.SLOW else 0.0))


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    proxy: HttpProxy

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away, and servers that are stopped, are part of the tests."""
        if not isinstance(sys.exception(), OSError | http.client.HTTPException):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """One client's connection, with one of its own to the server."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # an answer's head and body go out together

    def setup(self) -> None:
        super().setup()
        self.proxy = cast(_Listener, self.server).proxy
        self.to_server = self.proxy.connect()

    def finish(self) -> None:
        self.to_server.close()
        with suppress(OSError):
            super().finish()

    def handle_expect_100(self) -> bool:
        """Clients wait for this before they send a body."""
        going_on = super().handle_expect_100()
        self.wfile.flush()
        return going_on

    def _pass_on(self) -> None:
        is_chunked = "chunked" in self.headers.get("Transfer-Encoding", "")
        body = self._chunks() if is_chunked else self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.proxy.is_away:
            self._end()
            return
        request = Request(self.command, self.path, self.headers.items(), body)
        fault = self.proxy.choose(request)
        if fault == Fault.LATE:
            self._end()
            return
        self.proxy.pause(fault)
        answer, content = None, b""
        if fault not in _NOT_CARRIED_OUT and fault != Fault.SILENT:
            answer, content = self.proxy.answer_of(self.to_server, request)
        kept = request if len(body) < KEPT_BYTES_MAX else replace(request, body=b"")
        # Before the client can go on.
        self.proxy.exchanges.append(Exchange(kept, fault, answer.status if answer else 0, len(content)))
        if fault is not None and fault in _STATUS:
            self._refuse(_STATUS[fault])
        elif answer is None or fault not in (None, Fault.SLOW, Fault.CUT):
            self._end()
        else:
            self._answer(answer, content, is_cut=fault == Fault.CUT)
            if fault == Fault.CUT:
                self._end()

    def _chunks(self) -> bytes:
        """A body without an announced length, as Arrow's client sends parts; it goes on with its length."""
        body = bytearray()
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():  # trailers, which nobody has sent yet
            pass
        return bytes(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on  # noqa: N815  names of the standard library

    def _answer(self, answer: http.client.HTTPResponse, content: bytes, is_cut: bool) -> None:
        self.send_response_only(answer.status, answer.reason)
        is_head = self.command == "HEAD"
        for name, value in answer.getheaders():
            if name.lower() not in (*_OF_A_CONNECTION, *(() if is_head else ("content-length",))):
                self.send_header(name, value)
        if not is_head and answer.status != http.client.NO_CONTENT:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if is_cut else content)
        self.wfile.flush()

    def _refuse(self, status: int) -> None:
        """As S3 does it; a REST catalog's clients take any body of such a status."""
        code = _CODES.get(status, "InternalError")
        content = f"<Error><Code>{code}</Code><Message>of the proxy</Message></Error>".encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(0 if self.command == "HEAD" else len(content)))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else content)
        self.wfile.flush()

    def _end(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *arguments: Any) -> None:
        """A proxy of tests says nothing of its own."""
