"""A server of HTTP in this process, on a port that it has again once it is started again."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class LocalHttp:
    """``stop`` closes the port, and ``start`` opens the same again."""

    port: int = 0
    _server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), self.handler())
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def handler(self) -> type[Answering]:
        """What answers requests."""
        raise NotImplementedError


class Answering(BaseHTTPRequestHandler):
    """Says nothing on stderr, and leaves no connection behind of a server that is stopped."""

    protocol_version = "HTTP/1.1"

    def give(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass
