"""The hot tier between processes: one writes and is killed, others read."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.manual_clock import ManualClock
from tests.serving.hot_log import DEFINITION, PLACES, START, FakeLog, check, generation_files
from thermocline.errors import NotReady
from thermocline.process.clock import SystemClock
from thermocline.rules.seam import Seam
from thermocline.serving.hot import tier as tier_module
from thermocline.serving.hot.environment import open_environment
from thermocline.serving.hot.pinned import hold
from thermocline.serving.hot.tier import MAP_BYTES, UPKEEP_SECONDS, HotTier
from thermocline.serving.hot.view import HotReader

RECORDS = 6_000
KILLS = 6
PATIENCE_SECONDS = 60.0

spawn = multiprocessing.get_context("spawn")


def the_log() -> FakeLog:
    """The same in every process."""
    draw = random.Random(20)
    log = FakeLog()
    for _ in range(RECORDS):
        key = (1, f"u{draw.randrange(30)}", draw.choice(["k", "l", "long" * 150]))
        value = None if draw.random() < 0.2 else f"v{draw.randrange(1000)}"
        log.add(draw.choice(PLACES), key, value, draw.randrange(50))
    return log


def write(folder: Path) -> None:
    """A tailer that reads on wherever the last one was killed, and seals and merges all the time."""
    tier_module.SEAL_SECONDS_MIN = 0.005  # type: ignore[misc]
    tier_module.GENERATION_SECONDS_MAX = 0.01  # type: ignore[misc]
    log, draw = the_log(), random.Random(os.getpid())
    tier = HotTier.open(folder, DEFINITION, START, SystemClock())
    while True:
        until = {place: min(log.ends[place], tier.end[place] + draw.randrange(40)) for place in PLACES}
        log.feed(tier, until)
        tier.tend(START)
        time.sleep(0.001)


def test_a_tailer_killed_at_any_moment_loses_nothing_and_readers_never_see_a_gap(tmp_path: Path) -> None:
    """Goal: kill -9 leaves a tier that is whole, that the next tailer continues, and that readers still read.

    Method: kill writers in the middle of appending; all the time, a reader compares views with the same log.
    """
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    draw = random.Random(seed)
    log, folder = the_log(), tmp_path / "hot"
    reader: HotReader | None = None
    seen = START
    for _ in range(KILLS):
        writer = spawn.Process(target=write, args=(folder,), daemon=True)
        writer.start()
        reader = reader or wait_for(lambda: HotReader.open(folder, DEFINITION))
        started_at = seen
        until = time.monotonic() + draw.uniform(0.02, 0.2)
        while time.monotonic() < until or seen == started_at != log_end(log):
            with reader.view() as view:
                assert view.start == START
                assert view.end.at_least(seen)
                seen = view.end
                check(view, log, START, draw)
        os.kill(writer.pid or 0, signal.SIGKILL)
        writer.join()
        with reader.view() as view:
            check(view, log, START, draw)
    assert seen != START


def log_end(log: FakeLog) -> Seam:
    return Seam(log.ends)


def wait_for(step: Callable[[], HotReader]) -> HotReader:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return step()
        except NotReady:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def read_forever(folder: Path, entered: object) -> None:
    with HotReader.open(folder, DEFINITION).view():
        entered.set()  # type: ignore[attr-defined]
        time.sleep(PATIENCE_SECONDS)


def test_a_reader_killed_within_a_view_keeps_no_page(tmp_path: Path) -> None:
    clock = ManualClock()
    tier = HotTier.open(tmp_path, DEFINITION, START, clock)
    entered = spawn.Event()
    reader = spawn.Process(target=read_forever, args=(tmp_path, entered), daemon=True)
    reader.start()
    assert entered.wait(PATIENCE_SECONDS)
    (file,) = generation_files(tmp_path)
    environment = open_environment(file, MAP_BYTES, is_writer=True)  # the same, in one process
    assert str(reader.pid) in environment.readers()
    os.kill(reader.pid or 0, signal.SIGKILL)
    reader.join()
    clock.advance(UPKEEP_SECONDS)
    tier.tend(None)
    assert str(reader.pid) not in environment.readers()
    tier.close()


def pin_once(folder: Path, ends: object) -> None:
    pin = hold(folder, "profiles", 1, START, SystemClock())
    with pin.open(PATIENCE_SECONDS) as pinned:
        check(pinned, the_log(), START, random.Random(0))
        ends.put(pinned.end.to_dict())  # type: ignore[attr-defined]


def test_a_pin_of_another_process_gets_its_seal(tmp_path: Path) -> None:
    log = the_log()
    tier = HotTier.open(tmp_path, DEFINITION, START, SystemClock())
    log.feed(tier, dict.fromkeys(PLACES, 500))
    ends = spawn.Queue()
    reader = spawn.Process(target=pin_once, args=(tmp_path, ends), daemon=True)
    reader.start()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while ends.empty():
        assert time.monotonic() < deadline
        tier.tend(START)
        time.sleep(0.01)
    assert ends.get() == tier.end.to_dict()
    reader.join()
    tier.close()
