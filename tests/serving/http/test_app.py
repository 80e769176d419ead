from __future__ import annotations

import asyncio
import io
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice
from types import SimpleNamespace
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.failpoints.meanwhile import meanwhile
from tests.serving.wire import AppTransport
from thermocline.cli.server_answers import Client
from thermocline.errors import BadParameter, RowNotFound, ServerUnreachable
from thermocline.rules.keys import bucket_of
from thermocline.rules.read_point import ReadPoint
from thermocline.serving.http import worker
from thermocline.serving.http.app import create_app
from thermocline.serving.http.requests import BODY_BYTES_MAX
from thermocline.serving.read import answer as answer_module
from thermocline.serving.read.encode import FORMATS
from thermocline.serving.read.extract import Extract
from thermocline.serving.read.lookup import TableReader
from thermocline.serving.read.tables import ServedTable, Tables
from thermocline.serving.read.wanted import Wanted
from thermocline.serving.tail.feed import Abandoned
from thermocline.settings import ServingSettings

ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
NDJSON = "application/x-ndjson"
JSON_BODY = {"Content-Type": "application/json"}


def _profile(user: str, key: str) -> dict[str, Any]:
    return {"app_id": 7, "user_id": user, "key": key}


def _value(text: str) -> dict[str, Any]:
    return {"value": text, "updated_at": "2026-01-02T03:04:05Z"}


@pytest.fixture
def served(
    new_world: Callable[..., Any], client_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Iterator[SimpleNamespace]:
    """A server without processes: its world, and a client. Pins get their seal at once."""
    world = new_world()
    for key in ("a", "b", "c"):
        world.produce(_profile("u1", key), _value("cold"))
    world.commit()
    world.publish()
    world.produce(_profile("u1", "b"), None)
    world.produce(_profile("u1", "d"), _value("hot"), partition=1)
    world.tail()
    (world.folder / "tailer.json").write_bytes(
        b'{"caught_up_to_start_ends": true, "hot_records": 5, "bad": {"key": 2}}'
    )

    def seal(seconds: float) -> None:
        world.clock.advance(seconds + 1)
        world.tier.tend(None)

    monkeypatch.setattr(world.clock, "sleep", seal)
    table = ServedTable(world.definition, world.folder, world.published, world.clock, 5.0)
    settings = ServingSettings(state_dir=world.folder, read_after_seconds_max=0.2)
    app = create_app(Tables([table]), settings)
    table.refresh()
    with client_of(app) as client:
        yield SimpleNamespace(world=world, client=client, table=table, app=app)


def _keys(answer: Any) -> list[str]:
    return [row["key"] for row in answer.json()["rows"]]


def test_an_entity_is_answered_with_its_read_point(served: SimpleNamespace) -> None:
    answer = served.client.get("/v1/tables/profiles/rows", params={"app_id": 7, "user_id": "u1"})
    assert answer.status_code == 200
    body = answer.json()
    assert list(body) == ["table", "rows", "read_point", "age_seconds", "stale"]
    assert [row["key"] for row in body["rows"]] == ["a", "c", "d"]
    assert body["rows"][0] == {
        "app_id": 7, "user_id": "u1", "key": "a", "value": "cold", "updated_at": "2026-01-02T03:04:05Z",
    }  # fmt: skip
    assert body["read_point"] == {
        "snapshot_id": "1",
        "seam": {"profiles": {"0": 3, "1": 0, "2": 0}},
        "end": {"profiles": {"0": 4, "1": 1, "2": 0}},
    }
    assert (body["age_seconds"], body["stale"]) == (0.0, False)


def test_one_row_is_a_list_of_one_and_a_missing_one_is_404(served: SimpleNamespace) -> None:
    parameters = {"app_id": 7, "user_id": "u1", "key": "d"}
    assert _keys(served.client.get("/v1/tables/profiles/rows", params=parameters)) == ["d"]
    gone = served.client.get("/v1/tables/profiles/rows", params={**parameters, "key": "b"})
    assert (gone.status_code, gone.json()["code"]) == (404, "row-not-found")
    entity = served.client.get("/v1/tables/profiles/rows", params={"app_id": 7, "user_id": "u1"}).json()
    for member in ("read_point", "age_seconds", "stale"):
        assert gone.json()[member] == entity[member]
    nobody = served.client.get("/v1/tables/profiles/rows", params={"app_id": 7, "user_id": "nobody"})
    assert (nobody.status_code, nobody.json()["rows"]) == (200, [])


def test_a_batch_is_answered_in_order_from_one_view(served: SimpleNamespace) -> None:
    entities = [
        {"app_id": 7, "user_id": "nobody"},
        {"app_id": 7, "user_id": "u1"},
        {"app_id": 7, "user_id": "u1", "key": "a"},
    ]
    answer = served.client.post("/v1/tables/profiles/rows:batch", json={"entities": entities})
    assert answer.status_code == 200
    assert [[row["key"] for row in item["rows"]] for item in answer.json()["results"]] == [
        [],
        ["a", "c", "d"],
        ["a"],
    ]
    assert answer.json()["read_point"]["snapshot_id"] == "1"


def test_a_batch_whose_rows_are_too_many_for_one_answer_is_refused(
    served: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"entities": [{"app_id": 7, "user_id": "u1"}] * 3}
    (one, *_) = served.client.post("/v1/tables/profiles/rows:batch", json=body).json()["results"]
    monkeypatch.setattr(answer_module, "BATCH_BYTES_MAX", len(json.dumps(one["rows"])))
    answer = served.client.post("/v1/tables/profiles/rows:batch", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "bad-parameter")
    assert "ask for fewer" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("[]", "bad-parameter"),
        ("{", "bad-parameter"),
        ('{"entities": [], "more": 1}', "bad-parameter"),
        ('{"entities": [{"app_id": "7", "user_id": "u1"}]}', "bad-parameter"),
        ('{"entities": [{"app_id": true, "user_id": "u1"}]}', "bad-parameter"),
        ('{"entities": [{"app_id": 7, "user_id": 1}]}', "bad-parameter"),
        ('{"entities": [{"app_id": 7, "user_id": "\\ud800"}]}', "bad-parameter"),
        ('{"entities": [{"app_id": 7, "user_id": "u1", "\\ud800": "x"}]}', "bad-parameter"),
        ('{"entities": [{"app_id": NaN, "user_id": "u1"}]}', "bad-parameter"),
        ('{"entities": [{"app_id": 7}]}', "bad-parameter"),
        ('{"entities": [{"app_id": 7, "user_id": "u1", "x": 1}]}', "bad-parameter"),
        ('{"entities": [{"app_id": 7, "user_id": "u1", "value": 1}]}', "bad-parameter"),
        ('{"entities": [' + ",".join(['{"app_id": 7, "user_id": "u"}'] * 1001) + "]}", "bad-parameter"),
    ],
)
def test_a_wrong_batch_is_refused(served: SimpleNamespace, body: str, code: str) -> None:
    answer = served.client.post("/v1/tables/profiles/rows:batch", content=body, headers=JSON_BODY)
    assert (answer.status_code, answer.json()["code"]) == (422, code)


def test_a_request_waits_until_the_answer_includes_the_record_it_names(served: SimpleNamespace) -> None:
    parameters = {"app_id": 7, "user_id": "u1"}
    path = "/v1/tables/profiles/rows"
    seen = served.client.get(path, params=parameters, headers={"Thermocline-Read-After": "profiles/1@0"})
    assert seen.status_code == 200
    late = served.client.get(path, params=parameters, headers={"Thermocline-Read-After": "profiles/1@1"})
    assert (late.status_code, late.json()["code"], late.json()["retryable"]) == (
        503,
        "read-after-timeout",
        True,
    )
    assert late.headers["Retry-After"]
    for token, why in (("others/1@1", "not fed from topic others"), ("profiles/3@0", "no partition 3")):
        wrong = served.client.get(path, params=parameters, headers={"Thermocline-Read-After": token})
        assert (wrong.status_code, wrong.json()["code"]) == (422, "bad-parameter")
        assert why in wrong.json()["detail"]


def test_a_token_beyond_the_logs_end_names_the_end_once_the_log_was_read_to_it(
    served: SimpleNamespace,
) -> None:
    parameters, token = {"app_id": 7, "user_id": "u1"}, {"Thermocline-Read-After": "profiles/1@9"}
    for lag_seconds, is_named in ((0.0, True), (60.0, False)):
        served.world.clock.advance(lag_seconds)
        late = served.client.get("/v1/tables/profiles/rows", params=parameters, headers=token)
        assert late.status_code == 503
        assert ("profiles/1@1" in late.json()["detail"]) == is_named


def test_what_the_table_cannot_take_is_told_to_whoever_wrote_it(served: SimpleNamespace) -> None:
    """Goal: an acknowledged record that gives no row is never silent.

    Method: a bad record between good ones. Whoever waits for it hears of it, whatever rows there are; so does
    who finds nothing. Who waits for an earlier one does not.
    """
    world, client = served.world, served.client
    world.produce(_profile("u1", "bad"), {"value": 5}, partition=1)
    world.produce(_profile("u1", "e"), _value("good"), partition=1)
    world.tail()
    path, entity = "/v1/tables/profiles/rows", {"app_id": 7, "user_id": "u1"}

    def ask(token: str = "", **more: str) -> Any:
        headers = {"Thermocline-Read-After": token} if token else {}
        return client.get(path, params=entity | more, headers=headers).json()

    assert "refused" not in ask()
    assert "refused" not in ask("profiles/1@0")
    (refused,) = ask("profiles/1@1")["refused"]
    assert {name: refused[name] for name in ("topic", "partition", "offset", "stage")} == {
        "topic": "profiles", "partition": 1, "offset": 1, "stage": "contract",
    }  # fmt: skip
    assert "value" in refused["reason"]
    assert ask("profiles/1@2")["refused"] == ask(key="bad")["refused"] == [refused]
    assert refused["key"] == {"app_id": 7, "user_id": "u1", "key": "bad"}
    listed = client.get("/v1/tables/profiles/refused", params={"limit": 5}).json()
    assert listed["refused"] == [refused]
    assert {"table", "read_point", "age_seconds", "stale"} <= set(listed)
    body, headers = {"entities": [entity]}, {"Thermocline-Read-After": "profiles/1@2"}
    batch = client.post("/v1/tables/profiles/rows:batch", json=body, headers=headers)
    assert batch.json()["refused"] == [refused]
    extract = client.post("/v1/tables/profiles/extract", headers=headers)
    assert extract.headers["Thermocline-Refused"] == "profiles/1@1"
    assert "Thermocline-Refused" not in client.post("/v1/tables/profiles/extract").headers


@pytest.mark.parametrize(
    ("content", "media_type", "error", "why"),
    [
        (b" " * (BODY_BYTES_MAX + 1), "application/json", (413, "bad-request"), "longer than 4,194,304"),
        (b'{"columns": ["\\ud800"]}', "application/json", (422, "bad-parameter"), "truncated"),
        (b"{}", "text/x", (415, "bad-request"), 'doesn\'t read bodies of type "text/x"'),
        # As a page of another site may send it:
        (b"{}", "", (415, "bad-request"), "the body has no Content-Type"),
    ],
)
def test_a_body_that_can_not_be_read_is_refused_with_its_reason(
    served: SimpleNamespace, content: bytes, media_type: str, error: tuple[int, str], why: str
) -> None:
    headers = {"Content-Type": media_type} if media_type else {}
    answer = served.client.post("/v1/tables/profiles/extract", content=content, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == error
    assert why in answer.json()["detail"]


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "offset=1"])
def test_a_limit_that_is_none_is_refused(served: SimpleNamespace, query: str) -> None:
    answer = served.client.get(f"/v1/tables/profiles/refused?{query}")
    assert (answer.status_code, answer.json()["code"]) == (422, "bad-parameter")


@pytest.mark.parametrize("text", ["%ff", "%ed%a0%80", "%c3", "%80a"])
def test_a_key_that_is_no_utf_8_is_refused_and_not_replaced(served: SimpleNamespace, text: str) -> None:
    """U+FFFD is a key like any other: its rows must not be the answer."""
    served.world.produce(_profile("\ufffd", "k"), _value("somebody's"))
    served.world.tail()
    found = served.client.get("/v1/tables/profiles/rows?app_id=7&user_id=%ef%bf%bd").json()
    assert [row["value"] for row in found["rows"]] == ["somebody's"]
    answer = served.client.get(f"/v1/tables/profiles/rows?app_id=7&user_id={text}")
    assert (answer.status_code, answer.json()["code"]) == (422, "bad-parameter")
    assert served.client.get(f"/v1/tables/{text}/rows?app_id=7&user_id=u1").status_code == 404
    body = '{"entities": [{"app_id": 7, "user_id": "\udcff"}]}'.encode("utf-8", "surrogateescape")
    answer = served.client.post("/v1/tables/profiles/rows:batch", content=body, headers=JSON_BODY)
    assert answer.status_code == 422


@pytest.mark.parametrize(
    ("accept", "is_arrow"), [(None, True), (ARROW, True), ("text/html, */*;q=0.1", True), (PARQUET, False)]
)
def test_an_extract_streams_in_the_format_asked_for(
    served: SimpleNamespace, accept: str | None, is_arrow: bool
) -> None:
    headers = {} if accept is None else {"Accept": accept}
    answer = served.client.post(
        "/v1/tables/profiles/extract", json={"columns": ["key", "value"]}, headers=headers
    )
    assert answer.status_code == 200
    if is_arrow:
        table = pa.ipc.open_stream(answer.content).read_all()
    else:
        table = pq.read_table(io.BytesIO(answer.content))
    assert sorted(table.to_pydict()["key"]) == ["a", "c", "d"]
    assert table.column_names == ["key", "value"]
    assert ReadPoint.parse(answer.headers["Thermocline-Read-Point"]).end == served.world.end
    assert answer.headers["Thermocline-Stale"] == "false"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"columns": ["nope"]}, 422, "bad-parameter"),
        ({"columns": []}, 422, "bad-parameter"),
        ({"where": "app_id ="}, 422, "bad-parameter"),
        ({"where": "app_id = 'x'"}, 422, "bad-parameter"),
        ({"where": 7}, 422, "bad-parameter"),
        ({"limit": -1}, 422, "bad-parameter"),
        ({"offset": 1}, 422, "bad-parameter"),
    ],
)
def test_a_wrong_extract_is_refused(
    served: SimpleNamespace, body: dict[str, Any], status: int, code: str
) -> None:
    answer = served.client.post("/v1/tables/profiles/extract", json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


@pytest.mark.parametrize(
    ("accept", "encodings", "coding"),
    [
        ("text/csv", "gzip, deflate", "gzip"),
        ("text/*", "gzip;q=0.5, zstd", "zstd"),
        ("text/csv", "identity, gzip;q=0.5", None),
        ("text/csv", "br, *", None),
        (NDJSON, "zstd", "zstd"),
        (ARROW, "gzip, zstd", None),
        (PARQUET, "gzip, zstd", None),
    ],
)
def test_text_is_compressed_as_the_caller_asks_and_nothing_else_is(
    served: SimpleNamespace, accept: str, encodings: str, coding: str | None
) -> None:
    headers = {"Accept": accept, "Accept-Encoding": encodings}
    body = {"columns": ["key"], "where": "value = 'hot'"}
    answer = served.client.post("/v1/tables/profiles/extract", json=body, headers=headers)
    assert answer.headers.get("Content-Encoding") == coding
    assert answer.headers["Content-Type"].startswith(accept.removesuffix("*"))
    if accept.startswith("text"):
        assert answer.content == b'"key"\r\n"d"\r\n'
    if accept == NDJSON:
        assert answer.content == b'{"key":"d"}\n'


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_stream_that_breaks_off_is_not_taken_for_a_whole_one(format_name: str) -> None:
    """Method: the answer has a part, and then the connection ends without the last one."""
    read_point = b'{"snapshot_id": "1", "seam": {}, "end": {}}'
    head = (
        b"HTTP/1.1 200 OK\r\nThermocline-Read-Point: "
        + read_point
        + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
    )

    def answer(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(head + b"3\r\na\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=answer, args=(listening,))
        thread.start()
        port = listening.getsockname()[1]
        with Client(f"http://127.0.0.1:{port}") as client, pytest.raises(ServerUnreachable):
            client.extract("profiles", None, format_name, io.BytesIO(), lambda _: None)
        thread.join()


def test_a_limit_may_be_larger_than_any_table(served: SimpleNamespace) -> None:
    whole, limited = (
        served.client.post("/v1/tables/profiles/extract", json=body) for body in ({}, {"limit": 2**70})
    )
    assert (limited.status_code, len(limited.content)) == (200, len(whole.content))


def test_a_format_that_is_not_offered_is_406(served: SimpleNamespace) -> None:
    answer = served.client.post("/v1/tables/profiles/extract", headers={"Accept": "text/html"})
    assert (answer.status_code, answer.json()["code"]) == (406, "bad-request")
    assert ARROW in answer.json()["detail"] + answer.json()["next"]


def test_an_extract_lets_go_of_its_pin_when_it_ends(served: SimpleNamespace) -> None:
    before = set((served.world.hot_folder / "leases").iterdir())
    assert served.client.post("/v1/tables/profiles/extract").status_code == 200
    assert set((served.world.hot_folder / "leases").iterdir()) == before


def test_a_new_snapshot_is_taken_up_without_being_asked(served: SimpleNamespace) -> None:
    served.world.commit()
    served.world.publish()
    served.table.refresh()
    answer = served.client.get("/v1/tables/profiles/rows", params={"app_id": 7, "user_id": "u1"})
    assert answer.json()["read_point"]["snapshot_id"] == "2"
    assert _keys(answer) == ["a", "c", "d"]


def test_operators_see_what_is_so(served: SimpleNamespace) -> None:
    assert served.client.get("/livez").status_code == 200
    assert served.client.get("/readyz").status_code == 200
    assert served.client.get("/v1/tables").json() == {"tables": ["profiles"]}
    assert served.client.get("/v1/tables/profiles").json()["definition"]["entity"] == ["app_id", "user_id"]
    assert "version" in served.client.get("/version").json()
    status = served.client.get("/status").json()["tables"]["profiles"]
    assert (status["ready"], status["snapshot"]["rows"], status["tailer"]["hot_records"]) == (True, 3, 5)


def test_metrics_show_offsets_ages_and_requests(served: SimpleNamespace) -> None:
    served.client.get("/v1/tables/profiles/rows", params={"app_id": 7, "user_id": "u1"})
    served.client.get("/nowhere")
    text = served.client.get("/metrics").text
    assert 'thermocline_end_offset{partition="0",table="profiles",topic="profiles"} 4.0' in text
    assert 'thermocline_age_seconds{table="profiles"} 0.0' in text
    assert 'thermocline_bad_records{stage="key",table="profiles"} 2.0' in text
    assert (
        'thermocline_requests_total{method="GET",route="/v1/tables/{table}/rows",status="200",table="profiles"}'
        in text
    )
    assert 'thermocline_requests_total{method="GET",route="unknown",status="404",table=""}' in text
    served.client.get("/v1/tables/nobody")
    assert 'table="nobody"' not in served.client.get("/metrics").text


def test_a_server_without_an_index_is_alive_and_not_ready(
    new_world: Callable[..., Any], client_of: Callable[..., Any]
) -> None:
    world = new_world()
    table = ServedTable(world.definition, world.folder, world.published, world.clock, 5.0)
    with client_of(create_app(Tables([table]), ServingSettings(state_dir=world.folder))) as client:
        assert client.get("/livez").status_code == 200
        for path in ("/readyz", "/v1/tables/profiles/rows?app_id=7&user_id=u1"):
            answer = client.get(path)
            assert (answer.status_code, answer.json()["code"]) == (503, "not-ready")
        assert client.get("/status").json()["tables"]["profiles"]["ready"] is False


def test_the_openapi_document_has_each_table_with_its_types(served: SimpleNamespace) -> None:
    document = served.client.get("/openapi.json").json()
    rows = document["paths"]["/v1/tables/profiles/rows"]["get"]
    found = {item["name"]: (item["required"], item["schema"].get("type")) for item in rows["parameters"]}
    assert found["app_id"] == (True, "integer")
    assert found["key"] == (False, "string")
    assert {"200", "404", "422", "503", "500"} <= set(rows["responses"])
    of_one, of_all = (document["paths"][path]["get"] for path in ("/v1/tables/profiles", "/v1/tables"))
    assert of_one["responses"]["404"]["description"] == "unknown-table"
    assert "404" not in of_all["responses"]


def test_the_docs_need_nothing_from_elsewhere(served: SimpleNamespace) -> None:
    page = served.client.get("/docs").text
    assert "://" not in page
    parts = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(parts) > 2
    assert all(served.client.get(part).status_code == 200 for part in parts)
    assert served.client.get("/redoc").status_code == 404


def test_the_client_reads_what_the_server_says(served: SimpleNamespace) -> None:
    """The client's own transport, over the same app."""
    client = Client("http://server", transport=AppTransport(served.client))
    found = client.lookup("profiles", {"app_id": "7", "user_id": "u1"}, read_after="profiles/0@3")
    rows: Any = found["rows"]
    assert [row["key"] for row in rows] == ["a", "c", "d"]
    sink = io.BytesIO()
    told: list[int] = []
    read_point = client.extract("profiles", Wanted(["key"]), "parquet", sink, told.append)
    assert read_point.end == served.world.end
    assert told[-1] == len(sink.getvalue())
    with pytest.raises(RowNotFound, match='has no row app_id=7, user_id="u1", key="zz"') as missing:
        client.lookup("profiles", {"app_id": "7", "user_id": "u1", "key": "zz"})
    assert missing.value.read_point == found["read_point"]
    assert client.refused("profiles", 10)["refused"] == []
    with pytest.raises(BadParameter, match="not a key column; the key is app_id, user_id, key"):
        client.lookup("profiles", {"app_id": "7", "user_id": "u1", "value": "x"})
    with pytest.raises(BadParameter, match=r"no such column.*updated_at"):
        client.extract("profiles", Wanted(["nope"]), "arrow", sink, told.append)


def test_the_client_takes_no_page_of_another_server_for_an_answer() -> None:
    page = httpx.MockTransport(lambda _: httpx.Response(200, html="<html>log in</html>"))
    sink = io.BytesIO()
    with Client("http://proxy", page) as client:
        for ask in (
            lambda: client.lookup("profiles", {}),
            lambda: client.extract("profiles", None, "csv", sink, lambda _: None),
        ):
            with pytest.raises(ServerUnreachable) as refused:
                ask()
            assert "is it a Thermocline server" in refused.value.detail
    assert sink.getvalue() == b""


def test_the_client_says_that_nobody_answers() -> None:
    with Client("http://127.0.0.1:9") as client, pytest.raises(ServerUnreachable):
        client.lookup("profiles", {})


def _streamed(served: SimpleNamespace, receive: Any, send: Any) -> None:
    """An extract as a server would run it, whose caller takes it as ``send`` does."""
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/tables/profiles/extract",
        "query_string": b"",
        "headers": [],
    }

    async def request() -> None:
        await asyncio.wait_for(served.app(scope, receive, send), 30)

    served.client.portal.call(request)


def _leases(served: SimpleNamespace) -> set[Any]:
    return set((served.world.hot_folder / "leases").iterdir())


def test_a_caller_that_goes_away_leaves_no_lease_and_no_slot_taken(served: SimpleNamespace) -> None:
    """More callers than there are slots go away after the first part; the next extract is whole."""
    before = _leases(served)
    for _ in range(ServingSettings().extracts_max + 1):
        messages = [{"type": "http.request", "body": b"", "more_body": False}]
        sent: list[Any] = []
        left = asyncio.Event()

        async def receive(messages: list[Any] = messages, left: asyncio.Event = left) -> Any:
            if messages:
                return messages.pop()
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any, sent: list[Any] = sent, left: asyncio.Event = left) -> None:
            sent.append(message)
            if message["type"] == "http.response.body":
                left.set()
                raise OSError("the caller is gone")

        with pytest.raises(OSError, match="gone"):
            _streamed(served, receive, send)
        assert sent[0]["status"] == 200
        assert _leases(served) == before
    assert served.client.post("/v1/tables/profiles/extract").status_code == 200


def test_an_extract_ends_when_its_caller_leaves_before_any_row_is_found(
    served: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[object] = []
    begun = threading.Event()

    left = threading.Event()
    abandon = Extract.abandon

    def noted(extract: Extract) -> None:
        abandon(extract)
        left.set()

    def read_slowly() -> None:
        read.append(None)
        begun.set()
        left.wait(30)

    monkeypatch.setattr(Extract, "abandon", noted)
    messages = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Any:
        if messages:
            return messages.pop()
        await asyncio.to_thread(begun.wait, 30)
        return {"type": "http.disconnect"}

    async def send(_: Any) -> None:
        pass

    before = _leases(served)
    with meanwhile("extract.bucket", read_slowly):
        _streamed(served, receive, send)
    assert served.world.definition.buckets > len(read) == 1
    assert _leases(served) == before


def test_an_extract_ends_when_its_caller_leaves_while_the_log_is_read(
    served: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What changed since a read point is read from the log, which takes as long as it likes."""
    reading, ended = threading.Event(), threading.Event()

    def read_the_log(_: Any, wanted: Any, floor: Any, is_abandoned: Callable[[], bool]) -> Extract:
        reading.set()
        deadline = time.monotonic() + 30
        while not is_abandoned() and time.monotonic() < deadline:
            time.sleep(0.01)
        ended.set()
        raise Abandoned

    messages: list[dict[str, Any]] = []

    async def receive() -> Any:
        if messages:
            return messages.pop()
        await asyncio.to_thread(reading.wait, 30)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        raise AssertionError(message)

    with monkeypatch.context() as patched:
        patched.setattr(ServedTable, "extract", read_the_log)
        for _ in range(ServingSettings().extracts_max + 1):
            messages.append({"type": "http.request", "body": b"", "more_body": False})
            reading.clear()
            ended.clear()
            _streamed(served, receive, send)
            assert ended.is_set()
    assert served.client.post("/v1/tables/profiles/extract").status_code == 200


def test_lookups_beyond_the_bound_are_refused_while_others_wait(
    served: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two wait for files that take long, which is all that may wait; then these can be read."""
    monkeypatch.setattr(worker, "COLD_WAITING_MAX", 2)
    may_read, are_waiting = threading.Event(), threading.Semaphore(0)
    read = TableReader.cold_rows

    def slowly(*arguments: Any) -> Any:
        are_waiting.release()
        assert may_read.wait(60)
        return read(*arguments)

    def ask(user: str) -> Any:
        return served.client.get(f"/v1/tables/profiles/rows?app_id=7&user_id={user}")

    # All in the bucket that has files.
    definition = served.world.definition
    place = bucket_of(definition, "u1")
    cached, other, late = islice((f"n{n}" for n in count() if bucket_of(definition, f"n{n}") == place), 3)
    assert ask(cached).json()["rows"] == []
    monkeypatch.setattr(TableReader, "cold_rows", slowly)
    with ThreadPoolExecutor(2) as callers:
        waiting = [callers.submit(ask, user) for user in ("u1", other)]
        assert all(are_waiting.acquire(timeout=60) for _ in waiting)
        refused = ask(late)
        assert (refused.status_code, refused.json()["code"]) == (503, "server-busy")
        assert refused.headers["Retry-After"]
        assert ask(cached).status_code == 200
        may_read.set()
        answers = [one.result(60) for one in waiting]
    assert [len(answer.json()["rows"]) for answer in answers] == [3, 0]
    assert ask(late).status_code == 200


def test_a_caller_that_stops_reading_is_broken_off(
    served: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thermocline.serving.http.extract_response.SEND_SECONDS_MAX", 0.05)
    before = _leases(served)
    messages = [{"type": "http.request", "body": b"", "more_body": False}]
    sent: list[Any] = []

    async def receive() -> Any:
        if messages:
            return messages.pop()
        return await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    _streamed(served, receive, send)
    assert [message.get("more_body") for message in sent] == [None, True]
    assert _leases(served) == before
    assert served.client.post("/v1/tables/profiles/extract").status_code == 200
