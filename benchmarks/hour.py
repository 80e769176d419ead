"""An hour of traffic: what changes from its start to its end, and how long a killed server or ingest is down.

All beside each other on this machine: a load of upserts, commits with maintenance between them, lookups of
random entities at a steady rate, single changes that are awaited, an extract of everything a window.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks._load import overload_http
from benchmarks._report import percentiles_ms, report, say
from benchmarks._table import KEYS_PER_USER, Forgetful, filled
from benchmarks.extract import seconds_of_extract
from thermocline.dev.demo.writer import Writer
from thermocline.dev.stack import TABLE, TOPIC, Command, Stack
from thermocline.dev.workload import Workload, produce
from thermocline.iceberg.catalog import load_table, open_catalog
from thermocline.process.clock import SystemClock

CONNECTIONS: Final = 8
PROBE: Final = "probe"
PROBE_SECONDS: Final = 0.5
"""Between two changes that are awaited."""
DOWN_SECONDS_MAX: Final = 300.0
MB: Final = 1 << 20
LEVEL: Final = ("lookup", "p50_ms"), ("lookup", "p99_ms"), ("freshness", "p99_ms"), ("extract", "seconds")
"""What is compared between the second window, when all is warm, and the last."""


def main() -> None:
    """Run it and print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--windows", type=int, default=12, help="in which figures are told apart")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rate", type=int, default=6_000, help="upserts a second")
    parser.add_argument("--lookups", type=int, default=300, help="a second")
    parser.add_argument("--commit-seconds", type=float, default=60.0)
    parser.add_argument("--engine", choices=("spark", "local"), default="spark")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    figures: dict[str, Any] = {
        name: getattr(options, name) for name in ("minutes", "rows", "rate", "lookups", "engine")
    }
    with tempfile.TemporaryDirectory() as folder:
        stack = filled(
            Path(folder),
            options.rows,
            options.seed,
            workers=2,
            engine=options.engine,
            commit_interval_seconds=options.commit_seconds,
        )
        with stack:
            figures |= _Hour(stack, options).figures()
    report("hour", options.seed, figures)


class _Hour:
    def __init__(self, stack: Stack, options: argparse.Namespace) -> None:
        self._stack, self._options = stack, options
        self._random = random.Random(options.seed)
        self._catalog = open_catalog(stack.settings.catalog)
        self._workload = Workload(options.seed, options.rows // KEYS_PER_USER, KEYS_PER_USER)
        load = self._workload.load()  # whose values are in the table
        users = [event.row[:2] for number, event in enumerate(load) if number % KEYS_PER_USER == 0]
        self._paths = [f"/v1/tables/{TABLE}/rows?app_id={app}&user_id={user}" for app, user in users]
        self._probed = users[0]
        client = stack.settings.kafka.client_config()
        self._writer = Writer(client, TOPIC, Forgetful(), SystemClock())
        self._changes = count()

    def figures(self) -> dict[str, Any]:
        server, ingest = self._stack.serve(), self._stack.ingest()
        self._stack.wait_until_ready(server)
        seconds = 60 * self._options.minutes / self._options.windows
        with self._traffic():
            windows = [self._window(seconds, server, ingest) for _ in range(self._options.windows)]
            restarts = {"server": self._server_again(server), "ingest": self._ingest_again(ingest)}
        return {
            "windows": windows,
            "last_to_second": _against(windows[-1], windows[min(1, len(windows) - 1)]),
            "seconds_after_kill_9": restarts,
        }

    @contextmanager
    def _traffic(self) -> Iterator[None]:
        stop, client = threading.Event(), self._stack.settings.kafka.client_config()
        load = partial(
            produce, client, TOPIC, iter(self._workload), Forgetful(), rate=self._options.rate, stop=stop
        )
        with ThreadPoolExecutor(1) as one:
            producing = one.submit(load)
            try:
                yield
            finally:
                stop.set()
                say(f"  {producing.result():,} records produced")

    def _window(self, seconds: float, server: Command, ingest: Command) -> dict[str, Any]:
        paths = self._random.sample(self._paths, len(self._paths))
        address = self._stack.url.removeprefix("http://")
        rate = self._options.lookups
        snapshots = self._snapshots()
        with ThreadPoolExecutor(3) as threads:
            looked_up = threads.submit(overload_http, address, paths, CONNECTIONS, seconds, rate)
            fresh = threads.submit(self._awaited, time.monotonic() + seconds)
            extracted = threads.submit(seconds_of_extract, self._stack, "arrow")
            found: dict[str, Any] = {
                "lookup": looked_up.result(),
                "freshness": fresh.result(),
                "extract": {"seconds": round(extracted.result(), 2)},
            }
        for command in (server, ingest):
            command.check()
        found["commits"] = self._snapshots() - snapshots
        found["memory_mb"] = {**_memory_mb(server), **_memory_mb(ingest)}
        found["open_files"] = sum(map(_open_files, _all_of(server)))
        found["state_mb"] = round(_disk_bytes(self._stack.settings.serving.state_dir) / MB)
        say(f"  {found}")
        return found

    def _awaited(self, end: float) -> dict[str, float]:
        """Changes of one row, from Kafka's acknowledgement to the first lookup that shows each."""
        seconds: list[float] = []
        while time.monotonic() < end:
            seconds.append(self._seen_after())
            time.sleep(PROBE_SECONDS)
        return {**percentiles_ms(seconds), "changes": len(seconds)}

    def _seen_after(self) -> float:
        value = f"change {next(self._changes)}"
        written = self._writer.write((*self._probed, PROBE), value)
        path = f"/v1/tables/{TABLE}/rows?app_id={self._probed[0]}&user_id={self._probed[1]}"
        deadline = written.acknowledged_at + DOWN_SECONDS_MAX
        while True:
            rows = self._stack.get(path)[1].get("rows", [])
            now = time.monotonic()
            if any(row["key"] == PROBE and row["value"] == value for row in rows):
                return now - written.acknowledged_at
            assert now < deadline, f"{value} does not come"

    def _snapshots(self) -> int:
        return len(load_table(self._catalog, TABLE, f"app.{TABLE}").metadata.snapshots)

    def _newest(self) -> int | None:
        return load_table(self._catalog, TABLE, f"app.{TABLE}").metadata.current_snapshot_id

    def _server_again(self, server: Command) -> dict[str, float]:
        """All of its processes killed; until a lookup is answered, and until it shows a new change."""
        _kill(server)
        began = time.monotonic()
        self._stack.serve()
        self._stack.wait_for(
            lambda: self._stack.get(self._paths[0])[0] == 200, "it answers", timeout=DOWN_SECONDS_MAX
        )
        answered = time.monotonic() - began
        self._seen_after()
        return {"answers": round(answered, 2), "fresh": round(time.monotonic() - began, 2)}

    def _ingest_again(self, ingest: Command) -> dict[str, float]:
        """All of its processes killed; until there is a new snapshot."""
        _kill(ingest)
        before, began = self._newest(), time.monotonic()
        self._stack.ingest()
        self._stack.wait_for(lambda: self._newest() != before, "it commits", timeout=DOWN_SECONDS_MAX)
        return {"commits": round(time.monotonic() - began, 2)}


def _all_of(command: Command) -> list[psutil.Process]:
    parent = psutil.Process(command.process.pid)
    return [parent, *parent.children(recursive=True)]


def _kill(command: Command) -> None:
    for process in _all_of(command):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    command.kill()


def _memory_mb(command: Command) -> dict[str, int]:
    """By process, without mapped files."""
    found: dict[str, int] = {}
    for process in _all_of(command):
        with suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
            rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
            title = " ".join(process.cmdline()).strip()
            name = (
                title.removeprefix("thermocline: ") if title.startswith("thermocline: ") else process.name()
            )
            found[name] = found.get(name, 0) + int(rollup.split("Anonymous:")[1].split()[0]) // 1024
    return found


def _open_files(process: psutil.Process) -> int:
    with suppress(psutil.NoSuchProcess):
        return process.num_fds()
    return 0


def _disk_bytes(folder: Path) -> int:
    found = 0
    for within, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                found += (Path(within) / name).stat().st_blocks * 512
    return found


def _against(last: dict[str, Any], base: dict[str, Any]) -> dict[str, float]:
    of_names = {f"{of}_{name}": (last[of][name], base[of][name]) for of, name in LEVEL}
    totals = {
        "memory": (sum(last["memory_mb"].values()), sum(base["memory_mb"].values())),
        "open_files": (last["open_files"], base["open_files"]),
        "state": (last["state_mb"], base["state_mb"]),
    }
    return {name: round(one / max(other, 1e-9), 2) for name, (one, other) in (of_names | totals).items()}


if __name__ == "__main__":
    main()
