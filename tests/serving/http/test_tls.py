"""TLS on real sockets: what is answered, what is refused, and what goes on meanwhile."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import httpx
import pytest

from tests.certificates import Authority, MountedSecret, Pair
from tests.serving.wire import PLAIN, listening_at, served_app
from thermocline.client import Client, Retries, Unreachable
from thermocline.process.metrics import REGISTRY
from thermocline.process.tls import pinned_context, server_context
from thermocline.serving.access import certificates as certificates_module
from thermocline.serving.access.certificates import Certificates, RefusedCertificates
from thermocline.serving.process import listening
from thermocline.serving.process.children import is_ready
from thermocline.serving.read.caller import EVERYONE, Caller, Credentials

SECONDS_MAX: Final = 60.0
# The event loop's own bound of a handshake is a minute.
STALLED_SECONDS_MAX: Final = 30.0
NO_RETRIES: Final = Retries(attempts_max=1)
LIVEZ: Final = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def asking() -> list[Credentials]:
    """Who asked, by request."""
    return []


@pytest.fixture
def served(
    new_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, asking: list[Credentials]
) -> Iterator[SimpleNamespace]:
    """An app over a table."""

    def admit(credentials: Credentials) -> Caller:
        asking.append(credentials)
        return EVERYONE

    yield from served_app(new_world(), monkeypatch, admit)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


def trusting(authority: Authority, shown: Pair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.file)
    if shown is not None:
        context.load_cert_chain(*shown.paths)
    return context


def connected(
    port: int, context: ssl.SSLContext, session: ssl.SSLSession | None = None, address: str = "127.0.0.1"
) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", port), SECONDS_MAX, (address, 0))
    try:
        return context.wrap_socket(plain, server_hostname="localhost", session=session)
    except BaseException:
        plain.close()
        raise


def answer_to(connection: socket.socket, request: bytes) -> bytes:
    """One answer, which says how long it is; or what came before the end of the connection."""
    connection.sendall(request)
    answer = b""
    while b"\r\n\r\n" not in answer:
        part = connection.recv(65_536)
        if not part:
            return answer
        answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    (length,) = (
        int(line.partition(b":")[2])
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"content-length:")
    )
    while len(body) < length:
        body += connection.recv(65_536)
    return head + b"\r\n\r\n" + body


def is_answered(
    port: int, context: ssl.SSLContext, session: ssl.SSLSession | None = None, address: str = "127.0.0.1"
) -> bool:
    """Whether a lookup is; by TLS 1.3, who is refused learns it when they ask."""
    try:
        with connected(port, context, session, address) as connection:
            return answer_to(connection, PLAIN.encode()).startswith(b"HTTP/1.1 200 ")
    except (ssl.SSLError, ConnectionError):
        return False


def test_a_lookup_is_answered_both_ways_and_a_stranger_to_the_ca_gets_none(
    served: SimpleNamespace, authority: Authority, tmp_path: Path
) -> None:
    pair, other = authority.issue(names=["localhost"]), Authority(tmp_path / "other", "other")
    with listening_at(served.app, Certificates(*pair.paths)) as port:
        url = f"https://localhost:{port}"
        with Client(url, ca_file=authority.file, retries=NO_RETRIES) as client:
            answers = [client.lookup("profiles", app_id=7, user_id="u1").rows for _ in range(3)]
        assert served.direct == {False: 1, True: 2}, "the first is read from a file"
        assert answers[0] == answers[1] == answers[2]
        assert [row["key"] for row in answers[0]] == ["a", "b", "c", "d"]
        at_another_name = url.replace("localhost", "127.0.0.1")
        for place, trusted in ((url, other.file), (url, None), (at_another_name, authority.file)):
            client = Client(place, retries=NO_RETRIES, ca_file=trusted)
            with client, pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
                client.lookup("profiles", app_id=7, user_id="u1")
    assert served.direct == {False: 1, True: 2}


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated:DeprecationWarning")
def test_an_old_version_of_tls_is_refused(served: SimpleNamespace, authority: Authority) -> None:
    with listening_at(served.app, Certificates(*authority.issue().paths)) as port:
        old = trusting(authority)
        old.set_ciphers("DEFAULT:@SECLEVEL=0")
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        assert not is_answered(port, old)
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = trusting(authority)
            context.minimum_version = context.maximum_version = version
            with connected(port, context) as connection:
                assert answer_to(connection, LIVEZ).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def test_the_names_of_a_clients_certificate_say_who_asks_both_ways(
    served: SimpleNamespace, authority: Authority, asking: list[Credentials], version: ssl.TLSVersion
) -> None:
    shown = authority.issue("Ada", ["Ada.Example", "b.example", "10.1.2.3"], ["spiffe://example/Ada"])
    certificates = Certificates(*authority.issue().paths, authority.file)
    context = trusting(authority, shown)
    context.minimum_version = context.maximum_version = version
    with listening_at(served.app, certificates) as port:
        with connected(port, context) as connection:
            answers = [answer_to(connection, PLAIN.encode()) for _ in range(2)]
            session = connection.session
        assert served.direct == {False: 1, True: 1}
        assert answers[0] == answers[1]
        names = ("dns:ada.example", "dns:b.example", "uri:spiffe://example/Ada", "cn:Ada")
        assert {one.certificates for one in asking} == {names}
        assert {one.address for one in asking} == {"127.0.0.1"}
        asking.clear()
        with connected(port, trusting(authority)) as connection:
            assert answer_to(connection, PLAIN.encode()) == answers[0]
        assert set(asking) == {Credentials(None, (), "127.0.0.1")}, "who shows none is nobody by certificate"
        asking.clear()
        with connected(port, context, session) as connection:
            assert connection.session_reused
            assert answer_to(connection, PLAIN.encode()) == answers[0]
        assert [one.certificates for one in asking] == [names], "a session that goes on is the same client's"


@pytest.mark.parametrize("of", ["another", "itself", "expired"])
def test_a_clients_certificate_that_cannot_be_verified_is_refused(
    served: SimpleNamespace, authority: Authority, asking: list[Credentials], tmp_path: Path, of: str
) -> None:
    if of == "another":
        shown = Authority(tmp_path / "other", "tests").issue("ada", ["ada.example"])
    elif of == "itself":
        alone = Authority(tmp_path / "alone", "ada")
        shown = alone.issue("ada", ["ada.example"])
    else:
        shown = authority.issue("ada", ["ada.example"], days=-1)
    with listening_at(served.app, Certificates(*authority.issue().paths, authority.file)) as port:
        assert not is_answered(port, trusting(authority, shown))
        assert is_answered(port, trusting(authority))
    assert {one.certificates for one in asking} == {()}


def test_a_clients_certificate_that_is_refused_is_in_the_log_once_an_address_and_counted(
    served: SimpleNamespace, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: the operator learns why a client gets no answer, and nobody fills the log by it."""
    strange = Authority(tmp_path / "other", "other").issue("ada", ["ada.example"])
    before = refused_count()
    addresses = ("127.0.0.1", "127.0.0.2")
    with listening_at(served.app, Certificates(*authority.issue().paths, authority.file)) as port:
        for address in 3 * addresses:
            assert not is_answered(port, trusting(authority, strange), address=address)
        assert not is_answered(port, ssl.create_default_context()), "who does not trust us is no such client"
        until(lambda: refused_count() == before + 6)
        assert is_answered(port, trusting(authority, authority.issue("ada")))
    said = [vars(one)["fields"] for one in caplog.records if "certificate refused" in one.message]
    assert said == [
        {"address": f"address:{address}", "detail": "unable to get local issuer certificate"}
        for address in addresses
    ]


def refused_count() -> float:
    return REGISTRY.get_sample_value("thermocline_client_certificates_refused_total") or 0.0


def test_refused_certificates_of_many_addresses_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    refused, error = RefusedCertificates(), ssl.SSLCertVerificationError()
    error.verify_message = "certificate has expired"

    def note(numbers: range, now: float) -> int:
        caplog.clear()
        for number in numbers:
            refused.note(f"address:192.0.{number // 256}.{number % 256}", error, now)
        return len(caplog.records)

    assert note(range(1_000), 0.0) == 256
    assert note(range(1_000), 3_599.0) == 0
    assert note(range(10), 3_601.0) == 10, "they are named again an hour later"


def test_whether_clients_need_a_ca_of_the_servers_own_is_known(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: the CAs that clients trust by themselves are first the usual ones, and then those of a file."""
    pair, other = authority.issue(), Authority(tmp_path / "other", "other").issue()
    assert Certificates(*pair.paths).has_own_ca
    secret = MountedSecret(tmp_path / "secret")
    secret.show(*other.paths)
    certificates = Certificates(secret.certificate, secret.key)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    assert not Certificates(*pair.paths).has_own_ca
    assert certificates.has_own_ca
    secret.show(*pair.paths)
    certificates.refresh()
    assert not certificates.has_own_ca, "a new certificate may be of another CA"


def test_without_a_ca_for_clients_their_certificates_say_nothing(
    served: SimpleNamespace, authority: Authority, asking: list[Credentials]
) -> None:
    shown = authority.issue("ada", ["ada.example"])
    with listening_at(served.app, Certificates(*authority.issue().paths)) as port:
        assert is_answered(port, trusting(authority, shown))
    assert {one.certificates for one in asking} == {()}


def serial_at(port: int, context: ssl.SSLContext) -> int:
    with connected(port, context) as connection:
        found: Any = connection.getpeercert()
        return int(found["serialNumber"], 16)


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.01)


def test_certificates_are_replaced_under_load_without_a_failed_request(
    served: SimpleNamespace, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: cert-manager replaces a pair, also by one of another kind of key, while everybody asks.

    Method: clients ask over new connections and over one that stays, while pairs come by way of links.
    """
    monkeypatch.setattr(certificates_module, "LOOK_SECONDS", 0.01)
    secret = MountedSecret(tmp_path / "secret")
    pairs = [authority.issue(is_rsa=number == 1) for number in range(4)]
    secret.show(*pairs[0].paths)
    certificates = Certificates(secret.certificate, secret.key)
    context, stop = trusting(authority), threading.Event()
    failures: list[object] = []
    counts = {"new": 0, "kept": 0}

    def ask(kind: str, port: int) -> None:
        kept = connected(port, context) if kind == "kept" else None
        while not stop.is_set():
            try:
                connection = kept or connected(port, context)
                answer = answer_to(connection, PLAIN.encode())
                if not answer.startswith(b"HTTP/1.1 200 "):
                    failures.append(answer)
                counts[kind] += 1
                if kept is None:
                    connection.close()
            except OSError as error:
                failures.append(error)
                break
        if kept is not None:
            kept.close()

    with listening_at(served.app, certificates) as port:
        threads = [threading.Thread(target=ask, args=(kind, port)) for kind in ("new", "new", "kept")]
        for thread in threads:
            thread.start()
        try:
            for pair in pairs:
                secret.show(*pair.paths)
                until(lambda pair=pair: serial_at(port, context) == pair.serial)  # type: ignore[misc]
                before = dict(counts)
                until(lambda before=before: all(counts[kind] > before[kind] + 2 for kind in counts))  # type: ignore[misc]
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        old = ssl.create_default_context(cafile=authority.file)
        old.set_ciphers("aRSA")
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(ssl.SSLError):  # of the kind of key before, nothing is left
            connected(port, old)
    assert failures == []


def test_a_broken_pair_leaves_the_one_before_in_use_and_is_named(
    served: SimpleNamespace,
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(certificates_module, "LOOK_SECONDS", 0.01)
    secret = MountedSecret(tmp_path / "secret")
    first, second = authority.issue(), authority.issue()
    locked = authority.issue(password=b"secret")
    secret.show(*first.paths)
    certificates = Certificates(secret.certificate, secret.key)
    context = trusting(authority)
    empty = tmp_path / "empty"
    empty.touch()
    both = f"{secret.certificate} and {secret.key}"
    with listening_at(served.app, certificates) as port:
        for certificate, key, problem in (
            (second.certificate, first.key, f"{both}: the key is not that of the certificate"),
            (
                locked.certificate,
                locked.key,
                f"{both}: the key is encrypted, and there is no password for it",
            ),
            (empty, second.key, f"{both}: it is not PEM, or of something else"),
        ):
            secret.show(certificate, key)
            until(lambda problem=problem: certificates.problem == problem)  # type: ignore[misc]
            assert serial_at(port, context) == first.serial
            assert problem in [getattr(record, "fields", {}).get("detail") for record in caplog.records]
        secret.key.unlink()
        until(lambda: certificates.problem == f"{secret.key}: No such file or directory")
        assert serial_at(port, context) == first.serial
        secret.key.symlink_to("..data/tls.key")
        secret.show(*second.paths)
        until(lambda: certificates.problem is None)
        assert serial_at(port, context) == second.serial


def test_files_that_change_while_they_are_read_are_not_taken_up_half(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: the certificate and its key are read, and the CA of clients is replaced before it is."""
    pair, later = authority.issue(), authority.issue()
    client_ca = tmp_path / "ca.pem"
    client_ca.write_bytes(authority.file.read_bytes())
    secret = MountedSecret(tmp_path / "secret")
    secret.show(*pair.paths)
    certificates = Certificates(secret.certificate, secret.key, client_ca)
    before = certificates.context.newest

    def read_and_replace(*files: Any) -> ssl.SSLContext:
        context = server_context(*files)
        client_ca.write_bytes(Authority(tmp_path / "other", "other").file.read_bytes())
        return context

    secret.show(*later.paths)
    monkeypatch.setattr(certificates_module, "server_context", read_and_replace)
    certificates.refresh()
    assert certificates.context.newest is before
    monkeypatch.setattr(certificates_module, "server_context", server_context)
    certificates.refresh()
    (trusted,) = certificates.context.newest.get_ca_certs()
    assert trusted["subject"] == ((("commonName", "other"),),)


def test_a_ca_of_clients_that_is_replaced_is_trusted_no_more_nor_are_its_sessions(
    served: SimpleNamespace, authority: Authority, asking: list[Credentials], tmp_path: Path
) -> None:
    client_ca = tmp_path / "ca.pem"
    client_ca.write_bytes(authority.file.read_bytes())
    certificates = Certificates(*authority.issue().paths, client_ca)
    context = trusting(authority, authority.issue("ada", ["ada.example"]))
    with listening_at(served.app, certificates) as port:
        with connected(port, context) as connection:
            assert answer_to(connection, PLAIN.encode()).startswith(b"HTTP/1.1 200 ")
            session = connection.session
        client_ca.write_bytes(Authority(tmp_path / "other", "other").file.read_bytes())
        certificates.refresh()
        asking.clear()
        assert not is_answered(port, context, session)
        assert not is_answered(port, context)
    assert asking == []


def test_what_sends_no_handshake_is_closed_and_holds_up_nobody(
    served: SimpleNamespace, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: silence, half a handshake, garbage and plain HTTP end, and others are answered meanwhile."""
    monkeypatch.setattr(listening, "HANDSHAKE_SECONDS_MAX", 2.0)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    half = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        half.do_handshake()
    hello = outgoing.read()
    context, certificates = trusting(authority), Certificates(*authority.issue().paths)
    with listening_at(served.app, certificates) as port, ExitStack() as stack:
        stalled = []
        for begun in (b"", hello[:20], hello, b"\x16\x03\x01\xff\xff", b"x" * 500, PLAIN.encode()):
            connection = socket.create_connection(("127.0.0.1", port), timeout=STALLED_SECONDS_MAX)
            stalled.append(stack.enter_context(connection))
            connection.sendall(begun)
        assert is_answered(port, context)
        for connection in stalled:
            received = b""
            with suppress(ConnectionResetError):
                while part := connection.recv(65_536):
                    received += part
            assert not received.startswith(b"HTTP"), "it speaks TLS alone"
        assert is_answered(port, context)


def test_a_client_that_asks_for_nothing_after_its_handshake_is_closed(
    served: SimpleNamespace, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.app, "request_seconds_max", 0.1)
    context, certificates = trusting(authority), Certificates(*authority.issue().paths)
    with listening_at(served.app, certificates) as port, connected(port, context) as connection:
        assert connection.recv(1) == b""


def test_the_server_is_known_by_its_certificate_whatever_its_names_and_by_no_other(
    served: SimpleNamespace, authority: Authority, tmp_path: Path
) -> None:
    """Goal: who is on the server's machine asks it by whatever address, and nobody else answers for it."""
    pair, other = authority.issue(names=["lake.example"]), authority.issue(names=["lake.example"])
    chain, others = tmp_path / "chain.pem", tmp_path / "others.pem"
    for file, one in ((chain, pair), (others, other)):
        file.write_bytes(one.certificate.read_bytes() + authority.file.read_bytes())
    with listening_at(served.app, Certificates(*pair.paths)) as port:
        url = f"https://127.0.0.1:{port}"
        assert httpx.get(f"{url}/livez", verify=pinned_context(chain)).json() == {
            "status": "ok",
            "not_served": {},
        }
        assert is_ready(url, chain)
        assert not is_ready(url, others), "its CA's other certificates are not the server's"
        assert not is_ready(f"http://127.0.0.1:{port}")


def test_pages_have_headers_that_keep_browsers_from_misusing_them(
    served: SimpleNamespace, authority: Authority
) -> None:
    with listening_at(served.app, Certificates(*authority.issue().paths)) as port:
        get = partial(httpx.get, verify=trusting(authority))
        page = get(f"https://localhost:{port}/docs")
        assert page.headers["Strict-Transport-Security"] == "max-age=31536000"
        style = get(f"https://localhost:{port}/static-offline-docs/swagger-ui.css")
        assert style.headers["X-Content-Type-Options"] == "nosniff"
        assert "Strict-Transport-Security" not in get(f"https://localhost:{port}/livez").headers
    with listening_at(served.app, None) as port:
        page = httpx.get(f"http://localhost:{port}/docs")
        assert page.status_code == 200
        assert page.headers["X-Content-Type-Options"] == "nosniff"
        assert page.headers["Referrer-Policy"] == "no-referrer"
        assert page.headers["X-Frame-Options"] == "DENY"
        assert "Strict-Transport-Security" not in page.headers


def test_what_a_proxy_of_uvicorns_would_believe_is_not_believed(
    served: SimpleNamespace, asking: list[Credentials]
) -> None:
    headers = {"X-Forwarded-For": "198.51.100.7", "X-Forwarded-Proto": "https"}
    with listening_at(served.app, None) as port:
        page = httpx.get(f"http://localhost:{port}/docs", headers=headers)
        assert "Strict-Transport-Security" not in page.headers
        assert httpx.get(f"http://localhost:{port}/v1/tables", headers=headers).status_code == 200
    assert {one.address for one in asking} == {"127.0.0.1"}


def test_json_over_tls_is_the_same(served: SimpleNamespace, authority: Authority) -> None:
    with listening_at(served.app, Certificates(*authority.issue().paths)) as port:
        secure = httpx.get(f"https://localhost:{port}/v1/tables", verify=trusting(authority))
    assert json.loads(secure.content) == {"tables": ["profiles"]}
