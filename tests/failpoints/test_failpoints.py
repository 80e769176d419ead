"""Failpoints: what is armed happens, where, when and as often as it says; nothing else ever does."""

from __future__ import annotations

import ast
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.failpoints.arming import FILE_VARIABLE, TEXT_VARIABLE, arm, disarm, fired
from tests.failpoints.firing import arm_from, environment
from tests.failpoints.point import Action, Form, Process
from tests.failpoints.points import POINTS, points_of
from thermocline.failpoints import failpoint, failstep
from thermocline.process.clock import SystemClock

ROOT = Path(__file__).parents[2]
FORMS = {form.value: form for form in Form}
POINT, STEP = "owner.plan", "data-file.write"


@pytest.fixture(autouse=True)
def off() -> Iterator[None]:
    yield
    arm_from({})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "armed"
    arm_from({FILE_VARIABLE: str(path)})
    return path


def by_text(text: str) -> None:
    arm_from({TEXT_VARIABLE: text})


def outcome(name: str = POINT) -> str:
    try:
        failpoint(name)
    except Exception as error:  # noqa: BLE001
        return type(error).__name__
    return "nothing"


class Step:
    """A step that says whether it was done, and what it raised."""

    def __init__(self, name: str = STEP) -> None:
        self.is_done, self.error = False, ""
        try:
            with failstep(name):
                self.is_done = True
        except OSError as error:
            self.error = str(error)


def test_nothing_happens_when_nothing_is_armed() -> None:
    assert outcome() == "nothing"
    assert Step().is_done
    assert abs(SystemClock().now_ms() - time.time() * 1000) < 60_000


@pytest.mark.parametrize("name", [point.name for point in POINTS.values() if Action.ERROR in point.actions])
def test_an_error_is_what_a_real_failure_there_raises_and_names_the_point(name: str) -> None:
    by_text(f"{name}=error")
    with pytest.raises(type(POINTS[name].error("x"))) as raised:
        failpoint(name)
    assert name in f"{raised.value} {getattr(raised.value, 'detail', '')}"


def test_a_point_that_is_not_armed_does_nothing_while_others_are() -> None:
    by_text("owner.check=error")
    assert outcome() == "nothing"


def test_with_a_number_only_that_time_counts() -> None:
    by_text(f"{POINT}=error@3")
    assert [outcome() for _ in range(4)] == ["nothing", "nothing", "KafkaUnreachable", "nothing"]


def test_without_a_number_every_time_counts() -> None:
    by_text(f"{POINT}=error")
    assert {outcome() for _ in range(3)} == {"KafkaUnreachable"}


def test_an_error_before_a_step_leaves_it_undone() -> None:
    by_text(f"{STEP}=error")
    step = Step()
    assert (step.is_done, STEP in step.error) == (False, True)


def test_applied_then_error_does_the_step_and_fails_nevertheless() -> None:
    by_text(f"{STEP}=applied-then-error")
    step = Step()
    assert (step.is_done, STEP in step.error) == (True, True)


def test_a_step_that_fails_by_itself_keeps_its_own_error() -> None:
    by_text(f"{STEP}=applied-then-error")
    with pytest.raises(ZeroDivisionError), failstep(STEP):
        raise ZeroDivisionError


def test_sleep_waits_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    by_text(f"{POINT}=sleep:1.5@2")
    assert [outcome(), outcome(), outcome()] == ["nothing"] * 3
    assert slept == [1.5]


@pytest.mark.parametrize("skew", [-7_200_000, 7_200_000])
def test_a_skewed_clock_is_wrong_by_so_much_and_its_monotonic_time_is_right(skew: int) -> None:
    by_text(f"clock=skew:{skew}")
    clock = SystemClock()
    assert abs(clock.now_ms() - time.time() * 1000 - skew) < 60_000
    assert abs(clock.monotonic() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 60


def test_time_passes_while_the_machine_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {time.CLOCK_MONOTONIC: 1.0, time.CLOCK_BOOTTIME: 100.0}
    monkeypatch.setattr(time, "clock_gettime", seconds.__getitem__)
    assert SystemClock().monotonic() == seconds[time.CLOCK_BOOTTIME]


def run_python(code: str, **armed: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **armed},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_kill_ends_the_process_at_the_point_and_its_log_says_where() -> None:
    """Method: the process is armed by its environment alone, as a Spark worker is."""
    code = f"from thermocline.failpoints import failpoint\nfailpoint({POINT!r})\nprint('gone on')"
    ended = run_python(code, **environment(f"{POINT}=kill"))
    assert ended.returncode == -signal.SIGKILL
    assert ended.stdout == ""
    assert "failpoint" in ended.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("owner.plam=error", 'no failpoint is called owner.plam; did you mean "owner.plan"?'),
        ("owner.plan=explode", "owner.plan can error, kill, sleep:SECONDS"),
        ("owner.plan=applied-then-error", "owner.plan can error, kill, sleep:SECONDS"),
        ("owner.plan=skew:5", "owner.plan can error, kill, sleep:SECONDS"),
        ("clock=error", "clock can skew:MS"),
        ("clock=skew:5@2", "a clock is wrong all the time"),
        ("owner.plan=sleep", "write sleep:SECONDS"),
        ("owner.plan=error:5", "write error"),
        ("owner.plan=error@0", "write point=action"),
        ("owner.plan", "write point=action"),
        ("OWNER.PLAN=error", "write point=action"),
    ],
)
def test_what_is_not_understood_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        by_text(text)


def test_all_that_is_not_understood_is_said_at_once() -> None:
    with pytest.raises(ValueError, match=r"called a.*called b"):
        by_text("a=error;owner.plan=error;b=kill")


def test_the_file_arms_and_disarms_while_the_process_runs(file: Path) -> None:
    assert outcome() == "nothing"
    arm(file, f"{POINT}=error")
    assert [outcome(), outcome()] == ["KafkaUnreachable", "KafkaUnreachable"]
    disarm(file)
    assert outcome() == "nothing"


def test_what_the_file_counts_fires_once_in_all_processes(file: Path) -> None:
    """Goal: a process that is killed by it and started again goes on."""
    arm(file, f"{POINT}=kill@2")
    code = f"from thermocline.failpoints import failpoint\n[failpoint({POINT!r}) for _ in range(5)]"
    codes = [run_python(code, **environment(file=file)).returncode for _ in range(3)]
    assert codes == [-signal.SIGKILL, 0, 0]
    assert [one.entry for one in fired(file)] == [f"{POINT}=kill@2"]


def test_a_rewritten_file_arms_again(file: Path) -> None:
    for _ in range(2):
        arm(file, f"{POINT}=error@1")
        assert not fired(file)
        assert [outcome(), outcome()] == ["KafkaUnreachable", "nothing"]
        assert len(fired(file)) == 1


def test_a_file_with_a_mistake_is_refused_and_what_was_armed_stays(file: Path) -> None:
    arm(file, f"{POINT}=error")
    with pytest.raises(ValueError, match=r"owner\.plam"):
        arm(file, "owner.plam=error")
    assert outcome() == "KafkaUnreachable"


def test_of_a_file_that_cannot_be_understood_nothing_is_armed(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_text(f"{POINT}=error; owner.plam=error")
    with caplog.at_level(logging.ERROR):
        assert outcome() == "nothing"
    assert "nothing is armed" in caplog.text


def test_every_kind_of_process_has_its_points() -> None:
    assert {name for process in Process for name in points_of(process)} == set(POINTS)
    assert all(points_of(process) for process in Process)


def reached_in_the_code() -> Iterator[tuple[str, str, Form]]:
    """Each call of a failpoint: its name, the file, the form."""
    for room in ("thermocline", "cli", "doctor", "ingest", "maintenance", "serving", "verify", "views"):
        for path in sorted((ROOT / room).rglob("*.py")):
            if path == ROOT / "thermocline" / "failpoints.py":
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
                    continue
                called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
                if called in FORMS:
                    (name,) = node.args
                    assert isinstance(name, ast.Constant), f"{path}: a failpoint's name is written out"
                    yield str(name.value), str(path.relative_to(ROOT)), FORMS[called]


def test_each_registered_point_stands_in_the_code_once_where_the_registry_says_and_no_other_does() -> None:
    found = sorted(reached_in_the_code())
    assert found == sorted((point.name, point.file, point.form) for point in POINTS.values())
