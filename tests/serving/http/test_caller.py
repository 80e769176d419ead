"""Callers: whoever lacks a grant is refused on every route, and rows that a caller doesn't see stay out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tests.serving.wire import PLAIN, Connection, served_app
from thermocline.errors import NotPermitted
from thermocline.serving.http.app import create_app
from thermocline.serving.http.guard import Guard
from thermocline.serving.http.protocol import LookupProtocol
from thermocline.serving.jobs.job import JobRequest
from thermocline.serving.read.caller import EVERYONE, Action, Caller, Credentials, Grant, Part
from thermocline.serving.read.selection import Selection
from thermocline.serving.read.tables import ServedTable, Tables
from thermocline.serving.read.wanted import Wanted
from thermocline.settings import ServingSettings

READING = frozenset({Action.LOOKUP, Action.EXTRACT, Action.CHANGES, Action.JOBS, Action.CATALOG})
READER = Caller("reader", {"profiles": Grant(READING)})
SOME = Caller("some", {"profiles": Grant(READING, Part(scope=(("user_id", "u1"),)))})
BLIND = Caller("blind", {"profiles": Grant(READING, Part(columns=("updated_at",)))})
OPERATOR = Caller("operator", {"*": Grant(frozenset({Action.ADMIN}))})
STRANGER = Caller("stranger", {})
MISFIT = Caller("misfit", {"profiles": Grant(READING, Part(scope=(("nothing", "1"),)))})
EXTRACTOR = Caller("extractor", {"profiles": Grant(frozenset({Action.EXTRACT}))})
FOLLOWER = Caller("follower", {"profiles": Grant(frozenset({Action.CHANGES}))})
CALLERS = {
    one.name: one for one in (READER, SOME, BLIND, OPERATOR, STRANGER, MISFIT, EXTRACTOR, FOLLOWER, EVERYONE)
}
ROWS = "/v1/tables/profiles/rows?app_id=7&user_id=u1"
ARROW = "application/vnd.apache.arrow.stream"
JOBS = "/v1/tables/profiles/extracts"


def admit(credentials: Credentials) -> Caller:
    """By the name in the Authorization header."""
    return CALLERS[(credentials.authorization or "").removeprefix("Bearer ")]


@pytest.fixture
def served(
    new_world: Callable[..., Any], client_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Iterator[SimpleNamespace]:
    """A server of two users' rows, to which callers say who they are."""
    world = new_world()
    for user in ("u1", "u2"):
        value = {"value": "cold", "updated_at": "2026-01-02T03:04:05Z"}
        world.produce({"app_id": 7, "user_id": user, "key": "a"}, value)
    world.commit()
    world.publish()
    world.tail()
    (world.folder / "tailer.json").write_bytes(b'{"caught_up_to_start_ends": true}')

    def seal(seconds: float) -> None:
        world.clock.advance(seconds + 1)
        world.tier.tend(None)

    monkeypatch.setattr(world.clock, "sleep", seal)
    table = ServedTable(world.definition, world.folder, world.published, world.clock, 5.0)
    app = create_app(
        Tables([table]),
        ServingSettings(state_dir=world.folder, extract_jobs_dir=world.folder / "jobs"),
        guard=Guard(admit),
    )
    table.refresh()
    with client_of(app) as client:

        def ask(caller: Caller, method: str, path: str, **body: Any) -> Any:
            headers = {
                "Authorization": f"Bearer {caller.name}",
                "Accept": "application/vnd.apache.arrow.stream",
            }
            return client.request(method, path, headers=headers, **body)

        yield SimpleNamespace(ask=ask, table=table, world=world)


OF_ROWS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("GET", ROWS, {}),
    ("GET", ROWS.replace("rows", "rows/explained"), {}),
    ("POST", "/v1/tables/profiles/rows:batch", {"json": {"entities": [{"app_id": 7, "user_id": "u1"}]}}),
    ("POST", "/v1/tables/profiles/extract", {"json": {}}),
    ("GET", "/v1/tables/profiles/refused", {}),
    ("GET", "/v1/tables/profiles", {}),
    ("POST", JOBS, {"json": {"id": "one"}}),
    ("GET", JOBS, {}),
    ("GET", f"{JOBS}/one", {}),
    ("DELETE", f"{JOBS}/one", {}),
    ("GET", f"{JOBS}/one/files/manifest.json", {}),
)


@pytest.mark.parametrize(("method", "path", "body"), OF_ROWS)
def test_a_caller_without_a_grant_is_refused(
    served: SimpleNamespace, method: str, path: str, body: dict[str, Any]
) -> None:
    answer = served.ask(OPERATOR, method, path, **body)
    if path in {"/v1/tables/profiles", "/v1/tables/profiles/refused"}:
        assert answer.status_code == 200
        answer = served.ask(READER, "GET", "/v1/tables/profiles/refused")
    assert (answer.status_code, answer.json()["code"]) == (403, "not-permitted")
    assert " may not " in answer.json()["detail"]


@pytest.mark.parametrize(("method", "path", "body"), OF_ROWS)
def test_a_table_is_to_who_has_no_grant_on_it_as_if_it_did_not_exist(
    served: SimpleNamespace, method: str, path: str, body: dict[str, Any]
) -> None:
    answers = [served.ask(STRANGER, method, one, **body) for one in (path, path.replace("profiles", "other"))]
    said = [answer.json() | {"instance": ""} for answer in answers]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert str(said[0]).replace("profiles", "other") == str(said[1])
    assert "configured: none" in str(said[0]) or said[0]["facts"]["known"] == []


def test_a_caller_with_a_grant_reads_and_is_told_of_its_tables_alone(served: SimpleNamespace) -> None:
    assert served.ask(READER, "GET", ROWS).json()["rows"][0]["key"] == "a"
    assert served.ask(READER, "GET", "/v1/tables").json() == {"tables": ["profiles"]}
    assert served.ask(STRANGER, "GET", "/v1/tables").json() == {"tables": []}
    assert served.ask(STRANGER, "GET", "/livez").status_code == 200
    assert list(served.ask(OPERATOR, "GET", "/status").json()["tables"]) == ["profiles"]
    told = served.ask(READER, "GET", "/status").json()
    assert (told["tables"], told["disk"], told["problems"]) == ({}, {}, [])
    assert served.ask(READER, "GET", "/metrics").json()["code"] == "not-permitted"
    assert served.ask(OPERATOR, "GET", "/metrics").status_code == 200


def test_an_extract_leaves_out_rows_that_the_caller_does_not_see(served: SimpleNamespace) -> None:
    def users(caller: Caller, **body: Any) -> list[str]:
        answer = served.ask(caller, "POST", "/v1/tables/profiles/extract", json=body)
        found: list[str] = pa.ipc.open_stream(answer.content).read_all().column("user_id").to_pylist()
        return sorted(found)

    assert users(READER) == ["u1", "u2"]
    assert users(SOME) == ["u1"]
    assert users(SOME, columns=["user_id"], where="app_id = 7") == ["u1"]
    assert users(SOME, where="user_id = 'u2'") == []
    assert users(SOME, where="user_id = 'u2' OR app_id = 7") == ["u1"]


def test_an_entity_outside_the_scope_is_answered_as_one_that_does_not_exist(served: SimpleNamespace) -> None:
    def rows(user: str, *, key: str = "") -> Any:
        answer = served.ask(SOME, "GET", f"/v1/tables/profiles/rows?app_id=7&user_id={user}{key}")
        said = str(answer.json()).replace(user, "?")
        return answer.status_code, said

    assert served.ask(SOME, "GET", ROWS).json()["rows"][0]["key"] == "a"
    for _ in range(2):  # also where the caches know it from others
        assert rows("u2") == rows("u9")
        assert rows("u2")[1].startswith("{'table': 'profiles', 'rows': []")
        assert rows("u2", key="&key=a") == rows("u9", key="&key=a")
        assert rows("u2", key="&key=a")[0] == 404
        other = served.ask(READER, "GET", "/v1/tables/profiles/rows?app_id=7&user_id=u2")
        assert [row["key"] for row in other.json()["rows"]] == ["a"]


def test_nothing_outside_the_scope_is_looked_at(
    served: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    reader = served.table.reader
    look = reader.look

    def noting(entities: Any) -> Any:
        looked.extend(entity.values[1] for entity in entities)
        return look(entities)

    monkeypatch.setattr(reader, "look", noting)
    entities = [{"app_id": 7, "user_id": user} for user in ("u2", "u1", "u9")]
    answer = served.ask(SOME, "POST", "/v1/tables/profiles/rows:batch", json={"entities": entities})
    assert [len(one["rows"]) for one in answer.json()["results"]] == [0, 1, 0]
    assert looked == ["u1"]


def test_who_sees_a_part_is_told_of_no_refused_record(served: SimpleNamespace) -> None:
    served.world.produce({"app_id": 7, "user_id": "u1", "key": "z"}, {"value": 5})
    served.world.tail()
    row = f"{ROWS}&key=z"
    told = served.ask(READER, "GET", row).json()
    assert [one["offset"] for one in told["refused"]] == [2]
    for caller in (SOME, BLIND):
        answer = served.ask(caller, "GET", row).json()
        assert (answer["code"], answer["refused"]) == ("row-not-found", [])


def test_columns_that_are_not_granted_do_not_exist(served: SimpleNamespace) -> None:
    def refused(body: dict[str, Any]) -> Any:
        return served.ask(BLIND, "POST", "/v1/tables/profiles/extract", json=body).json()

    (row,) = served.ask(BLIND, "GET", ROWS).json()["rows"]
    assert row == {"app_id": 7, "user_id": "u1", "key": "a", "updated_at": "2026-01-02T03:04:05Z"}
    extract = served.ask(BLIND, "POST", "/v1/tables/profiles/extract", json={})
    names = pa.ipc.open_stream(extract.content).schema.names
    assert names == ["app_id", "user_id", "key", "updated_at"]
    for hidden, unknown in (
        ({"columns": ["value"]}, {"columns": ["valve"]}),
        ({"where": "value = 'cold'"}, {"where": "valve = 'cold'"}),
    ):
        said = [refused(body) for body in (hidden, unknown)]
        assert str(said[0]).replace("value", "valve") == str(said[1])
        assert said[0]["code"] == "bad-parameter"
    described = served.ask(BLIND, "GET", "/v1/tables/profiles").json()["definition"]
    assert [column["name"] for column in described["columns"]] == ["app_id", "user_id", "key", "updated_at"]
    assert sorted(described) == ["columns", "entity", "key"]
    document = served.ask(BLIND, "GET", "/openapi.json").text
    assert "updated_at" in document
    assert '"value"' not in document


def test_what_is_described_to_callers_is_theirs_alone(served: SimpleNamespace) -> None:
    def paths(caller: Caller) -> list[str]:
        found = served.ask(caller, "GET", "/openapi.json").json()["paths"]
        return sorted(path for path in found if "profiles" in path)

    assert paths(STRANGER) == []
    assert paths(MISFIT) == []
    assert paths(OPERATOR) == ["/v1/tables/profiles", "/v1/tables/profiles/refused"]
    assert "/v1/tables/profiles/rows" in paths(READER)
    assert "/v1/tables/profiles/refused" not in paths(READER)
    assert "profiles" not in served.ask(STRANGER, "GET", "/openapi.json").text


def test_who_asks_for_an_unknown_table_is_told_what_they_can_do(served: SimpleNamespace) -> None:
    def told(caller: Caller, path: str = "/v1/tables/none/rows?app_id=7") -> tuple[str, str]:
        said = served.ask(caller, "GET", path).json()
        assert said["code"] == "unknown-table"
        return said["detail"], said["next"]

    to_client = "GET /v1/tables lists those that you may ask for; for others, ask whoever runs the server"
    assert told(READER) == ('no table "none" is one that you may ask for.', to_client)
    assert told(READER, "/status?table=none")[1] == to_client
    config = "thermocline config show      (or add a section [tables.none])"
    for caller in (OPERATOR, EVERYONE):
        assert told(caller) == ('no table "none" is configured.', config)
        assert told(caller, "/status?table=none")[1] == config


LISTED_AS = {
    f"{JOBS}/one": f"{JOBS}/{{id}}",
    f"{JOBS}/one/files/manifest.json": f"{JOBS}/{{id}}/files/{{name}}",
}
OF_SERVER: tuple[tuple[str, str, dict[str, Any]], ...] = tuple(
    ("GET", path, {}) for path in ("/v1/tables", "/livez", "/readyz", "/version", "/status", "/metrics")
)


ASKED = (*OF_ROWS, *OF_SERVER)


@pytest.mark.parametrize("name", sorted({*CALLERS} - {MISFIT.name}))
def test_what_is_listed_to_a_caller_is_what_they_may_ask_for(served: SimpleNamespace, name: str) -> None:
    caller = CALLERS[name]

    def is_answered(method: str, path: str, body: dict[str, Any]) -> bool:
        if caller is FOLLOWER and path.endswith("/extract"):
            body = {"json": {"since": served.ask(EVERYONE, "GET", ROWS).json()["read_point"]}}
        answer = served.ask(caller, method, path, **body)
        if path == "/status":
            return bool(answer.json()["tables"])
        codes = ("not-permitted", "unknown-table")
        return answer.status_code not in (403, 404) or answer.json()["code"] not in codes

    def listed(by: Caller) -> set[tuple[str, str]]:
        paths = served.ask(by, "GET", "/openapi.json").json()["paths"]
        return {(method.upper(), path) for path, methods in paths.items() for method in methods}

    asked = {
        (method, LISTED_AS.get(path, path.partition("?")[0])): (method, path, body)
        for method, path, body in ASKED
    }
    assert listed(EVERYONE) == set(asked)
    assert {key for key, one in asked.items() if is_answered(*one)} == listed(caller)


def test_the_body_of_an_extract_is_what_its_caller_may_read(served: SimpleNamespace) -> None:
    def body(caller: Caller) -> tuple[Any, Any]:
        document = served.ask(caller, "GET", "/openapi.json").json()
        return (
            document["components"]["schemas"]["profiles_ExtractBody"],
            document["paths"]["/v1/tables/profiles/extract"]["post"]["requestBody"],
        )

    schema, asked = body(EXTRACTOR)
    assert ("since" in schema["properties"], asked.get("required", False)) == (False, False)
    schema, asked = body(FOLLOWER)
    assert schema["required"] == ["since"]
    assert schema["properties"]["since"]["$ref"] == "#/components/schemas/ReadPointBody"
    ref = {"$ref": "#/components/schemas/profiles_ExtractBody"}
    assert (asked["required"], asked["content"]["application/json"]["schema"]) == (True, ref)
    schema, asked = body(READER)
    assert ("since" in schema["properties"], "required" in schema) == (True, False)


def test_metrics_and_readiness_name_no_table_that_is_not_the_callers(served: SimpleNamespace) -> None:
    status = served.world.folder / "tailer.json"
    status.write_bytes(b'{"catalog_problem": {"code": "table-restricted", "what": "hidden"}}')
    served.table.refresh()
    for caller in (STRANGER, READER):
        ready = served.ask(caller, "GET", "/readyz")
        assert (ready.status_code, "profiles" in ready.text) == (503, False)
    assert "profiles" in served.ask(OPERATOR, "GET", "/readyz").text
    assert "profiles" not in served.ask(STRANGER, "GET", "/metrics").text


def test_the_numbers_of_fields_tell_of_no_hidden_column(served: SimpleNamespace) -> None:
    described = served.ask(BLIND, "GET", "/v1/tables/profiles").json()["definition"]
    assert described["columns"][-1] == {"name": "updated_at", "type": "timestamptz"}


def test_a_grant_that_does_not_fit_the_table_gives_nothing(served: SimpleNamespace) -> None:
    for method, path, body in OF_ROWS[:3]:
        answer = served.ask(MISFIT, method, path, **body)
        assert answer.json()["code"] == "not-permitted"
        assert "nothing" not in answer.text


def test_changes_are_those_of_rows_that_the_caller_sees(served: SimpleNamespace) -> None:
    caller = replace(SOME, grants={"profiles": Grant(READING, Part(scope=(("value", "cold"),)))})
    wanted = Wanted(since=served.table.reader.look(()).read_point, caller=caller)
    with pytest.raises(NotPermitted, match="does not follow from the key"):
        Selection.of(served.table.definition, wanted)
    selection = Selection.of(served.table.definition, replace(wanted, caller=SOME))
    assert selection.scope == selection.predicate
    assert str(selection.scope).count("Comparison") == 1


def test_a_job_is_its_callers_and_reads_what_they_saw(served: SimpleNamespace) -> None:
    started = served.ask(SOME, "POST", JOBS, json={"id": "mine"})
    assert started.status_code == 202
    assert "caller" not in started.json()["request"]
    mine = f"{JOBS}/mine"
    for method, path in (("GET", mine), ("DELETE", mine), ("GET", f"{mine}/files/x")):
        assert served.ask(READER, method, path).json()["code"] == "not-found"
    assert served.ask(READER, "GET", JOBS).json() == {"extracts": []}
    assert served.ask(SOME, "GET", f"{JOBS}/mine").json()["state"] == "queued"
    (stored,) = [job["id"] for job in served.ask(EVERYONE, "GET", JOBS).json()["extracts"]]
    assert stored.endswith("-mine")
    assert served.ask(EVERYONE, "GET", f"{JOBS}/{stored}").json()["state"] == "queued"
    assert served.ask(READER, "GET", f"{JOBS}/{stored}").json()["code"] == "not-found"
    narrower = replace(SOME, grants={"profiles": Grant(READING, Part(("value",), (("user_id", "u1"),)))})
    CALLERS["some"] = narrower  # what the file of the job has is more than they see by now
    assert served.ask(SOME, "GET", mine).json()["code"] == "not-found"
    CALLERS["some"] = SOME
    same_id = served.ask(READER, "POST", JOBS, json={"id": "mine"})
    assert (same_id.status_code, same_id.json()["id"]) == (202, "mine")
    assert served.ask(READER, "GET", mine).json()["created_ms"] == same_id.json()["created_ms"]
    assert served.ask(SOME, "POST", JOBS, json={"id": "mine"}).status_code == 202
    changed = served.ask(SOME, "POST", JOBS, json={"id": "mine", "columns": ["key"]}).json()
    assert (changed["code"], changed["facts"]["job"]) == ("extract-job-unusable", "mine")
    for wrong in ("", "-x", "a" * 101):
        assert served.ask(SOME, "POST", JOBS, json={"id": wrong}).json()["code"] == "bad-parameter"
    unnamed = served.ask(SOME, "POST", JOBS).json()["id"]
    assert served.ask(SOME, "GET", f"{JOBS}/{unnamed}").status_code == 200
    assert served.ask(READER, "GET", f"{JOBS}/{unnamed}").status_code == 404


def test_the_request_of_a_job_is_for_the_rows_that_its_caller_saw(served: SimpleNamespace) -> None:
    wanted = JobRequest(caller="some", part=Part(scope=(("user_id", "u1"),))).wanted("profiles")
    with pytest.raises(NotPermitted):
        wanted.caller.check_sees_all("profiles", "look up")
    extract = served.table.extract(wanted, served.table.reader.end())
    users = [user for batch in extract.batches() for user in batch.column("user_id").to_pylist()]
    extract.close()
    assert users == ["u1"]


@pytest.fixture
def fast(new_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """An app over a table, without a server."""
    yield from served_app(new_world(), monkeypatch, admit)


def test_the_short_way_answers_whom_the_ordinary_one_would(fast: SimpleNamespace) -> None:
    async def drive() -> None:
        for caller, status in ((READER, 200), (STRANGER, 404), (SOME, 200), (OPERATOR, 403), (EVERYONE, 200)):
            connection = Connection(LookupProtocol, fast.app)
            said = f"\r\nAuthorization: Bearer {caller.name}\r\n\r\n"
            for _ in range(2):  # the second time, all that the answer takes is in memory
                answer = await connection.send(PLAIN.replace("\r\n\r\n", said).encode())
                assert answer.startswith(b"HTTP/1.1 %d " % status), caller
            connection.end()

    asyncio.run(drive())
    assert fast.direct[True] == 5, "all that are known, of the three who may"
