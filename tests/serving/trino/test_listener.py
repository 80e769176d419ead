"""Frames over a real socket."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from serving.trino.listener import FRAME_BYTES_MAX, Listener


@pytest.fixture
def client() -> Iterator[socket.socket]:
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    with Listener(bound, lambda message: message[::-1]) as listener:
        thread = threading.Thread(target=listener.serve_forever)
        thread.start()
        with socket.create_connection(bound.getsockname(), timeout=10) as connection:
            yield connection
        listener.shutdown()
        thread.join()


def test_each_frame_is_answered_by_a_frame_however_its_bytes_arrive(client: socket.socket) -> None:
    client.sendall(b"\0\0\0\3a")
    client.sendall(b"bc\0\0\0\1d")
    received = b""
    while len(received) < 12:
        received += client.recv(100)
    assert received == b"\0\0\0\3cba\0\0\0\1d"


def test_a_frame_larger_than_any_call_ends_the_connection(client: socket.socket) -> None:
    client.sendall((FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
    assert client.recv(1) == b""
