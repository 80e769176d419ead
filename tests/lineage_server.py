"""A receiver of lineage in this process: real HTTP, which takes events, refuses them, or hangs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from thermocline.process.metrics import REGISTRY

PATIENCE_SECONDS = 60.0
PATH = "/api/v1/lineage"
Event = dict[str, Any]


@dataclass
class LineageServer:
    """``received`` are the events that it took.

    ``status`` is what it answers where ``refuses`` of an event is true; while ``may_answer`` is not set, it
    hangs. ``asked`` counts requests, and ``authorizations`` has how each said who asks.
    """

    received: list[Event] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)
    status: int = 500
    answer: bytes = b"<html>no</html>"
    refuses: Callable[[Event], bool] = lambda _: False
    may_answer: threading.Event = field(default_factory=threading.Event)
    port: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{PATH}"

    @property
    def asked(self) -> int:
        return len(self.authorizations)

    def start(self) -> None:
        """Opens a port; after ``stop`` the same again."""
        ours = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                event = json.loads(self.rfile.read(length))
                assert self.headers["Content-Type"].partition(";")[0] == "application/json"
                ours.note(lambda: ours.authorizations.append(self.headers.get("Authorization")))
                ours.may_answer.wait(PATIENCE_SECONDS)
                is_taken = self.path == PATH and not ours.refuses(event)
                body = b"" if is_taken else ours.answer
                try:
                    self.send_response(201 if is_taken else ours.status)
                    self.send_header("Content-Length", str(len(body)))
                    self.send_header("Connection", "close")
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    return  # whoever asked has gone
                if is_taken:
                    ours.note(lambda: ours.received.append(event))

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

    def note(self, what: Callable[[], None]) -> None:
        with self._changed:
            what()
            self._changed.notify_all()

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(is_so, PATIENCE_SECONDS), f"{self.asked} requests, {self.received}"

    def types(self) -> list[str]:
        """Of the events that it took, in the order in which they came."""
        return [event["eventType"] for event in self.received]


def counted(table: str) -> tuple[float, float]:
    """Failures to send the lineage of a table, and events of it that were dropped."""
    of = {"table": table}
    failures = REGISTRY.get_sample_value("thermocline_ingest_lineage_failures_total", of)
    dropped = REGISTRY.get_sample_value("thermocline_ingest_lineage_dropped_events_total", of)
    return failures or 0, dropped or 0
