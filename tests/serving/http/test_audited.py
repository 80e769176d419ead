"""Requests and the line that the audit log has of each: the same the short way, and nothing of any value."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tests.serving.wire import PLAIN, Connection, value_of
from thermocline.serving.access.audit import AuditLog
from thermocline.serving.access.audit_sink import Line
from thermocline.serving.access.entity_hash import EntityHash
from thermocline.serving.http.app import create_app
from thermocline.serving.http.guard import Guard
from thermocline.serving.http.protocol import LookupProtocol
from thermocline.serving.read.caller import Action, Caller, Credentials, Grant
from thermocline.serving.read.tables import ServedTable, Tables
from thermocline.settings import ServingSettings

KEY = b"k" * 32
READER = Caller("reader", {"profiles": Grant(frozenset(Action) - {Action.ADMIN})}, key="a1b2")
TABLE = "/v1/tables/profiles"
ROWS = f"{TABLE}/rows?app_id=7&user_id=u1"
ENTITY = hmac.digest(KEY, b"profiles\0\x80\x00\x00\x07u1\x00\x01", "sha256")[:16].hex()


class Sink:
    """Keeps lines, or fails."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.error: OSError | None = None

    def write(self, lines: Sequence[Line]) -> None:
        if self.error is not None:
            raise self.error
        self.lines += [json.loads(line.text) for line in lines]

    def close(self) -> None:
        pass


@pytest.fixture
def served(
    new_world: Callable[..., Any], client_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Iterator[SimpleNamespace]:
    world = new_world()
    world.produce({"app_id": 7, "user_id": "u1", "key": "a"}, value_of("secret-value"))
    world.commit()
    world.publish()
    world.tail()
    (world.folder / "tailer.json").write_bytes(b'{"caught_up_to_start_ends": true}')

    def seal(seconds: float) -> None:
        world.clock.advance(seconds + 1)
        world.tier.tend(None)

    monkeypatch.setattr(world.clock, "sleep", seal)
    table = ServedTable(world.definition, world.folder, world.published, world.clock, 5.0)
    table.refresh()
    sink = Sink()
    log = AuditLog(sink, EntityHash(KEY), is_required=True)
    settings = ServingSettings(state_dir=world.folder, extract_jobs_dir=world.folder / "jobs")
    app = create_app(Tables([table]), settings, guard=Guard(lambda _: READER, log))
    with client_of(app) as client:
        yield SimpleNamespace(client=client, app=app, sink=sink, log=log)


def lines_of(served: SimpleNamespace) -> list[dict[str, Any]]:
    """All of them, once they are written."""
    served.client.__exit__(None, None, None)  # which closes the log
    lines: list[dict[str, Any]] = served.sink.lines
    return lines


def test_a_lookup_is_written_with_who_asked_for_whom_and_what_they_saw(served: SimpleNamespace) -> None:
    answer = served.client.get(ROWS, headers={"X-Request-Id": "mine"})
    (line,) = lines_of(served)
    assert line.pop("time").endswith("Z")
    assert line.pop("duration_ms") > 0
    assert line == {
        "verb": "lookup",
        "outcome": "ok",
        "status": 200,
        "request_id": "mine",
        "client": "reader",
        "key": "a1b2",
        "address": "testclient",
        "table": "profiles",
        "entity": ENTITY,
        "read_point": answer.json()["read_point"],
        "rows": 1,
        "bytes": len(answer.content),
    }


def test_the_short_way_writes_the_same_line(served: SimpleNamespace) -> None:
    async def both() -> None:
        connection = Connection(LookupProtocol, served.app)
        for _ in range(2):
            assert (await connection.send(PLAIN.encode())).startswith(b"HTTP/1.1 200 ")
        connection.end()

    asyncio.run(both())
    first, second = lines_of(served)
    for line in (first, second):
        for name in ("time", "duration_ms", "request_id", "address"):
            line.pop(name, None)
    assert first == second


def test_each_request_that_reads_has_a_line_and_no_other(served: SimpleNamespace) -> None:
    def outcomes(method: str, path: str, **more: Any) -> None:
        served.client.request(method, path, **more)

    entities = [{"app_id": 7, "user_id": user} for user in ("u1", "nobody")]
    outcomes("POST", f"{TABLE}/rows:batch", json={"entities": entities})
    outcomes("POST", f"{TABLE}/extract", json={})
    outcomes("POST", f"{TABLE}/extract", json={"where": "secret = 1"})
    outcomes("POST", f"{TABLE}/extracts", json={"id": "one"})
    outcomes("GET", f"{TABLE}/extracts/two")
    outcomes("GET", f"{TABLE}/refused")
    outcomes("GET", f"{ROWS}&key=secret-key")
    outcomes("GET", "/v1/tables/secret-table/rows?app_id=7&user_id=u1")
    for path in ("/livez", "/metrics", "/nothing", "/docs"):
        outcomes("GET", path)
    lines = lines_of(served)
    assert [(one["verb"], one["outcome"], one.get("table"), one.get("rows")) for one in lines] == [
        ("batch", "ok", "profiles", 1),
        ("extract", "ok", "profiles", 1),
        ("extract", "bad-parameter", "profiles", None),
        ("job-start", "ok", "profiles", None),
        ("job-read", "not-found", "profiles", None),
        ("refused", "not-permitted", "profiles", None),
        ("lookup", "row-not-found", "profiles", 0),
        ("lookup", "unknown-table", None, None),
    ]
    assert (lines[0]["entity"][0], lines[0]["entities"]) == (ENTITY, 2)
    assert lines[6]["entity"] == ENTITY
    assert "secret" not in json.dumps(lines)


def test_a_log_that_is_required_and_fails_stops_answers_and_is_named(served: SimpleNamespace) -> None:
    assert served.client.get(ROWS).status_code == 200
    served.sink.error = OSError(28, "No space left on device")
    assert served.client.get(ROWS).status_code == 200  # until the log knows
    while served.log.problem() is None:
        pass
    refused = served.client.get(ROWS)
    assert (refused.status_code, refused.json()["code"]) == (503, "audit-unavailable")
    assert served.client.get("/readyz").json()["code"] == "audit-unavailable"
    assert served.client.get("/livez").status_code == 200
    assert served.app.known("profiles", b"app_id=7&user_id=u1", None, Credentials()) is None
    served.sink.error = None
    while served.log.problem() is not None:
        pass
    assert served.client.get(ROWS).status_code == 200
    assert [line["status"] for line in lines_of(served)] == [200, 200, 200]
