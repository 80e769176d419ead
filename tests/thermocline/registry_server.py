"""A schema registry in this process: real HTTP, the part of Confluent's protocol that reading needs."""

from __future__ import annotations

import itertools
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

_NUMBERS = itertools.count(1)  # what a process remembers of a registry, it remembers by its URL
NOT_FOUND = {"error_code": 40403, "message": "Schema not found"}


@dataclass
class RegistryServer:
    """Serves what ``schemas`` and ``subjects`` hold, by their paths; ``status`` overrides all answers.

    ``stop`` closes the port, and ``start`` opens the same again. ``asked`` has each path that was asked for.
    """

    schemas: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    status: int = 0
    authorization: str = ""
    unknown: dict[str, Any] = field(default_factory=lambda: dict(NOT_FOUND))
    is_registry: bool = True
    port: int = 0
    path: str = field(default_factory=lambda: f"/registry-{next(_NUMBERS)}")
    _server: ThreadingHTTPServer | None = None

    def add(self, id_: int | UUID, schema: Any, form: str = "", **more: Any) -> None:
        """A schema as JSON says it, or as its text; ``form`` is how else it may be asked for."""
        kind = "ids" if isinstance(id_, int) else "guids"
        text = schema if isinstance(schema, str) else json.dumps(schema)
        self.schemas[f"/schemas/{kind}/{id_}{form}"] = {"schema": text, **more}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.path}"

    def start(self) -> None:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                path = self.path.removeprefix(registry.path)
                registry.asked.append(path)
                status, body = registry.answer(path, self.headers.get("Authorization", ""))
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.send_header("Connection", "close")  # so that a stopped server has no connections left
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def answer(self, path: str, authorization: str) -> tuple[int, Any]:
        if self.authorization and authorization != self.authorization:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        if self.status:
            return self.status, b"<html>no</html>"
        if path == "/schemas/types" and self.is_registry:
            return 200, ["JSON", "PROTOBUF", "AVRO"]
        # As registries do, it leaves aside what it does not know.
        found = self.schemas.get(path, self.schemas.get(path.partition("?")[0]))
        return (404, self.unknown) if found is None else (200, found)
