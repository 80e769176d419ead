"""The metrics of a command that runs for long, as Prometheus asks for them."""

from __future__ import annotations

import errno
import socket
import threading
import urllib.request
from collections.abc import Iterator

import pytest

from thermocline.cli.metrics_port import metrics_served
from thermocline.errors import PortTaken
from thermocline.process.metrics import VIEWS_REPLACED


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Listens on a port that was free."""
    listening = socket.create_server(("127.0.0.1", 0))
    yield listening
    listening.close()


def test_metrics_are_served_for_as_long_as_the_block_runs(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    listener.close()
    VIEWS_REPLACED.labels("scraped").inc(3)
    before = {*threading.enumerate()}
    with metrics_served(port):
        assert {*threading.enumerate()} - before, "as the one below looks for no such thread"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            assert b'thermocline_views_replaced_total{table="scraped"} 3.0' in answer.read()
    with socket.create_server(("127.0.0.1", port)):
        pass  # nobody listens there any more


def test_a_port_that_is_taken_is_named(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    with pytest.raises(PortTaken, match=str(port)), metrics_served(port):
        pass


def test_an_address_that_cannot_be_had_is_named_with_the_reason() -> None:
    error = PortTaken.of("192.0.2.1", 80, OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address"))
    assert str(error) == "can't listen on 192.0.2.1:80: Cannot assign requested address."


def test_without_a_port_nothing_listens() -> None:
    before = {*threading.enumerate()}
    with metrics_served(None):
        assert not {*threading.enumerate()} - before
