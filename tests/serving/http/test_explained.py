"""The explained lookup over HTTP: who may ask, what is told, and that it is judged and noted as a lookup."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.serving.audit_lines import AuditLines
from tests.serving.conftest import ORDERED
from thermocline.errors import ServerBusy
from thermocline.serving.access.audit import AuditLog
from thermocline.serving.access.entity_hash import EntityHash
from thermocline.serving.http import worker as worker_module
from thermocline.serving.http.app import create_app
from thermocline.serving.http.guard import Guard
from thermocline.serving.http.models import ExplainedAnswer
from thermocline.serving.read.caller import Action, Caller, Credentials, Grant, Part
from thermocline.serving.read.explained import explain
from thermocline.serving.read.tables import Tables
from thermocline.settings import ServingSettings

LOOKUP = frozenset({Action.LOOKUP})
CALLERS = {
    one.name: one
    for one in (
        Caller("reader", {"profiles": Grant(LOOKUP)}, key="1"),
        Caller("some", {"profiles": Grant(LOOKUP, Part(scope=(("user_id", "u1"),)))}, key="2"),
        Caller("blind", {"profiles": Grant(LOOKUP, Part(columns=("updated_at",)))}, key="3"),
        Caller("operator", {"profiles": Grant(frozenset(Action) - LOOKUP)}, key="4"),
        Caller("stranger", {}, key="5"),
    )
}
URL = "/v1/tables/profiles/rows/explained"
AT = "2026-01-02T03:04:05Z"


def admit(credentials: Credentials) -> Caller:
    return CALLERS[(credentials.authorization or "Bearer reader").removeprefix("Bearer ")]


def produce(world: Any, key: str, value: str | None, user: str = "u1") -> None:
    record = None if value is None else {"value": value, "updated_at": AT}
    world.produce({"app_id": 7, "user_id": user, "key": key}, record, partition=1)


@pytest.fixture
def asked(served: Callable[..., Any], client_of: Callable[..., Any]) -> Iterator[SimpleNamespace]:
    """Of u1: `kept` is cold, `updated` and `deleted` cold and hot, `added` hot; u2 has `theirs`."""
    world, table = served()
    for key in ("kept", "updated", "deleted"):
        produce(world, key, "cold")
    produce(world, "theirs", "cold", "u2")
    world.commit()
    world.publish()
    produce(world, "updated", "hot")
    produce(world, "deleted", None)
    produce(world, "added", "hot")
    world.tail()
    table.refresh()
    sink = AuditLines()
    log = AuditLog(sink, EntityHash(b"k" * 32))
    app = create_app(Tables([table]), ServingSettings(state_dir=world.folder), guard=Guard(admit, log))
    with client_of(app) as client:

        def ask(caller: str = "reader", url: str = URL, **more: Any) -> Any:
            params = {"app_id": "7", "user_id": "u1"} | more.pop("params", {})
            headers = {"Authorization": f"Bearer {caller}"} | more.pop("headers", {})
            return client.get(url, params=params, headers=headers, **more)

        yield SimpleNamespace(ask=ask, world=world, client=client, app=app, sink=sink)


def told(answer: Any) -> list[tuple[Any, ...]]:
    return [
        (
            one["row"] and (one["row"]["key"], one["row"].get("value")),
            one["hot"] and (one["hot"]["topic"], one["hot"]["partition"], one["hot"]["offset"]),
            one["cold"] and one["cold"]["record"]["offset"],
            one["replaced"] and one["replaced"].get("value"),
        )
        for one in answer.json()["rows"]
    ]


def test_each_row_is_told_with_its_record_its_file_and_what_it_replaced(asked: SimpleNamespace) -> None:
    answer = asked.ask()
    assert told(answer) == [
        (("added", "hot"), ("profiles", 1, 6), None, None),
        (None, None, 2, "cold"),
        (("kept", "cold"), None, 0, None),
        (("updated", "hot"), ("profiles", 1, 4), 1, "cold"),
    ]
    body = answer.json()
    ExplainedAnswer.model_validate(body)
    lookup = asked.ask(url="/v1/tables/profiles/rows").json()
    assert [one["row"] for one in body["rows"] if one["row"]] == lookup["rows"]
    assert body["read_point"] == lookup["read_point"]
    assert set(body["seconds"]) == {"look", "cold_rows", "overlay", "places"}
    kept = body["rows"][2]["cold"]
    assert (kept["row_group"], kept["record"]["timestamp_ms"]) == (0, asked.world.logs[1][0][2])
    assert kept["file"].endswith(".parquet")


def test_a_whole_key_is_that_row_alone_also_where_it_was_deleted(asked: SimpleNamespace) -> None:
    assert [one[0] for one in told(asked.ask(params={"key": "kept"}))] == [("kept", "cold")]
    assert told(asked.ask(params={"key": "deleted"})) == [(None, None, 2, "cold")]
    missing = asked.ask(params={"key": "never"})
    assert (missing.status_code, missing.json()["code"]) == (404, "row-not-found")
    assert asked.ask(params={"user_id": "nobody"}).json()["rows"] == []


def test_who_sees_a_part_is_told_of_that_part_alone(asked: SimpleNamespace) -> None:
    assert told(asked.ask("blind")) == [
        (("added", None), ("profiles", 1, 6), None, None),
        (("kept", None), None, None, None),
        (("updated", None), ("profiles", 1, 4), None, None),
    ]
    assert len(asked.ask("some").json()["rows"]) == 3
    theirs, nobody = (asked.ask("some", params={"user_id": user}).json() for user in ("u2", "nobody"))
    assert theirs["rows"] == nobody["rows"] == []
    assert asked.ask("some", params={"user_id": "u2", "key": "theirs"}).status_code == 404


def test_it_takes_the_verb_of_a_lookup(asked: SimpleNamespace) -> None:
    refused = asked.ask("operator")
    assert (refused.status_code, refused.json()["code"]) == (403, "not-permitted")
    unknown = asked.ask("stranger")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown-table")
    wrong = asked.ask(params={"app_id": "seven"})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "bad-parameter")
    assert asked.ask(params={"value": "x"}).json()["code"] == "bad-parameter"


def test_it_waits_for_the_records_that_it_is_to_include(asked: SimpleNamespace) -> None:
    assert asked.ask(headers={"Thermocline-Read-After": "profiles/1@6"}).status_code == 200
    late = asked.ask(headers={"Thermocline-Read-After": "elsewhere/1@6"})
    assert (late.status_code, late.json()["code"]) == (422, "bad-parameter")


def test_it_is_written_to_the_audit_log_as_a_lookup_and_counted(asked: SimpleNamespace) -> None:
    answer = asked.ask(headers={"X-Request-Id": "mine"})
    asked.ask("operator")
    metrics = asked.client.get("/metrics", headers={"Authorization": "Bearer operator"}).text
    assert 'route="/v1/tables/{table}/rows/explained"' in metrics
    asked.client.__exit__(None, None, None)  # which closes the log
    line, refused = (one for one in asked.sink.lines if one["verb"] == "lookup")
    assert (line["client"], line["request_id"], line["table"]) == ("reader", "mine", "profiles")
    assert (line["rows"], line["outcome"]) == (4, "ok")
    assert line["read_point"] == answer.json()["read_point"]
    assert len(line["entity"]) == 32
    assert (refused["client"], refused["outcome"]) == ("operator", "not-permitted")


def test_it_waits_in_the_same_line_as_lookups(
    asked: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "COLD_WAITING_MAX", 0)
    busy = asked.ask()
    assert (busy.status_code, busy.json()["code"]) == (503, ServerBusy.code)


def test_it_counts_as_the_lookups_that_it_takes_as_long_as(
    asked: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: five may wait; while an explained lookup does, no other one may that reads a file."""
    monkeypatch.setattr(worker_module, "COLD_WAITING_MAX", 5)
    may_read, is_waiting = threading.Event(), threading.Event()

    def slowly(*arguments: Any) -> Any:
        is_waiting.set()
        assert may_read.wait(60)
        return explain(*arguments)

    monkeypatch.setattr(worker_module, "explain", slowly)
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(asked.ask)
        assert is_waiting.wait(60)
        busy = asked.ask(url="/v1/tables/profiles/rows", params={"user_id": "u2"})
        assert (busy.status_code, busy.json()["code"]) == (503, ServerBusy.code)
        may_read.set()
        assert waiting.result(60).status_code == 200
    assert asked.ask(url="/v1/tables/profiles/rows", params={"user_id": "u2"}).status_code == 200


def test_a_record_that_loses_by_its_sequence_is_not_where_the_row_came_from(
    served: Callable[..., Any], client_of: Callable[..., Any]
) -> None:
    world, table = served(replace(ORDERED, partial_updates=False))
    key = {"app_id": 7, "user_id": "u1", "key": "k"}
    world.produce(key, {"op": "U", "value": "later", "updated_at": "2026-01-02T00:00:00Z"})
    world.commit()
    world.publish()
    world.produce(key, {"op": "U", "value": "earlier", "updated_at": "2026-01-01T00:00:00Z"})
    world.tail()
    table.refresh()
    app = create_app(Tables([table]), ServingSettings(state_dir=world.folder))
    with client_of(app) as client:
        (row,) = client.get(URL, params={"app_id": "7", "user_id": "u1"}).json()["rows"]
    assert (row["row"]["value"], row["hot"], row["replaced"]) == ("later", None, None)
    assert row["cold"]["record"]["offset"] == 0
