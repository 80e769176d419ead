"""Maintenance that fails, or whose process dies, at each of its failpoints: the next one goes on."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.failpoints.point import Process
from tests.failpoints.points import POINTS, points_of
from tests.ingest.small_ingest import Ingest, settings_of
from tests.maintenance.kept import HOURS, Inline, Kept, upkeep_of
from tests.manual_clock import ManualClock
from thermocline import failpoints
from thermocline.maintenance.run import OwnedTable

pytestmark = [pytest.mark.jvm, pytest.mark.full]

ROUNDS_MAX = 60


class Died(BaseException):
    """In place of the end of the process."""


class Once:
    """Fails, or dies, at the first or a later time that a point is met."""

    def __init__(self, name: str, dies: bool, nth: int) -> None:
        self.name, self.dies, self.left = name, dies, nth

    def fire(self, name: str, is_done: bool) -> None:
        if name == self.name and not is_done:
            self.left -= 1
            if self.left == 0:
                raise Died if self.dies else POINTS[name].error(name)

    def skew_ms(self, name: str) -> int:
        return 0


@pytest.fixture
def hooked() -> Iterator[Callable[[Once], None]]:
    yield failpoints.hook_in
    failpoints.hook_in(None)


Hook = Callable[[Once], None]


def test_maintenance_dies_at_one_point_after_the_other_and_the_table_is_right(
    tmp_path: Path, jvm: Any, hooked: Hook
) -> None:
    """Method: one table, whose maintenance is begun again after each death."""
    points = list(points_of(Process.UPKEEP))
    random.Random(1).shuffle(points)
    _run_on_through(tmp_path, jvm, hooked, [Once(name, dies=True, nth=1) for name in points], 1)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("dies", [False, True], ids=["fails", "dies"])
@pytest.mark.parametrize("name", points_of(Process.UPKEEP))
def test_wherever_maintenance_ends_the_table_is_right_and_the_next_one_goes_on(
    tmp_path: Path, jvm: Any, hooked: Hook, name: str, dies: bool, seed: int
) -> None:
    rng = random.Random(f"{name} {dies} {seed}")
    once = Once(name, dies, rng.randint(1, 3 if name.startswith(("compact", "landing")) else 1))
    _run_on_through(tmp_path, jvm, hooked, [once], seed)


def _run_on_through(tmp_path: Path, jvm: Any, hooked: Hook, ends: list[Once], seed: int) -> None:
    """Batches and turns of maintenance until it has ended in all these ways, and some more after each."""
    ingest = Ingest(settings_of(tmp_path, "sqlite:///catalog.db"), jvm, seed)
    clock = ManualClock(int(1000 * time.time()))
    kept = Kept(ingest, upkeep_of(clock), OwnedTable.of(ingest.owned, Inline(jvm)), clock)
    for once in ends:
        hooked(once)
        rounds_after = 0
        for round_ in range(ROUNDS_MAX):
            kept.batch()
            try:
                kept.turn()
            except Died:
                kept.upkeep.close()
                ingest.take_over()
                kept = Kept(ingest, upkeep_of(clock), OwnedTable.of(ingest.owned, Inline(jvm)), clock)
            clock.advance(5 * HOURS if (round_ > 12 or once is not ends[0]) and round_ % 2 else 61)
            rounds_after += once.left <= 0
            if rounds_after == (6 if once is ends[-1] else 2):
                break
        assert once.left <= 0, f"{once.name} was never met"
    for _ in range(12):
        clock.advance(61)
        kept.turn()
    assert kept.upkeep.plan is not None
    assert kept.upkeep.plan.wanted == (), "the next one does what is left"
    assert kept.ingest.rows() == kept.ingest.expected
    # Every snapshot can be read whole, and none of its files is gone.
    assert kept.ingest.files_ever_in_the_table() <= kept.data_files()
    for snapshot in kept.ingest.owned.table.snapshots():
        kept.ingest.owned.table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
    kept.upkeep.close()
    ingest.owned.release()
