"""No secret of the configuration is in anything that a command prints, or in what ``ps`` shows of it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.brokers import Brokers
from tests.serving.small_lake import START_SECONDS_MAX, create_table, get
from thermocline import cli
from thermocline.settings import Settings, load_settings

CANARY = "canary-7f3a"
CONFIG = """
[kafka]
bootstrap_servers = "127.0.0.1:9"
[kafka.client]
"security.protocol" = "SASL_SSL"
"sasl.mechanism" = "PLAIN"
"sasl.username" = "u"
"sasl.password" = "{canary}-kafka"
"ssl.key.password" = "{canary}-key"
[catalog]
{catalog}
warehouse = "warehouse"
[catalog.properties]
"s3.secret-access-key" = "{canary}-s3"
"s3.access-key-id" = "{canary}-id"
credential = "id:{canary}-credential"
token = "{canary}-token"
[spark.conf]
"spark.hadoop.fs.s3a.secret.key" = "{canary}-spark"
[registry]
url = "https://127.0.0.1:9"
user = "u"
[ingest]
engine = "local"
[serving]
port = {port}
workers = 1
cors_origins = ["https://u:{canary}-origin@app.example"]
[serving.catalog]
enabled = true
reader_properties = {{ credential = "id:{canary}-reader" }}
[views]
url = "https://127.0.0.1:9"
password = "{canary}-trino"
[tables.profiles]
identifier = "app.profiles"
topics = ["profiles"]
key = ["id"]
entity = ["id"]
columns = {{ id = "int", note = "string" }}
view_filter = "note <> 'password={canary}-filter'"
"""
SQLITE = 'uri = "sqlite:///catalog.db"'
POSTGRES = 'uri = "postgresql+psycopg://u:{canary}-database@127.0.0.1:9/lake?connect_timeout=5"'
REST = 'type = "rest"\nuri = "http://u:{canary}-rest@127.0.0.1:9/"'
COMMANDS = (
    ("config", "show"),
    ("table", "show", "profiles"),
    ("table", "show", "profile"),
    ("topic", "list"),
    ("ingest", "offsets", "profiles"),
    ("ingest", "run", "--once"),
    ("lookup", "profiles", "id=1"),
    ("sql", "select * from profiles"),
    ("sql", "select * from nothing"),
    ("maintain", "plan", "profiles"),
    ("views", "publish", "profiles"),
    ("views", "status", "profiles"),
    ("verify", "profiles"),
)
SLOW = (("config", "check", "--connect"), ("status", "--timeout", "2"))
"""They wait for an answer."""
CALLS = [
    *(
        (catalog, as_json, one)
        for catalog, as_json in ((SQLITE, 0), (POSTGRES, 1), (REST, 0))
        for one in COMMANDS
    ),
    *((POSTGRES, as_json, one) for as_json in (0, 1) for one in SLOW),
]


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Writes a configuration that has a secret in each place; one of them comes from a file."""

    def write(catalog: str) -> Path:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        (tmp_path / "registry").write_text(f"{CANARY}-registry\n")
        monkeypatch.setenv("THERMOCLINE_REGISTRY__PASSWORD_FILE", str(tmp_path / "registry"))
        file = tmp_path / "thermocline.toml"
        text = CONFIG.replace("{catalog}", catalog)
        file.write_text(text.format(canary=CANARY, port=port))
        return file

    return write


@pytest.mark.parametrize(("catalog", "as_json", "command"), CALLS)
def test_no_secret_is_in_what_a_command_prints(
    configured: Callable[[str], Path],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    catalog: str,
    as_json: bool,
    command: tuple[str, ...],
) -> None:
    """Method: nothing answers, so most end with an error; all is logged, with where each comes from."""
    monkeypatch.setenv("THERMOCLINE_TRACEBACK", "1")
    monkeypatch.setattr("thermocline.cli.connections.SECONDS_MAX", 2.0)
    options = ["--config", str(configured(catalog)), "--log-level", "debug"]
    code = cli.run(
        [*options, *(["--log-json"] if as_json else []), *command, *(["--json"] if as_json else [])]
    )
    out, err = capfd.readouterr()
    assert "7f3a" not in out + err
    assert out + err, code


def test_the_configuration_is_shown_without_secrets_and_with_all_else(
    configured: Callable[[str], Path], capfd: pytest.CaptureFixture[str]
) -> None:
    cli.run(["--config", str(configured(POSTGRES)), "config", "show", "--json"])
    shown = json.loads(capfd.readouterr().out)
    assert shown["registry"]["password"] == "****"
    assert shown["catalog"]["uri"] == "postgresql+psycopg://u:****@127.0.0.1:9/lake?connect_timeout=5"
    assert shown["serving"]["cors_origins"] == ["https://u:****@app.example"]
    assert shown["views"]["user"] == "thermocline"


@contextmanager
def started(config: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command that runs, with a secret in its environment, too; its log is beside the configuration."""
    environment = os.environ | {"THERMOCLINE_CATALOG__PROPERTIES__S3__SESSION-TOKEN": f"{CANARY}-session"}
    arguments = [
        sys.executable,
        "-m",
        "thermocline",
        "--config",
        str(config),
        "--log-level",
        "debug",
        *command,
    ]
    with config.with_name("log").open("wb") as log:
        process = subprocess.Popen(arguments, env=environment, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(START_SECONDS_MAX)
        finally:
            process.kill()
            process.wait()


def lines_of(pid: int) -> dict[int, tuple[str, str]]:
    """What everybody sees of a process and of those that it started: its title or command line, and name."""
    found = {}
    for one in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        try:
            found[one.pid] = (" ".join(one.cmdline()).strip(), one.name())
        except psutil.Error:  # it has ended
            continue
    return found


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_no_secret_is_in_a_running_servers_processes_status_or_log(configured: Callable[[str], Path]) -> None:
    config = configured(SQLITE)
    settings: Settings = load_settings(config)
    create_table(settings, "profiles")
    seen: dict[int, tuple[str, str]] = {}

    def is_up() -> bool:
        seen.update(lines_of(process.pid))
        titles = {line for line, _ in seen.values()}
        return {"thermocline: serve", "thermocline: tailer profiles", "thermocline: api 0"} <= titles

    with started(config, "serve") as process:
        until(is_up)
        until(lambda: "[kafka-unreachable]" in str(get(settings, "/readyz")))
        status = json.dumps([get(settings, path) for path in ("/status", "/readyz", "/v1/tables/profiles")])
        seen |= lines_of(process.pid)
    log = config.with_name("log").read_text()
    assert "7f3a" not in json.dumps(list(seen.values())) + status
    assert "server stopped" in log
    assert "7f3a" not in log


@pytest.mark.jvm
def test_no_secret_is_in_the_processes_of_ingest_or_the_environment_of_its_jvm(
    configured: Callable[[str], Path], brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured(SQLITE)
    seen: dict[int, tuple[str, str]] = {}
    environments: dict[int, dict[str, str]] = {}

    def is_up() -> bool:
        seen.update(lines_of(process.pid))
        for pid, (line, name) in lines_of(process.pid).items():
            if name == "java" and "GatewayServer" in line:
                environments[pid] = psutil.Process(pid).environ()
        return bool(environments) and "thermocline: ingest profiles" in {line for line, _ in seen.values()}

    with brokers.lent() as kafka:
        monkeypatch.setenv("THERMOCLINE_KAFKA__BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
        monkeypatch.setenv("THERMOCLINE_KAFKA__CLIENT__SECURITY__PROTOCOL", "PLAINTEXT")
        kafka.create_topic("profiles", 1)
        assert cli.run(["--config", str(config), "table", "create", "profiles"]) == 0
        with started(config, "ingest", "run", "profiles") as process:
            until(is_up)
    log = config.with_name("log").read_text()
    assert "7f3a" not in json.dumps([list(seen.values()), environments]) + log
