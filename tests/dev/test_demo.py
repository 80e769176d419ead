"""What the demo shows, and how its parts in memory behave; `test_demo_played` plays it."""

from __future__ import annotations

import io
import json
import shlex
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from tests.manual_clock import ManualClock
from thermocline.cli.entry import run
from thermocline.dev.demo import DemoOptions
from thermocline.dev.demo.figures import (
    COUNTS,
    Commit,
    Scene,
    Served,
    StoryStep,
    Summary,
    Timings,
    ViewFigures,
    commits_in,
    served_in,
)
from thermocline.dev.demo.invocation import path_typed, program
from thermocline.dev.demo.play import how_to_ask, how_to_go_on
from thermocline.dev.demo.reporter import FROM_ICEBERG, Reporter, gauges, pulse_line, scene_view, sparkline
from thermocline.dev.demo.views import COLUMNS, PROBE, View, ViewProbe, Views, rows_sql
from thermocline.dev.demo.writer import Writer, Written
from thermocline.dev.oracle import RowKey
from thermocline.errors import TrinoRefused, TrinoUnreachable, VerdictBad
from thermocline.rules.seam import Seam

SEAM = Seam({("profiles", partition): 1_000_000 + partition for partition in range(4)})
RECORDS = dict(zip(COUNTS, (20_039, 9_500, 10_505, 28, 6), strict=True))
COMMIT = Commit("5372118936654934926", SEAM.to_dict(), RECORDS, 2.3)
STEPS = ("written", "committed", "changed", "garbage", "deleted")
EMPTY = Scene(
    elapsed_seconds=0.1,
    total_seconds=60.0,
    messages=0,
    freshness=Summary(),
    lookups=Summary(),
    lookups_per_second=0.0,
    windows=((), (), ()),
    answers_checked=0,
    refused=0,
    served=Served(),
    commits=(),
    story=(),
    garbage=0,
)
FULL = replace(
    EMPTY,
    elapsed_seconds=61.0,
    messages=118_000,
    freshness=Summary(250, 18.0, 208.0, 300.0),
    lookups=Summary(10_046, 12.1, 1_121.5, 1_160.0),
    lookups_per_second=189.0,
    windows=((1990.0, 2003.0) * 60, (18.0, 208.0) * 60, (2.0, 21.0) * 60),
    refused=3,
    served=Served(48_877, SEAM, SEAM.advanced({("profiles", 0): 1_020_000}), 3_100_000, 0.02),
    commits=(COMMIT,) * 20,
    story=tuple(
        StoryStep(what, '"free"', 12.3, f"offset 12,430 < seam 23,375: {FROM_ICEBERG}") for what in STEPS
    ),
    garbage=6,
)
FRESHNESS = {
    "live_by_key": Summary(120, 412.0, 1234.0, 1300.0),
    "live": Summary(40, 2612.0, 13432.0, 14000.0),
}
VIEWS = ViewFigures(FRESHNESS, FRESHNESS, answers=260, refused=1)
WITH_TRINO = replace(FULL, views=VIEWS, story=tuple(replace(step, view_ms=412.0) for step in FULL.story))


def drawn(scene: Scene, width: int) -> list[str]:
    console = Console(width=width, force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(scene_view(scene, width))
    return capture.get().splitlines()


@pytest.mark.parametrize("scene", [EMPTY, FULL, WITH_TRINO])
@pytest.mark.parametrize("width", [100, 200])
def test_the_screen_fits_the_terminal_and_nothing_is_cut(scene: Scene, width: int) -> None:
    lines = drawn(scene, width)
    assert len(lines) <= 13
    assert max(map(len, lines)) <= width
    screen = "\n".join(lines)
    assert scene is EMPTY or "…" not in screen
    for gauge in gauges(scene):
        assert gauge.figure in screen
        assert gauge.more in screen


def test_the_screen_has_all_figures() -> None:
    screen = "\n".join(drawn(WITH_TRINO, 100))
    for figure in (
        *("61 of 60 s", "2,003 messages/s", "118,000 so far", "fresh after 18 ms (p99 208)", "250 ×"),
        *("189 lookups/s after 12.1 ms (p99 1,121.5)", "3 refused", "48,877 rows cold, 20,000 records hot"),
        *("3.1 MB hot", "20 commits", "6 bad, 120 quarantined", "read point 0.02 s old"),
        *("live_by_key after 412 ms (p99 1,234)", "live after 2,612 ms (p99 13,432)", "▓"),
    ):
        assert figure in screen


def test_a_terminal_keeps_the_lines_and_the_last_frame() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None)
    with Reporter(ManualClock(), console) as reporter:
        reporter.show(replace(FULL, commits=FULL.commits[:1], story=FULL.story[:1]))
        reporter.show(replace(FULL, commits=FULL.commits[:1]), is_last=True)
    told = cast("io.StringIO", console.file).getvalue()
    assert told.count("commit  snapshot") == 1
    assert told.count('story   app 7, user "ada"') == 5
    assert "48,877 rows cold" in told.rpartition("story   app")[2]


def reported(*scenes: Scene) -> list[str]:
    """The lines that a pipe gets."""
    console = Console(file=io.StringIO(), highlight=False, markup=False)
    with Reporter(ManualClock(), console) as reporter:
        for scene in scenes:
            reporter.show(scene)
    return cast("io.StringIO", console.file).getvalue().splitlines()


def test_a_pipe_gets_each_event_once_and_the_traffic_now_and_then() -> None:
    one = replace(FULL, commits=FULL.commits[:1], story=FULL.story[:1], elapsed_seconds=4.9)
    told = reported(one, one, replace(one, elapsed_seconds=5.1, story=FULL.story[:2]))
    assert [line.split()[0] for line in told] == ["commit", "story", "story", "5"]
    assert "9,500 applied" in told[0]


def test_figures_of_trino_are_shown_only_where_there_is_one() -> None:
    without, told = reported(replace(FULL, commits=())), reported(replace(WITH_TRINO, commits=()))
    assert "Trino" not in "".join(without)
    assert all(line.endswith("; Trino says the same after 412 ms") for line in told[:5])
    assert "| live_by_key after 412 ms (p99 1,234) | live after 2,612 ms (p99 13,432) |" in told[5]
    nothing_yet = replace(VIEWS, freshness_ms=dict.fromkeys(View, Summary()))
    assert "| live … | live_by_key … |" in pulse_line(replace(EMPTY, views=nothing_yet))
    assert WITH_TRINO.to_dict().keys() - FULL.to_dict().keys() == {"views"}
    assert "view_ms" not in json.dumps(FULL.to_dict())


def test_the_document_is_json_without_figures_too() -> None:
    document = json.loads(json.dumps(EMPTY.to_dict(), allow_nan=False))
    assert document["freshness_ms"] == {"count": 0, "p50": None, "p99": None, "max": None}


def test_tasks_are_told_as_they_end_in_whole_lines_and_not_at_all_where_json_is_wanted() -> None:
    command = "thermocline --config thermocline.toml extract profiles -o profiles.parquet"
    for is_quiet in (False, True):
        console = Console(file=io.StringIO(), width=40, quiet=is_quiet)
        with Reporter(ManualClock(), console) as reporter:
            reporter.end(reporter.begin("good"), command)
            reporter.end(reporter.begin("bad"), "2 DIFFERENCES", is_good=False)
            reporter.begin("interrupted")
            reporter.drop()
        told = cast("io.StringIO", console.file).getvalue()
        assert [task.title for task in reporter.tasks] == ["good", "bad"]
        assert (command in told, "✗" in told) == (not is_quiet, not is_quiet)


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


def test_a_program_is_called_as_it_can_be_typed_here(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert program("thermocline") == ".venv/bin/thermocline"
    monkeypatch.setenv("PATH", str(installed))
    assert program("thermocline") == "thermocline"
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    (elsewhere / "thermocline").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{elsewhere}:{installed}")
    assert program("thermocline") == ".venv/bin/thermocline"
    assert path_typed(elsewhere / "thermocline.toml") == "'else where/thermocline.toml'"
    monkeypatch.chdir(elsewhere)
    assert program("thermocline") == str(installed / "thermocline")
    (installed / "thermocline").unlink()
    assert program("thermocline") == f"{installed}/python -m thermocline"


def test_the_commands_to_go_on_with_take_a_path_with_spaces(tmp_path: Path) -> None:
    config = tmp_path / "a folder" / "thermocline.toml"
    site: Any = SimpleNamespace(
        stack=SimpleNamespace(config_path=config, folder=config.parent, url="http://127.0.0.1:1", trino=None)
    )
    commands = [shlex.split(line) for line in how_to_go_on(site).splitlines() if "thermocline --" in line]
    assert [words[1:3] for words in commands] == [["--config", str(config)]] * 4
    (exported,) = [shlex.split(line) for line in how_to_go_on(site).splitlines() if "export " in line]
    assert exported == ["export", f"THERMOCLINE_KEY_FILE={config.with_name('key')}"]


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
    lines = how_to_ask("http://127.0.0.1:4567", "lake.app.profiles").splitlines()
    (query,) = [line for line in lines if " -c " in line]
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    printed = subprocess.check_output(["/bin/sh", "-c", query], text=True).splitlines()
    sql = rows_sql("lake.app.profiles_live_by_key", [(7, "ada")])
    assert printed == ["{'host': '127.0.0.1', 'port': 4567, 'user': 'ana'}", sql, "rows"]


def test_a_sparkline_shows_the_last_values_against_the_greatest() -> None:
    assert sparkline([9.0, 0.0, 4.0, 8.0], 3) == "▁▅█"
    assert sparkline([], 3) == ""
    assert sparkline([0.0], 3) == "▁"


@pytest.mark.parametrize(
    ("rows", "given", "users", "keys"),
    [(50_000, None, 5_000, 10), (3, None, 1, 3), (100, 7, 7, 14), (2, 9, 2, 1)],
)
def test_rows_are_spread_over_the_users(rows: int, given: int | None, users: int, keys: int) -> None:
    options = DemoOptions(rows, 1, 1, given, seed=1, trino=False, lake=False, keep=False, as_json=False)
    assert (options.user_count, options.keys_per_user) == (users, keys)


def test_percentiles_are_values_that_occurred_and_windows_close_over_what_came_since() -> None:
    timings = Timings()
    assert timings.summary() == Summary()
    for window in ([0.001, 0.003], [], [0.002, 0.004]):
        for seconds in window:
            timings.add(seconds)
        timings.close_window()
    assert timings.windows_ms == [3.0, 4.0]
    assert timings.summary() == Timings(timings).summary() == Summary(4, 2.0, 4.0, 4.0)


def test_commits_are_those_that_ingest_logged() -> None:
    fields = {"snapshot_id": 2, "seam": SEAM.to_dict(), **RECORDS, "run_seconds": 1.5, "commit_seconds": 0.25}
    log = [
        "Setting default log level",
        '{"message": "ownership taken", "snapshot_id": 1}',
        json.dumps({"message": "committed", **fields}),
        '{"message": "committed", "snap',
    ]
    assert commits_in(log) == [Commit("2", SEAM.to_dict(), RECORDS, 1.75)]


def test_a_server_that_is_not_ready_leaves_what_it_said_last() -> None:
    assert served_in(b'{"tables": {"profiles": {"ready": false}}}', FULL.served) == FULL.served
    assert FULL.served.uncommitted == 20_000


class Trino:
    """Stands for a session: gives what the test says, the last of it again and again; 100 ms each."""

    def __init__(self, clock: ManualClock, *given: list[tuple[Any, ...]] | Exception) -> None:
        self.asked: list[str] = []
        self._given = list(given)
        self._clock = clock

    def __call__(self, sql: str) -> list[tuple[Any, ...]]:
        self.asked.append(sql)
        self._clock.advance(0.1)
        given = self._given.pop(0) if len(self._given) > 1 else self._given[0]
        if isinstance(given, Exception):
            raise given
        return given


ROW: RowKey = (7, "ada", "plan")
FREE = [(*ROW, "free", None)]
REFUSED = TrinoRefused(url="", name="QUERY_QUEUE_FULL", detail="")


def test_a_view_is_timed_and_must_say_what_was_written_last() -> None:
    clock = ManualClock()
    trino = Trino(clock, FREE, [], REFUSED, TrinoUnreachable(url="", detail=""), FREE)
    views = Views(trino, "lake.app.profiles", clock)
    assert views.check(View.BY_KEY, ROW, "free") == pytest.approx(0.1)
    assert views.check(View.BY_KEY, ROW, None) == pytest.approx(0.1)
    assert [views.check(View.BY_KEY, ROW, "free") for _ in range(2)] == [None, None]
    assert (views.refused, len(views.timings[View.BY_KEY])) == (2, 2)
    assert trino.asked[0] == rows_sql("lake.app.profiles_live_by_key", [ROW[:2]])
    for value in ("team", None):
        with pytest.raises(VerdictBad, match='"free" in live_by_key, but'):
            views.check(View.BY_KEY, ROW, value)


def test_a_quote_in_a_name_stays_in_the_name() -> None:
    assert rows_sql("v", [(1, "O'Brien"), (2, "x")]) == (
        f"SELECT {', '.join(COLUMNS)} FROM v"
        " WHERE (app_id = 1 AND user_id = 'O''Brien') OR (app_id = 2 AND user_id = 'x')"
    )


class Log:
    """Stands for a writer whose records are acknowledged at once."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def write(self, row: RowKey, value: str | None) -> Written:
        return Written(("profiles", 0), 0, self._clock.monotonic())


class Rounds(threading.Event):
    """A stop after so many rounds."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._left = count

    def wait(self, timeout: float | None = None) -> bool:
        self._left -= 1
        return self._left < 0


def probed(*given: list[tuple[Any, ...]] | Exception) -> tuple[ViewFigures, Trino]:
    clock = ManualClock()
    trino = Trino(clock, *given)
    views = Views(trino, "lake.app.profiles", clock)
    probe = ViewProbe(cast("Writer", Log(clock)), views, 2.0, 1, clock)
    probe.run(Rounds(2))
    return probe.figures(Views(trino, "", clock)), trino


def test_freshness_by_view_lasts_until_the_answer_that_has_the_row() -> None:
    first, second = ([(*PROBE, f"probe_0{n}", f"written as number {n}", None)] for n in range(2))
    figures, trino = probed(REFUSED, first, first, second)
    by_key, live = (figures.freshness_ms[view] for view in ("live_by_key", "live"))
    assert (by_key.count, live.count) == (2, 1)
    assert by_key.max == pytest.approx(400)  # two answers, and a pause between them
    assert live.max == pytest.approx(2_110)  # the margin, and an answer
    assert ["_live " in sql for sql in trino.asked] == [False, False, True, False]
    assert (figures.answers, figures.refused) == (3, 1)


def test_a_view_that_lacks_what_was_acknowledged_is_a_bad_verdict() -> None:
    with pytest.raises(VerdictBad, match="null in live_by_key"):
        probed([])


def test_without_trinos_client_the_demo_says_how_to_get_it_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "thermocline.views.trino_client", raising=False)
    monkeypatch.setitem(sys.modules, "trino", None)
    assert run(["demo", "--trino"]) == 2
    assert "pip install '.[views]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
