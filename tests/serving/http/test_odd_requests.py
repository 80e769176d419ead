"""Bytes that are hardly HTTP, or none: what is known is answered as what is not, to the byte."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, Final

import pytest

from tests.serving.wire import PLAIN, Connection, served_app
from thermocline.serving.http.problems import Requests
from thermocline.serving.http.protocol import HEAD_BYTES_MAX, LONGEST_HEAD_BYTES, LookupProtocol

SEQUENCES: Final = 500


@pytest.fixture
def served(new_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """An app over a table."""
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it warns of what is wrong on purpose
    yield from served_app(new_world(), monkeypatch)


def test_odd_bytes_get_the_same_answers_whether_or_not_the_rows_are_known(
    served: SimpleNamespace, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: which way a request goes depends on what is in memory, and the answers to a connection don't.

    Method: sequences of plain and odd requests, in one piece or one by one, over two connections. On the
    second one, nothing is known without reading.
    """
    chance, known = random.Random(seed), Requests.known

    async def drive() -> None:
        await _sent(served.app, [PLAIN.encode()])  # known from now on
        for _ in range(SEQUENCES):
            requests = [
                chance.choice([_odd(chance), PLAIN.encode()]) for _ in range(chance.choice([1, 2, 2, 3]))
            ]
            parts = chance.choice([requests, [b"".join(requests)]])
            monkeypatch.setattr(Requests, "known", known)
            short = await _sent(served.app, parts)
            monkeypatch.setattr(Requests, "known", lambda *_: None)
            assert short == await _sent(served.app, parts), parts

    asyncio.run(drive())
    assert served.direct[True] > SEQUENCES / 10, "the short way was tried"


async def _sent(app: Requests, parts: Sequence[bytes]) -> tuple[bytes, bool, int]:
    connection = Connection(LookupProtocol, app)
    answers = [await connection.send(part) for part in parts]
    connection.end()
    return b"".join(answers), connection.wire.is_closed, connection.state.total_requests


BROKEN: Final = b"GET /livez HTTP/9\r\n\r\n"
LIVEZ: Final = b"GET /livez HTTP/1.1\r\n\r\n"
CHUNKED: Final = b"POST /v1/tables/profiles/rows:batch HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize(
    ("parts", "statuses"),
    [
        ([BROKEN], [400]),
        ([PLAIN.encode() + BROKEN], [200, 400]),
        ([PLAIN.encode() + LIVEZ + PLAIN.encode() + BROKEN + LIVEZ], [200, 200, 200, 400]),
        ([LIVEZ + PLAIN.encode() + b"no request\r\n\r\n"], [200, 200, 400]),
        ([PLAIN.replace("app_id=7", "app_id=\uff17").encode()], [400]),
        ([PLAIN.replace("app_id=7", "app_id=%EF%BC%97").encode()], [422]),
        ([PLAIN.replace("GET", "Get").encode()], [400]),
        ([PLAIN.replace("GET", "PATCH").encode() + PLAIN.encode()], [405, 200]),
        ([PLAIN.encode() + CHUNKED + b"no length\r\n"], [200, 400]),
        ([CHUNKED + b"no length\r\n"], [400]),
        ([LIVEZ + CHUNKED + b"no length\r\n"], [200, 400]),
        ([PLAIN.encode() + b"GET / HTTP/1.1\r\nx: ", b"x" * (LONGEST_HEAD_BYTES + 1)], [200, 431]),
        ([PLAIN.replace("Host: x", "Connection: close").encode() + LIVEZ], [200]),
    ],
    ids=lambda given: "" if isinstance(given, list) and isinstance(given[0], bytes) else str(given),
)
def test_bytes_that_are_no_request_get_their_error_after_the_answers_to_those_before(
    served: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    is_known: bool,
    parts: list[bytes],
    statuses: list[int],
) -> None:
    async def drive() -> tuple[bytes, bool]:
        await _sent(served.app, [PLAIN.encode()])
        if not is_known:
            monkeypatch.setattr(Requests, "known", lambda *_: None)
        answers, is_closed, _ = await _sent(served.app, parts)
        return answers, is_closed

    answers, is_closed = asyncio.run(drive())
    heads = [part.partition(b"\r\n") for part in answers.split(b"HTTP/1.1 ")[1:]]
    assert [int(status[:3]) for status, _, _ in heads] == statuses
    assert is_closed == (statuses[-1] in {400, 431} or b"Connection: close" in parts[0])
    if statuses[-1] in {400, 431}:
        lines, _, body = heads[-1][2].partition(b"\r\n\r\n")
        assert b"content-type: application/problem+json\r\nconnection: close\r\n" in lines
        assert json.loads(body)["status"] == statuses[-1]


def _odd(chance: random.Random) -> bytes:
    """A request of which any part may be unusual or wrong."""
    odd = chance.random
    method = chance.choice(METHODS) if odd() < 0.3 else "GET"
    path = chance.choice(PATHS) if odd() < 0.3 else "/v1/tables/profiles/rows"
    query = chance.choice(QUERIES) if odd() < 0.5 else "?app_id=7&user_id=u1"
    version = chance.choice(VERSIONS) if odd() < 0.2 else " HTTP/1.1"
    headers = chance.sample(HEADERS, chance.choice([0, 1, 1, 2, 3]))
    line_end = chance.choice(["\r\n"] * 12 + ["\n", "\r"])
    text = line_end.join([f"{method} {path}{query}{version}", *headers, "", ""])
    return text.encode("latin-1" if odd() < 0.3 else "utf-8", "replace")


METHODS: Final = (
    *("HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "QUERY", "PURGE", "M-SEARCH"),
    *("get", "Get", "GETX", "PRI", "SOURCE", "", " GET", "GET ", "\nGET", "\r\nGET", "\r\n\r\nGET"),
)
PATHS: Final = (
    *("http://x/v1/tables/profiles/rows", "//v1/tables/profiles/rows", "/v1/tables/profiles/rows/", "*"),
    *("/v1/tables/prof%69les/rows", "/v1/tables/profiles/rows%3F", "x:1", "v1/tables/profiles/rows"),
    *("/v1/tables/\uff50rofiles/rows", "/./v1/tables/profiles/rows", "/v1/tables/profiles/rows;a"),
)
QUERIES: Final = (
    *("?app_id=%37&user_id=u1", "?app_id=\uff17&user_id=u1", "?app_id=%EF%BC%97&user_id=u1", "", "?"),
    *("?app_id=07&user_id=u1", "?app_id=+7&user_id=u1", "?app_id=%207&user_id=u1", "?app_id=7_0&user_id=u1"),
    *("?app_id=-7&user_id=u1", "?app_id==7&user_id=u1", "?app_id=7;user_id=u1", "?app%5Fid=7&user_id=u1"),
    *("?app_id=7&user_id=u1&", "?&app_id=7&user_id=u1", "?app_id=7&user_id=u1&x", "?app_id=7&user_id=u1#f"),
    *("?app_id=7&user_id=u1&key=%zz", "?app_id=7&user_id=%00", "?app_id=7&user_id=", "?app_id=7&user_id=u1?"),
    *(
        "?app_id=7&user_id=u%C3%A9",
        "?app_id=7&user_id=u\u00e9",
        "?app_id=7&user_id=u|1",
        '?app_id=7&user_id="',
    ),
    *("?app_id=7&user_id=u1%", "?app_id=7&user_id=u1 ", f"?app_id=7&user_id={'u' * HEAD_BYTES_MAX}"),
)
VERSIONS: Final = (
    *(" HTTP/1.0", " HTTP/1.2", " HTTP/2.0", " HTTP/11.1", " http/1.1", "", "  HTTP/1.1", " HTTP/1.1 "),
    *("\tHTTP/1.1", " HTTP/\uff11.1", " HTTP/0.9", " RTSP/1.0", " ICE/1.0"),
)
HEADERS: Final = (
    *("Host: x", "host:x", "Host:  x", "Host : x", " Host: x", "X", "X:", "X-\u00e9: a", ": a", "A!#$: 1"),
    *("X-Request-Id: a", "X-Request-Id: \uff11", f"X-Request-Id: {'a' * 200}", "X-Request-Id:"),
    *("x-request-id: a b", "Connection: keep-alive", "Connection: Keep-Alive", "connection: keep-alive "),
    *("Connection: KEEP-ALIVE, close", "Connection: keep-alive\r\nConnection: close", "Keep-Alive: 5"),
    *("Content-Length: 0", "Content-Length: +0", "Content-Length: \uff10", "Transfer-Encoding: identity"),
    *("TE: trailers", "Trailer: x", "Upgrade: h2c", "Upgrade-Insecure-Requests: 1", "Expect: x"),
    *("Thermocline-Read-After: profiles/0@0", "Thermocline-Read-After: profiles/\uff10@0"),
    *("Thermocline-read-after:profiles/0@0", "Thermocline_Read_After: x", "Expect: 100-continue"),
    *("X: a\r\n b", "X: a\nY: b", "X: a\x00b", "Origin: http://a", f"X: {'y' * HEAD_BYTES_MAX}"),
)
