"""The tailer on a disk that fails or is full: it stands still, says so, and goes on with nothing lost or torn."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serving.hot import generation, leases, tier
from serving.hot.leases import Lease
from serving.hot.manifest import read_manifest
from serving.hot.pinned import hold
from serving.hot.view import HotReader
from serving.layout import HOT
from tests.behaviour.armed import ERROR_LIKE, armed_by, has_fired
from tests.serving import full_disk
from tests.serving.hot_log import DEFINITION, PLACES, START, check
from tests.serving.test_tailer import FakeTail, snapshot
from tests.serving.test_tailer_steps import Stepped
from thermocline.errors import StorageFailed
from thermocline.failpoints import POINTS, Action, Process, arm, disarm
from thermocline.seam import Seam

P0 = PLACES[0]
STORAGE_POINTS = [
    (point.name, action)
    for point in POINTS.values()
    if point.name.startswith(("hot.", "tailer.status")) and Process.TAILER in point.processes
    for action in point.actions
    if action in ERROR_LIKE
]
ROUNDS = 40


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with armed_by(tmp_path_factory.mktemp("failpoints") / "armed") as path:
        yield path


@pytest.fixture
def tailed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tailed]:
    """What happens once in a while happens all the time."""
    monkeypatch.setattr(tier, "GENERATIONS_MAX", 2)
    monkeypatch.setattr(leases, "keep_alive", lambda lease: None)
    monkeypatch.setattr(FakeTail, "poll", full_disk.poll)
    made = Tailed(tmp_path)
    monkeypatch.setattr(
        FakeTail, "reached_end_at", lambda tail: dict.fromkeys(tail.at, made.stepped.clock.monotonic())
    )
    yield made
    made.close()


class Tailed:
    """A tailer, a reader, and the things that happen to them in turn."""

    def __init__(self, folder: Path) -> None:
        self.stepped = Stepped(folder)
        self.folder = folder
        self.stepped.turn(2)
        self.reader = HotReader.open(folder / HOT, DEFINITION)
        self.drawn = random.Random(0)
        self.pin: Any = None
        self.number = 0

    def close(self) -> None:
        self.stepped.tailer.close()

    def happen(self) -> dict[str, Any]:
        """Records, then a pin's wish for a seal; now and then a commit, or another process. What it says."""
        self.number += 1
        log = self.stepped.kafka.log
        for user in "abc":
            log.add(self.drawn.choice(PLACES), (1, user, "k"), f"v{self.number}", self.number)
        if self.pin is not None:
            self.pin.release()
        try:
            self.pin = hold(self.folder / HOT, "profiles", 1, self.newest, self.stepped.clock)
        except OSError:
            self.pin = None
        if self.number % 7 == 0:
            self.stepped.commit(snapshot(self.number, Seam(log.ends)))
        if self.number % 5 == 0:
            self.stepped.restart()
        status = self.stepped.turn(3)
        self.check()
        return status

    @property
    def newest(self) -> Seam:
        seam: Seam = self.stepped.follower.newest.state.seam
        return seam

    def check(self) -> Seam:
        """Whatever a reader sees is what the log has up to there. How far it reaches."""
        self.reader.refresh()
        with self.reader.view() as view:
            seam = self.newest if self.newest.at_least(view.start) else view.start
            check(view, self.stepped.kafka.log, seam.merged_max(view.start), self.drawn)
            return view.end


@pytest.mark.parametrize(("name", "action"), STORAGE_POINTS)
def test_whatever_of_the_disk_fails_once_the_tailer_goes_on_with_nothing_lost_or_torn(
    tailed: Tailed, file: Path, name: str, action: Action
) -> None:
    entry = f"{name}={action}@1"
    arm(file, entry)
    for _ in range(ROUNDS):
        tailed.happen()
        if has_fired(file, entry):
            break
    assert has_fired(file, entry), "never met"
    for _ in range(8):
        status = tailed.happen()
    disarm(file)
    assert status["problem"] is None
    assert tailed.check() == Seam(tailed.stepped.kafka.log.ends)


@pytest.mark.parametrize("name", sorted({name for name, _ in STORAGE_POINTS if name != "tailer.status"}))
def test_a_tailer_whose_disk_keeps_failing_stands_still_and_says_so_until_it_is_mended(
    tailed: Tailed, file: Path, name: str
) -> None:
    """Method: what it holds is read all the time, and everything is there in the end."""
    tailed.happen()
    arm(file, f"{name}=error")
    problems = [tailed.happen()["problem"] for _ in range(ROUNDS)]
    assert StorageFailed.code in {problem["code"] for problem in problems if problem}
    disarm(file)
    for _ in range(4):
        status = tailed.happen()
    assert status["problem"] is None
    assert tailed.check() == Seam(tailed.stepped.kafka.log.ends)


def test_a_status_that_cannot_be_written_does_not_stop_the_reading(tailed: Tailed, file: Path) -> None:
    arm(file, "tailer.status=error")
    tailed.stepped.kafka.log.add(P0, (1, "a", "k"), "v", 0)
    tailed.stepped.turn(2)
    assert tailed.check() == Seam(tailed.stepped.kafka.log.ends)
    disarm(file)


def test_no_other_tier_is_opened_while_the_status_tells_of_the_one_before(tailed: Tailed, file: Path) -> None:
    """Goal: a worker that starts now does not take a tier that is still being filled for a full one."""
    assert tailed.stepped.turn(1)["caught_up_to_start_ends"]
    before = read_manifest(tailed.folder / HOT)
    arm(file, "tailer.status=error")
    tailed.stepped.restart()
    assert tailed.stepped.turn(4)["caught_up_to_start_ends"], "of the process before"
    assert read_manifest(tailed.folder / HOT) == before
    disarm(file)
    assert tailed.stepped.turn(4)["caught_up_to_start_ends"]
    assert read_manifest(tailed.folder / HOT) != before


def test_a_merge_that_failed_half_way_is_never_listed(
    tailed: Tailed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: the second step of each merge fails, and another one of the same object is asked for."""
    monkeypatch.setattr("serving.hot.merge.STEP_RECORDS", 1)
    fill, steps = generation.Generation.fill, []

    def failing(one: Any, records: Any, ascending: bool) -> None:
        steps.append(one)
        if steps.count(one) == 2:
            raise OSError(5, "failed")
        fill(one, records, ascending)

    with monkeypatch.context() as patch:
        patch.setattr(generation.Generation, "fill", failing)
        for _ in range(ROUNDS):
            tailed.happen()
    assert steps
    for _ in range(4):
        tailed.happen()
    assert tailed.check() == Seam(tailed.stepped.kafka.log.ends)


def test_a_lease_that_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: the disk is full once the file was made."""
    monkeypatch.setattr(Path, "replace", _full)
    with pytest.raises(OSError, match="full"):
        Lease.of_reader(tmp_path, 1, START)
    assert not list((tmp_path / leases.LEASES).iterdir())


def _full(*_: object) -> Path:
    raise OSError(28, "full")


def test_on_a_disk_that_is_really_full_the_tailer_stands_still_and_goes_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    """Method: a tmpfs in a mount namespace of a process of its own; without the right to that, skipped."""
    command = [sys.executable, "-m", "tests.serving.full_disk", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode == full_disk.NOT_PERMITTED:
        pytest.skip("no mount namespace here")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "stood still" in ended.stdout
