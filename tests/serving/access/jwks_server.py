"""An issuer in this process: real HTTP, with a set of keys or whatever else it is told to answer."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class JwksServer:
    """Answers ``content`` with ``status`` and ``headers``; ``asked`` has each path that was asked for.

    ``others`` are the contents of paths that have one of their own. While ``may_answer`` is not set, it
    hangs; before the request, ``is_hanging`` is not set.
    """

    content: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    others: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    may_answer: threading.Event = field(default_factory=threading.Event)
    is_hanging: threading.Event = field(default_factory=threading.Event)
    parts: int = 1
    scheme: str = "http"
    port: int = 0

    @property
    def url(self) -> str:
        return f"{self.root}/keys"

    @property
    def root(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def publish(self, *jwks: dict[str, Any]) -> None:
        self.content = json.dumps({"keys": jwks}).encode()


@contextmanager
def jwks_server(*jwks: dict[str, Any], tls: ssl.SSLContext | None = None) -> Iterator[JwksServer]:
    issuer = JwksServer(scheme="http" if tls is None else "https")
    issuer.may_answer.set()
    issuer.publish(*jwks)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.asked.append(self.path)
            if not issuer.may_answer.is_set():
                issuer.is_hanging.set()
                issuer.may_answer.wait()
            self.send_response(issuer.status)
            for name, value in issuer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                for _ in range(issuer.parts):
                    self.wfile.write(issuer.others.get(self.path, issuer.content))
                    self.wfile.flush()
            except OSError:
                pass  # the client has had enough

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """A client that trusts no certificate ends the connection."""

    server = Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    issuer.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield issuer
    finally:
        issuer.may_answer.set()
        server.shutdown()
        server.server_close()
        thread.join()
