"""Who asks, and whom a client trusts: keys stay where they belong, and a wrong file is said at once."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.certificates import Authority
from thermocline.client import AccessInvalid, AsyncClient, Client, Retries
from thermocline.client.access import bearer_of, context_of

KEY = "tck_abc.DEF-123_~+/=="
ANSWER = {
    "table": "t",
    "read_point": {"snapshot_id": "1", "seam": {}, "end": {}},
    "age_seconds": 0,
    "stale": False,
}
ANSWER |= {"rows": []}
ONCE = Retries(attempts_max=1)


class Recorded:
    """A transport, blocking and async, which keeps what it was asked."""

    def __init__(self) -> None:
        self.requests: list[httpx.Request] = []
        self.transport = httpx.MockTransport(self._answer)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return httpx.Response(200, json=ANSWER)

    @property
    def sent(self) -> list[str | None]:
        return [request.headers.get("Authorization") for request in self.requests]


def test_a_key_is_sent_with_every_request() -> None:
    recorded = Recorded()
    with Client("https://lake.example", key=KEY, transport=recorded.transport) as client:
        client.lookup("t", id=1)
        client.lookup("t", id=2)

    async def ask() -> None:
        async with AsyncClient("https://lake.example", key=KEY, transport=recorded.transport) as client:
            await client.lookup("t", id=3)

    asyncio.run(ask())
    assert recorded.sent == [f"Bearer {KEY}"] * 3
    with Client("https://lake.example", transport=recorded.transport) as client:
        client.lookup("t", id=4)
    assert recorded.sent[3] is None


def test_a_function_gives_a_key_for_each_request() -> None:
    recorded, keys = Recorded(), iter(["first", "second"])
    with Client("https://lake.example", key=lambda: next(keys), transport=recorded.transport) as client:
        client.lookup("t", id=1)
        client.lookup("t", id=2)
    assert recorded.sent == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize(
    "url", ["http://lake.example", "http://10.0.0.1:8080", "http://localhost.evil.example"]
)
def test_a_key_is_not_sent_unencrypted_to_another_machine_unless_that_is_said(url: str) -> None:
    recorded = Recorded()
    for kind in (Client, AsyncClient):
        with pytest.raises(
            AccessInvalid, match=r"^key: it would be sent to .* unencrypted; use https$"
        ) as refused:
            kind(url, key=KEY, transport=recorded.transport)
        assert refused.value.argument == "key"
        assert KEY not in str(refused.value)
    with Client(url, key=KEY, key_over_http=True, transport=recorded.transport) as client:
        client.lookup("t", id=1)
    assert recorded.sent == [f"Bearer {KEY}"]


@pytest.mark.parametrize(
    "url", ["http://localhost:8080", "http://127.0.0.1", "http://127.1.2.3", "http://[::1]:8080"]
)
def test_a_key_is_sent_unencrypted_to_this_machine(url: str) -> None:
    recorded = Recorded()
    with Client(url, key=KEY, transport=recorded.transport) as client:
        client.lookup("t", id=1)
    assert recorded.sent == [f"Bearer {KEY}"]


@pytest.mark.parametrize("key", ["", "two words", "line\n", "größe", "a\r\nX: y"])
def test_what_is_no_key_is_not_sent_and_not_quoted(key: str) -> None:
    recorded = Recorded()
    with pytest.raises(AccessInvalid) as refused:
        Client("https://lake.example", key=key, transport=recorded.transport)
    assert (
        str(refused.value) == "key: it has characters that no key has, such as a space or the end of a line"
    )
    client = Client("https://lake.example", key=lambda: key, transport=recorded.transport)
    with client, pytest.raises(AccessInvalid):
        client.lookup("t", id=1)
    assert recorded.requests == []


def test_a_client_does_not_print_its_key() -> None:
    client = Client("https://lake.example", key=KEY)
    bearer = bearer_of(KEY, httpx.URL("https://lake.example"), may_go_unencrypted=False)
    for one in (client, bearer, client.__dict__["_connection"].http):
        assert KEY not in repr(one)
        assert KEY not in str(one)
    client.close()


def test_a_key_does_not_follow_a_redirect() -> None:
    asked: list[httpx.URL] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url)
        return httpx.Response(307, headers={"Location": "https://evil.example/v1/tables/t/rows"})

    with (
        Client(
            "https://lake.example", key=KEY, transport=httpx.MockTransport(answer), retries=ONCE
        ) as client,
        pytest.raises(Exception, match="307"),
    ):
        client.lookup("t", id=1)
    assert [url.host for url in asked] == ["lake.example"]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


def test_a_file_of_cas_is_trusted_alone(authority: Authority) -> None:
    context = context_of(authority.file, None)
    assert context is not None
    (trusted,) = context.get_ca_certs()
    assert trusted["subject"] == ((("commonName", "tests"),),)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


def test_the_usual_cas_are_trusted_without_a_file_also_where_a_certificate_is_shown(
    authority: Authority,
) -> None:
    assert context_of(None, None) is None
    context = context_of(None, authority.issue().paths)
    assert context is not None
    assert len(context.get_ca_certs()) > 20
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_files_that_cannot_be_used_are_named(authority: Authority, tmp_path: Path) -> None:
    one, other, locked = authority.issue(), authority.issue(), authority.issue(password=b"x")
    empty = tmp_path / "empty.pem"
    empty.touch()
    missing = tmp_path / "missing.pem"
    cases: list[tuple[dict[str, Any], str]] = [
        ({"ca_file": missing}, f"ca_file: {missing}: No such file or directory"),
        ({"ca_file": empty}, f"ca_file: {empty}: no certificate or crl found"),
        (
            {"certificate": (one.certificate, other.key)},
            f"certificate: {one.certificate} and {other.key}: key values mismatch",
        ),
        (
            {"certificate": (missing, one.key)},
            f"certificate: {missing} and {one.key}: No such file or directory",
        ),
    ]
    for arguments, problem in cases:
        with pytest.raises(AccessInvalid) as refused:
            Client("https://lake.example", **arguments)
        assert str(refused.value) == problem
    with pytest.raises(AccessInvalid, match=r"^certificate: "):  # and nobody is asked for a password
        Client("https://lake.example", certificate=locked.paths)
    with pytest.raises(AccessInvalid, match=r"^transport: "):
        Client("https://lake.example", ca_file=authority.file, transport=Recorded().transport)
