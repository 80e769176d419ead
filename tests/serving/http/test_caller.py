"""Callers: whoever lacks a grant is refused on every route, and rows that a caller doesn't see stay out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tests.serving.wire import PLAIN, Connection, served_app
from thermocline.errors import NotPermitted
from thermocline.serving.http.app import create_app
from thermocline.serving.http.protocol import LookupProtocol
from thermocline.serving.jobs.job import JobRequest
from thermocline.serving.read.caller import EVERYONE, Action, Caller, Credentials
from thermocline.serving.read.tables import ServedTable, Tables
from thermocline.settings import ServingSettings

READER = Caller("reader", {"profiles": frozenset({Action.READ})})
SOME = Caller("some", {"profiles": frozenset({Action.READ})}, {"profiles": "user_id = 'u1'"})
OPERATOR = Caller("operator", {"profiles": frozenset({Action.OPERATE})})
STRANGER = Caller("stranger", {})
CALLERS = {one.name: one for one in (READER, SOME, OPERATOR, STRANGER, EVERYONE)}
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
        admit=admit,
    )
    table.refresh()
    with client_of(app) as client:

        def ask(caller: Caller, method: str, path: str, **body: Any) -> Any:
            headers = {
                "Authorization": f"Bearer {caller.name}",
                "Accept": "application/vnd.apache.arrow.stream",
            }
            return client.request(method, path, headers=headers, **body)

        yield SimpleNamespace(ask=ask, table=table)


OF_ROWS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("GET", ROWS, {}),
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
@pytest.mark.parametrize("caller", [STRANGER, OPERATOR], ids=lambda caller: caller.name)
def test_a_caller_without_a_grant_is_refused(
    served: SimpleNamespace, method: str, path: str, body: dict[str, Any], caller: Caller
) -> None:
    answer = served.ask(caller, method, path, **body)
    assert (answer.status_code, answer.json()["code"]) == (403, "not-permitted")
    assert answer.json()["detail"] == f"{caller.name} may not read it"


def test_a_caller_with_a_grant_reads_and_is_told_of_its_tables_alone(served: SimpleNamespace) -> None:
    assert served.ask(READER, "GET", ROWS).json()["rows"][0]["key"] == "a"
    assert served.ask(READER, "GET", "/v1/tables").json() == {"tables": ["profiles"]}
    assert served.ask(STRANGER, "GET", "/v1/tables").json() == {"tables": []}
    assert served.ask(STRANGER, "GET", "/livez").status_code == 200
    assert list(served.ask(OPERATOR, "GET", "/status").json()["tables"]) == ["profiles"]
    assert served.ask(READER, "GET", "/status").json()["tables"] == {}
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


@pytest.mark.parametrize(("method", "path", "body"), [OF_ROWS[0], OF_ROWS[1], OF_ROWS[3]])
def test_a_read_that_cannot_leave_rows_out_is_refused(
    served: SimpleNamespace, method: str, path: str, body: dict[str, Any]
) -> None:
    answer = served.ask(SOME, method, path, **body)
    assert (answer.status_code, answer.json()["code"]) == (403, "not-permitted")
    assert "only some of its rows" in answer.json()["detail"]


def test_changes_are_refused_to_who_sees_only_some_rows(served: SimpleNamespace) -> None:
    read_point = served.ask(READER, "GET", ROWS).json()["read_point"]
    answer = served.ask(SOME, "POST", "/v1/tables/profiles/extract", json={"since": read_point})
    assert answer.json()["code"] == "not-permitted"


def test_a_job_is_its_callers_and_reads_what_they_saw(served: SimpleNamespace) -> None:
    started = served.ask(SOME, "POST", JOBS, json={"id": "mine"})
    assert started.status_code == 202
    assert "caller" not in started.json()["request"]
    mine = f"{JOBS}/mine"
    for method, path in (("GET", mine), ("DELETE", mine), ("GET", f"{mine}/files/x")):
        assert served.ask(READER, method, path).json()["code"] == "not-found"
    assert served.ask(READER, "GET", JOBS).json() == {"extracts": []}
    assert served.ask(SOME, "GET", f"{JOBS}/mine").json()["state"] == "queued"
    assert [job["id"] for job in served.ask(EVERYONE, "GET", JOBS).json()["extracts"]] == ["mine"]
    same_id = served.ask(READER, "POST", JOBS, json={"id": "mine"})
    assert same_id.json()["code"] == "extract-job-unusable"


def test_the_request_of_a_job_is_for_the_rows_that_its_caller_saw(served: SimpleNamespace) -> None:
    wanted = JobRequest(caller="some", scope="user_id = 'u1'").wanted("profiles")
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
        for caller, status in ((READER, 200), (STRANGER, 403), (SOME, 403), (EVERYONE, 200)):
            connection = Connection(LookupProtocol, fast.app)
            said = f"\r\nAuthorization: Bearer {caller.name}\r\n\r\n"
            for _ in range(2):  # the second time, all that the answer takes is in memory
                answer = await connection.send(PLAIN.replace("\r\n\r\n", said).encode())
                assert answer.startswith(b"HTTP/1.1 %d " % status), caller
            connection.end()

    asyncio.run(drive())
    assert fast.direct[True] == 3, "all that are known, of the two who may"
