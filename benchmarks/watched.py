"""What it takes that people watch the status page of many tables: processor of the server, and of its parts.

Viewers follow the page as a browser does, each on a connection of its own, so the workers share them. Windows
in which they do and such in which nobody looks take turns. Beside each stands the time of a loop that is
always the same: how fast the machine was then.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import mean
from typing import Any, Final

import httpx
import psutil

from benchmarks._report import report, say
from benchmarks.tables import Bench, cpu_seconds_of, processes_of, said_by
from thermocline.dev.crowd import Crowd
from thermocline.dev.stack import Command, Stack, StackOptions
from thermocline.serving.tail.beside import WANTED_MS

FOLLOW_SECONDS: Final = 5.0
SETTLE_SECONDS: Final = 12.0
"""After the first look, what is asked of the store then is known."""
PACE_LOOPS: Final = 1_000_000


def main() -> None:
    """Run it and print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--viewers", type=int, default=10)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each window")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--records", type=int, default=50, help="of a table's batch")
    parser.add_argument(
        "--forget-seconds", type=float, default=WANTED_MS / 1000 + 5, help="between two rounds"
    )
    options = parser.parse_args()
    names = [f"t{number:03}" for number in range(options.tables)]
    stacked = StackOptions(engine="local", workers=options.workers)
    with tempfile.TemporaryDirectory() as folder, Stack(Path(folder), stacked) as stack:
        bench = Bench(stack, names, options.records)
        bench.prepare()
        windows = _windows(bench, stack, names, options)
    figures = {
        "tables": options.tables,
        "viewers": options.viewers,
        "workers": options.workers,
        "seconds": options.seconds,
        "windows": windows,
        "cores": {
            part: round(_mean(windows, "watched", part) - _mean(windows, "alone", part), 4)
            for part in ("api", "tailer", "all")
        },
    }
    report("watched", 0, figures)


def _windows(
    bench: Bench, stack: Stack, names: list[str], options: argparse.Namespace
) -> list[dict[str, Any]]:
    config = bench.config_of(names)
    ingest = Command(config, stack.folder / "ingest.log", "ingest", "run")
    serve = Command(config, stack.folder / "serve.log", "serve")
    found: list[dict[str, Any]] = []
    try:
        bench.wait(lambda: len(said_by(ingest, "ownership taken")) == len(names), ingest)
        bench.wait(lambda: stack.get("/readyz")[0] == httpx.codes.OK, serve)
        bench.batch(names, ingest)
        time.sleep(SETTLE_SECONDS)
        for number in range(options.rounds):
            if number:
                time.sleep(options.forget_seconds)
            say(f"round {number + 1}: nobody looks")
            found.append({"kind": "alone", **_window(serve, options.seconds)})
            say(f"round {number + 1}: {options.viewers} look")
            with Viewers(stack.url, options.viewers) as viewers:
                time.sleep(SETTLE_SECONDS)
                found.append({"kind": "watched", **_window(serve, options.seconds)})
            found[-1] |= {"answers": viewers.answers, "bytes": viewers.size}
        return found
    finally:
        ingest.tell_to_stop()
        serve.stop()
        ingest.stop()


class Viewers(Crowd):
    """So many browsers that follow the page of all tables."""

    def __init__(self, url: str, number: int) -> None:
        super().__init__(number)
        self.answers, self.size = 0, 0
        self._url, self._number = url, number

    def follow(self, one: int) -> None:
        """Each begins at another moment."""
        with httpx.Client(base_url=self._url, timeout=30) as client:
            self.stop.wait(one / self._number * FOLLOW_SECONDS)
            while not self.stop.is_set():
                answer = client.get("/", params={"part": "true"}).raise_for_status()
                self.answers, self.size = self.answers + 1, len(answer.content)
                self.stop.wait(FOLLOW_SECONDS)


def _window(serve: Command, seconds: float) -> dict[str, Any]:
    """The cores that the server took, by kinds of its processes; and how fast the machine was."""
    parts = _parts_of(serve)
    pace = _pace_ms()
    before = {part: cpu_seconds_of(some) for part, some in parts.items()}
    time.sleep(seconds)
    return {
        **{part: round((cpu_seconds_of(some) - before[part]) / seconds, 4) for part, some in parts.items()},
        "pace_ms": round(mean((pace, _pace_ms())), 1),
    }


def _parts_of(serve: Command) -> dict[str, list[psutil.Process]]:
    found = processes_of(serve)
    titles = {one.pid: " ".join(one.cmdline()) for one in found}
    parts = {
        part: [one for one in found if f"thermocline: {part}" in titles[one.pid]]
        for part in ("api", "tailer")
    }
    if not all(parts.values()):
        raise RuntimeError(f"the server has no such processes: {sorted(titles.values())}")
    return {**parts, "all": found}


def _pace_ms() -> float:
    """Of the processor, for a loop that is always the same."""
    began, total = time.thread_time(), 0
    for number in range(PACE_LOOPS):
        total += number * number
    return 1000 * (time.thread_time() - began)


def _mean(windows: list[dict[str, Any]], kind: str, part: str) -> float:
    return float(mean(one[part] for one in windows if one["kind"] == kind))


if __name__ == "__main__":
    main()
