"""An issuer's keys over real HTTP and from files: when they are read, and what counts while that fails."""

from __future__ import annotations

import ipaddress
import json
import logging
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from tests.manual_clock import ManualClock
from tests.serving.access.audit_parts import wait_for
from tests.serving.access.jwks_server import JwksServer, jwks_server
from tests.serving.access.signing import AUDIENCE, ISSUER, ec_key, jwk_of, rsa_key
from thermocline.serving.access.discovery import keys_url_in
from thermocline.serving.access.issuer import Issuer
from thermocline.serving.access.issuer_keys import HttpFetch, IssuerKeys
from thermocline.serving.access.jwks import KeysUnusable

OLD, NEW = jwk_of(rsa_key(), "old"), jwk_of(rsa_key(1), "new")


@pytest.fixture
def server() -> Iterator[JwksServer]:
    with jwks_server(OLD) as running:
        yield running


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def issuer(**more: Any) -> Issuer:
    return Issuer.model_validate({"issuer": ISSUER, "audience": AUDIENCE, **more})


def keys_of(server: JwksServer, clock: ManualClock, **more: Any) -> IssuerKeys:
    """Looked for once."""
    made = IssuerKeys("corp", issuer(jwks_url=server.url, **more), clock, HttpFetch(clock))
    made.look()
    return made


def kids(keys: IssuerKeys) -> list[str | None]:
    return [key.kid for key in keys.keys.keys]


def test_keys_are_asked_for_again_before_a_refresh_is_over_and_not_long_before(
    server: JwksServer, clock: ManualClock
) -> None:
    keys = keys_of(server, clock)
    assert (kids(keys), server.asked, keys.problem()) == (["old"], ["/keys"], None)
    server.publish(OLD, NEW)
    clock.advance(239)
    keys.look()
    assert (kids(keys), len(server.asked)) == (["old"], 1)
    clock.advance(61)
    keys.look()
    assert (kids(keys), len(server.asked)) == (["old", "new"], 2)


def test_a_key_that_is_wanted_is_asked_for_early_but_never_within_the_floor(
    server: JwksServer, clock: ManualClock
) -> None:
    keys = keys_of(server, clock)
    for elapsed_seconds, asked in ((9, 1), (0.9, 1), (0.1, 2), (9.9, 2), (0.1, 3), (50, 4)):
        clock.advance(elapsed_seconds)
        for _ in range(100):
            keys.want()
            keys.look()
        assert len(server.asked) == asked
    for asked in (5, 5):  # what was wanted meanwhile; then nothing is any more
        clock.advance(50)
        keys.look()
        assert len(server.asked) == asked


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"status": 500}, "it answers 500"),
        ({"status": 404}, "it answers 404"),
        ({"status": 204, "content": b""}, "it answers 204"),
        ({"content": b"<html>no</html>"}, "it is not a JSON object"),
        ({"content": b""}, "it is not a JSON object"),
        ({"content": b'{"keys": []}'}, "it has no key that verifies RS256"),
        (
            {"content": b'{"keys": [{"kty": "oct", "k": "AA"}]}'},
            "it has no key that verifies RS256; key 1 is of",
        ),
        ({"headers": {"Content-Length": "1000000"}}, "peer closed connection"),
        ({"headers": {"Content-Encoding": "gzip"}, "content": b"\x1f\x8b"}, "it is not a JSON object"),
    ],
)
def test_the_keys_that_were_read_count_while_an_issuer_fails(
    server: JwksServer,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
    answer: dict[str, Any],
    told: str,
) -> None:
    caplog.set_level(logging.INFO, "thermocline")
    keys = keys_of(server, clock)
    good = server.content
    for name, value in answer.items():
        setattr(server, name, value)
    for _ in range(3):
        clock.advance(300)
        keys.look()
        assert kids(keys) == ["old"]
        assert (keys.problem() or "").startswith("its keys can't be read, and those read before count: ")
        assert told in (keys.problem() or "")
    assert len(server.asked) == 4
    server.status, server.content, server.headers = 200, good, {}
    clock.advance(300)
    keys.look()
    assert keys.problem() is None
    assert [
        (record.levelname, record.message) for record in caplog.records if record.name.startswith("thermo")
    ] == [
        ("INFO", "keys of an issuer read"),
        ("ERROR", "keys of an issuer can't be read; those read before count"),
        ("INFO", "keys of an issuer read"),
    ]


def test_an_issuer_that_was_never_read_is_asked_again_soon_and_then_less_often(
    server: JwksServer, clock: ManualClock
) -> None:
    server.status = 503
    keys = keys_of(server, clock)
    assert keys.problem() == "its keys can't be read, and no token of it is accepted: it answers 503"
    for elapsed_seconds, asked in (
        (10, 2),
        (10, 2),
        (10, 3),
        (20, 3),
        (20, 4),
        (80, 5),
        (160, 6),
        (239, 6),
        (61, 7),
    ):
        clock.advance(elapsed_seconds)
        keys.look()
        assert len(server.asked) == asked
    server.status = 200
    clock.advance(300)
    keys.look()
    assert (kids(keys), keys.problem()) == (["old"], None)


def test_a_port_where_nobody_listens_is_a_problem_and_no_crash(
    server: JwksServer, clock: ManualClock
) -> None:
    keys = keys_of(server, clock)
    unreachable = IssuerKeys("corp", issuer(jwks_url="http://127.0.0.1:1/"), clock, HttpFetch(clock))
    unreachable.look()
    assert "Connection refused" in (unreachable.problem() or "")
    assert keys.problem() is None


def test_an_answer_that_leads_elsewhere_is_not_followed(server: JwksServer, clock: ManualClock) -> None:
    with jwks_server(NEW) as elsewhere:
        server.status, server.headers = 302, {"Location": elsewhere.url}
        keys = keys_of(server, clock)
        assert elsewhere.asked == []
    assert keys.problem() == "its keys can't be read, and no token of it is accepted: it answers 302"


CONFIGURATION = "/corp/.well-known/openid-configuration"


def configured(server: JwksServer, **said: object) -> str:
    """Has the server publish the configuration of an issuer, which is given."""
    name = f"{server.root}/corp"
    server.others[CONFIGURATION] = json.dumps({"issuer": name, "jwks_uri": server.url, **said}).encode()
    return name


def found_keys(name: str, clock: ManualClock, **more: Any) -> IssuerKeys:
    """Those of an issuer of which nothing but its URL is known; looked for once."""
    settings = Issuer.model_validate({"issuer": name, "audience": AUDIENCE, **more})
    made = IssuerKeys("corp", settings, clock, HttpFetch(clock))
    made.look()
    return made


def test_an_issuer_says_itself_where_its_keys_are(server: JwksServer, clock: ManualClock) -> None:
    keys = found_keys(configured(server), clock)
    assert (kids(keys), keys.problem()) == (["old"], None)
    assert server.asked == [CONFIGURATION, "/keys"]
    for _ in range(100):
        keys.want()
        keys.look()
    assert len(server.asked) == 2, "the floor is for both"
    with jwks_server(NEW) as moved:
        configured(server, jwks_uri=moved.url)
        clock.advance(10)
        keys.look()
    assert (kids(keys), keys.problem()) == (["new"], None)


def test_the_keys_that_were_read_count_while_a_configuration_fails(
    server: JwksServer, clock: ManualClock
) -> None:
    keys = found_keys(configured(server), clock)
    server.others[CONFIGURATION] = b"<html>no</html>"
    clock.advance(300)
    keys.look()
    assert kids(keys) == ["old"]
    assert keys.problem() == (
        "its keys can't be read, and those read before count: its configuration is not a JSON object"
    )


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"issuer": "https://evil.example.com"}, "is that of 'https://evil.example.com': set issuer to"),
        ({"issuer": None}, "is that of nobody: set issuer to its name, to the letter"),
        ({"jwks_uri": None}, "its configuration has no jwks_uri: set jwks_url or jwks_file"),
        (
            {"jwks_uri": "http://192.0.2.1/keys"},
            "the jwks_uri of its configuration is not taken: it has to be",
        ),
        ({"jwks_uri": "file:///etc/passwd"}, "is not taken: it is no URL"),
        ({"jwks_uri": "http://127.0.0.1:1/keys"}, "http://127.0.0.1:1/keys, which its configuration names: "),
    ],
)
def test_a_configuration_that_cannot_be_used_is_named(
    server: JwksServer, clock: ManualClock, said: dict[str, object], told: str
) -> None:
    keys = found_keys(configured(server, **said), clock)
    assert told in (keys.problem() or "")
    assert (kids(keys), server.asked) == ([], [CONFIGURATION])


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1:8080", "localhost", "[::1]", "0.0.0.0", "127.9.9.9"),
        *("127.1", "2130706433", "0x7f000001", "0", "[::ffff:127.0.0.1]"),
    ],
)
def test_a_remote_issuer_does_not_have_this_machine_asked(host: str) -> None:
    name = "https://login.example.com/corp"

    def configuration(url: str) -> bytes:
        return json.dumps({"issuer": name, "jwks_uri": url}).encode()

    elsewhere = "https://keys.example.net/corp"
    assert keys_url_in(configuration(elsewhere), name) == elsewhere
    with pytest.raises(KeysUnusable, match="is of this machine, and the issuer is not"):
        keys_url_in(configuration(f"https://{host}/keys"), name)
    with pytest.raises(KeysUnusable):
        keys_url_in(configuration(f"http://{host}/keys"), name)


def test_a_configuration_in_the_place_of_keys_is_told_of(server: JwksServer, clock: ManualClock) -> None:
    configured(server)
    server.content = server.others[CONFIGURATION]
    told = "it is a configuration and no set of keys: leave jwks_url out, and it is looked for"
    assert told in (keys_of(server, clock).problem() or "")


def test_an_answer_that_is_too_large_is_not_read_to_its_end(server: JwksServer, clock: ManualClock) -> None:
    server.content, server.parts = b" " * 65_536, 32  # 2 MB
    assert "it answers more than 1,048,576 bytes" in (keys_of(server, clock).problem() or "")


def test_an_answer_that_comes_too_slowly_is_given_up(server: JwksServer) -> None:
    class Hurried(ManualClock):
        def monotonic(self) -> float:
            self.advance(6)
            return super().monotonic()

    server.content, server.parts = b" ", 1_000_000
    with pytest.raises(KeysUnusable, match="takes longer than 15 s"):
        HttpFetch(Hurried())(issuer(jwks_url=server.url))


def test_keys_that_are_not_used_are_a_problem_that_is_logged_once(
    server: JwksServer, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    server.publish(OLD, {"kty": "oct", "kid": "secret"}, jwk_of(rsa_key(bits=1024), "short"))
    keys = keys_of(server, clock)
    clock.advance(300)
    keys.look()
    assert kids(keys) == ["old"]
    assert keys.problem() == (
        'the key "secret" is of type "oct", which is not known here; '
        'the key "short" has 1024 bits, and 2,048 are the least that is taken'
    )
    warned = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [record.message for record in warned] == ["keys of an issuer are not used"]


def test_an_issuer_that_hangs_is_named(server: JwksServer, clock: ManualClock) -> None:
    server.may_answer.clear()
    keys = IssuerKeys("corp", issuer(jwks_url=server.url), clock, HttpFetch(ManualClock()))
    keys.start()
    assert server.is_hanging.wait(30)
    assert keys.problem() == "its keys are not read yet"
    clock.advance(16)
    assert "it has not answered for more than 15 s" in (keys.problem() or "")
    keys.stop()
    server.may_answer.set()
    keys.join(30)
    assert kids(keys) == ["old"]


def test_an_unforeseen_failure_does_not_end_the_thread(clock: ManualClock) -> None:
    answers: list[Exception | bytes] = [json.dumps({"keys": [OLD]}).encode(), ZeroDivisionError()]

    def fetch(_: Issuer) -> bytes:
        answer = answers.pop()
        if isinstance(answer, Exception):
            raise answer
        return answer

    keys = IssuerKeys("corp", issuer(jwks_url="https://login.example.com/"), clock, fetch)
    keys.start()
    wait_for(lambda: "ZeroDivisionError" in (keys.problem() or ""))
    clock.advance(10)
    wait_for(lambda: kids(keys) == ["old"])
    keys.stop()
    keys.join(30)
    assert not [thread for thread in threading.enumerate() if thread.name == "keys of corp"]


def test_a_file_is_read_again_when_it_changes(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "keys.json"
    keys = IssuerKeys("corp", issuer(jwks_file=path), clock, HttpFetch(clock))
    keys.look()
    told = "its keys can't be read, and no token of it is accepted: No such file or directory"
    assert keys.problem() == told
    for jwks, expected in (((OLD,), ["old"]), ((OLD, NEW), ["old", "new"]), ((NEW,), ["new"])):
        put(path, json.dumps({"keys": jwks}).encode())
        keys.look()
        assert (kids(keys), keys.problem()) == (expected, None)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b'{"keys": [', "it is not a JSON object"),
        (b" " * 1_048_577, "it has more than 1,048,576 bytes"),
        (None, "No such file or directory"),
    ],
)
def test_the_keys_of_before_count_while_a_file_cannot_be_read(
    tmp_path: Path, clock: ManualClock, content: bytes | None, told: str
) -> None:
    path = tmp_path / "keys.json"
    put(path, json.dumps({"keys": [OLD]}).encode())
    keys = IssuerKeys("corp", issuer(jwks_file=path), clock, HttpFetch(clock))
    keys.look()
    if content is None:
        path.unlink()
    else:
        put(path, content)
    keys.look()
    assert kids(keys) == ["old"]
    assert told in (keys.problem() or "")
    put(path, json.dumps({"keys": [NEW]}).encode())
    keys.look()
    assert (kids(keys), keys.problem()) == (["new"], None)


def put(path: Path, content: bytes) -> None:
    """Another file in the place of the one before."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(content)
    fresh.replace(path)


def test_https_is_checked_by_the_ca_file(tmp_path: Path, clock: ManualClock) -> None:
    tls = certified(tmp_path)
    with jwks_server(OLD, tls=tls) as server:
        untrusted = keys_of(server, clock)
        assert "CERTIFICATE_VERIFY_FAILED" in (untrusted.problem() or "")
        trusted = keys_of(server, clock, ca_file=tmp_path / "ca.pem")
        assert (kids(trusted), trusted.problem()) == (["old"], None)
        missing = keys_of(server, clock, ca_file=tmp_path / "none.pem")
        assert "ca_file can't be read: No such file or directory" in (missing.problem() or "")
        (tmp_path / "text.pem").write_text("no certificate")
        assert "ca_file can't be read" in (
            keys_of(server, clock, ca_file=tmp_path / "text.pem").problem() or ""
        )


def certified(folder: Path) -> ssl.SSLContext:
    """A server's side of TLS for 127.0.0.1; ``ca.pem`` has its certificate, which nobody else vouches for."""
    key, name = ec_key(), x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "issuer of tests")])
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    today = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(today - timedelta(days=1))
        .not_valid_after(today + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "ca.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "ca.pem", folder / "key.pem")
    return context
