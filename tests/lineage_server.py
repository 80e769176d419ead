"""A receiver of lineage in this process: real HTTP, which takes events, refuses them, or hangs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.local_http import Answering, LocalHttp
from thermocline.process.metrics import REGISTRY

PATIENCE_SECONDS = 60.0
PATH = "/api/v1/lineage"
Event = dict[str, Any]


@dataclass
class LineageServer(LocalHttp):
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
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{PATH}"

    @property
    def asked(self) -> int:
        return len(self.authorizations)

    def handler(self) -> type[Answering]:
        ours = self

        class Handler(Answering):
            def do_POST(self) -> None:  # noqa: N802  (its caller's name)
                length = int(self.headers["Content-Length"])
                event = json.loads(self.rfile.read(length))
                assert self.headers["Content-Type"].partition(";")[0] == "application/json"
                ours.note(lambda: ours.authorizations.append(self.headers.get("Authorization")))
                ours.may_answer.wait(PATIENCE_SECONDS)
                is_taken = self.path == PATH and not ours.refuses(event)
                try:
                    self.give(201 if is_taken else ours.status, b"" if is_taken else ours.answer)
                except OSError:
                    return  # whoever asked has gone
                if is_taken:
                    ours.note(lambda: ours.received.append(event))

        return Handler

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
