from __future__ import annotations

import io
import json
import math
import shlex
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from embedded.demo import DemoOptions
from embedded.demo.acts import _how_to_go_on
from embedded.demo.background import Background
from embedded.demo.commits import Commit, batches_of, seconds_of
from embedded.demo.document import document_of
from embedded.demo.invocation import path_typed, program
from embedded.demo.lines import Lines, pulse_line
from embedded.demo.scene import Reading, Scene, ViewFigures, reading_of
from embedded.demo.screen import Screen
from embedded.demo.story import FROM_ICEBERG, Step
from embedded.demo.timings import Summary, Timings, percentile
from embedded.demo.verdict import Check
from embedded.demo.view_door import rows_sql
from embedded.demo.view_words import how_to_ask
from embedded.demo.views import scene_view, size_text, sparkline
from tests.manual_clock import ManualClock
from thermocline.iceberg.catalog import SnapshotState
from thermocline.rules.seam import Seam

SEAM = Seam({("profiles", partition): 1_000_000 + partition for partition in range(4)})
COUNTS = {"read": 20_039, "applied": 9_500, "superseded": 10_505, "unchanged": 28, "quarantined": 6}
COMMIT = Commit(5_372_118_936_654_934_926, SEAM, COUNTS, 2.3)
EMPTY = Scene(
    elapsed_seconds=0.1,
    total_seconds=60.0,
    messages=0,
    messages_per_second=(),
    freshness=Summary(),
    lookups=Summary(),
    lookups_per_second=0.0,
    answers_checked=0,
    refused=0,
    reading=Reading(),
    commits=(),
    story=(),
    garbage=0,
)
FULL = replace(
    EMPTY,
    elapsed_seconds=61.0,
    messages=118_000,
    messages_per_second=(1990.0, 2003.0),
    freshness=Summary(250, 18.0, 208.0, 300.0, (18.0, 208.0)),
    lookups=Summary(10_046, 2.1, 21.5, 60.0, (2.0, 21.0)),
    lookups_per_second=189.0,
    refused=3,
    reading=Reading(1, 48_877, SEAM, SEAM.advanced({("profiles", 0): 1_020_000}), 20_000, 3_100_000, 6, 0.02),
    commits=(COMMIT,) * 20,
    story=tuple(
        Step(what, '"free"', 12.3, f"offset 1,012,430 < seam 1,023,375: {FROM_ICEBERG}")
        for what in ("written", "committed", "changed", "garbage", "deleted")
    ),
    garbage=6,
)


VIEWS = ViewFigures(
    by_key=Summary(120, 412.0, 1234.0, 1300.0),
    live=Summary(40, 2612.0, 13432.0, 14000.0),
    by_key_queries=Summary(200, 390.0, 900.0, 1000.0),
    live_queries=Summary(60, 800.0, 2000.0, 2100.0),
    answers=260,
    refused=1,
)
WITH_TRINO = replace(FULL, views=VIEWS, story=tuple(replace(step, view_ms=412.0) for step in FULL.story))


def drawn(scene: Scene, width: int, height: int) -> list[str]:
    console = Console(width=width, height=height, force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(scene_view(scene, width, height))
    return capture.get().splitlines()


@pytest.mark.parametrize("scene", [EMPTY, FULL, WITH_TRINO])
@pytest.mark.parametrize(("width", "height"), [(100, 30), (120, 40), (200, 60)])
def test_the_screen_fits_the_terminal(scene: Scene, width: int, height: int) -> None:
    lines = drawn(scene, width, height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize(("width", "offset"), [(100, 99_999), (140, 9_999_999)])
def test_nothing_on_the_screen_is_cut(width: int, offset: int) -> None:
    seam = Seam(dict.fromkeys([("profiles", partition) for partition in range(4)], offset))
    screen = "\n".join(drawn(replace(FULL, commits=(replace(COMMIT, seam=seam),)), width, 30))
    assert "…" not in screen.replace("…934926", "")
    for figure in (
        "2,003",
        "18",
        "208",
        "189",
        "48,877",
        "20,039",
        "10,505",
        f"{offset:,}",
        "3.1 MB",
        "12.3 ms",
    ):
        assert figure in screen


@pytest.mark.parametrize("width", [100, 132])
def test_with_trino_the_screen_has_its_figures_too(width: int) -> None:
    figures = ("160 ×", "by key p50 412 ms  p99 1,234 ms", "full view p50 2,612 ms  p99 13,432 ms")
    without, screen = ("\n".join(drawn(scene, width, 30)) for scene in (FULL, WITH_TRINO))
    assert "Trino" not in without
    for figure in figures:
        assert figure in screen
    near = replace(WITH_TRINO.story[0], why=f"offset 13,430 < seam 23,375: {FROM_ICEBERG}")
    assert "Trino 412 ms" in "\n".join(drawn(replace(WITH_TRINO, story=(near,)), width, 30))


def test_a_command_is_not_broken_by_a_narrow_terminal() -> None:
    command = "thermocline --config thermocline.toml extract profiles -o profiles.parquet"
    console = Console(width=40, force_terminal=True, color_system=None, file=io.StringIO())
    with Screen(ManualClock(), console) as screen, console.capture() as capture:
        screen.say(f"  {command}")
    assert command in capture.get()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an environment's programs, below the current folder, and not on PATH."""
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "thermocline"):
        (programs / name).touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.chdir(tmp_path)
    return programs


def test_a_program_is_called_by_its_name_only_where_that_finds_it(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert program("thermocline") == ".venv/bin/thermocline"
    monkeypatch.setenv("PATH", str(installed))
    assert program("thermocline") == "thermocline"
    other = tmp_path / "other"
    other.mkdir()
    (other / "thermocline").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{other}:{installed}")
    assert program("thermocline") == ".venv/bin/thermocline"


def test_a_program_is_called_by_its_whole_path_from_elsewhere(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert program("thermocline") == str(installed / "thermocline")
    assert path_typed(elsewhere / "thermocline.toml") == "thermocline.toml"
    monkeypatch.chdir(tmp_path)
    assert path_typed(elsewhere / "thermocline.toml") == "'else where/thermocline.toml'"
    (installed / "thermocline").unlink()
    assert program("thermocline") == ".venv/bin/python -m thermocline"


def test_a_sparkline_shows_the_last_values_against_the_greatest() -> None:
    assert sparkline([9.0, 0.0, 4.0, 8.0], 3) == "▁▅█"
    assert sparkline([], 3) == ""
    assert sparkline([0.0], 3) == "▁"


def test_sizes_are_worded_in_the_unit_that_fits() -> None:
    assert [size_text(size) for size in (0, 999, 8_806_400, 2e9)] == [
        "0 bytes",
        "999 bytes",
        "8.8 MB",
        "2.0 GB",
    ]


def test_lines_tell_each_event_once_and_the_traffic_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(ManualClock())
    one = replace(FULL, commits=FULL.commits[:1], story=FULL.story[:1], elapsed_seconds=4.9)
    for scene in (one, one, replace(one, elapsed_seconds=5.1, story=FULL.story[:2])):
        lines.show(scene)
    told = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in told] == ["commit", "story", "story", "5"]
    assert "9,500 applied" in told[0]


def test_with_trino_lines_and_document_have_its_figures_too(capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    for scene in (FULL, WITH_TRINO):
        Lines(ManualClock()).show(replace(scene, commits=(), elapsed_seconds=6.0))
        told.append(capsys.readouterr().out.splitlines())
    assert "Trino" not in "".join(told[0])
    assert [len(lines) for lines in told] == [6, 6]
    assert all(line.endswith("; Trino says the same after 412 ms") for line in told[1][:5])
    assert told[1][5].endswith(
        "| in Trino by key after 412 ms (p99 1234), full view after 2612 ms (p99 13432)"
    )
    nothing_yet = pulse_line(replace(EMPTY, views=replace(VIEWS, by_key=Summary(), live=Summary())))
    assert nothing_yet.endswith("| in Trino by key …, full view …")
    without = document_of(DemoOptions(), [], FULL, {}, "http://x")
    beside = document_of(DemoOptions(), [], WITH_TRINO, {}, "http://x", "http://y")
    assert beside.keys() - without.keys() == {"views", "trino_url"}
    assert beside["views"]["freshness_ms"]["live_by_key"]["p99"] == 1234.0
    assert beside["views"]["query_ms"]["live"]["count"] == 60
    assert "view_ms" not in without["story"][0]
    assert beside["story"][0]["view_ms"] == 412.0


def test_the_document_is_json_without_figures_too() -> None:
    document = document_of(
        DemoOptions(), [], EMPTY, {"lookups": Check("rows", ("a difference",))}, "http://x"
    )
    parsed = json.loads(json.dumps(document, allow_nan=False))
    assert parsed["agrees"] is False
    assert parsed["freshness_ms"] == {"count": 0, "p50": None, "p99": None, "max": None}


@pytest.mark.parametrize(
    ("given", "users", "keys"),
    [
        ({}, 5_000, 10),
        ({"rows": 3}, 1, 3),
        ({"rows": 100, "users": 7}, 7, 14),
        ({"rows": 2, "users": 9}, 2, 1),
    ],
)
def test_rows_are_spread_over_the_users(given: dict[str, int], users: int, keys: int) -> None:
    options = DemoOptions(**given)  # type: ignore[arg-type]
    assert (options.user_count, options.keys_per_user) == (users, keys)


def test_percentiles_are_values_that_occurred() -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.0
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.99) == 4.0
    assert percentile([7.0], 0.0) == 7.0


def test_windows_close_over_what_came_since_the_last_one() -> None:
    timings = Timings()
    assert math.isnan(timings.summary().p50_ms)
    for window in ([0.001, 0.003], [], [0.002]):
        for seconds in window:
            timings.add(seconds)
        timings.close_window()
    assert timings.summary() == Summary(3, 2.0, 3.0, 3.0, (3.0, 2.0))


def test_a_thread_hands_over_its_error_and_is_gone_at_the_end() -> None:
    def fail(_: threading.Event) -> None:
        raise ValueError("told")

    def wait(stop: threading.Event) -> None:
        stop.wait(60)

    failing, waiting = Background("fail", fail), Background("wait", wait)
    with failing, waiting:
        assert waiting.is_running
        with pytest.raises(ValueError, match="told"):
            failing.finish()
    assert not waiting.is_running
    waiting.check()


def state(snapshot_id: int, counts: dict[str, int]) -> SnapshotState:
    return SnapshotState(snapshot_id, SEAM, 1, "batch", "cluster", {}, 1, 0, 0, counts)


def test_commits_are_the_snapshots_that_had_records_with_the_seconds_that_ingest_logged() -> None:
    log = [
        "Setting default log level",
        '{"message": "ownership taken", "snapshot_id": 1}',
        '{"message": "committed", "snapshot_id": 2, "run_seconds": 1.5, "commit_seconds": 0.25}',
        '{"message": "committed", "snap',
    ]
    states = [state(1, {"read": 0}), state(2, COUNTS), state(3, COUNTS)]
    commits = batches_of(states, seconds_of(log))
    assert [(commit.snapshot_id, commit.seconds) for commit in commits] == [(2, 1.75), (3, None)]


def test_a_server_that_is_not_ready_leaves_the_last_reading() -> None:
    assert reading_of({"ready": False, "problem": "", "tailer": {}}, FULL.reading) == FULL.reading


def test_uncommitted_counts_the_offsets_beyond_the_seam() -> None:
    assert FULL.reading.uncommitted == 20_000


def test_the_query_that_is_printed_for_a_shell_reaches_trino_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a line to paste, quoted right. Method: a shell runs it, with a client that prints its query."""
    (tmp_path / "trino").mkdir()
    (tmp_path / "trino" / "__init__.py").touch()
    (tmp_path / "trino" / "dbapi.py").write_text(
        "class connect:\n"
        "    def __init__(self, **place): print(place)\n"
        "    def cursor(self): return self\n"
        "    def execute(self, sql): print(sql); return self\n"
        "    def fetchall(self): return 'rows'\n"
    )
    stack: Any = SimpleNamespace(trino=SimpleNamespace(url="http://127.0.0.1:4567"))
    lines = how_to_ask(stack, "thermocline", "profiles", "lake.app.profiles").splitlines()
    (query,) = [line for line in lines if " -c " in line]
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    printed = subprocess.check_output(["/bin/sh", "-c", query], text=True).splitlines()
    sql = rows_sql("lake.app.profiles_live_by_key", [(7, "ada")])
    assert printed == ["{'host': '127.0.0.1', 'port': 4567, 'user': 'ana'}", sql, "rows"]


def test_the_commands_to_go_on_with_take_a_path_with_spaces(tmp_path: Path) -> None:
    config = tmp_path / "a folder" / "thermocline.toml"
    stack: Any = SimpleNamespace(config_path=config, url="http://127.0.0.1:1", trino=None)
    site: Any = SimpleNamespace(stack=stack)
    commands = [shlex.split(line) for line in _how_to_go_on(site).splitlines() if "thermocline --" in line]
    assert [words[1:3] for words in commands] == [["--config", str(config)]] * 3
