from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from thermocline.errors import InternalError, NotReady, TooManyRequests
from thermocline.serving.http.app import create_app
from thermocline.serving.http.problems import problem_response
from thermocline.serving.http.requests import BODY_BYTES_MAX
from thermocline.serving.read.tables import ServedTable, Tables
from thermocline.settings import ServingSettings

SHAPE = {"type", "title", "status", "detail", "instance", "code", "state", "next", "retryable"}


@pytest.fixture
def table(new_world: Callable[..., Any]) -> ServedTable:
    world = new_world()
    world.commit()
    world.publish()
    world.tail()
    (world.folder / "tailer.json").write_bytes(b'{"caught_up_to_start_ends": true}')
    return ServedTable(world.definition, world.folder, world.published, world.clock, 5.0)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "bad-request"),
        ("GET", "/v1/tables/nope/rows", 404, "unknown-table"),
        ("GET", "/v1/tables/profiles/rows", 422, "bad-parameter"),
        ("GET", "/v1/tables/profiles/rows?app_id=7&app_id=8&user_id=u", 422, "bad-parameter"),
        ("GET", "/v1/tables/profiles/rows?app_id=7&user_id=u&other=1", 422, "bad-parameter"),
        ("GET", "/v1/tables/profiles/rows?app_id=7&user_id=u&value=1", 422, "bad-parameter"),
        ("DELETE", "/v1/tables/profiles/rows", 405, "bad-request"),
        ("GET", "/v1/tables/profiles/extract", 405, "bad-request"),
        ("POST", "/livez", 405, "bad-request"),
    ],
)
def test_every_error_has_the_one_shape(
    table: ServedTable,
    client_of: Callable[..., Any],
    tmp_path: Any,
    method: str,
    path: str,
    status: int,
    code: str,
) -> None:
    table.refresh()
    with client_of(create_app(Tables([table]), ServingSettings(state_dir=tmp_path))) as client:
        answer = client.request(method, path)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert set(answer.json()) >= SHAPE
    assert answer.headers["X-Request-Id"]
    assert ("Allow" in answer.headers) == (status == 405)


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "code"),
    [
        ("rows:batch", b'{"entities": []}', {}, 415, "bad-request"),
        ("rows:batch", b'{"entities": []}', {"Content-Type": "text/plain"}, 415, "bad-request"),
        ("extract", b"{}", {}, 415, "bad-request"),
        ("extracts", b"{}", {"Content-Type": "text/plain"}, 415, "bad-request"),
        ("extract", b"", {"Accept": "application/xml"}, 406, "bad-request"),
        ("extract", b" " * (BODY_BYTES_MAX + 1), {}, 413, "bad-request"),
        ("rows:batch", b'{"entities": ', {"Content-Type": "application/json"}, 422, "bad-parameter"),
    ],
    ids=["no type", "text", "no type for an extract", "text for a job", "format", "too long", "no JSON"],
)
def test_a_body_that_the_server_cannot_take_gets_the_status_that_http_has_for_it(
    table: ServedTable,
    client_of: Callable[..., Any],
    tmp_path: Any,
    path: str,
    body: bytes,
    headers: dict[str, str],
    status: int,
    code: str,
) -> None:
    table.refresh()
    settings = ServingSettings(state_dir=tmp_path, extract_jobs_dir=tmp_path / "jobs")
    with client_of(create_app(Tables([table]), settings)) as client:
        answer = client.post(f"/v1/tables/profiles/{path}", content=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/tables/profiles/rows", "GET, HEAD"),
        ("/v1/tables/profiles/rows:batch", "POST"),
        ("/v1/tables/profiles/extracts", "GET, HEAD, POST"),
        ("/v1/tables/profiles/extracts/a", "DELETE, GET, HEAD"),
        ("/livez", "GET, HEAD"),
    ],
)
def test_a_method_that_a_path_lacks_is_answered_with_all_that_it_has(
    table: ServedTable, client_of: Callable[..., Any], tmp_path: Any, path: str, allowed: str
) -> None:
    with client_of(create_app(Tables([table]), ServingSettings(state_dir=tmp_path))) as client:
        answer = client.patch(path)
    assert (answer.status_code, answer.headers["Allow"]) == (405, allowed)


def test_what_nobody_foresaw_is_logged_and_shows_nothing_of_our_insides(
    table: ServedTable,
    client_of: Callable[..., Any],
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(table.reader, "check_ready", fail)
    app = create_app(Tables([table]), ServingSettings(state_dir=tmp_path))
    with client_of(app) as client, caplog.at_level(logging.ERROR):
        answer = client.get("/readyz", headers={"X-Request-Id": "mine-1"})
    assert (answer.status_code, answer.json()["code"]) == (500, InternalError.code)
    assert "secret" not in answer.text
    assert answer.headers["X-Request-Id"] == "mine-1"
    (record,) = [record for record in caplog.records if record.name == "thermocline.serving.http.problems"]
    assert record.exc_info is not None


def test_a_probe_by_head_is_answered_as_by_get(
    table: ServedTable, client_of: Callable[..., Any], tmp_path: Any
) -> None:
    table.refresh()
    with client_of(create_app(Tables([table]), ServingSettings(state_dir=tmp_path))) as client:
        for path in (
            "/livez",
            "/readyz",
            "/v1/tables/profiles",
            "/v1/tables/profiles/rows?app_id=7&user_id=u",
        ):
            assert client.head(path).status_code == 200
        assert client.head("/v1/tables/profiles/extract").status_code == 405


def test_requests_are_counted_by_route_whatever_paths_are_asked_for(
    table: ServedTable, client_of: Callable[..., Any], tmp_path: Any
) -> None:
    with client_of(create_app(Tables([table]), ServingSettings(state_dir=tmp_path))) as client:
        for path in ("/nowhere-1", "/v1/tables/nope-1", "/static-offline-docs/nope-1", "/openapi.json"):
            client.get(path)
        counted = client.get("/metrics").text
    assert "-1" not in re.sub(r"^#.*$|\S+$", "", counted, flags=re.MULTILINE)
    for route in ("/openapi.json", "/static-offline-docs", "/v1/tables/{table}", "unknown"):
        assert f'route="{route}"' in counted


def test_a_request_id_that_could_forge_a_log_line_is_replaced(
    table: ServedTable, client_of: Callable[..., Any], tmp_path: Any
) -> None:
    with client_of(create_app(Tables([table]), ServingSettings(state_dir=tmp_path))) as client:
        answer = client.get("/livez", headers={"X-Request-Id": "a b"})
    assert answer.headers["X-Request-Id"] != "a b"


def test_only_pages_of_the_origins_in_the_setting_may_read_answers_and_errors(
    table: ServedTable, client_of: Callable[..., Any], tmp_path: Any
) -> None:
    table.refresh()
    ours, others = {"Origin": "https://app.example.com"}, {"Origin": "https://example.org"}
    settings = ServingSettings(state_dir=tmp_path, cors_origins=("https://app.example.com",))
    with client_of(create_app(Tables([table]), settings)) as client:
        for path, status in (("/livez", 200), ("/nowhere", 404)):
            answer = client.get(path, headers=ours)
            assert (answer.status_code, answer.headers.get("Access-Control-Allow-Origin")) == (
                status,
                "https://app.example.com",
            )
            assert "Thermocline-Read-Point" in answer.headers["Access-Control-Expose-Headers"]
            assert "Access-Control-Allow-Origin" not in client.get(path, headers=others).headers
        asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
        allowed = client.options("/v1/tables/profiles/extract", headers=ours | asked)
        refused = client.options("/v1/tables/profiles/extract", headers=others | asked)
    assert (allowed.status_code, allowed.headers["Access-Control-Allow-Methods"]) == (
        200,
        "GET, HEAD, POST, DELETE",
    )
    assert refused.status_code == 400
    with client_of(create_app(Tables([table]), ServingSettings(state_dir=tmp_path))) as client:
        assert "Access-Control-Allow-Origin" not in client.get("/livez", headers=ours).headers
        assert client.options("/livez", headers=ours | asked).status_code == 405


@pytest.mark.parametrize("origin", ["app.example.com", "https://app.example.com/", "https://a b"])
def test_what_is_no_origin_is_refused_in_the_setting(origin: str) -> None:
    with pytest.raises(ValidationError):
        ServingSettings(cors_origins=(origin,))


@pytest.mark.parametrize(
    ("seconds", "header"), [(0.001, "1"), (1.0, "1"), (1.001, "2"), (29.2, "30"), (7_200.0, "7200")]
)
def test_a_limited_client_is_told_when_to_come_again_in_whole_seconds(seconds: float, header: str) -> None:
    error = TooManyRequests(client="billing", detail="1 extract at once", retry_after_seconds=seconds)
    answer = problem_response(error, "/v1/tables/profiles/rows")
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, header)
    problem = json.loads(bytes(answer.body))
    assert problem["facts"] == {
        "client": "billing",
        "detail": "1 extract at once",
        "retry_after_seconds": seconds,
    }
    assert problem_response(NotReady(table="profiles", detail="it begins"), "").headers["Retry-After"] == "1"
