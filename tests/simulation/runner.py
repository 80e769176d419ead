"""Runs many histories, on several processes, and says what happened in them."""

from __future__ import annotations

import gc
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.simulation.chance import history_of
from tests.simulation.edges import simulated
from tests.simulation.faults import Violation
from tests.simulation.history import History, shrunk

# Histories that a process runs before it says so: some two seconds.
CHUNK = 250
# Failures of one kind that are kept: more of them seldom say more.
KEPT_PER_KIND = 3
# A line of progress, in seconds.
PROGRESS_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Failure:
    """A history that broke a promise."""

    seed: int
    number: int
    kind: str
    detail: str
    is_maintained: bool | None = None
    is_changing: bool | None = None

    def __str__(self) -> str:
        only = " --maintained" * bool(self.is_maintained) + " --changing" * bool(self.is_changing)
        command = f"python -m tests.simulation{only} --seed {self.seed} --history {self.number}"
        return f"{self.detail}\nagain: {command}"


@dataclass(slots=True)
class Report:
    """What came of histories: how many, what happened in them, and the failures."""

    histories: int = 0
    steps: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: Report) -> None:
        """Both together."""
        self.histories += other.histories
        self.steps += other.steps
        self.counts += other.counts
        kinds = Counter(failure.kind for failure in self.failures)
        for failure in other.failures:
            if kinds[failure.kind] < KEPT_PER_KIND:
                self.failures.append(failure)
                kinds[failure.kind] += 1

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"{self.histories} histories, {self.steps} steps"
        for name, count in sorted(self.counts.items()):
            yield f"  {count:>10}  {name}"
        for failure in self.failures:
            yield f"history {failure.number} of seed {failure.seed}: {failure}"


def run_histories(
    seed: int,
    first: int,
    count: int,
    is_served: bool | None = None,
    is_maintained: bool | None = None,
    is_rotating: bool | None = None,
    is_changing: bool | None = None,
) -> Report:
    """Histories of a seed, in this process."""
    report = Report()
    with simulated():
        for number in range(first, first + count):
            history = history_of(seed, number, is_served, is_maintained, is_rotating, is_changing)
            report.histories += 1
            report.steps += len(history.steps)
            try:
                report.counts += history.run()
            except Violation as violation:
                failure = Failure(seed, number, violation.kind, str(violation), is_maintained, is_changing)
                report.add(Report(failures=[failure]))
    return report


def run_many(
    seed: int,
    histories: int,
    processes: int,
    has_progress: bool = False,
    is_maintained: bool | None = None,
    is_changing: bool | None = None,
) -> Report:
    """The first histories of a seed, on several processes."""
    starts = range(0, histories, CHUNK)
    kinds = (None, is_maintained, None, is_changing)
    chunks = [(seed, first, min(CHUNK, histories - first), *kinds) for first in starts]
    report, said_at = Report(), time.monotonic()
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for done in pool.imap_unordered(_run_chunk, chunks):
            report.add(done)
            for failure in done.failures if has_progress else ():
                print(f"history {failure.number}: {failure}", file=sys.stderr, flush=True)
            if has_progress and time.monotonic() - said_at >= PROGRESS_SECONDS:
                said_at = time.monotonic()
                line = f"{report.histories} of {histories} histories, {len(report.failures)} failures"
                print(line, file=sys.stderr, flush=True)
    return report


def explained(
    seed: int, number: int, is_maintained: bool | None = None, is_changing: bool | None = None
) -> str:
    """One history: its steps, or, where it fails, the fewest of them that fail in the same way."""
    history = history_of(seed, number, is_maintained=is_maintained, is_changing=is_changing)
    with simulated():
        try:
            counts = history.run()
        except Violation as violation:
            short = shrunk(history, violation.kind)
            return f"{_again(short)}\n{short}"
    return f"{history}\n" + "\n".join(f"  {count:>6}  {name}" for name, count in sorted(counts.items()))


def _again(history: History) -> str:
    try:
        history.run()
    except Violation as violation:
        return str(violation)
    return "it failed, and does not any more: something in it is not decided by the seed"


def _run_chunk(chunk: tuple[int, int, int, bool | None, bool | None, bool | None, bool | None]) -> Report:
    gc.disable()  # which would take a quarter of the time, to find little
    try:
        return run_histories(*chunk)
    finally:
        gc.collect()
