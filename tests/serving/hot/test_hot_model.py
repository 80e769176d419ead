"""The hot tier against a plain dict, through random sequences of all that can happen to it."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.manual_clock import ManualClock
from tests.serving.hot_log import DEFINITION, PLACES, START, FakeLog, check, generation_files
from tests.tier import quick_or_full
from thermocline.rules.seam import Seam
from thermocline.serving.hot import arrived, merge, scan, tier
from thermocline.serving.hot.manifest import read_manifest
from thermocline.serving.hot.pinned import PinnedHot, hold
from thermocline.serving.hot.tier import HotTier
from thermocline.serving.hot.view import HotReader

STEPS = quick_or_full(60, 120)


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that takes millions of records to happen, with hundreds."""
    monkeypatch.setattr(tier, "GENERATION_BYTES_MAX", 96 << 10)
    monkeypatch.setattr(tier, "MAP_BYTES", 8 << 20)
    monkeypatch.setattr(tier, "GENERATIONS_MAX", 3)
    monkeypatch.setattr(tier, "DISK_FREE_BYTES_MIN", 0)
    monkeypatch.setattr(merge, "STEP_RECORDS", 7)
    monkeypatch.setattr(arrived, "KEYS_MAX", 500)
    monkeypatch.setattr(scan, "BLOCK_RECORDS", 11)
    monkeypatch.setattr(scan, "BLOCK_BYTES_MAX", 300)


class World:
    def __init__(self, folder: Path, seed: int) -> None:
        self.draw = random.Random(seed)
        self.folder = folder
        self.clock = ManualClock()
        self.log = FakeLog()
        self.tier = HotTier.open(folder, DEFINITION, START, self.clock)
        self.reader = HotReader.open(folder, DEFINITION)
        self.seam = START
        self.ends = [START]  # that the tier had after each step
        self.pins: list[tuple[PinnedHot, Seam]] = []
        self.touched = 0

    def produce_and_append(self) -> None:
        for _ in range(self.draw.choice([1, 5, 60, 400, 700])):
            place = self.draw.choice(PLACES)
            key = (self.draw.randrange(2), f"u{int(self.draw.paretovariate(0.7)) % 40}", self.key())
            value = (
                None
                if self.draw.random() < 0.2
                else f"v{self.draw.randrange(9)}" * self.draw.randrange(1, 30)
            )
            if self.draw.random() < 0.05:
                self.log.skip(place)
            # Times of different partitions collide and go back, so that the order over partitions matters.
            self.log.add(place, key, value, self.draw.randrange(20), self.draw.random() < 0.03)
        if self.draw.random() < 0.8:  # otherwise the tailer lags, maybe behind a commit
            self.log.feed(self.tier, reached_at=self.clock.monotonic())

    def key(self) -> str:
        if self.draw.random() < 0.1:
            return "long" * 150 + str(self.draw.randrange(4))
        return f"k{self.draw.randrange(4)}"

    def commit(self) -> None:
        """A commit of some of what is in the log; readers switch to it. It may lie beyond the tier's end."""
        self.seam = Seam(
            {place: self.draw.randint(self.seam[place], self.log.ends[place]) for place in PLACES}
        )

    def pin(self) -> None:
        pin = hold(self.folder, "profiles", 1, self.seam, self.clock)
        self.clock.advance(1.1)
        self.tier.tend(self.seam)
        self.pins.append((pin.open(0), self.seam))

    def unpin(self) -> None:
        if self.pins:
            self.pins.pop(self.draw.randrange(len(self.pins)))[0].close()

    def pass_time(self) -> None:
        self.clock.advance(self.draw.choice([0.02, 1.0, 20.0]))
        for _ in range(self.draw.choice([1, 200])):
            self.keep_alive()
            self.tier.tend(self.seam)

    def keep_alive(self) -> None:
        self.touched += 1_000_000
        for lease in (self.folder / "leases").iterdir():
            os.utime(lease, ns=(self.touched, self.touched))

    def crash_and_reopen(self) -> None:
        """As if killed: nothing is tidied up. A merge may be half done."""
        held, end = self.tier.start, self.tier.end
        self.tier._lock.close()
        self.tier = HotTier.open(self.folder, DEFINITION, self.seam.merged_max(held), self.clock)
        assert (self.tier.start, self.tier.end) == (held, end)

    def check(self) -> None:
        with self.reader.view() as view:
            assert view.end == self.tier.end
            assert self.seam.at_least(view.start)
            # An older seam is as right, as long as the tier reaches back to it; also one within it.
            self.ends = [end for end in self.ends[-6:] if end.at_least(view.start)]
            check(view, self.log, self.draw.choice([view.start, self.seam, *self.ends]), self.draw)
        self.ends.append(self.tier.end)
        for pinned, seam in self.draw.sample(self.pins, min(1, len(self.pins))):
            assert seam.at_least(pinned.start)
            check(pinned, self.log, seam, self.draw)


@pytest.mark.parametrize("seed", range(quick_or_full(1, 4)))
def test_hot_tier_answers_as_a_dict_does_whatever_happens(tmp_path: Path, seed: int) -> None:
    """Goal: no sequence of appends, seals, rolls, merges, evictions, pins and crashes changes an answer.

    Method: after each random step, compare a view and every open pin with a replay of the same records.
    """
    print(f"seed {seed}")
    world = World(tmp_path, seed)
    steps = [world.produce_and_append, world.commit, world.pass_time, world.pin, world.unpin,
             world.crash_and_reopen]  # fmt: skip
    for _ in range(STEPS):
        world.draw.choices(steps, weights=[8, 3, 6, 1, 1, 1])[0]()
        world.check()
    manifest = read_manifest(tmp_path)
    assert manifest is not None
    assert manifest.version > STEPS / 5  # much did happen
    for pinned, _ in world.pins:
        pinned.close()
    world.tier.tend(world.seam)
    world.clock.advance(1.1)
    world.tier.tend(world.seam)
    unlisted = {*tmp_path.glob("*.mdb")} - {*generation_files(tmp_path)}
    assert len(unlisted) <= 1, "more than what a merge writes"
    world.tier.close()
