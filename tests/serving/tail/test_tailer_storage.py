"""The tailer on a disk that fails or is full: it stands still, says so, and nothing is lost or torn."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.behaviour.armed import ERROR_LIKE, armed_by, has_fired
from tests.failpoints.arming import arm, disarm
from tests.failpoints.point import Action, Process
from tests.failpoints.points import POINTS
from tests.manual_clock import ManualClock
from tests.serving import full_disk
from tests.serving.hot_log import DEFINITION, PLACES, START, FakeLog, check, generation_files
from tests.serving.tail.test_tailer import FakeTail, snapshot
from tests.serving.tail.test_tailer_steps import Stepped
from thermocline.errors import StorageFailed
from thermocline.rules.seam import Seam
from thermocline.serving.hot import generation, leases, tier
from thermocline.serving.hot.leases import ReaderLease
from thermocline.serving.hot.manifest import read_manifest
from thermocline.serving.hot.merge import Merge
from thermocline.serving.hot.pinned import hold
from thermocline.serving.hot.tier import MAP_BYTES, HotTier
from thermocline.serving.hot.view import HotReader
from thermocline.serving.store.layout import HOT

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
    monkeypatch.setattr(FakeTail, "reached_end_at", lambda tail: tail.at_its_end(made.stepped.clock))
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
            log.add(self.drawn.choice(PLACES), (1, user, "k"), f"v{self.number}", 1000 * self.number)
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

    def settle(self, rounds: int) -> None:
        """Nothing is wrong after so many rounds, and nothing is missing."""
        problem = [self.happen()["problem"] for _ in range(rounds)][-1]
        assert problem is None
        assert self.check() == Seam(self.stepped.kafka.log.ends)

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
    tailed.settle(8)
    disarm(file)


def test_the_tailer_goes_on_with_a_manifest_that_is_there_though_its_publication_failed(
    tailed: Tailed, file: Path
) -> None:
    """Goal: what readers take for sealed does not change, whatever the tailer was told.

    Method: the pin that wanted the seal goes away, so that nothing else is published before the next records.
    """
    stepped = tailed.stepped
    tailed.happen()
    pin = hold(tailed.folder / HOT, "profiles", 1, tailed.newest, stepped.clock)
    stepped.kafka.log.add(P0, (1, "a", "k"), "sealed", 1000)
    arm(file, "hot.publish=applied-then-error@1")
    stepped.turn(1)
    assert has_fired(file, "hot.publish=applied-then-error@1")
    pin.release()
    tailed.pin.release()
    tailed.reader.refresh()
    for number in range(6):
        stepped.kafka.log.add(P0, (1, "a", "k"), f"after {number}", 1000 * (number + 1))
        stepped.turn(1)
        with tailed.reader.view() as view:
            check(view, stepped.kafka.log, view.start, tailed.drawn)
    assert tailed.check() == Seam(stepped.kafka.log.ends)


# Without its status it reads on; and a tier that can't be opened is begun again.
@pytest.mark.parametrize(
    "name", sorted({name for name, _ in STORAGE_POINTS if name not in {"tailer.status", "hot.open"}})
)
def test_a_tailer_whose_disk_keeps_failing_stands_still_and_says_so_until_it_is_mended(
    tailed: Tailed, file: Path, name: str
) -> None:
    """Method: what it holds is read all the time, and everything is there in the end."""
    tailed.happen()
    arm(file, f"{name}=error")
    problems = [tailed.happen()["problem"] for _ in range(ROUNDS)]
    assert StorageFailed.code in {problem["code"] for problem in problems if problem}
    disarm(file)
    tailed.settle(4)


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


def test_a_merge_whose_step_failed_is_never_called_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a generation that lacks records does not take the place of those that have them."""
    made = HotTier.open(tmp_path, DEFINITION, START, ManualClock())
    log = FakeLog()
    for user in "ab":
        log.add(P0, (1, user, "k"), "v", 0)
        log.feed(made)
        made.seal()
    older, newer = (
        generation.Generation(file, MAP_BYTES, is_writer=True) for file in generation_files(tmp_path)[:2]
    )
    merge = Merge(tmp_path / "merged.mdb", older, newer)
    fill = generation.Generation.fill

    def failing(one: Any, records: Any, ascending: bool) -> None:
        if not ascending:
            raise OSError(28, "full")
        fill(one, records, ascending)

    monkeypatch.setattr(generation.Generation, "fill", failing)
    assert not merge.is_done()
    with pytest.raises(OSError, match="full"):
        merge.is_done()
    assert not merge.is_done()
    merge.abandon()
    made.close()


def test_a_write_that_would_find_no_room_is_refused_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a full disk is an error. In the middle of a write to the map it would be the end of the process.

    Method: what is free shrinks to less than the records take.
    """
    made = HotTier.open(tmp_path, DEFINITION, START, ManualClock())
    log = FakeLog()
    log.add(P0, (1, "a", "k"), "v" * 100_000, 0)
    monkeypatch.setattr(
        "thermocline.serving.hot.disk.free_bytes", lambda folder: generation.SEAL_BYTES + 100_000
    )
    with pytest.raises(OSError, match="too little room"):
        log.feed(made)
    assert made.end == START
    made.seal()
    made.close()


def test_a_lease_that_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: the disk is full once the file was made."""
    monkeypatch.setattr(Path, "replace", _full)
    with pytest.raises(OSError, match="full"):
        ReaderLease.of_reader(tmp_path, 1, START)
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
