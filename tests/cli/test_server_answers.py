"""What commands make of a server's answers: its JSON as it is, and its errors as theirs."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from thermocline.cli.server_answers import Client
from thermocline.client import Retries
from thermocline.errors import BadParameter, NotReady, ServerUnreachable
from thermocline.rules.read_point import ReadPoint
from thermocline.serving.read.wanted import Wanted

POINT = {"snapshot_id": "7", "seam": {"profiles": {"0": 3}}, "end": {"profiles": {"0": 5}}}
# A member that this release's client doesn't know, and numbers that its values don't have.
ANSWER = {"table": "profiles", "of a later server": [1, {"a": 2**70}], "rows": [{"value": 0.1}]}
QUICK = Retries(attempts_max=3, wait_seconds_first=0.001)


def client_of(answer: Callable[[httpx.Request], httpx.Response]) -> tuple[Client, list[httpx.Request]]:
    requests: list[httpx.Request] = []

    def keep(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return answer(request)

    return Client("http://server/", httpx.MockTransport(keep), QUICK), requests


def not_ready() -> httpx.Response:
    problem: dict[str, Any] = {"code": "not-ready", "retryable": True}
    problem["facts"] = {"table": "profiles", "detail": "it is catching up"}
    headers = {"Content-Type": "application/problem+json"}
    return httpx.Response(503, headers=headers, content=json.dumps(problem))


def test_answers_are_the_servers_json_as_it_is() -> None:
    client, requests = client_of(lambda _: httpx.Response(200, json=ANSWER))
    with client:
        assert client.lookup("pro files", {"id": "7"}, "profiles/0@4, profiles/0@2") == ANSWER
        assert client.batch("profiles", [{"id": 7}, {"id": 8}]) == ANSWER
        assert client.refused("profiles", 10) == ANSWER
        assert client.explained("profiles", {"id": "7"}) == ANSWER
    assert [f"{request.method} {request.url.raw_path.decode()}" for request in requests] == [
        "GET /v1/tables/pro%20files/rows?id=7",
        "POST /v1/tables/profiles/rows:batch",
        "GET /v1/tables/profiles/refused?limit=10",
        "GET /v1/tables/profiles/rows/explained?id=7",
    ]
    assert requests[0].headers["Thermocline-Read-After"] == "profiles/0@4"
    assert json.loads(requests[1].content) == {"entities": [{"id": 7}, {"id": 8}]}


def test_a_server_that_is_not_ready_is_asked_again_within_bounds() -> None:
    answers = [not_ready(), not_ready(), httpx.Response(200, json=ANSWER)]
    client, requests = client_of(lambda _: answers.pop(0))
    assert client.lookup("profiles", {"id": "7"}) == ANSWER
    assert len(requests) == 3
    client, requests = client_of(lambda _: not_ready())
    with pytest.raises(NotReady, match="profiles") as refused:
        client.refused("profiles", 10)
    assert (refused.value.detail, len(requests)) == ("it is catching up", 3)


@pytest.mark.parametrize("text", ["profiles", "profiles/0@x", "pro files/0@1"])
def test_records_that_cannot_be_are_refused_before_the_server_is_asked(text: str) -> None:
    client, requests = client_of(lambda _: httpx.Response(200, json=ANSWER))
    with pytest.raises(BadParameter, match="Thermocline-Read-After"):
        client.lookup("profiles", {"id": "7"}, text)
    assert requests == []


def test_an_extract_asks_for_what_is_wanted_and_tells_its_read_point() -> None:
    headers = {
        "Thermocline-Read-Point": json.dumps(POINT),
        "Thermocline-Age-Seconds": "0.040",
        "Thermocline-Stale": "false",
    }
    client, requests = client_of(
        lambda _: httpx.Response(200, headers=headers, stream=httpx.ByteStream(b"PAR1...PAR1"))
    )
    since, sink, told = ReadPoint.parse(json.dumps(POINT)), io.BytesIO(), list[int]()
    found = client.extract("profiles", Wanted(["id"], "id > 7", 3, since), "parquet", sink, told.append)
    assert (found, sink.getvalue(), told) == (since, b"PAR1...PAR1", [11])
    assert json.loads(requests[0].content) == {
        "columns": ["id"],
        "where": "id > 7",
        "limit": 3,
        "since": POINT,
    }
    cut, _ = client_of(lambda _: httpx.Response(200, headers=headers, stream=httpx.ByteStream(b"PAR1...")))
    with pytest.raises(ServerUnreachable) as broken:
        cut.extract("profiles", None, "parquet", io.BytesIO(), told.append)
    assert broken.value.detail == "the extract broke off after 7 bytes: it has no end mark"
