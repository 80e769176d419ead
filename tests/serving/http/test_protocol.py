from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
import random
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, Final

import pytest
import uvicorn
from prometheus_client import Counter as PrometheusCounter
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tests.serving.wire import PLAIN, USERS, Connection, key_of, served_app, value_of
from thermocline.bounded import Bounded
from thermocline.errors import BadRequest
from thermocline.process.metrics import REQUEST_SECONDS, REQUESTS, BatchedHistogram
from thermocline.serving.http import protocol
from thermocline.serving.http.protocol import HEAD_BYTES_MAX, LookupProtocol
from thermocline.serving.read.caller import EVERYONE, Caller, Credentials
from thermocline.serving.read.lookup import ENTITY_CACHE_BYTES_MAX, LAID_ROWS_BYTES_MAX
from thermocline.serving.store.measures import Tally

# The sha256 of uvicorn's `httptools_impl` that `LookupProtocol` was written for.
INSIDES: Final = "1d4e1c579df4168433a61a01f10c628b31c1790e72dd9769d2b8633b22214033"


def test_uvicorns_protocol_is_the_one_that_the_short_way_was_written_for() -> None:
    digest = hashlib.sha256(inspect.getsource(httptools_impl).encode()).hexdigest()
    assert digest == INSIDES, (
        f"uvicorn {uvicorn.__version__} has another httptools_impl. Compare it with what "
        f"serving/http/protocol.py takes from it (on_message_begin, "
        f"on_message_complete, on_response_complete, cycle, flow, send), "
        f"then put {digest} here and fix the version in pyproject.toml."
    )


@pytest.fixture
def served(new_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """An app over a table."""
    yield from served_app(new_world(), monkeypatch)


@pytest.mark.parametrize("connections", [40, pytest.param(400, marks=pytest.mark.full)])
def test_whatever_is_sent_both_ways_answer_the_same_bytes_and_count_the_same(
    served: SimpleNamespace, seed: int, connections: int
) -> None:
    """Goal: nobody can tell which way a request went.

    Method: random requests, plain and not, alone, pipelined and in pieces, over connections of each kind,
    while records arrive, snapshots are switched and rows are forgotten. Answers, metrics and counts are
    compared.
    """
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it warns of what is wrong on purpose
    chance = random.Random(seed)

    async def drive() -> None:
        for _ in range(connections):
            ordinary, short = (
                Connection(HttpToolsProtocol, served.app),
                Connection(LookupProtocol, served.app),
            )
            while not ordinary.wire.is_closed and chance.random() < 0.95:
                _move_on(served, chance)
                content = _pipelined(chance)
                answers, counts = [], []
                for connection in (ordinary, short):
                    _forget(served, chance)
                    before = _counted(served)
                    answers.append(
                        b"".join(
                            [await connection.send(part) for part in _parts(content, chance, connection)]
                        )
                    )
                    counts.append(_counted(served) - before)
                assert answers[0] == answers[1], content
                assert counts[0] == counts[1], content
                assert ordinary.wire.is_closed == short.wire.is_closed, content
                assert ordinary.state.total_requests == short.state.total_requests, content
                assert (ordinary.protocol.timeout_keep_alive_task is None) == (
                    short.protocol.timeout_keep_alive_task is None
                )
            ordinary.end()
            short.end()

    asyncio.run(drive())
    assert min(served.direct[True], served.direct[False]) > connections // 5, "both ways were tried"


def _move_on(served: SimpleNamespace, chance: random.Random) -> None:
    """Something may happen to the table."""
    world = served.world
    if chance.random() < 0.3:
        value = None if chance.random() < 0.4 else value_of(f"{chance.random()}")
        world.produce(key_of(f"u{chance.randrange(USERS)}", chance.choice("abcdef")), value)
        world.tail()
    if chance.random() < 0.05:
        world.tier.seal()
    if chance.random() < 0.1:
        world.commit()
        world.publish()
        served.table.refresh()
    world.clock.advance(chance.choice([0, 0, 4.0, 7.0]))


def _forget(served: SimpleNamespace, chance: random.Random) -> None:
    if chance.random() < 0.1:
        served.table.reader._entities = Bounded(ENTITY_CACHE_BYTES_MAX)
        served.table.reader._laid = Bounded(LAID_ROWS_BYTES_MAX)


def _counted(served: SimpleNamespace) -> Counter[Any]:
    served.app.count_known()
    samples = [
        sample for one in (REQUESTS, REQUEST_SECONDS) for metric in one.collect() for sample in metric.samples
    ]
    counted = {
        (sample.name, *sample.labels.values()): int(sample.value)
        for sample in samples
        if sample.name.endswith(("_total", "_count"))
    }
    lookups: Counter[Any] = served.table.reader.counts.lookups
    return Counter(counted) + lookups


def _pipelined(chance: random.Random) -> list[bytes]:
    """One request or a few."""
    return [_request(chance) for _ in range(chance.choice([1, 1, 1, 1, 2, 3]))]


def _request(chance: random.Random) -> bytes:
    method = chance.choice(["GET"] * 12 + ["HEAD", "POST", "PUT"])
    version = chance.choice(["1.1"] * 15 + ["1.0"])
    table = chance.choice(["profiles"] * 15 + ["nobody", "pro%66iles", "profiles/x"])
    user = chance.randrange(USERS + 1)
    usual = [f"app_id=7&user_id=u{user}", f"user_id=u{user}&key={chance.choice('abcdef')}&app_id=7"]
    query = chance.choice([*usual * 6, *QUERIES])
    headers = chance.sample([*HEADERS[:PLAIN_HEADERS] * 6, *HEADERS], chance.choice([0, 1, 2, 3]))
    lengths = [one for one in headers if one.startswith("Content-Length")]
    for one in lengths[0 if CHUNKED in headers else 1 :]:  # no parser takes two lengths
        headers.remove(one)
    if {"Connection: Upgrade", "Upgrade: websocket"} <= set(headers):  # what follows would be no request
        headers.remove("Upgrade: websocket")
    lines = [f"{method} /v1/tables/{table}/rows?{query} HTTP/{version}", "Host: x", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + _body(headers)


def _body(headers: Sequence[str]) -> bytes:
    if CHUNKED in headers:
        return b"2\r\nab\r\n0\r\n\r\n"
    return b"x" * 5 if "Content-Length: 5" in headers else b""


QUERIES: Final = (
    "app_id=7",
    "app_id=7&user_id=u1&value=x",
    "app_id=x&user_id=u1",
    "app_id=7&user_id=u1&user_id=u2",
    "",
    "&&",
    "app_id=%37&user_id=%75%31",
    "app_id=+7&user_id=u1",
    "app_id=7&user_id=%FF",
    "app_id=7&user_id=u1&",
    "app_id=7&user_id=u1#end",
    "app_id=7;user_id=u1",
    "app_id&user_id=u1",
    "app_id=7&user_id=u%zz",
    "user_id=u1?&app_id=7",
)

CHUNKED: Final = "Transfer-Encoding: chunked"
PLAIN_HEADERS: Final = 7
HEADERS: Final = (
    "Accept: */*",
    "User-Agent: a b  c",
    "accept-encoding: gzip, br",
    "Connection: keep-alive",
    "Authorization: Bearer abc",
    "X-Request-Id: one",
    "x-request-id: two",
    "Cookie: é",
    "X-REQUEST-ID:three",
    "X-Request-Id:  four ",
    "X-Request-Id: not a name",
    "Empty:",
    "With-Tab: a\tb",
    "under_score: x",
    "Connection: close",
    "connection: Keep-Alive, x",
    "Proxy-Connection: close",
    "Content-Length: 5",
    "Content-Length: 0",
    CHUNKED,
    "Thermocline-Read-After: profiles/0@0",
    "thermocline-read-after: profiles/0@99999",
    "Thermocline-Read-After: nonsense",
    "Expect: 100-continue",
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Origin: https://app.example.com",
    f"Long: {'x' * HEAD_BYTES_MAX}",
)


def _parts(content: Sequence[bytes], chance: random.Random, connection: Connection) -> list[bytes]:
    """All at once, or in pieces: the same for both, since the kind is not asked for."""
    whole = b"".join(content)
    cuts = random.Random(len(whole) * 7 + connection.state.total_requests)
    if cuts.random() < 0.7:
        return [whole]
    place = cuts.randrange(len(whole))
    return [part for part in (whole[:place], whole[place:]) if part]


def test_what_a_header_asks_for_is_done_also_where_the_rows_are_known(served: SimpleNamespace) -> None:
    async def drive() -> None:
        for header in HEADERS:
            answers = []
            for kind in (HttpToolsProtocol, LookupProtocol):
                connection = Connection(kind, served.app)
                await connection.send(PLAIN.encode())
                request = PLAIN.replace("Host: x", f"Host: x\r\n{header}").encode() + _body([header])
                answers.append((await connection.send(request), connection.wire.is_closed))
                connection.end()
            assert answers[0] == answers[1], header

    asyncio.run(drive())
    assert served.direct[True] > PLAIN_HEADERS


def test_a_plain_request_is_answered_as_its_bytes_arrive_also_after_one_that_was_not(
    served: SimpleNamespace,
) -> None:
    async def drive() -> None:
        connection = Connection(LookupProtocol, served.app)
        first = await connection.send(PLAIN.encode())  # from a file, so by the endpoint
        assert served.direct == {False: 1}
        connection.protocol.data_received(PLAIN.encode() * 2)
        assert connection.wire.sent == first * 3
        assert not connection.state.tasks
        await connection.send(b"GET /livez HTTP/1.1\r\n\r\n")
        connection.protocol.data_received(PLAIN.encode())
        assert connection.wire.sent.endswith(first)
        assert served.direct == {False: 1, True: 3}
        connection.end()

    asyncio.run(drive())


def test_a_connection_that_asked_for_another_protocol_goes_on_as_it_would(
    served: SimpleNamespace,
) -> None:
    upgrade = PLAIN.replace("Host: x", "Connection: Upgrade\r\nUpgrade: websocket").encode()

    async def drive() -> list[list[bytes]]:
        answers = []
        for kind in (HttpToolsProtocol, LookupProtocol):
            connection = Connection(kind, served.app)
            answers.append([await connection.send(one) for one in (PLAIN.encode(), upgrade, PLAIN.encode())])
            connection.end()
        return answers

    ordinary, short = asyncio.run(drive())
    assert ordinary == short


def test_a_request_that_comes_before_the_last_one_is_answered_waits_for_its_turn(
    served: SimpleNamespace,
) -> None:
    async def drive() -> None:
        connection = Connection(LookupProtocol, served.app)
        await connection.send(PLAIN.encode())
        one, length = connection.wire.sent, len(connection.wire.sent)
        connection.protocol.data_received(b"GET /livez HTTP/1.1\r\n\r\n")  # pending
        assert await connection.send(PLAIN.encode()) != b""
        assert connection.wire.sent[length:].endswith(one)
        connection.protocol.data_received(b"GET /livez HTTP/1.1\r\nX: ")  # begun
        answer = await connection.send(PLAIN.encode())  # so this is the header's value, and more headers
        assert b'{"status":"ok"' in answer
        connection.end()

    asyncio.run(drive())


def test_nothing_is_written_to_a_client_that_does_not_read(served: SimpleNamespace) -> None:
    async def drive() -> None:
        connection = Connection(LookupProtocol, served.app)
        one = await connection.send(PLAIN.encode())
        connection.protocol.pause_writing()
        connection.protocol.data_received(PLAIN.encode())
        for _ in range(10):
            await asyncio.sleep(0)
        assert connection.wire.sent == one
        connection.protocol.resume_writing()
        assert await connection.send(PLAIN.encode()) == one + one
        connection.end()

    asyncio.run(drive())


def test_a_limit_of_connections_refuses_plain_requests_too(served: SimpleNamespace) -> None:
    async def drive() -> None:
        free = Connection(LookupProtocol, served.app)
        await free.send(PLAIN.encode())  # known from now on
        free.end()
        connection = Connection(LookupProtocol, served.app, limit_concurrency=1)
        assert (await connection.send(PLAIN.encode())).startswith(b"HTTP/1.1 503 ")
        connection.end()

    asyncio.run(drive())


def test_who_is_not_admitted_gets_no_plain_answer_either(
    new_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    admitted = [EVERYONE]  # the first time alone

    def admit(credentials: Credentials) -> Caller:
        if not admitted:
            raise BadRequest.no_route("nowhere")
        return admitted[0]

    async def drive(served: SimpleNamespace) -> None:
        connection = Connection(LookupProtocol, served.app)
        await connection.send(PLAIN.encode())
        admitted.clear()
        assert (await connection.send(PLAIN.encode())).startswith(b"HTTP/1.1 404 ")
        connection.end()

    for served in served_app(new_world(), monkeypatch, admit):
        asyncio.run(drive(served))


def test_a_server_ends_idle_connections_that_were_answered_the_short_way(served: SimpleNamespace) -> None:
    """On real sockets: one falls idle, another one is open when the server is told to stop."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        served.app, http=LookupProtocol, ws="none", lifespan="off", log_config=None, access_log=False,
        timeout_keep_alive=1,
    )  # fmt: skip
    server = uvicorn.Server(config)
    running = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    running.start()
    try:
        idle = _asked(listening.getsockname())
        assert idle.recv(1) == b"", "it was closed"
        open_ = _asked(listening.getsockname())
    finally:
        server.should_exit = True
        running.join()
    assert open_.recv(1) == b""
    assert served.direct[True] >= 2
    idle.close()
    open_.close()


def test_of_thousands_of_requests_at_once_few_are_parsed_before_others_are_answered(
    served: SimpleNamespace,
) -> None:
    one = b"GET /version HTTP/1.1\r\nhost: h\r\n\r\n"

    async def drive() -> None:
        connection = Connection(LookupProtocol, served.app)
        connection.protocol.data_received(one * 2_000)
        connection.protocol.data_received(one[:9])
        assert len(connection.protocol.pipeline) <= protocol.FED_BYTES_MAX / len(one)
        answers = await connection.send(one[9:])
        while answers.count(b"HTTP/1.1 200 OK") < 2_001:
            await asyncio.sleep(0)
            answers = connection.wire.sent
        assert answers.count(b"HTTP/1.1 200 OK") == 2_001
        connection.end()

    async def in_time() -> None:
        async with asyncio.timeout(120):
            await drive()

    asyncio.run(in_time())


def test_a_client_that_leaves_with_requests_unanswered_is_no_error(
    served: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("the handler is closed")  # as uvloop's transport

    async def drive() -> None:
        connection = Connection(LookupProtocol, served.app)
        connection.protocol.data_received(b"GET /version HTTP/1.1\r\nhost: h\r\n\r\n" * 3)
        monkeypatch.setattr(connection.wire, "write", refuse)
        connection.wire.close()
        connection.protocol.connection_lost(None)
        while connection.state.tasks:
            await asyncio.wait(connection.state.tasks)

    asyncio.run(drive())
    assert [record.getMessage() for record in caplog.records] == []


def test_a_head_without_an_end_is_cut_off(served: SimpleNamespace) -> None:
    async def drive() -> None:
        connection = Connection(LookupProtocol, served.app)
        sent = await connection.send(b"GET /v1/tables HTTP/1.1\r\n")
        for number in range(200):
            sent += await connection.send(b"x-%d: %s\r\n" % (number, b"x" * 1_000))
        assert connection.wire.is_closed
        assert sent.startswith(b"HTTP/1.1 431 ")
        connection.end()

    asyncio.run(drive())


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET /v1/tables HTTP/1.1\r\n",
        b"POST /v1/tables/profiles/rows:batch HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\r\n",
        b"POST /nowhere HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\r\n",  # answered before its body comes
    ],
    ids=["nothing", "half a head", "no body", "no body, and none is waited for"],
)
def test_a_request_that_never_ends_is_not_waited_for_for_ever(
    served: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(served.app, "request_seconds_max", 0.05)

    async def drive() -> None:
        connection = Connection(LookupProtocol, served.app, timeout_keep_alive=600)
        if begun:
            connection.protocol.data_received(begun)
        async with asyncio.timeout(60):
            await connection.wire.closed.wait()
        connection.protocol.connection_lost(None)

    asyncio.run(drive())


def test_a_connection_whose_body_came_after_its_answer_is_ended_when_it_was_idle(
    served: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def drive() -> None:
        connection = Connection(LookupProtocol, served.app, timeout_keep_alive=600)
        await connection.send(b"POST /nowhere HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\r\n")
        monkeypatch.setattr(served.app, "request_seconds_max", 0.05)
        await connection.send(b"123456789")
        async with asyncio.timeout(60):
            await connection.wire.closed.wait()
        connection.protocol.connection_lost(None)

    asyncio.run(drive())


@pytest.mark.parametrize("asked", [PLAIN.encode(), b"GET /v1/tables HTTP/1.1\r\nhost: h\r\n\r\n"])
def test_a_blank_line_leaves_a_connection_as_idle_as_it_was(served: SimpleNamespace, asked: bytes) -> None:
    async def drive() -> None:
        connection = Connection(LookupProtocol, served.app, timeout_keep_alive=600)
        await connection.send(asked)
        connection.protocol.timeout_keep_alive = 0
        await connection.send(b"\r\n")
        async with asyncio.timeout(60):
            await connection.wire.closed.wait()
        connection.protocol.connection_lost(None)

    asyncio.run(drive())


def test_only_a_connection_that_was_not_asked_since_its_timer_was_set_is_ended(
    served: SimpleNamespace,
) -> None:
    async def drive() -> None:
        connection = Connection(LookupProtocol, served.app, timeout_keep_alive=600)
        await connection.send(PLAIN.encode())
        await connection.send(PLAIN.encode())
        assert served.direct[True] == 1
        connection.protocol.timeout_keep_alive_handler()
        assert not connection.wire.is_closed
        assert connection.protocol.timeout_keep_alive_task is not None, "it rings again"
        connection.protocol.timeout_keep_alive = 0
        connection.protocol.timeout_keep_alive_handler()
        assert connection.wire.is_closed
        connection.end()

    asyncio.run(drive())


def _asked(address: Any) -> socket.socket:
    """A connection over which plain requests were answered, the last of them the short way."""
    connection = socket.create_connection(address)
    for _ in range(2):
        connection.sendall(PLAIN.encode())
        answer = b""
        while b"\r\n\r\n" not in answer or not answer.endswith(b"}"):
            answer += connection.recv(65_536)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    return connection


def test_answers_that_are_added_up_are_counted_as_one_by_one() -> None:
    histograms = [BatchedHistogram("seconds", "", registry=None, buckets=(0.001, 0.5)) for _ in range(2)]
    answers = PrometheusCounter("answers", "", registry=None)
    seconds = [0.0, 0.0005, 0.001, 0.0011, 0.5, 7.0]

    async def add() -> None:
        tally = Tally(histograms[0], answers)
        for one in seconds:
            tally.add(one)
        tally.count()
        tally.count()

    asyncio.run(add())
    for one in seconds:
        histograms[1].observe(one)
    batched, plain = (
        {
            (sample.name, *sample.labels.values()): sample.value
            for family in histogram.collect()
            for sample in family.samples
            if not sample.name.endswith("_created")
        }
        for histogram in histograms
    )
    assert batched == plain
    assert batched["seconds_count",] == len(seconds)
    (counted,) = [
        sample for family in answers.collect() for sample in family.samples if sample.name.endswith("_total")
    ]
    assert counted.value == len(seconds)
