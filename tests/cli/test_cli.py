"""The command line: what goes to stdout and to stderr, exit codes, and errors without a traceback."""

from __future__ import annotations

import ast
import errno
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import tomllib
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, NestedField
from rich.console import Group
from rich.text import Text

from thermocline import cli
from thermocline.cli import output
from thermocline.cli.entry import PARTS, all_commands
from thermocline.cli.maintain import plan_command
from thermocline.cli.read import file_or_stdout
from thermocline.cli.status_report import Limits, exit_code_of, lag_of
from thermocline.cli.stopping import stop_event
from thermocline.errors import DependencyMissing, ExitCode, KafkaUnreachable, PortTaken, TableHeld, all_errors
from thermocline.iceberg.catalog import SnapshotState, open_catalog
from thermocline.kafka.log import Log
from thermocline.process.answered import THREADS_MAX, answered
from thermocline.process.clock import SystemClock
from thermocline.rules.alteration import Alteration
from thermocline.rules.read_point import ReadPoint
from thermocline.rules.seam import Seam
from thermocline.serving.read.wanted import Wanted
from thermocline.settings import CatalogSettings, Settings, load_settings
from thermocline.text.typed import as_typed, typed

Call = Callable[..., tuple[int, str, str]]

CONFIG = """
[kafka]
bootstrap_servers = "127.0.0.1:1"
[kafka.client]
"sasl.password" = "hunter2"
[catalog]
uri = "sqlite:///catalog.db"
warehouse = "warehouse"
[serving]
port = {port}
[tables.profiles]
identifier = "app.profiles"
topics = ["profiles"]
key = ["id"]
[tables.profiles.columns]
id = "int"
at = {{ type = "timestamptz", epoch = "ms" }}
"""
POINT = ReadPoint(snapshot_id=9, seam=Seam.of({"profiles": {0: 5}}), end=Seam.of({"profiles": {0: 8}}))


@pytest.fixture
def config(tmp_path: Path, unused_port: int) -> Path:
    file = tmp_path / "thermocline.toml"
    file.write_text(CONFIG.format(port=unused_port))
    return file


@pytest.fixture
def unused_port() -> int:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        return server.server_port


@pytest.fixture
def call(config: Path, capfd: pytest.CaptureFixture[str]) -> Call:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.run(["--config", str(config), *arguments])
        out, err = capfd.readouterr()
        return int(code), out, err

    return run


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The place of `serving.read.private`, where a test puts the functions that a command should call."""
    private = types.ModuleType("thermocline.serving.read.private")
    monkeypatch.setitem(sys.modules, "thermocline.serving.read.private", private)
    monkeypatch.setattr("thermocline.serving.read.private", private, raising=False)
    return private


# Errors


def test_an_error_is_told_with_its_facts_on_stderr_and_no_traceback(call: Call, config: Path) -> None:
    code, out, err = call("table", "show", "profile")
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        'Error [unknown-table]: no table "profile" is configured; did you mean "profiles"?',
        "  Cause   configured: profiles.",
        f"  Next    thermocline --config {config} config show      (or add a section [tables.profile])",
        "  Docs    thermocline explain unknown-table",
    ]


def test_an_error_is_one_json_object_with_json(call: Call) -> None:
    code, out, err = call("table", "show", "profile", "--json")
    document = json.loads(err)
    assert (code, out) == (2, "")
    assert (document["code"], document["exit_code"]) == ("unknown-table", 2)
    assert {"what", "state", "cause", "next", "docs", "retryable"} <= set(document)


def test_an_error_is_a_line_of_the_log_where_the_log_is_json(call: Call) -> None:
    code, _, err = call("--log-json", "table", "show", "profile")
    line = json.loads(err)
    assert (code, line["level"], line["code"]) == (2, "ERROR", "unknown-table")


def test_a_bug_is_an_internal_error_and_its_traceback_is_shown_on_demand_only(
    call: Call, serving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> object:
        raise KeyError("surprise")

    serving.lookup = broken
    code, _, err = call("lookup", "profiles", "id=1")
    assert code == 70
    assert "Error [internal-error]: a bug in Thermocline ended `thermocline lookup`." in err
    assert "KeyError: 'surprise'" in err
    assert "Traceback" not in err
    monkeypatch.setenv("THERMOCLINE_TRACEBACK", "1")
    assert "Traceback" in call("lookup", "profiles", "id=1")[2]
    monkeypatch.delenv("THERMOCLINE_TRACEBACK")
    assert "Traceback" in call("--log-level", "debug", "lookup", "profiles", "id=1")[2]


def test_ctrl_c_ends_a_command_with_130(call: Call, serving: Any) -> None:
    def interrupted(*_: object) -> object:
        raise KeyboardInterrupt

    serving.lookup = interrupted
    assert call("lookup", "profiles", "id=1")[0] == 130


def test_a_missing_part_of_the_installation_is_named_with_how_to_get_it(
    call: Call, serving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_lmdb(*_: object) -> object:
        raise ModuleNotFoundError("No module named 'lmdb'", name="lmdb")

    serving.lookup = without_lmdb
    code, _, err = call("lookup", "profiles", "id=1")
    assert code == 2
    assert "the Python package lmdb is required" in err
    assert "pip install '.[serving]'" in err
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "psycopg", None)
        with pytest.raises(DependencyMissing, match="psycopg") as missing:
            open_catalog(CatalogSettings(uri="postgresql://localhost/lake", warehouse="s3://lake"))
    assert "postgres" in missing.value.how_to_get


@pytest.mark.parametrize(
    "arguments", [["no-such-command"], ["status", "--no-such-option"], ["lookup"], ["config", "x"]]
)
def test_a_command_line_that_cannot_be_understood_exits_with_2(call: Call, arguments: list[str]) -> None:
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("Error [usage]: ")
    assert "--help" in err


def test_a_usage_error_is_json_with_json(call: Call) -> None:
    code, _, err = call("config", "x", "--json")
    assert code == 2
    assert json.loads(err)["code"] == "usage"


@pytest.mark.parametrize("name", ["explain", "version"], ids=["of much", "of a few lines"])
def test_a_reader_that_goes_away_ends_a_command_without_a_word(name: str) -> None:
    command = [sys.executable, "-m", "thermocline", name, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


# explain, version, config


def test_explain_prints_the_page_of_every_code(call: Call) -> None:
    listed = json.loads(call("explain", "--json")[1])
    assert [entry["code"] for entry in listed] == list(all_errors())
    for code, error in all_errors().items():
        exit_code, out, err = call("explain", code)
        assert (exit_code, err) == (0, "")
        assert error.page() in out


def test_explain_lists_all_codes(call: Call) -> None:
    assert all(code in call("explain")[1] for code in ("commit-unknown", "offsets-gone"))


def test_explain_of_an_unknown_code_suggests_one(call: Call) -> None:
    code, _, err = call("explain", "ofsets-gone")
    assert code == 2
    assert 'did you mean "offsets-gone"?' in err


HEAVY = (
    "confluent_kafka",
    "duckdb",
    "httpx",
    "numpy",
    "pyarrow",
    "pydantic",
    "pyiceberg",
    "pyspark",
    "sqlalchemy",
)


def test_a_command_starts_without_what_only_its_work_needs() -> None:
    """Goal: help, and any command, appears at once. Method: all commands are built, in a fresh process."""
    code = (
        "import sys; from thermocline.cli import entry; entry.all_commands(); print(*sys.modules, sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert sorted({name.partition(".")[0] for name in done.stdout.split()} & set(HEAVY)) == []


def test_a_command_that_asks_a_server_loads_nothing_that_reads_tables() -> None:
    """Method: lookup, refused and extract, in a fresh process, where no server is."""
    code = """
import contextlib, io, sys
from thermocline.cli import run
url = ["--url", "http://127.0.0.1:1"]
point = '{"snapshot_id":"7","seam":{"t":{"0":5}},"end":{"t":{"0":9}}}'
with contextlib.redirect_stderr(io.StringIO()):
    codes = [run(["lookup", "t", "a=1", *url]), run(["refused", "t", *url])]
    codes.append(run(["extract", "t", "--since", point, "--where", "a = 1", "--format", "csv", *url]))
print(list(map(int, codes)), *sys.modules, sep="\\n")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    codes, *modules = done.stdout.splitlines()
    assert codes == "[3, 3, 3]"
    asks = {"httpx", "pydantic"}  # the latter is Typer's, where it reads arguments
    assert sorted({name.partition(".")[0] for name in modules} & (set(HEAVY) - asks)) == []


def test_a_command_for_clients_loads_nothing_that_its_configuration_has_no_use_for(tmp_path: Path) -> None:
    """Method: a list of clients by a configuration of a REST catalog, in a fresh process."""
    (tmp_path / "clients.toml").write_text('[clients.ops.tables."*"]\nverbs = ["admin"]\n')
    (tmp_path / "thermocline.toml").write_text(
        '[kafka]\nbootstrap_servers = "b:9092"\n[catalog]\ntype = "rest"\nuri = "http://c:8181"\n'
        '[serving]\nclients_file = "clients.toml"\n'
        '[tables.t]\nidentifier = "a.t"\ntopics = ["t"]\nkey = ["id"]\ncolumns = { id = "int" }\n'
    )
    code = """
import sys
from thermocline.cli import run
code = run(["client", "list"])
print(int(code), *sys.modules, sep="\\n")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "ops" in done.stdout
    modules = done.stdout.split()
    assert "0" in modules
    unused = {
        "confluent_kafka",
        "cryptography",
        "duckdb",
        "fastapi",
        "httpx",
        "jwt",
        "lmdb",
        "pyspark",
        "sqlalchemy",
    }
    assert sorted({name.partition(".")[0] for name in modules} & unused) == []


def test_a_message_is_not_broken_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: a read point or a command can be copied from it."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    said = 'read point: {"snapshot_id":"7","seam":{"t":{"0":5}},"end":{"t":{"0":9}}} and so on'
    output.say(said)
    output.show({}, Text(said), as_json=False)
    output.show({}, Group(Text("a table"), Text(said)), as_json=False)
    assert capsys.readouterr() == (f"{said}\na table\n{said}\n", f"{said}\n")


def test_rows_too_wide_for_a_terminal_are_shown_one_below_the_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    for coins in ("0.01", "0.000000000000000001"):
        rows = output.records(
            ("id", "coins", "remark"), [("w2", coins, "of last year, paid")], is_vertical=False
        )
        output.show(None, rows, as_json=False)
    shown = [line.split() for line in re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out).splitlines()]
    assert shown[0] == ["id", "coins", "remark"]
    assert shown[2:] == [
        ["w2", "0.01", "of", "last", "year,", "paid"],
        ["row", "1"],
        ["id", "w2"],
        ["coins", "0.000000000000000001"],
        ["remark", "of", "last", "year,", "paid"],
    ]


def test_version_is_an_option_too(call: Call) -> None:
    assert call("--version") == (0, "thermocline 0.1.0\n", "")


def test_a_long_value_is_cut_in_a_table_and_whole_in_json(call: Call, serving: types.ModuleType) -> None:
    point = {"snapshot_id": "7", "seam": {"profiles": {"0": 5}}, "end": {"profiles": {"0": 9}}}
    answer = {"table": "profiles", "rows": [{"key": "k", "value": "x" * 12_000}], "read_point": point}
    serving.lookup = lambda *_: answer  # type: ignore[attr-defined]
    text = call("lookup", "profiles", "app_id=7")[1]
    assert f"{'x' * 1_000}… (12,000 characters)" in text
    assert "x" * 1_001 not in text
    assert json.loads(call("lookup", "profiles", "app_id=7", "--json")[1])["rows"][0]["value"] == "x" * 12_000
    vertical = call("lookup", "profiles", "app_id=7", "-x")[1].splitlines()
    assert vertical[0].strip() == "row 1"
    assert [line.split()[0] for line in vertical[1:3]] == ["key", "value"]


def test_the_lookup_command_shows_what_is_nested_as_json(call: Call, serving: types.ModuleType) -> None:
    point = {"snapshot_id": "7", "seam": {"profiles": {"0": 5}}, "end": {"profiles": {"0": 9}}}
    answer = {"table": "profiles", "rows": [{"v": {"city": None, "tags": ["a", True]}}], "read_point": point}
    serving.lookup = lambda *_: answer  # type: ignore[attr-defined]
    assert '{"city": null, "tags": ["a", true]}' in call("lookup", "profiles", "app_id=7")[1]


def test_version_names_what_it_stands_on(call: Call) -> None:
    versions = json.loads(call("version", "--json")[1])
    assert versions["thermocline"] == "0.1.0"
    assert versions["pyarrow"].count(".") == 2


def test_config_check_says_ok_or_every_problem(
    call: Call, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call("config", "check")[:2] == (0, f"ok: {config} (tables: profiles)\n")
    monkeypatch.setenv("THERMOCLINE_SERVING__STATE_DIR", "/proc/state")
    config.write_text(config.read_text().replace('"int"', '"integr"') + "[kafkaa]\n")
    code, out, err = call("config", "check")
    assert (code, out) == (2, "")
    assert "Error [config-invalid]" in err
    assert "kafkaa: unknown name" in err
    assert 'column id: "integr"' in err
    assert "serving.state_dir: /proc/state can't be written" in err


def test_config_check_reads_the_clients_file(call: Call, config: Path) -> None:
    text = config.read_text().replace("[serving]", '[serving]\nclients_file = "clients.toml"')
    config.write_text(text)
    clients = config.parent / "clients.toml"
    code, out, err = call("config", "check")
    assert (code, out, f"{clients} has a problem: no such file" in err) == (2, "", True)
    assert "client create NAME --table TABLE" in err
    clients.write_text('[clients.ada]\nverb = "lookup"\n[clients.bob.tables.profiles]\nverbs = ["drop"]\n')
    code, out, err = call("config", "check")
    assert (code, out, f"{clients} has 3 problems" in err) == (2, "", True)
    assert "clients.ada.verb: " in err
    assert "clients.bob.tables.profiles.verbs.0: " in err
    clients.write_text('[clients.ada]\ncertificates = ["dns:ada.example"]\n')
    code, out, _ = call("config", "check")
    assert code == 0
    why = "nobody is known by its certificates: serving.tls_client_ca is not set"
    assert f"note: {clients}: clients.ada: {why}" in out


def test_a_new_table_may_have_no_column_named_as_trinos_hidden_ones(call: Call, config: Path) -> None:
    """Such a table can't be queried through its views. Nothing is asked of a server before it is refused."""
    config.write_text(config.read_text().replace('id = "int"', 'id = "int"\n"$Partition" = "string"'))
    code, out, err = call("table", "create", "profiles")
    assert (code, out) == (2, "")
    assert 'the column name "$Partition" begins with "$"' in err
    code, out, _ = call("config", "check")
    assert code == 0, "a table that has such a column already can be used"
    assert 'note: tables.profiles: the column name "$Partition"' in out
    assert call("config", "show")[0] == 0


def test_config_show_is_a_configuration_without_its_secrets(call: Call, tmp_path: Path) -> None:
    out = call("config", "show")[1]
    assert "hunter2" not in out
    shown = tmp_path / "shown.toml"
    shown.write_text(out)
    again = load_settings(shown)
    assert again.table("profiles").columns == {"id": "int", "at": {"type": "timestamptz", "epoch": "ms"}}
    assert "hunter2" not in call("config", "show", "--json")[1]


# table and status, on a real catalog


@pytest.fixture
def catalog(config: Path) -> Iterator[Catalog]:
    catalog = open_catalog(load_settings(config).catalog, may_create=True)
    catalog.create_namespace("app")
    yield catalog
    catalog.close()


@pytest.fixture
def foreign_table(catalog: Catalog) -> Table:
    return catalog.create_table("app.profiles", Schema(NestedField(1, "id", IntegerType(), required=True)))


def test_a_table_that_does_not_exist_is_named_with_the_command_that_makes_it(
    call: Call, catalog: Catalog, config: Path
) -> None:
    code, _, err = call("table", "show", "profiles")
    assert code == 2
    assert f"Next    thermocline --config {config} table create profiles" in err


def test_a_printed_command_names_the_configuration_that_was_given(
    capfd: pytest.CaptureFixture[str], config: Path, tmp_path: Path
) -> None:
    """Goal: it runs as printed: quoted where it must be, in text and JSON, and without one if none was."""
    spaced = tmp_path / "a file.toml"
    config.rename(spaced)
    for option in (["--config", str(spaced)], [f"--config={spaced}"]):
        assert cli.run([*option, "table", "show", "profile", "--json"]) == 2
        printed = json.loads(capfd.readouterr().err)["next"]
        assert shlex.split(printed.partition("      (")[0])[:3] == ["thermocline", "--config", str(spaced)]
    with typed(["ingest", "run", "t"]):
        assert as_typed("thermocline ingest run t") == "thermocline ingest run t"
    with typed(["topic", "create", "t", "--config", "retention.ms=1"]):  # of the topic, not the file
        assert as_typed("thermocline topic create t") == "thermocline topic create t"
    with typed(["--log-level", "info", "--config", "c.toml", "ingest", "run", "t"]):
        assert as_typed("raise it, then: thermocline ingest run t\nthermocline explain a-code") == (
            "raise it, then: thermocline --config c.toml ingest run t\nthermocline explain a-code"
        )


def raising(error: Exception) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


QUARANTINED = {
    "topic": "profiles",
    "topic_id": "id",
    "partition": 0,
    "offset": 5,
    "timestamp": datetime(2025, 1, 1, tzinfo=UTC),
}
HELD = TableHeld(table="profiles", host="h", pid=7, since="then", renewed="now", epoch=3)


def test_the_command_that_shows_what_maintenance_left_has_the_budget_that_it_was_left_by() -> None:
    with typed(["maintain", "run", "profiles"]):
        assert plan_command("profiles", None, None) == "thermocline maintain plan profiles"
        left = plan_command("profiles", 600.0, "50 GB")
    words = shlex.split(left)[1:]
    assert words == ["maintain", "plan", "profiles", "--budget-seconds", "600", "--budget-bytes", "50 GB"]


@pytest.mark.parametrize("is_named", [True, False], ids=["with --config", "without"])
@pytest.mark.parametrize("as_json", [True, False], ids=["json", "text"])
def test_what_meets_a_living_owner_prints_itself_as_the_command_to_repeat(
    config: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    is_named: bool,
    as_json: bool,
) -> None:
    """Goal: after `table alter` or `quarantine purge` was held, nobody is told to run ingest."""
    monkeypatch.chdir(config.parent)
    for place in ("thermocline.ingest.table.alter.alter_table", "thermocline.ingest.table.drop.drop_table"):
        monkeypatch.setattr(place, raising(HELD))
    option = ["--config", str(config)] if is_named else []
    ending = ["--json"] if as_json else []
    for words in (["table", "alter", "profiles"], ["table", "drop", "profiles", "--yes"]):
        arguments = [*option, *words, *ending]
        assert cli.run(arguments) == ExitCode.NOT_OWNER
        err = capfd.readouterr().err
        printed = json.loads(err)["next"] if as_json else err.partition("Next    ")[2].partition("\n")[0]
        command, _, remark = printed.partition("      (")
        assert shlex.split(command) == ["thermocline", *arguments]
        assert remark == "when that process has ended)"


def test_commands_that_texts_name_have_the_configuration_that_was_given(
    call: Call, config: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = f"thermocline --config {config}"
    assert f"none yet: {given} table create profiles" in call("table", "list")[1]
    definition = load_settings(config).table("profiles").definition("profiles")
    altered = Alteration(definition, (), (), (), ("a change",))
    monkeypatch.setattr("thermocline.ingest.table.alter.alter_table", lambda *_, **__: altered)
    monkeypatch.setattr("thermocline.ingest.table.alter.costs_of", lambda *_: iter(("some",)))
    assert f"next: {given} table alter profiles\n" in call("table", "alter", "profiles", "--dry-run")[1]
    code, out, err = call("table", "alter", "profiles")
    assert (code, out) == (ExitCode.USAGE, "")
    assert err.startswith("  a change\n  cost: some\n"), "what is to be agreed to is said first"
    assert f"Next    {given} table alter profiles --yes\n" in err
    assert f"next: {given} ingest run profiles\n" in call("table", "alter", "profiles", "--yes")[1]
    state = SnapshotState(1, Seam(), 1, "b", "c", {}, 1, -1, 0)
    monkeypatch.setattr("thermocline.ingest.table.create.create_table", lambda *_: state)
    monkeypatch.setattr("thermocline.ingest.table.sample.warnings_of", lambda *_: [])  # which asks Kafka
    assert f"next: {given} ingest run profiles\n" in call("table", "create", "profiles")[1]


def test_a_command_that_wants_a_yes_is_printed_as_it_is_to_be_typed(
    call: Call, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thermocline.ingest.quarantine.read_rows", lambda *_: iter([QUARANTINED]))
    monkeypatch.setattr("thermocline.iceberg.catalog.open_catalog", lambda *_: None)
    monkeypatch.setattr("thermocline.ingest.quarantine.open_quarantine", lambda *_: None)
    err = call("quarantine", "purge", "profiles", "--before", "2026-01-01 00:00:00Z", "--json")[2]
    printed = shlex.split(json.loads(err)["next"])
    assert printed[:3] == ["thermocline", "--config", str(config)]
    assert printed[3:] == ["quarantine", "purge", "profiles", "--before", "2026-01-01 00:00:00Z", "--yes"]


COMMANDS = list(all_commands().commands)
CONFIGURED = [name for name in COMMANDS if name not in ("demo", "explain", "jobs", "version")]


def test_every_command_that_reads_the_configuration_is_printed_with_it() -> None:
    with typed(["--config", "c.toml", "status"]):
        for name in COMMANDS:
            option = "--config c.toml " if name in CONFIGURED else ""
            assert as_typed(f"thermocline {name} x") == f"thermocline {option}{name} x"


def test_no_text_of_the_command_line_names_a_command_by_itself() -> None:
    """Goal: each is made by `command` or passes `as_typed`, so none can lack the configuration."""
    config_commands = rf"thermocline ({'|'.join(CONFIGURED)})\b"
    found = []
    for file in sorted(Path(cli.__file__).parent.glob("*.py")):
        tree = ast.parse(file.read_text())
        documented = (ast.Module, ast.FunctionDef, ast.ClassDef)
        docstrings = {
            ast.get_docstring(one, clean=False) for one in ast.walk(tree) if isinstance(one, documented)
        }
        texts = [one.value for one in ast.walk(tree) if isinstance(one, ast.Constant)]
        found += [
            f"{file.name}: {text}"
            for text in texts
            if isinstance(text, str) and text not in docstrings and re.search(config_commands, text)
        ]
    assert found == []


def test_the_list_says_which_tables_exist(call: Call, catalog: Catalog) -> None:
    assert json.loads(call("table", "list", "--json")[1])[0]["exists"] is False
    assert "table create profiles" in call("table", "list")[1]


def test_a_table_of_others_is_shown_as_such(call: Call, foreign_table: Table) -> None:
    listed = json.loads(call("table", "list", "--json")[1])
    assert listed[0]["snapshot"]["problem"]["code"] == "foreign-snapshot"
    code, _, err = call("table", "show", "profiles")
    assert code == 40
    assert "[foreign-snapshot]" in err


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(_log: Log) -> None:
        raise KafkaUnreachable(bootstrap_servers="127.0.0.1:1", detail="refused")

    monkeypatch.setattr("thermocline.kafka.log.Log.cluster_id", unreachable)


@pytest.mark.parametrize("command", ["dev", "demo"])
def test_an_image_without_what_development_needs_says_so_plainly(
    call: Call, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setitem(sys.modules, "thermocline.dev", None)
    for name in [name for name in sys.modules if name.startswith("thermocline.dev.")]:
        monkeypatch.delitem(sys.modules, name)
    code, _, err = call(command)
    assert code == 2
    assert "Error [dependency-missing]: the part of Thermocline for `dev` and `demo`, which" in err
    assert "pip install -e '.[ingest,serving]'      (in a checkout of it" in err
    assert "Traceback" not in err
    assert "report" not in err


@pytest.mark.parametrize(("words", "next_step"), [((), "dev --port 9093"), (("--port", "9095"), "status")])
def test_another_port_is_named_where_the_usual_one_of_kafka_is_taken(
    call: Call, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], next_step: str
) -> None:
    def taken(port: int, *_: object) -> None:
        raise PortTaken(host="127.0.0.1", port=port)

    monkeypatch.setattr("thermocline.dev.dev.dev_broker", taken)
    code, _, err = call("dev", *words)
    assert (code, "[port-taken]" in err, f" {next_step}      (" in err) == (2, True, True)


def test_status_exits_with_3_where_nothing_answers(call: Call, away: None) -> None:
    code, out, _ = call("status", "--json")
    report = json.loads(out)
    assert code == 3
    assert report["kafka"]["error"]["code"] == "kafka-unreachable"
    assert report["catalog"]["error"]["code"] == "catalog-unreachable"
    assert report["server"]["error"]["code"] == "server-unreachable"


def test_status_says_what_it_can_where_one_source_is_away(
    call: Call, away: None, foreign_table: Table
) -> None:
    code, out, _ = call("status")
    assert code == 3
    assert "unavailable [kafka-unreachable] refused" in out
    assert "[foreign-snapshot]" in out


@contextmanager
def answering(status: object, config: Path) -> Iterator[None]:
    """A server that answers one request with this, at the address of the configuration."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(status).encode())

        do_DELETE = do_GET  # noqa: N815  (its caller's name)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        config.write_text(CONFIG.format(port=server.server_port))
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        yield
        thread.join()


def test_status_tells_the_rest_where_the_client_of_trino_is_not_installed(
    call: Call, config: Path, away: None, foreign_table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the image that serves."""
    config.write_text(f"{config.read_text()}\n[views]\nenabled = true\n")
    for name in [name for name in sys.modules if f"{name}.".startswith("thermocline.ingest.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "thermocline.views.trino_client", None)
    code, out, _ = call("status", "--json")
    report = json.loads(out)
    assert code == 3
    assert report["trino"]["error"]["code"] == "dependency-missing"
    assert [entry["error"]["code"] for entry in report["tables"]] == ["foreign-snapshot"]


def test_status_tells_what_the_server_says(call: Call, config: Path, away: None) -> None:
    with answering({"ready": True}, config):
        code, out, _ = call("status", "--json")
    assert (code, json.loads(out)["server"]["status"]) == (3, {"ready": True})


@pytest.mark.parametrize(("state", "is_said"), [("complete", True), ("cancelled", False)])
def test_a_job_that_is_cancelled_is_shown_as_it_was_and_what_happens_to_it_is_said(
    call: Call, config: Path, state: str, is_said: bool
) -> None:
    job: dict[str, object] = {
        "id": "nightly",
        "table": "profiles",
        "state": state,
        "read_point": None,
        "files": [],
    }
    job |= {"buckets": 1, "buckets_done": 1, "rows": 7, "bytes": 90, "problem": None, "location": None}
    with answering(job, config):
        code, out, err = call("jobs", "cancel", "profiles", "nightly")
    assert (code, state in out) == (0, True)
    assert ("its files are deleted" in err) is is_said


@pytest.mark.parametrize(
    ("entry", "code"),
    [({"ready": True, "stale": False}, 0), ({"ready": True, "stale": True}, 1), ({"ready": False}, 1)],
)
def test_status_is_a_probe_of_what_is_deployed(
    call: Call, config: Path, away: None, entry: dict[str, bool], code: int
) -> None:
    only_the_server = ("--without", "kafka", "--without", "catalog")
    with answering({"tables": {"profiles": entry}}, config):
        assert call("status", *only_the_server)[0] == code


def test_a_table_that_cannot_go_on_is_the_exit_code_where_everything_answers() -> None:
    report: dict[str, Any] = {"kafka": {}, "tables": [{"table": "a"}, {"table": "b"}]}
    assert exit_code_of(report) == 0
    report["server"] = {"status": {"tables": {"a": {"ready": True}}}}
    assert exit_code_of(report) == 1, "the server does not serve a table"
    report["server"]["status"]["tables"]["b"] = {"ready": True, "stale": False}
    assert exit_code_of(report) == 0
    report["trino"] = {"error": {"code": "dependency-missing"}}
    assert exit_code_of(report) == 0, "it is not Trino that fails"
    assert exit_code_of(report | {"catalog": report["trino"]}) == 3, "no table was looked at"
    report["tables"][0]["owner"] = {"is_gone": True}
    assert exit_code_of(report) == 1, "nobody ingests any more"
    report["tables"][0]["error"] = {"exit_code": 40}
    assert exit_code_of(report) == 40
    report["tables"][1]["unanswered"] = True
    assert exit_code_of(report) == 3


def test_status_does_not_wait_for_what_hangs(
    call: Call, monkeypatch: pytest.MonkeyPatch, catalog: Catalog
) -> None:
    """Method: Kafka's answer never comes."""
    go_on = threading.Event()

    def hang(*_: object) -> None:
        go_on.wait()
        raise KafkaUnreachable(bootstrap_servers="nowhere", detail="too late")

    monkeypatch.setattr("thermocline.kafka.log.Log.cluster_id", hang)
    # A second for what hangs, and as long as a busy machine takes for the others.
    monkeypatch.setattr("thermocline.cli.status_report.SOURCES_SHARE", 1 / 30)
    code, out, _ = call("status", "--json", "--without", "server", "--timeout", "30")
    report = json.loads(out)
    assert code == 3
    assert report["kafka"]["error"]["cause"] == "no answer within 1 s"
    assert report["tables"][0]["error"]["code"] == "table-missing"
    go_on.set()


IMPORTED_WHILE_ASKED = """
import sys
from thermocline.cli import entry, status

asked, real = set(), status.answered


def answered(questions, deadline):
    before = set(sys.modules)
    answers = real(questions, deadline)
    asked.update(sys.modules.keys() - before)
    return answers


status.answered = answered
entry.run(["status", "--json", "--without", "kafka", "--without", "server"])
large = {"numpy", "pandas", "pyarrow", "pyiceberg", "thermocline"}
print(*[name for name in asked if name.partition(".")[0] in large])
"""


def test_status_asks_nothing_before_all_that_it_asks_with_is_imported(
    config: Path, foreign_table: Table
) -> None:
    """Goal: on a busy machine, where imports take seconds, these don't count as a source's silence."""
    ended = subprocess.run(
        [sys.executable, "-c", IMPORTED_WHILE_ASKED],
        capture_output=True,
        text=True,
        env={**os.environ, "THERMOCLINE_CONFIG": str(config)},
        check=True,
    )
    *report, imported = ended.stdout.splitlines()
    assert json.loads("\n".join(report))["tables"][0]["error"]["code"] == "foreign-snapshot"
    assert imported == ""


def test_status_of_many_tables_opens_few_catalogs_and_takes_a_large_answer_of_the_server(
    call: Call, monkeypatch: pytest.MonkeyPatch, catalog: Catalog, config: Path, away: None
) -> None:
    names = [f"t{number}" for number in range(40)]
    assert Limits(10.0, len(names)).all == 13.0
    assert Limits(10.0, 1).all == 10.0
    opened: list[Catalog] = []

    def open_noted(*arguments: Any) -> Catalog:
        opened.append(open_catalog(*arguments))
        return opened[-1]

    monkeypatch.setattr("thermocline.iceberg.catalog.open_catalog", open_noted)
    served = {name: {"ready": True, "stale": False, "padding": "x" * 50_000} for name in names}
    with answering({"tables": served}, config):
        top, _, one = config.read_text().partition("[tables.profiles]")
        tables = [f"[tables.{name}]{one.replace('.profiles', f'.{name}')}" for name in names]
        config.write_text(top + "".join(tables))
        report = json.loads(call("status", "--json", "--timeout", "60")[1])  # a busy machine may take long
    assert set(report["server"]["status"]["tables"]) == set(names)
    assert {entry["error"]["code"] for entry in report["tables"]} == {"table-missing"}
    assert len(report["tables"]) == len(names)
    assert len(opened) <= 1 + THREADS_MAX


def test_questions_that_hang_or_fail_keep_no_other_from_its_answer() -> None:
    go_on = threading.Event()
    deadline = SystemClock().monotonic() + 2
    assert answered({"hangs": go_on.wait, "answers": lambda: True}, deadline) == {"answers": True}
    go_on.set()
    with pytest.raises(ZeroDivisionError):
        answered({"fails": lambda: 1 / 0}, SystemClock().monotonic() + 60)


@pytest.mark.parametrize(
    ("free", "says"),
    [
        (9_000_000_000, "answers; its disk has 9.0 GB free, of which it needs 536.9 MB"),
        (36_000_000, "answers; its disk has 36.0 MB free, and tailers pause below 536.9 MB"),
    ],
)
def test_status_says_what_disk_a_server_has_and_needs(
    call: Call, config: Path, away: None, free: int, says: str
) -> None:
    disk = {"free_bytes": free, "kept_bytes": 536_870_912}
    with answering({"tables": {}, "disk": disk}, config):
        assert says in call("status")[1]


def test_status_has_a_line_for_each_served_table(call: Call, config: Path, away: None) -> None:
    good = {"ready": True, "age_seconds": 0.04, "stale": False, "tailer": {"state": "running"}}
    bad = {"ready": False, "tailer": {}, "problem": "table other is not ready: it starts"}
    with answering({"tables": {"profiles": good, "other": bad}}, config):
        _, out, _ = call("status")
    lines = [line.split() for line in out.splitlines()]
    assert ["profiles", "true", "0.04", "false", "running"] in lines
    assert ["other", "false", "unknown", "not", "started"] in lines
    assert "other: table other is not ready: it starts" in out.splitlines()
    assert "{" not in out


NOT_TOLD = "whether it is ready is told to clients with the verb admin; each answer says how old it is"


@pytest.mark.parametrize(
    ("hidden", "reason"),
    [
        (["profiles"], f"{NOT_TOLD}  next: whoever runs the server can make such a client: thermocline "),
        ([], "the server does not serve it, or you have no verb for it  next: "),
    ],
    ids=["verb", "table"],
)
def test_status_says_why_a_server_tells_nothing_of_a_table(
    call: Call, config: Path, away: None, hidden: list[str], reason: str
) -> None:
    with answering({"tables": {}, "not_operated": hidden}, config):
        code, out, _ = call("status", "--without", "kafka", "--without", "catalog")
    assert (code, f"profiles: {reason}" in out) == (1, True)
    # With a scope or columns there is no admin: a grant more to who asks would be refused.
    assert ("client create NAME --table profiles --verb admin\n" in out, "client grant" in out) == (
        bool(hidden),
        False,
    )


def test_a_sentence_on_a_table_makes_no_column_narrow(
    call: Call, config: Path, away: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal of 100 columns, each table keeps its line, and each sentence is one of its own."""
    monkeypatch.setattr("thermocline.cli.output.UNBOUNDED_WIDTH", 100)
    served = {"ready": False, "tailer": {}, "problem": "it waits " * 30}
    with answering({"tables": {"profiles": served}}, config):
        _, out, _ = call("status")
    lines = out.splitlines()
    assert "served     ready   age (s)   stale   tailer" in [line.rstrip() for line in lines]
    assert f"profiles: {'it waits ' * 30}".rstrip() in [line.rstrip() for line in lines]
    assert ["table", "snapshot", "seam", "lag", "(offsets)", "lag", "(s)", "headroom"] in map(
        str.split, lines
    )


def test_the_lag_includes_partitions_that_the_topic_gained() -> None:
    starts, ends = Seam({("t", 0): 0, ("t", 1): 4}), Seam({("t", 0): 9, ("t", 1): 10})
    lag = lag_of(Seam({("t", 0): 7}), starts, ends, ())
    assert (lag["offsets"], lag["new_partitions"], lag["outside_log"]) == (2 + 6, ["t/1"], [])


def test_no_summary_of_a_command_is_cut_short(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the list of commands says of each what it does, in the 80 columns that help has at most."""
    monkeypatch.setenv("COLUMNS", "100")
    groups = [name for name, one in all_commands().commands.items() if hasattr(one, "commands")]
    assert len(groups) > 5
    for words in ([], *([name] for name in groups)):
        listed = call(*words, "--help")[1].partition("\nCommands:\n")[2]
        assert listed
        assert "..." not in listed


def test_help_shows_what_stands_in_brackets(call: Call) -> None:
    assert "[tables.NAME]" in call("lookup", "--help")[1]


# lookup and extract


def answer(rows: list[dict[str, object]], end: int = 8) -> dict[str, Any]:
    point = {"snapshot_id": "9", "seam": {"profiles": {"0": 5}}, "end": {"profiles": {"0": end}}}
    return {"table": "profiles", "rows": rows, "read_point": point, "age_seconds": 0.04, "stale": False}


def test_lookup_hands_on_the_key_and_prints_the_answer(call: Call, serving: Any) -> None:
    asked = []

    def lookup(_settings: Settings, name: str, key: dict[str, str], read_after: str | None) -> dict[str, Any]:
        asked.append((name, key, read_after))
        return answer([{"id": 1, "at": None}])

    serving.lookup = lookup
    code, out, _ = call("lookup", "profiles", "id=1", "at=a=b", "--json")
    assert (code, json.loads(out)) == (0, answer([{"id": 1, "at": None}]))
    assert asked == [("profiles", {"id": "1", "at": "a=b"}, None)]
    text = call("lookup", "profiles", "id=1")[1]
    assert "1 row as of snapshot 9 and the log before profiles/0@8, 0.04 s old" in text
    assert ["1", "null"] in [line.split() for line in text.splitlines()]


def test_an_explained_lookup_shows_where_each_row_came_from_and_what_it_replaced(
    call: Call, serving: Any
) -> None:
    cold = {"file": "s3://lake/a.parquet", "row_group": 2, "position": 17, "commit": 12}
    cold |= {"record": {"topic": "t", "partition": 0, "offset": 3, "timestamp_ms": 1_000}}
    hot = {"topic": "t", "partition": 0, "offset": 7, "timestamp_ms": 1_767_323_045_123}
    rows = [
        {"row": {"id": 1, "v": "a"}, "hot": None, "cold": cold, "replaced": None},
        {"row": {"id": 2, "v": "b"}, "hot": hot, "cold": cold, "replaced": {"id": 2, "v": "old"}},
        {"row": {"id": 3, "v": "c"}, "hot": hot, "cold": None, "replaced": None},
        {"row": None, "hot": None, "cold": {**cold, "commit": None}, "replaced": {"id": 4, "v": "gone"}},
        {"row": {"id": 5, "v": None}, "hot": None, "cold": {**cold, "record": None}, "replaced": None},
    ]
    seconds = {"look": 0.0001, "cold_rows": 0.0025, "overlay": 0.00002, "places": 0.001}
    explained = {**answer([]), "rows": rows, "seconds": seconds}
    asked = []

    def ask(_: Settings, *words: object) -> dict[str, Any]:
        asked.append(words)
        return explained

    serving.explained = ask
    assert json.loads(call("lookup", "profiles", "id=1", "--explain", "--json")[1]) == explained
    lines = call("lookup", "profiles", "id=1", "--explain")[1].splitlines()
    assert asked == [("profiles", {"id": "1"}, None)] * 2
    assert [" ".join(line.split()) for line in lines] == [
        "row 1",
        *("id 1", "v a"),
        "from record t/0@3 of 1970-01-01T00:00:01.000Z",
        "from file s3://lake/a.parquet, row group 2, row 17, of commit 12",
        "row 2",
        *("id 2", "v b"),
        "from record t/0@7 of 2026-01-02T03:04:05.123Z, not committed yet",
        'replaced v="old"',
        "replaced record t/0@3 of 1970-01-01T00:00:01.000Z",
        "replaced file s3://lake/a.parquet, row group 2, row 17, of commit 12",
        "row 3",
        *("id 3", "v c"),
        "from record t/0@7 of 2026-01-02T03:04:05.123Z, not committed yet",
        "row 4, deleted",
        *("id 4", "v gone"),
        "from record a tombstone, not committed yet",
        "replaced record t/0@3 of 1970-01-01T00:00:01.000Z",
        "replaced file s3://lake/a.parquet, row group 2, row 17",
        "row 5",
        *("id 5", "v null"),
        "from file s3://lake/a.parquet, row group 2, row 17, of commit 12",
        "4 rows and 1 deleted as of snapshot 9 and the log before profiles/0@8, 0.04 s old",
        "it took: look 0.10 ms, cold rows 2.50 ms, overlay 0.02 ms, places 1.00 ms",
    ]


@pytest.mark.parametrize("words", [["id"], ["=1"], ["id=1", "id=2"]])
def test_a_key_that_is_not_column_and_value_is_refused(call: Call, serving: Any, words: list[str]) -> None:
    code, _, err = call("lookup", "profiles", *words)
    assert code == 2
    assert "[bad-parameter]" in err


@pytest.mark.parametrize("word", ["id=\udcff", "\udcff=1"])
def test_a_key_that_is_not_text_is_refused(call: Call, serving: Any, word: str) -> None:
    """As a shell hands on a byte that is no UTF-8."""
    code, _, err = call("lookup", "profiles", word, "--url", "http://nobody:1")
    assert code == 2
    assert "[bad-parameter]" in err


def test_what_is_no_text_or_no_url_is_refused_before_a_server_is_asked(call: Call) -> None:
    nobody = ("--url", "http://127.0.0.1:1")
    for words, code in (
        (("extract", "profiles", "--where", "id = '\udcff'", "--format", "csv", *nobody), "bad-parameter"),
        (("lookup", "profiles", "id=1", "--read-after", "pröfiles/0@7", *nobody), "bad-parameter"),
        (("lookup", "profiles", "id=1", "--url", "http://127.0.0.1:abc"), "server-unreachable"),
        (("jobs", "list", "profiles", "--url", "http://[::1"), "server-unreachable"),
    ):
        exit_code, _, err = call(*words)
        assert (exit_code, code in err) == (2 if code == "bad-parameter" else 3, True), err


SHOWN = """
from thermocline.cli.entry import main
sys.argv[1:] = ["config", "show"]
main()
"""
STREAMED = """
from thermocline.cli import entry
from thermocline.cli.read import file_or_stdout

def stream(*_, **__):
    with file_or_stdout(None) as sink:
        sink.write(b"x")

entry.all_commands = lambda: stream
entry.main()
"""


@pytest.mark.parametrize("script", [SHOWN, STREAMED], ids=["shown", "streamed"])
def test_a_full_disk_below_stdout_is_no_bug(script: str, tmp_path: Path) -> None:
    """In a process of its own, whose end would write what is left once more."""
    (tmp_path / "thermocline.toml").write_text(CONFIG.format(port=1))
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "-c", f"import sys{script}"], env=buffered,
            cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert ended.returncode == 2, ended.stderr
    assert "No space left" in ended.stderr
    assert "Exception ignored" not in ended.stderr


REFUSED = {"topic": "profiles", "partition": 0, "offset": 7, "stage": "contract", "reason": "id is no int"}

UNLISTED = {"topic": "profiles", "partition": 0, "offset_first": 8, "offset_last": 90}


def test_a_lookup_says_which_records_were_refused(call: Call, serving: Any) -> None:
    serving.lookup = lambda *_: answer([]) | {"refused": [REFUSED]}
    text = call("lookup", "profiles", "id=1", "--read-after", "profiles/0@7")[1]
    assert "refused: profiles/0@7 (contract): id is no int" in text
    of_key = REFUSED | {"key": {"id": 1, "name": "a"}}
    serving.refused = lambda *_: (
        answer([]) | {"refused": [of_key], "more": True, "refused_unlisted": [UNLISTED]}
    )
    text = call("refused", "profiles")[1]
    assert ["profiles/0@7", "id=1,", 'name="a"', "contract", "id", "is", "no", "int"] in [
        line.split() for line in text.splitlines()
    ]
    assert "at least 1 refused record as of snapshot 9" in text
    assert "more in profiles/0 from offset 8 to 90, which are not listed" in " ".join(text.split())


def test_quarantined_records_are_listed_with_their_keys(
    call: Call, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = QUARANTINED | {"stage": "contract", "reason": "id is no int"}
    rows = [row | {"key": b'{"id":1}'}, row | {"offset": 6, "key": b"\xff"}, row | {"offset": 7, "key": None}]
    monkeypatch.setattr("thermocline.ingest.quarantine.read_rows", lambda *_: iter(rows))
    monkeypatch.setattr("thermocline.iceberg.catalog.open_catalog", lambda *_: None)
    monkeypatch.setattr("thermocline.ingest.quarantine.open_quarantine", lambda *_: None)
    listed = json.loads(call("quarantine", "list", "profiles", "--json")[1])["newest"]
    assert [one["key"] for one in listed] == [None, {"base64": "/w=="}, {"text": '{"id":1}'}]
    assert '{"id":1}' in call("quarantine", "list", "profiles")[1]


def test_an_extract_becomes_a_file_of_the_format_of_its_name(
    call: Call, serving: Any, tmp_path: Path
) -> None:
    asked = []

    def write(
        settings: Settings,
        name: str,
        wanted: Any,
        _format: str,
        sink: BinaryIO,
        at: object,
        progress: Callable[[int], None],
        coding: str | None,
    ) -> ReadPoint:
        asked.append((name, wanted, _format, at))
        sink.write(b"rows")
        progress(1)
        return POINT

    serving.extract = write
    path = tmp_path / "out.parquet"
    some = ("--columns", "id, at", "--where", "id = 1", "--limit", "5")
    arguments = (*some, "--at", POINT.to_header(), "-o", str(path), "--json")
    code, out, err = call("extract", "profiles", *arguments)
    assert (code, err, path.read_bytes()) == (0, "", b"rows")
    assert json.loads(out) == {
        "table": "profiles",
        "path": str(path),
        "read_point": POINT.to_dict(),
        "bytes": 4,
    }
    assert asked == [("profiles", Wanted(["id", "at"], "id = 1", 5), "parquet", POINT)]


@pytest.mark.parametrize(
    ("name", "option", "written", "coding"),
    [
        ("rows.arrow", None, "arrow", None),
        ("rows.arrows", None, "arrow", None),
        ("rows.ARROW", None, "arrow", None),
        ("rows.parquet", None, "parquet", None),
        ("rows.pq", None, "parquet", None),
        ("rows.csv", None, "csv", None),
        ("rows.csv.GZ", None, "csv", "gzip"),
        ("rows.jsonl.zst", None, "jsonl", "zstd"),
        ("rows.gz", "jsonl", "jsonl", "gzip"),
        ("rows.ndjson", None, "jsonl", None),
        ("rows", None, "arrow", None),
        (".rows", None, "arrow", None),
        ("rows.csv", "parquet", "parquet", None),
        ("rows.parquet", "arrow", "arrow", None),
    ],
)
def test_an_ending_says_the_format_unless_an_option_does(
    call: Call, serving: Any, tmp_path: Path, name: str, option: str | None, written: str, coding: str | None
) -> None:
    asked = []

    def write(*arguments: object) -> ReadPoint:
        asked.append((arguments[3], arguments[7]))
        return POINT

    serving.extract = write
    arguments = [] if option is None else ["--format", option]
    assert call("extract", "profiles", "-o", str(tmp_path / name), *arguments)[0] == 0
    assert asked == [(written, coding)]


def test_what_is_compressed_already_is_not_compressed_again(call: Call, tmp_path: Path) -> None:
    for arguments in (["rows.parquet.gz"], ["rows.csv.zst", "--format", "arrow"]):
        code, _, err = call("extract", "profiles", "-o", str(tmp_path / arguments[0]), *arguments[1:])
        assert code == 2
        assert "is for csv and jsonl" in err
    assert not list(tmp_path.glob("rows*"))


def test_an_ending_of_no_format_is_refused_before_anything_is_read(
    call: Call, serving: Any, config: Path, tmp_path: Path
) -> None:
    """Goal: nobody finds Arrow in a file that is called something else."""
    for name in ("rows.tsv", "rows.json", "rows.xlsx"):
        path = tmp_path / "a folder" / name
        code, out, err = call("extract", "profiles", "-o", str(path), "--json")
        error = json.loads(err)
        assert (code, out, error["code"]) == (2, "", "bad-parameter")
        assert f'"{path.suffix}"' in error["what"]
        assert ".arrow, .arrows, .parquet, .pq, .csv, .jsonl" in error["what"]
        arguments = ["extract", "profiles", "-o", str(path), "--json", "--format", "arrow"]
        printed = shlex.split(error["next"].partition("      (")[0])
        assert printed == ["thermocline", "--config", str(config), *arguments]
        assert not path.exists()


def test_an_output_that_can_not_be_a_file_is_refused_before_anything_is_read(
    call: Call, serving: Any, tmp_path: Path
) -> None:
    serving.extract = lambda *_: pytest.fail("it is read")
    for path, problem in ((tmp_path, "is a folder"), (tmp_path / "no" / "rows.csv", "does not exist")):
        code, out, err = call("extract", "profiles", "-o", str(path), "--format", "csv")
        assert (code, out) == (2, "")
        assert problem in err


def test_two_commands_that_write_one_file_leave_a_whole_one(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    with file_or_stdout(path) as first:
        first.write(b"of the first")
        first.flush()
        with file_or_stdout(path) as second:
            second.write(b"2")
        assert path.read_bytes() == b"2"
        first.write(b", to its end")
    assert path.read_bytes() == b"of the first, to its end"
    assert list(tmp_path.iterdir()) == [path]


def test_an_output_that_is_a_pipe_or_a_link_stays_what_it_is(tmp_path: Path) -> None:
    pipe, link, target = (tmp_path / name for name in ("pipe", "link", "target"))
    os.mkfifo(pipe)
    link.symlink_to("target")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for path in (pipe, link):
        with file_or_stdout(path) as sink:
            sink.write(b"rows")
    assert os.read(reader, 9) == b"rows"
    os.close(reader)
    assert pipe.is_fifo()
    assert link.is_symlink()
    assert target.read_bytes() == b"rows"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe", "target"]


def test_a_full_disk_is_no_bug_of_ours(call: Call, serving: Any, tmp_path: Path) -> None:
    def fail(*_: object) -> ReadPoint:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    serving.extract = fail
    code, _, err = call("extract", "profiles", "-o", str(tmp_path / "rows.arrow"))
    assert (code, "No space left on device" in err) == (2, True)
    assert not list(tmp_path.glob("*rows*"))


def test_every_package_of_an_optional_part_is_known_by_its_part() -> None:
    """So that a command which lacks one says what to install."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    required = {
        re.split(r"[\[=>]", line)[0].replace("-", "_"): part
        for part in optional.keys() - {"dev"}
        for line in optional[part]
    }
    required["jwt"] = required.pop("pyjwt")  # what is imported
    assert required | {"py4j": "ingest"} == PARTS  # which comes with PySpark


def test_an_extract_that_fails_leaves_the_old_file_and_no_other(
    call: Call, serving: Any, tmp_path: Path
) -> None:
    def fail(
        settings: Settings,
        name: str,
        wanted: Any,
        _format: str,
        sink: BinaryIO,
        at: object,
        progress: Callable[[int], None],
        coding: str | None,
    ) -> ReadPoint:
        sink.write(b"half")
        raise KafkaUnreachable(bootstrap_servers="b", detail="refused")

    serving.extract = fail
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "rows.arrow").write_bytes(b"old")
    assert call("extract", "profiles", "-o", str(folder / "rows.arrow"))[0] == 3
    assert [path.read_bytes() for path in folder.iterdir()] == [b"old"]


def test_an_extract_into_a_pipe_is_nothing_but_the_data(call: Call, serving: Any) -> None:
    def write(
        settings: Settings,
        name: str,
        wanted: Any,
        _format: str,
        sink: BinaryIO,
        at: object,
        progress: Callable[[int], None],
        coding: str | None,
    ) -> ReadPoint:
        sink.write(b"rows")
        return POINT

    serving.extract = write
    code, out, err = call("extract", "profiles")
    assert (code, out) == (0, "rows")
    assert err == f"read point: {POINT.to_header()}\n"


def test_a_read_point_cannot_be_asked_of_a_server(call: Call) -> None:
    code, _, err = call("extract", "profiles", "--url", "http://localhost:1", "--at", "{}")
    assert code == 2
    assert "--at" in err


def test_a_server_that_is_not_there_is_named_with_how_to_go_on(
    call: Call, unused_port: int, tmp_path: Path
) -> None:
    url = f"http://127.0.0.1:{unused_port}"
    for arguments in (
        ["lookup", "profiles", "id=1"],
        ["extract", "profiles", "-o", str(tmp_path / "rows.arrow")],
    ):
        code, out, err = call(*arguments, "--url", url)
        assert (code, out) == (3, "")
        assert f"Error [server-unreachable]: no Thermocline server answers at {url}." in err
    assert not list(tmp_path.glob("*rows*"))


# dev


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("", '"" is not a topic name'),
        ("a b", '"a b" is not a topic name'),
        ("a:", '"" is not a number of partitions'),
        ("a:0", '"0" is not a number of partitions'),
        ("a:1001", '"1001" is not a number of partitions from 1 to 1,000'),
        ("a:2:3", '"2:3" is not a number of partitions'),
        ("a:²", '"²" is not a number of partitions'),
    ],
)
def test_a_topic_that_cannot_be_is_refused_before_a_broker_starts(call: Call, topic: str, words: str) -> None:
    code, out, err = call("dev", "--topic", "good:4", "--topic", topic)
    assert (code, out) == (2, "")
    assert f"[bad-parameter]: --topic: {words}" in err


@pytest.mark.parametrize("how", ["option", "variable"])
def test_a_configuration_that_was_named_for_the_broker_must_exist(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "missing.toml")
    if how == "variable":
        monkeypatch.setenv("THERMOCLINE_CONFIG", missing)
    assert cli.run([*(["--config", missing] if how == "option" else []), "dev"]) == 2
    assert "[config-invalid]" in capfd.readouterr().err


# Signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_sets_the_event_and_a_second_one_acts_as_before(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(number)
    with stop_event() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert stop.wait(5)
        assert signal.getsignal(number) is before
    assert signal.getsignal(number) is before
    assert "stopping" in capsys.readouterr().err
