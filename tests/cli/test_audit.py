"""``thermocline audit``: the hash on the command line is the one in the log."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path

import pytest

from thermocline import cli

CONFIG = """
[kafka]
bootstrap_servers = "127.0.0.1:1"
[catalog]
uri = "sqlite:///catalog.db"
warehouse = "warehouse"
[audit]
hash_key_file = "audit.key"
[tables.profiles]
identifier = "app.profiles"
topics = ["profiles"]
key = ["app_id", "user_id", "key"]
entity = ["app_id", "user_id"]
[tables.profiles.columns]
app_id = "int"
user_id = "string"
key = "string"
"""
KEY = b"a secret of thirty-two bytes ..."
# "profiles", a zero byte, 7 as 4 bytes with the sign flipped, "ada" and its end.
ADA = hmac.new(KEY, b"profiles\x00\x80\x00\x00\x07ada\x00\x01", hashlib.sha256).hexdigest()[:32]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "thermocline.toml"
    path.write_text(CONFIG)
    monkeypatch.setenv("THERMOCLINE_CONFIG", str(path))
    return path


def test_the_hash_is_printed_alone(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (config.parent / "audit.key").write_bytes(KEY)
    (config.parent / "audit.key").chmod(0o600)
    assert cli.run(["audit", "hash", "profiles", "app_id=7", "user_id=ada"]) == 0
    assert capsys.readouterr() == (f"{ADA}\n", "")
    assert cli.run(["audit", "hash", "profiles", "user_id=ada", "app_id=7", "key=plan", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"table": "profiles", "entity": ADA}


def test_the_key_is_made_where_there_is_none(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["audit", "hash", "profiles", "app_id=7", "user_id=ada"]) == 0
    key = (config.parent / "audit.key").read_bytes()
    expected = hmac.new(key, b"profiles\x00\x80\x00\x00\x07ada\x00\x01", hashlib.sha256).hexdigest()[:32]
    out, err = capsys.readouterr()
    assert (out, err) == (f"{expected}\n", "")
    assert key.hex() not in out


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["profiles", "app_id=7"], "a lookup needs app_id, user_id"),
        (["profiles", "app_id=7", "user_id"], "is not of the form COLUMN=VALUE"),
        (["profiles", "app_id=x", "user_id=ada"], "app_id is an int"),
        (["orders", "app_id=7"], 'no table "orders" is configured'),
    ],
)
def test_what_names_no_entity_is_refused(
    config: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    assert cli.run(["audit", "hash", *arguments]) == 2
    assert problem in capsys.readouterr().err
    assert not (config.parent / "audit.key").exists()
