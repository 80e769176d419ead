"""The client and a server on loopback that limits it: both kinds wait as told, within their bounds."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest

from thermocline.client import AsyncClient, Client, Retries, TooManyRequests
from thermocline.errors import TooManyRequests as Refused
from thermocline.process.clock import SystemClock
from thermocline.serving.access.limits import Limits, RateLimits
from thermocline.serving.http.problems import problem_response

POINT = {"snapshot_id": "7", "seam": {"profiles": {"0": 3}}, "end": {"profiles": {"0": 5}}}
ROWS = {"table": "profiles", "read_point": POINT, "age_seconds": 0.04, "stale": False, "rows": []}


@dataclass
class Limited:
    """A server that answers one lookup after the other, within limits, and the statuses that it gave."""

    url: str
    limits: Limits
    statuses: list[int] = field(default_factory=list)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Limited]:
    rates = RateLimits(tmp_path, 1, SystemClock())

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                rates.admit("billing", limited.limits)
            except Refused as error:
                refused = problem_response(error, self.path)
                self._send(refused.status_code, bytes(refused.body), dict(refused.headers))
            else:
                self._send(200, json.dumps(ROWS).encode(), {"content-type": "application/json"})

        def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            limited.statuses.append(status)
            self.send_response(status)
            for name, value in {**headers, "content-length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        limited = Limited(f"http://127.0.0.1:{http.server_port}", Limits(requests_per_second=1))
        serving = threading.Thread(target=http.serve_forever, args=(0.01,))
        serving.start()
        yield limited
        http.shutdown()
        serving.join()
    rates.close()


def looked_up(url: str, times: int, retries: Retries) -> None:
    with Client(url, retries=retries) as client:
        for _ in range(times):
            assert client.lookup("profiles", app_id=7, user_id="ada").rows == []


def looked_up_async(url: str, times: int, retries: Retries) -> None:
    async def look_up() -> None:
        async with AsyncClient(url, retries=retries) as client:
            for _ in range(times):
                answer: Any = await client.lookup("profiles", app_id=7, user_id="ada")
                assert answer.rows == []

    anyio.run(look_up)


KINDS = pytest.mark.parametrize("look_up", [looked_up, looked_up_async], ids=["blocking", "async"])


@KINDS
def test_a_client_waits_for_as_long_as_a_server_that_limits_it_asks(
    server: Limited, look_up: Callable[[str, int, Retries], None]
) -> None:
    # Without heed, both attempts of the second lookup would come within 0.1 s, and be refused.
    look_up(server.url, 2, Retries(attempts_max=2))
    assert server.statuses == [200, 429, 200]


@KINDS
def test_a_client_that_has_no_time_for_that_is_told_at_once(
    server: Limited, look_up: Callable[[str, int, Retries], None]
) -> None:
    server.limits = Limits(requests_per_second=0.01)
    with pytest.raises(TooManyRequests) as met:
        look_up(server.url, 2, Retries(seconds_max=20.0))
    assert server.statuses == [200, 429]
    assert (met.value.status, met.value.retryable) == (429, True)
    assert 20.0 < met.value.retry_after_seconds <= 100.0


@KINDS
def test_a_client_that_repeats_nothing_is_told_when_to_come_again(
    server: Limited, look_up: Callable[[str, int, Retries], None]
) -> None:
    server.limits = Limits(requests_per_second=0.5)
    with pytest.raises(TooManyRequests, match="5 requests per second, 1 at once") as met:
        look_up(server.url, 2, Retries(attempts_max=1))
    assert server.statuses == [200, 429]
    assert 0.0 < met.value.retry_after_seconds <= 2.0
