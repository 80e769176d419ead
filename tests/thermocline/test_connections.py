"""``config check --connect`` names what answers and what doesn't, with the next step."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.thermocline.registry_server import RegistryServer
from thermocline import cli
from thermocline.errors import ExitCode

CONFIG = """
[kafka]
bootstrap_servers = "127.0.0.1:{closed}"
[registry]
url = "http://127.0.0.1:{registry}"
[catalog]
uri = "sqlite:///catalog.db"
warehouse = "{warehouse}"
[catalog.properties]
"s3.endpoint" = "http://127.0.0.1:{closed}"
"s3.region" = "us-east-1"
"s3.access-key-id" = "a"
"s3.secret-access-key" = "b"
[tables.profiles]
identifier = "app.profiles"
topics = ["profiles"]
key = ["id"]
columns = {{ id = "int" }}
"""


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> int:
    """A port that nobody listens at; Kafka's client, which tries again and again, gives up soon."""
    monkeypatch.setattr("thermocline.kafka.log.REQUEST_TIMEOUT_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def checked(
    folder: Path, capsys: pytest.CaptureFixture[str], *words: str, **places: object
) -> tuple[int, str]:
    file = folder / "thermocline.toml"
    file.write_text(CONFIG.format(**places))
    code = cli.run(["--config", str(file), "config", "check", "--connect", *words])
    return code, capsys.readouterr().out


def test_what_does_not_answer_is_said_of_each(
    tmp_path: Path, closed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = checked(tmp_path, capsys, closed=closed, registry=closed, warehouse="s3://lake/warehouse")
    assert code == ExitCode.UNAVAILABLE
    heads = [line for line in out.splitlines()[1:] if not line.startswith(" ")]
    assert [head.split(":")[0].split()[0] for head in heads] == ["kafka", "registry", "catalog", "store"]
    assert "[kafka-unreachable]" in heads[0]
    assert "[registry-unreachable]" in heads[1]
    assert heads[2].endswith("catalog.db: ok, made with the first table")
    assert "s3://lake/warehouse: [storage-failed]" in heads[3]
    assert out.count("\n           next: ") == 3


def test_what_answers_is_ok_beside_what_does_not(
    tmp_path: Path, closed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with RegistryServer().running() as registry:
        code, out = checked(
            tmp_path, capsys, "--json", closed=closed, registry=registry.port, warehouse="warehouse"
        )
    done: list[dict[str, Any]] = json.loads(out)["connections"]
    assert code == ExitCode.UNAVAILABLE
    assert [(one["of"], one["ok"]) for one in done] == [
        ("kafka", False),
        ("registry", True),
        ("catalog", True),
        ("store", True),
    ]
    assert done[0]["error"]["code"] == "kafka-unreachable"
    assert [path.name for path in tmp_path.iterdir()] == ["thermocline.toml"]
