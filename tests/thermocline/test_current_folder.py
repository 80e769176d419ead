"""Commands that are typed in a folder with packages called like ours take none of them for ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packages import put_packages_of_our_names

CONFIG = """
[kafka]
bootstrap_servers = "127.0.0.1:1"
[catalog]
uri = "sqlite:///catalog.db"
warehouse = "warehouse"
[tables.profiles]
identifier = "app.profiles"
topics = ["profiles"]
key = ["id"]
columns = { id = "int" }
"""
# How each ends where it came to its own room: there is no catalog yet.
COMMANDS = {
    "views": (["views", "config", "trino"], ""),
    "ingest": (["ingest", "plan", "profiles"], "Error [catalog-unreachable]"),
    "serving": (["sql", "select 1 from profiles"], "Error [catalog-unreachable]"),
}
# Starts a process as `serve` does, in the course of a command.
STARTING = """
from unittest.mock import patch
from thermocline.cli import main

def run(arguments):
    from thermocline.serving.process.forked import Forked
    return Forked("it", print, ("started",)).has_ended(60.0) - 1

if __name__ == "__main__":
    with patch("thermocline.cli.entry.run", run):
        main()
"""


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_finds_its_own_packages(name: str, tmp_path: Path) -> None:
    words, expected = COMMANDS[name]
    put_packages_of_our_names(tmp_path)
    (tmp_path / "thermocline.toml").write_text(CONFIG)
    ended = typed(tmp_path, "-m", "thermocline", *words)
    assert ended.stderr.startswith(expected), ended.stderr
    assert (ended.returncode == 0) == (not expected), ended.stderr


def test_so_does_a_process_that_it_starts(tmp_path: Path) -> None:
    put_packages_of_our_names(tmp_path)
    script = tmp_path.parent / "script.py"
    script.write_text(STARTING)
    ended = typed(tmp_path, str(script))
    assert (ended.returncode, ended.stdout) == (0, "started\n"), ended.stderr


def typed(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
