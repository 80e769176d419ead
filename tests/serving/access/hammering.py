"""API workers that are real processes, with one clock that they all read and a test moves."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from struct import Struct
from typing import Any

from thermocline.serving.access.limits import Limits, RateLimits

spawn = multiprocessing.get_context("spawn")
_SECONDS = Struct("d")


@dataclass
class SharedClock:
    """Seconds in a file; ``read`` are those that this process read last."""

    path: Path
    read: float = 0.0

    def monotonic(self) -> float:
        self.read = _SECONDS.unpack(self.path.read_bytes())[0]
        return self.read

    def now_ms(self) -> int:
        return round(self.monotonic() * 1000)

    def sleep(self, seconds: float) -> None:
        time.sleep(0.01)

    def set(self, seconds: float) -> None:
        with self.path.open("r+b" if self.path.exists() else "wb") as file:
            file.write(_SECONDS.pack(seconds))  # as one: readers see all of it


def hammer(
    folder: Path, workers: int, clock: SharedClock, limits: Limits, attempts: int, ticks: int, start: Any
) -> list[float]:
    """When each request of a worker was admitted; it moves the clock on by 1/1024 s, evenly, so often."""
    limited = RateLimits(folder, workers, clock)
    began = clock.monotonic()
    start.wait(60)
    admitted = []
    for attempt in range(attempts):
        if limited.try_admit("billing", limits):
            admitted.append(clock.read)
        if ticks and attempt % (attempts // ticks) == 0:
            clock.set(began + (attempt // (attempts // ticks) + 1) / 1024)
    return admitted


def hammered(
    folder: Path, workers: int, clock: SharedClock, limits: Limits, attempts: int, ticks: int
) -> list[float]:
    """When the requests of all workers were admitted; the first one moves the clock."""
    with ExitStack() as held:
        start = held.enter_context(spawn.Manager()).Barrier(workers)
        pool = held.enter_context(spawn.Pool(workers))
        asked = [
            pool.apply_async(hammer, (folder, workers, clock, limits, attempts, ticks * (number == 0), start))
            for number in range(workers)
        ]
        return sorted(seconds for one in asked for seconds in one.get())


def hold(folder: Path, clock: SharedClock, limits: Limits, said: Connection) -> None:
    """A worker that takes two requests and an extract, says so, and goes on until it is killed."""
    limited = RateLimits(folder, 1, clock)
    with limited.extract("billing", limits):
        said.send([limited.try_admit("billing", limits) for _ in range(2)])
        time.sleep(600)


def held(folder: Path, clock: SharedClock, limits: Limits) -> tuple[Any, Sequence[bool]]:
    """Such a process, and what it was admitted."""
    here, there = spawn.Pipe()
    process = spawn.Process(target=hold, args=(folder, clock, limits, there), daemon=True)
    process.start()
    return process, here.recv()
