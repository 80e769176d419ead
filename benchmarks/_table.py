"""A table of a given size, filled the way a user's is: through Kafka and ingest."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any

from benchmarks._report import say
from thermocline.dev.oracle import Oracle
from thermocline.dev.stack import TABLE, TOPIC, Command, Stack, StackOptions
from thermocline.dev.workload import Event, Workload, produce
from thermocline.ingest.owner.owner import Owner
from thermocline.process.clock import SystemClock

KEYS_PER_USER = 10


class Forgetful(Oracle):
    """An oracle that remembers nothing: millions of records would take the memory that is measured."""

    def acknowledge(self, record: object) -> None:
        del record


def write(stack: Stack, events: Iterable[Event], quietly: bool = False) -> int:
    """Produce the events as fast as the broker takes them; how many."""
    started = time.monotonic()
    count = produce(stack.settings.kafka.client_config(), TOPIC, events, Forgetful())
    if not quietly:
        say(f"  {count:,} records produced in {time.monotonic() - started:.1f} s")
    return count


class Timings(logging.Handler):
    """What ingest's own log says of the time that each commit took, with the time measured around it."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.steps: list[dict[str, float]] = []
        self._said: dict[str, float] = {}
        logger = logging.getLogger("thermocline.ingest.owner.table_batch")
        logger.addHandler(self)
        logger.setLevel(logging.INFO)

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps the seconds of a "committed" line."""
        if record.getMessage() == "committed":
            data: dict[str, Any] = getattr(record, "fields", {})
            self._said = {name: value for name, value in data.items() if name.endswith("_seconds")}

    def step(self, seconds: float, **others: float) -> dict[str, float]:
        """Adds a step that took so long, with what its log line said."""
        self.steps.append({"step_seconds": round(seconds, 3), **self._said, **others})
        self._said = {}
        return self.steps[-1]


def filled(folder: Path, rows: int, seed: int, **options: Any) -> Stack:
    """A started stack whose table holds ``rows`` rows of ``rows / 10`` users, all committed.

    ``options`` are the stack's.
    """
    say(f"filling a table with {rows:,} rows")
    stack = Stack(folder, StackOptions(partitions=8, buckets=16, is_measured=True, **options)).start()
    write(stack, Workload(seed, rows // KEYS_PER_USER, KEYS_PER_USER).load())
    owner = Owner.open(stack.settings, TABLE, SystemClock())
    started = time.monotonic()
    owner.catch_up(threading.Event())
    say(f"  committed in {time.monotonic() - started:.1f} s")
    owner.close()
    return stack


def serve_cold(stack: Stack) -> Command:
    """A server that makes no rows ready ahead, so that what is looked up first is read from the files."""
    return stack.command("serve", "serve", environment={"THERMOCLINE_SERVING__ROWS_AHEAD": "false"})


class Stopwatch:
    """The time spent in some functions, while nobody counts it twice: a call within a call is part of it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._is_inside = False

    def watch(self, place: Any, *names: str) -> None:
        """From now on, time these functions of a module, or methods of a class."""
        for name in names:
            setattr(place, name, self._timed(getattr(place, name)))

    def lap(self) -> float:
        """The seconds since the last lap."""
        seconds, self.seconds = self.seconds, 0.0
        return round(seconds, 4)

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def timed(*arguments: Any, **options: Any) -> Any:
            if self._is_inside:
                return function(*arguments, **options)
            self._is_inside, started = True, time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                self.seconds += time.perf_counter() - started
                self._is_inside = False

        return timed
