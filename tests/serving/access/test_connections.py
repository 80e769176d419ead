"""Whom a connection comes from, and which hosts a server answers to, on both ways."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tests.serving.wire import PLAIN, Connection, Wire, served_app
from thermocline.serving.access.connections import Connections, Peer
from thermocline.serving.http.protocol import LookupProtocol
from thermocline.serving.read.caller import EVERYONE, Caller, Credentials
from thermocline.settings import ServingSettings

PROXIES = ("10.0.0.0/8", "192.0.2.9", "2001:db8::/32")
ORDINARY = PLAIN.replace("Host: x", "Host: x\r\nOrigin: https://app.example.com")


def peer_at(address: str, connections: Connections, certificate: Any = None) -> Peer:
    class At(Wire):
        def get_extra_info(self, name: str, default: Any = None) -> Any:
            return {"peername": (address, 50_000), "peercert": certificate}.get(name, default)

    return connections.peer(At())


@pytest.mark.parametrize(
    ("forwarded", "address"),
    [
        ([], "10.0.0.1"),
        (["198.51.100.7"], "198.51.100.7"),
        (["203.0.113.66, 198.51.100.7"], "198.51.100.7"),  # what stands before was sent by the caller
        (["10.0.0.5, 198.51.100.7, 10.0.0.2"], "198.51.100.7"),
        (["198.51.100.7, 192.0.2.9 , 10.0.0.2"], "198.51.100.7"),
        (["203.0.113.66", "198.51.100.7, 10.0.0.2"], "198.51.100.7"),  # two headers are one
        (["198.51.100.7, 203.0.113.66", "10.0.0.2"], "203.0.113.66"),
        (["198.51.100.7:4711"], "198.51.100.7"),
        (["[2001:470::1]:4711"], "2001:470::1"),
        (["2001:470::1"], "2001:470::1"),
        (["198.51.100.7, 2001:db8::5"], "198.51.100.7"),
        (["198.51.100.7, ::ffff:10.0.0.3"], "198.51.100.7"),
        (["10.0.0.7, 10.0.0.8"], "10.0.0.7"),  # all are proxies: the first one asks for itself
        (["198.51.100.7, unknown, 10.0.0.2"], "10.0.0.2"),
        (["198.51.100.7, "], "10.0.0.1"),
        (["<script>"], "10.0.0.1"),
        ([",".join(["198.51.100.7", *["10.0.0.2"] * 16])], "10.0.0.2"),  # hops have a bound
    ],
)
def test_a_proxy_says_for_whom_it_asks_and_the_address_is_read_from_the_right(
    forwarded: list[str], address: str
) -> None:
    connections = Connections(forwarded_from=PROXIES)
    peer = peer_at("10.0.0.1", connections)
    assert connections.credentials(peer, "Bearer x", forwarded) == Credentials("Bearer x", (), address)


def test_who_is_no_proxy_is_not_believed() -> None:
    for connections in (Connections(forwarded_from=PROXIES), Connections()):
        for address in ("198.51.100.9", "2001:470::9"):
            peer = peer_at(address, connections)
            assert connections.credentials(peer, None, ["203.0.113.66"]).address == address
    mapped = Connections(forwarded_from=["10.0.0.1"])
    peer = peer_at("::ffff:10.0.0.1", mapped)
    assert peer == Peer("10.0.0.1", (), is_proxy=True)
    assert peer_at("::ffff:10.0.0.2", mapped) == Peer("10.0.0.2")


def test_the_names_of_a_certificate_are_told_with_what_they_are() -> None:
    certificate = {
        "subject": ((("countryName", "NO"),), (("commonName", "Ada"), ("commonName", "dns:root"))),
        "subjectAltName": (
            ("DNS", "A.Example"),
            ("URI", "spiffe://x/Y"),
            ("IP Address", "10.0.0.1"),
            ("email", "a@b"),
        ),
    }
    peer = peer_at("198.51.100.7", Connections(), certificate)
    assert peer.certificates == ("dns:a.example", "uri:spiffe://x/Y", "cn:Ada", "cn:dns:root")
    assert peer_at("198.51.100.7", Connections(), {}).certificates == ()


@pytest.mark.parametrize(
    ("host", "is_allowed"),
    [
        ("lake.example.com", True),
        ("LAKE.Example.com:8443", True),
        ("lake.example.com.", True),
        ("a.lakes.example.org:80", True),
        ("a.b.lakes.example.org", True),
        ("lakes.example.org", False),
        ("evillakes.example.org", False),
        ("lake.example.com.evil.org", False),
        ("evil.org", False),
        ("lake.example.com@evil.org", False),
        ("evil.org:lake.example.com", False),
        ("", False),
        (":8080", False),
        ("localhost:8080", True),
        ("127.0.0.1:9999", True),
        ("[::1]:8080", True),
        ("[::2]:8080", False),
        ("10.1.2.3:8080", True),
        ("10.1.2.4:8080", False),
    ],
)
def test_a_server_answers_to_its_names_alone(host: str, is_allowed: bool) -> None:
    settings = ServingSettings(host="10.1.2.3", hosts=("Lake.example.com", "*.lakes.example.org"))
    connections = Connections.of(settings)
    assert connections.is_for_us([host]) == is_allowed
    assert not connections.is_for_us([host, host])
    assert not connections.is_for_us([])
    assert Connections.of(ServingSettings()).is_for_us([host, host]), "no list, so all"


@pytest.fixture
def served(new_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """An app over a table; ``asking`` has who asked, by request."""
    asking: list[Credentials] = []

    def admit(credentials: Credentials) -> Caller:
        asking.append(credentials)
        return EVERYONE

    for found in served_app(new_world(), monkeypatch, admit):
        found.asking = asking
        yield found


def test_another_host_is_refused_before_anything_else_both_ways(served: SimpleNamespace) -> None:
    served.app.connections = Connections(["x"])

    async def drive() -> None:
        for kind in (HttpToolsProtocol, LookupProtocol):
            connection = Connection(kind, served.app)
            await connection.send(PLAIN.encode())
            assert (await connection.send(PLAIN.encode())).startswith(b"HTTP/1.1 200 ")
            asked = len(served.asking)
            for request in (
                PLAIN.replace("Host: x", "Host: evil.example"),
                PLAIN.replace("Host: x", "Host: x\r\nHost: evil.example"),
                PLAIN.replace("Host: x", "Accept: */*"),
                ORDINARY.replace("Host: x", "Host: evil.example"),
                "OPTIONS /v1/tables HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            ):
                other = Connection(kind, served.app)
                answer = await other.send(request.encode())
                head, _, body = answer.partition(b"\r\n\r\n")
                assert answer.startswith(b"HTTP/1.1 400 "), request
                assert b"content-type: application/problem+json" in head
                assert b"connection: close" in head.lower()
                assert other.wire.is_closed
                problem = json.loads(body)
                assert problem["code"] == "bad-request"
                assert problem["detail"] == "the server does not answer to the host that the request names."
                other.end()
            assert len(served.asking) == asked, "nobody was asked who they are"
            connection.end()

    asyncio.run(drive())
    assert served.direct[True] == 2, "the known host is answered the short way"


def test_a_page_of_another_origin_is_refused_by_its_host_too(
    new_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: a preflight, which is answered before the endpoints are asked."""
    preflight = (
        "OPTIONS /v1/tables HTTP/1.1\r\nHost: {host}\r\nOrigin: https://app.example.com\r\n"
        "Access-Control-Request-Method: GET\r\n\r\n"
    )

    async def drive(app: Any) -> list[bytes]:
        answers = []
        for host in ("x", "evil.example"):
            connection = Connection(LookupProtocol, app)
            answers.append(await connection.send(preflight.format(host=host).encode()))
            connection.end()
        return answers

    for found in served_app(new_world(), monkeypatch, cors_origins=("https://app.example.com",)):
        found.app.connections = Connections(["x"])
        answered, refused = asyncio.run(drive(found.app))
        assert answered.startswith(b"HTTP/1.1 200 ")
        assert refused.startswith(b"HTTP/1.1 400 ")
        assert b"access-control" not in refused


def test_both_ways_say_the_same_of_who_asks(served: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    served.app.connections = Connections(forwarded_from=PROXIES)
    certificate = {"subjectAltName": (("DNS", "a.example"),)}

    def ask(address: str, *headers: str) -> list[Credentials]:
        infos = {"peername": (address, 50_000), "peercert": certificate}
        monkeypatch.setattr(Wire, "get_extra_info", lambda _, name, default=None: infos.get(name, default))

        async def drive() -> None:
            connection = Connection(LookupProtocol, served.app)
            lines = "\r\n".join(["Host: x", *headers])
            for request in (PLAIN, ORDINARY, PLAIN):
                answer = await connection.send(request.replace("Host: x", lines).encode())
                assert answer.startswith(b"HTTP/1.1 200 ")
            connection.end()

        served.asking.clear()
        asyncio.run(drive())
        return sorted(set(served.asking), key=str)

    names = ("dns:a.example",)
    assert ask("10.0.0.1") == [Credentials(None, names, "10.0.0.1")]
    before = served.direct[True]
    assert ask("10.0.0.1", "X-Forwarded-For: 203.0.113.66, 198.51.100.7", "Authorization: Bearer k") == [
        Credentials("Bearer k", names, "198.51.100.7")
    ]
    assert ask("10.0.0.1", "x-forwarded-for: 198.51.100.8", "X-Forwarded-For: 10.0.0.3") == [
        Credentials(None, names, "198.51.100.8")
    ]
    assert ask("198.51.100.1", "X-Forwarded-For: 203.0.113.66") == [Credentials(None, names, "198.51.100.1")]
    assert served.direct[True] == before + 6, "the short way was asked, too"


def test_who_asks_is_told_for_each_request_of_a_connection(
    served: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.app.connections = Connections(forwarded_from=PROXIES)
    requests = [
        PLAIN.replace("Host: x", f"Host: x\r\nX-Forwarded-For: {address}\r\nAuthorization: Bearer {key}")
        for address, key in (
            ("198.51.100.7", "a"),
            ("198.51.100.8", "b"),
            ("198.51.100.7", "a"),
            ("198.51.100.7", "c"),
        )
    ]

    infos = {"peername": ("10.0.0.1", 50_000)}
    monkeypatch.setattr(Wire, "get_extra_info", lambda _, name, default=None: infos.get(name, default))

    async def drive() -> None:
        connection = Connection(LookupProtocol, served.app)
        await connection.send(PLAIN.encode())
        served.asking.clear()
        connection.protocol.data_received("".join(requests).encode())
        connection.end()

    asyncio.run(drive())
    assert served.asking == [
        Credentials("Bearer a", (), "198.51.100.7"),
        Credentials("Bearer b", (), "198.51.100.8"),
        Credentials("Bearer a", (), "198.51.100.7"),
        Credentials("Bearer c", (), "198.51.100.7"),
    ]
