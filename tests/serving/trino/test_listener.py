"""Frames over a real socket."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from thermocline.errors import ConfigInvalid
from thermocline.serving.trino.listener import FRAME_BYTES_MAX, Listener, tls_of
from thermocline.settings.model import TrinoEndpointSettings

CERTIFICATES = Path(__file__).with_name("certificates")
"""`server` and `client` are signed by `ca`, `stranger` by itself; each with its key, until 2124."""
CA = CERTIFICATES / "ca.pem"
SERVER = CERTIFICATES / "server.pem"
TLS = TrinoEndpointSettings(port=9200, certificate_file=SERVER, key_file=SERVER, client_ca_file=CA)


@contextmanager
def connected(tls: ssl.SSLContext | None = None) -> Iterator[socket.socket]:
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    with Listener(bound, lambda message: message[::-1], tls) as listener:
        thread = threading.Thread(target=listener.serve_forever)
        thread.start()
        try:
            with socket.create_connection(bound.getsockname(), timeout=10) as connection:
                yield connection
        finally:
            listener.shutdown()
            thread.join()


@pytest.fixture
def client() -> Iterator[socket.socket]:
    with connected() as connection:
        yield connection


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


@contextmanager
def in_tls(certificate: str | None) -> Iterator[ssl.SSLSocket]:
    """A client that shows that certificate to the endpoint, and trusts its authority."""
    context = ssl.create_default_context(cafile=CA)
    if certificate is not None:
        context.load_cert_chain(CERTIFICATES / certificate)
    with connected(tls_of(TLS)) as plain, context.wrap_socket(plain, server_hostname="localhost") as client:
        yield client


def test_with_tls_a_client_with_a_certificate_of_the_authority_is_answered() -> None:
    with in_tls("client.pem") as client:
        client.sendall(b"\0\0\0\3abc")
        assert client.recv(4) + client.recv(3) == b"\0\0\0\3cba"


@pytest.mark.parametrize("certificate", [None, "stranger.pem"])
def test_with_tls_a_client_without_such_a_certificate_is_turned_away(certificate: str | None) -> None:
    # In TLS 1.3 a client that was turned away hears of it when it reads.
    with in_tls(certificate) as client, pytest.raises(OSError, match=r"alert|reset|EOF"):
        client.recv(1)


def test_with_tls_what_is_sent_in_plain_ends_the_connection() -> None:
    with connected(tls_of(TLS)) as client:
        client.sendall(b"\0\0\0\3abc")
        received = bytearray()
        with suppress(ConnectionResetError):
            while more := client.recv(100):
                received += more
        assert b"cba" not in received


def test_a_certificate_that_is_not_there_is_named() -> None:
    settings = TLS.model_copy(update={"certificate_file": CERTIFICATES / "none.pem"})
    with pytest.raises(ConfigInvalid, match=r"certificate_file, key_file and client_ca_file can't be loaded"):
        tls_of(settings)
