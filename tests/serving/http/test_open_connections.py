"""A bound for open connections: which one goes, and what a new one is told when none can."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.serving.wire import PLAIN, Connection, served_app
from thermocline.serving.http.open_connections import OpenConnections
from thermocline.serving.http.protocol import LookupProtocol


@pytest.fixture
def served(new_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """An app over a table."""
    yield from served_app(new_world(), monkeypatch)


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
        assert held.is_taken(one, float(number))
    asked.answered_at = 10.0
    assert held.is_taken(Held(), 11.0)
    assert [one.is_closed for one in (busy, asked, silent, later)] == [False, False, True, False]
    assert held.is_taken(Held(), 12.0)
    assert [one.is_closed for one in (busy, asked, silent, later)] == [False, False, True, True]
    assert len(held) == 4


def test_one_that_is_closed_makes_room() -> None:
    held, first, second = OpenConnections(1), Held(), Held()
    assert held.is_taken(first, 0.0)
    held.forget(first)
    assert held.is_taken(second, 1.0)
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
