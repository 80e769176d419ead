"""A bound for open connections: which one goes, and what a new one is told when none can."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.serving.wire import PLAIN, Connection, Wire, served_app
from thermocline.errors import TooManyRequests
from thermocline.process.metrics import REGISTRY
from thermocline.serving.access.connections import Connections, Peer
from thermocline.serving.http.open_connections import OpenConnections
from thermocline.serving.http.protocol import LookupProtocol


@pytest.fixture
def served(new_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """An app over a table."""
    yield from served_app(new_world(), monkeypatch)


NOWHERE = Peer()


class Held:
    """A connection that is told what it does."""

    def __init__(self, is_answered: bool = False) -> None:
        self.is_answered, self.is_closed, self.answered_at = is_answered, False, 0.0

    def is_idle(self) -> bool:
        return not self.is_answered

    def close_idle(self) -> None:
        self.is_closed = True


def test_the_connection_that_asked_for_nothing_for_longest_is_closed_for_a_new_one() -> None:
    busy, asked, silent, later = Held(is_answered=True), Held(), Held(), Held()
    held = OpenConnections(4)
    for number, one in enumerate((busy, asked, silent, later)):
        assert held.take(one, NOWHERE, float(number)) is None
    asked.answered_at = 10.0
    assert held.take(Held(), NOWHERE, 11.0) is None
    assert [one.is_closed for one in (busy, asked, silent, later)] == [False, False, True, False]
    assert held.take(Held(), NOWHERE, 12.0) is None
    assert [one.is_closed for one in (busy, asked, silent, later)] == [False, False, True, True]
    assert len(held) == 4


def test_one_that_is_closed_makes_room() -> None:
    held, first, second = OpenConnections(1), Held(), Held()
    assert held.take(first, NOWHERE, 0.0) is None
    held.forget(first)
    assert held.take(second, NOWHERE, 1.0) is None
    assert not first.is_closed
    held.forget(first)
    assert len(held) == 1


def test_where_all_are_being_answered_a_new_connection_is_told_so_and_closed(served: SimpleNamespace) -> None:
    served.app.open_connections.count_max = 1

    async def drive() -> None:
        first = Connection(LookupProtocol, served.app)
        first.protocol.data_received(b"GET /livez HTTP/1.1\r\nhost: h\r\n\r\n")  # pending
        refused = Connection(LookupProtocol, served.app)
        head, _, body = refused.wire.sent.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nretry-after: 1" in head
        assert b'"code":"too-many-connections"' in body
        assert refused.wire.is_closed
        refused.protocol.connection_lost(None)
        assert (await first.send(b"")).startswith(b"HTTP/1.1 200 ")
        taken = Connection(LookupProtocol, served.app)
        assert first.wire.is_closed
        assert taken.wire.sent == b""
        assert (await taken.send(PLAIN.encode())).startswith(b"HTTP/1.1 200 ")
        for one in (first, taken):
            one.protocol.connection_lost(None)
        assert len(served.app.open_connections) == 0

    asyncio.run(drive())


def test_a_body_that_does_not_come_keeps_no_connection_open(served: SimpleNamespace) -> None:
    served.app.open_connections.count_max = 1

    async def drive() -> None:
        first = Connection(LookupProtocol, served.app)
        first.protocol.data_received(
            b"POST /v1/tables/profiles/rows:batch HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\r\n1"
        )
        await asyncio.sleep(0)
        second = Connection(LookupProtocol, served.app)
        assert first.wire.is_closed
        assert (await second.send(PLAIN.encode())).startswith(b"HTTP/1.1 200 ")
        for one in (first, second):
            one.protocol.connection_lost(None)
        while first.state.tasks:
            await asyncio.wait(first.state.tasks)

    asyncio.run(drive())


ONE, OTHER = Peer("192.0.2.1"), Peer("192.0.2.2")


def refused_count() -> float:
    return REGISTRY.get_sample_value("thermocline_address_connections_ended_total") or 0.0


def test_an_address_that_has_too_many_loses_its_own_idle_one_and_no_other() -> None:
    before = refused_count()
    held, others, own = OpenConnections(4, 2), [Held(), Held()], [Held(), Held(), Held()]
    assert held.take(others[0], OTHER, 0.0) is None
    assert held.take(others[1], OTHER, 0.0) is None
    for number, one in enumerate(own):
        assert held.take(one, ONE, 1.0 + number) is None
    assert [one.is_closed for one in (*others, *own)] == [False, False, True, False, False]
    assert (len(held), refused_count() - before) == (4, 1)


def test_an_address_that_uses_all_of_its_connections_gets_no_more_and_others_do() -> None:
    before = refused_count()
    held, busy = OpenConnections(10, 2), [Held(is_answered=True) for _ in range(2)]
    for one in busy:
        assert held.take(one, ONE, 0.0) is None
    for _ in range(3):
        refusal = held.take(Held(), ONE, 1.0)
        assert isinstance(refusal, TooManyRequests)
        assert (refusal.status, refusal.client) == (429, "address:192.0.2.1")
        assert refusal.detail == "2 connections at once, of each address"
    assert held.take(Held(), OTHER, 1.0) is None
    held.forget(busy[0])
    assert held.take(Held(is_answered=True), ONE, 2.0) is None
    assert held.take(Held(), ONE, 3.0) is not None
    assert (len(held), refused_count() - before) == (3, 4)


def test_an_address_that_floods_does_not_hide_that_all_connections_are_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    held = OpenConnections(2, 1)
    for number in range(3):
        held.take(Held(), ONE, float(number))
    for address in ("192.0.2.3", "192.0.2.4", "192.0.2.5"):
        held.take(Held(), Peer(address), 4.0)
    assert caplog.messages == [
        "too many connections of an address",
        "too many connections: idle ones are closed",
    ]


def test_half_of_all_connections_are_what_an_address_may_have() -> None:
    held = OpenConnections(8)
    answers = [held.take(Held(is_answered=True), ONE, 0.0) for _ in range(8)]
    assert [one is None for one in answers] == 4 * [True] + 4 * [False]


def test_who_has_a_whole_network_is_one_address() -> None:
    held = OpenConnections(10, 1)
    assert held.take(Held(is_answered=True), Peer("2001:db8::1"), 0.0) is None
    assert held.take(Held(), Peer("2001:db8::ffff:2"), 0.0) is not None
    assert held.take(Held(), Peer("2001:db8:0:1::1"), 0.0) is None


class WireFrom(Wire):
    """A connection from 192.0.2.1."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 50_000) if name == "peername" else default


def test_a_trusted_proxy_has_no_bound_since_many_are_behind_it() -> None:
    proxy = Connections(forwarded_from=("192.0.2.0/24",)).peer(WireFrom())
    held = OpenConnections(10, 1)
    for _ in range(3):
        assert held.take(Held(is_answered=True), proxy, 0.0) is None
        assert held.take(Held(is_answered=True), NOWHERE, 0.0) is None
    stranger = Connections(forwarded_from=("198.51.100.0/24",)).peer(WireFrom())
    assert held.take(Held(is_answered=True), stranger, 0.0) is None
    assert held.take(Held(is_answered=True), stranger, 0.0) is not None


def test_a_connection_too_many_of_an_address_is_told_so_and_leaves_nothing_behind(
    served: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.serving.wire.Wire", WireFrom)
    served.app.open_connections.address_max = 1

    async def drive() -> None:
        first = Connection(LookupProtocol, served.app)
        first.protocol.data_received(b"GET /livez HTTP/1.1\r\nhost: h\r\n\r\n")  # pending
        refused = [Connection(LookupProtocol, served.app) for _ in range(3)]
        for one in refused:
            head, _, body = one.wire.sent.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 429 ")
            assert b"\r\nretry-after: 1" in head
            assert b'"code":"too-many-requests"' in body
            assert one.wire.is_closed
            one.protocol.connection_lost(None)
        assert (await first.send(b"")).startswith(b"HTTP/1.1 200 ")
        taken = Connection(LookupProtocol, served.app)
        assert first.wire.is_closed
        assert (await taken.send(PLAIN.encode())).startswith(b"HTTP/1.1 200 ")
        for one in (first, taken):
            one.protocol.connection_lost(None)
        assert len(served.app.open_connections) == 0

    asyncio.run(drive())
