"""What commands say to servers of who asks, and which they trust, by variables."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.certificates import Authority, Pair
from thermocline.cli import entry
from thermocline.cli import server_access as access_module
from thermocline.cli.server_access import access_errors, server_access
from thermocline.cli.server_answers import Client
from thermocline.client import Retries
from thermocline.client.blocking import Connection
from thermocline.errors import BadParameter, ServerUnreachable, Unauthenticated
from thermocline.process.tls import server_context
from thermocline.settings import ServingSettings, load_settings
from thermocline.settings.environment import OTHER_VARIABLES

ONCE = Retries(attempts_max=1)
KEY = "tck_secret"
ANSWER: dict[str, Any] = {"extracts": [], "tables": {}}


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("THERMOCLINE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


class Asked(ThreadingHTTPServer):
    """A server over TLS that knows clients by their certificates; ``asked`` has their keys and serials."""

    daemon_threads = True

    def __init__(self, pair: Pair, client_ca: Path) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.asked: list[tuple[str, str | None, str | None]] = []
        self.socket = server_context(*pair.paths, client_ca).wrap_socket(self.socket, server_side=True)

    def handle_error(self, request: object, client_address: object) -> None: ...


class Answering(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        certificate = self.connection.getpeercert() or {}
        key = self.headers.get("Authorization")
        self.server.asked.append((self.path, key, certificate.get("serialNumber")))  # type: ignore[attr-defined]
        content = json.dumps(ANSWER).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def pair(authority: Authority) -> Pair:
    return authority.issue(names=["localhost"])


@pytest.fixture
def server(authority: Authority, pair: Pair) -> Iterator[Asked]:
    with Asked(pair, authority.file) as server:
        Thread(target=server.serve_forever).start()
        yield server
        server.shutdown()


def test_a_command_asks_with_key_and_certificate_and_trusts_the_named_ca(
    server: Asked, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = authority.issue("ada", ["ada.example"])
    key_file = tmp_path / "key"
    key_file.write_text(f"{KEY}\n")
    url = f"https://localhost:{server.server_port}"
    monkeypatch.chdir(tmp_path)  # no configuration there
    assert entry.run(["jobs", "list", "t", "--url", url, "--json"]) == 3, "its CA is not trusted"
    monkeypatch.setenv("THERMOCLINE_CA_FILE", str(authority.file))
    monkeypatch.setenv("THERMOCLINE_KEY_FILE", str(key_file))
    monkeypatch.setenv("THERMOCLINE_CERTIFICATE", str(shown.certificate))
    monkeypatch.setenv("THERMOCLINE_CERTIFICATE_KEY", str(shown.key))
    assert entry.run(["jobs", "list", "t", "--url", url, "--json"]) == 0
    assert server.asked == [("/v1/tables/t/extracts", f"Bearer {KEY}", f"{shown.serial:02X}")]
    client = Client(url, retries=ONCE)
    assert client.refused("t", 1) == ANSWER
    client.close()
    assert server.asked[1] == ("/v1/tables/t/refused?limit=1", f"Bearer {KEY}", f"{shown.serial:02X}")


def test_a_machines_own_server_is_known_by_its_certificate(
    server: Asked, authority: Authority, pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: the certificate names another host than the address, and no CA of this machine knows it."""
    monkeypatch.setenv("THERMOCLINE_KEY", KEY)
    config = tmp_path / "thermocline.toml"
    config.write_text(
        '[kafka]\nbootstrap_servers = "127.0.0.1:9"\n[catalog]\nuri = "sqlite:///c.db"\nwarehouse = "w"\n'
        f"[serving]\nport = {server.server_port}\n"
        f'tls_certificate = "{pair.certificate}"\ntls_key = "{pair.key}"\n'
    )
    monkeypatch.setenv("THERMOCLINE_CONFIG", str(config))
    assert load_settings().serving.url == f"https://127.0.0.1:{server.server_port}"
    assert entry.run(["jobs", "list", "t", "--json"]) == 0
    assert entry.run(["status", "--json", "--without", "kafka", "--without", "catalog"]) == 0
    assert [(path, key) for path, key, _ in server.asked] == [
        ("/v1/tables/t/extracts", f"Bearer {KEY}"),
        ("/status", f"Bearer {KEY}"),
    ]
    other = authority.issue(names=["localhost", "127.0.0.1"])
    pair.certificate.write_bytes(other.certificate.read_bytes())
    assert entry.run(["jobs", "list", "t", "--json"]) == 3, "another one of the same CA answers"
    pair.certificate.write_text("none")
    assert entry.run(["jobs", "list", "t", "--json"]) == 3
    assert len(server.asked) == 2


def test_a_server_whose_certificate_is_not_here_is_asked_as_any_other(tmp_path: Path) -> None:
    own = ServingSettings(tls_certificate=tmp_path / "elsewhere.pem", tls_key=tmp_path / "elsewhere.key")
    assert server_access(own) == {}
    assert server_access(ServingSettings()) == {}
    (tmp_path / "elsewhere.pem").write_text("-----BEGIN CERTIFICATE-----")
    with pytest.raises(ServerUnreachable) as unreachable:
        server_access(own)
    assert unreachable.value.detail.endswith("elsewhere.pem, can't be used: it holds no certificate")


def test_wrong_variables_are_named_and_no_key_is_shown(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(url: str = "https://localhost:1") -> BadParameter:
        with pytest.raises(BadParameter) as error, access_errors():
            Connection(url, retries=ONCE, **server_access())
        assert KEY not in str(error.value)
        return error.value

    monkeypatch.setenv("THERMOCLINE_KEY", KEY)
    over_http = refused("http://lake.example")
    assert (over_http.name, over_http.problem) == (
        "THERMOCLINE_KEY",
        "it would be sent to lake.example unencrypted; use https",
    )
    assert over_http.correction == "use https, or set THERMOCLINE_KEY_OVER_HTTP=1"
    assert entry.run(["lookup", "t", "id=1", "--url", "http://lake.example"]) == 2
    assert KEY not in "".join(capsys.readouterr())
    monkeypatch.setenv("THERMOCLINE_KEY_OVER_HTTP", "1")
    Connection("http://lake.example", **server_access()).close()
    monkeypatch.setenv("THERMOCLINE_KEY_FILE", str(tmp_path / "missing"))
    assert refused().problem == "THERMOCLINE_KEY_FILE is set as well; set one of them"
    monkeypatch.delenv("THERMOCLINE_KEY")
    missing = refused()
    assert (missing.name, missing.problem) == (
        "THERMOCLINE_KEY_FILE",
        f"{tmp_path / 'missing'}: No such file or directory",
    )
    monkeypatch.delenv("THERMOCLINE_KEY_FILE")
    monkeypatch.setenv("THERMOCLINE_CERTIFICATE_KEY", str(authority.issue().key))
    assert refused().problem == "it needs THERMOCLINE_CERTIFICATE"
    monkeypatch.setenv("THERMOCLINE_CERTIFICATE", str(authority.file))
    assert refused().name == "THERMOCLINE_CERTIFICATE, THERMOCLINE_CERTIFICATE_KEY"
    monkeypatch.delenv("THERMOCLINE_CERTIFICATE")
    monkeypatch.delenv("THERMOCLINE_CERTIFICATE_KEY")
    monkeypatch.setenv("THERMOCLINE_CA_FILE", str(tmp_path / "missing"))
    assert refused().name == "THERMOCLINE_CA_FILE"


def test_the_variables_are_no_settings() -> None:
    names = {
        value
        for name, value in vars(access_module).items()
        if name.isupper() and str(value).startswith("THERMOCLINE_")
    }
    assert len(names) == 6
    assert names <= OTHER_VARIABLES


def test_what_is_wrong_with_a_connection_is_said_with_what_to_do(
    server: Asked, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = server.server_address[1]

    def next_of(url: str) -> str:
        with pytest.raises(ServerUnreachable) as found, Client(url, retries=ONCE) as asking:
            asking.lookup("t", {"id": "1"})
        return found.value.next

    assert next_of(f"https://localhost:{port}").startswith("export THERMOCLINE_CA_FILE=")
    assert next_of("https://localhost:1").startswith("thermocline serve ")
    monkeypatch.setenv("THERMOCLINE_CA_FILE", str(authority.file))
    assert next_of(f"https://127.0.0.1:{port}") == "ask by a name that is in the server's certificate"


class Refusing(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        facts = {"detail": "no credentials came", "keys_awaited": False}
        problem = Unauthenticated(detail="no credentials came").to_problem(self.path)
        content = json.dumps(problem | {"facts": facts}).encode()
        self.send_response(401)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None: ...


def test_status_says_that_the_server_wants_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thermocline.toml").write_text(
        """
[kafka]
bootstrap_servers = "127.0.0.1:1"
[catalog]
uri = "sqlite:///none/catalog.db"
warehouse = "warehouse"
"""
    )
    monkeypatch.chdir(tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        Thread(target=server.serve_forever).start()
        entry.run(["status", "--json", "--url", f"http://127.0.0.1:{server.server_address[1]}"])
        server.shutdown()
    error = json.loads(capsys.readouterr().out)["server"]["error"]
    assert error["code"] == "unauthenticated"
    assert error["next"].startswith("export THERMOCLINE_KEY=")
