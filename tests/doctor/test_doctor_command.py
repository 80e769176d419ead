"""The command: a block for each check as it comes, one JSON document, and an exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.doctor.planted import CONFIG
from thermocline import cli
from thermocline.dev.ports import free_ports
from thermocline.doctor.checks import CHECKS
from thermocline.errors import ExitCode


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a deployment whose brokers are down."""
    monkeypatch.setattr("thermocline.kafka.log.REQUEST_TIMEOUT_SECONDS", 0.3)
    closed, port = free_ports(2)
    file = tmp_path / "thermocline.toml"
    sections = "[audit]\nkeep_files = 3\n[tables.profiles]"
    text = CONFIG.format(servers=f"127.0.0.1:{closed}", port=port, topic="profiles", more="")
    file.write_text(text.replace("[tables.profiles]", sections, 1))
    return file


def test_brokers_that_are_down_end_with_3_and_the_rest_is_looked_at(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in file.parent.rglob("*") if path.is_file()}
    code = cli.run(["--config", str(file), "doctor", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert code == report["exit_code"] == ExitCode.UNAVAILABLE
    assert [one["check"] for one in report["checks"]] == [one.name for one in CHECKS]
    outcomes = {one["check"]: one["outcome"] for one in report["checks"]}
    assert (outcomes["kafka"], outcomes["retention"], outcomes["store"]) == (
        "problem",
        "not looked at",
        "well",
    )
    after = {path: path.read_bytes() for path in file.parent.rglob("*") if path.is_file()}
    assert after == before, "nothing is changed"


def test_people_are_shown_what_was_found_what_it_means_and_the_fix(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.run(["--config", str(file), "doctor", "--table", "profiles"])
    out = capsys.readouterr().out
    lines = out.splitlines()
    (at,) = [place for place, line in enumerate(lines) if line.startswith("warning") and "unused" in line]
    assert lines[at + 1].startswith('  found  audit.keep_files: audit.sink is not "file"')
    assert lines[at + 2].startswith("  means  it does nothing")
    assert lines[at + 3].startswith("  fix    sed -i.bak ")
    assert f"thermocline --config {file} table create profiles" in out
    assert lines[-1].startswith(f"{len(CHECKS)} checks in ")


def test_a_table_that_is_not_configured_is_a_problem_of_the_command_line(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.run(["--config", str(file), "doctor", "--table", "profile", "--json"])
    report = json.loads(capsys.readouterr().out)
    (finding,) = report["checks"][0]["findings"]
    assert (code, finding["code"]) == (ExitCode.USAGE, "unknown-table")


def test_a_configuration_that_cannot_be_read_leaves_the_machine_to_look_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "thermocline.toml"
    file.write_text("[kafka]\n")
    code = cli.run(["--config", str(file), "doctor", "--json"])
    outcomes = {one["check"]: one["outcome"] for one in json.loads(capsys.readouterr().out)["checks"]}
    assert code == ExitCode.USAGE
    assert (outcomes["configuration"], outcomes["open files"], outcomes["kafka"]) == (
        "problem",
        "well",
        "not looked at",
    )
