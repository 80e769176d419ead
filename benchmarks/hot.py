"""Millions of records that aren't committed yet: what they take, a lost disk, and cycles of commits."""

from __future__ import annotations

import argparse
import shutil
import tempfile
import threading
import time
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil

from benchmarks._report import report, say
from benchmarks._table import KEYS_PER_USER, write
from benchmarks.lookup import load_of, users_of
from thermocline.dev.stack import TABLE, Command, Stack, StackOptions
from thermocline.dev.workload import Workload
from thermocline.ingest.owner.owner import Owner
from thermocline.kafka.log import Log
from thermocline.process.clock import SystemClock
from thermocline.serving.store.layout import HOT, TAILER_STATUS

# Half an hour at 15,000 a second.
RECORDS: Final = 27_000_000
RECORDS_PER_ROW: Final = 2
# It reads a million records in seconds; on a busy machine in minutes.
SECONDS_MAX: Final = 7_200.0
MB: Final = 1 << 20
# What must not grow from one cycle to the next, and when it is looked at.
GROWTH: Final = (("full", "disk_mb"), ("left", "tailer_anonymous_mb"), ("left", "workers_anonymous_mb"))


def main() -> None:
    """Run it and print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--cycles", type=int, default=4, help="after the first, each with a quarter of it")
    parser.add_argument("--seconds", type=float, default=8.0, help="of lookups")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stack = Stack(Path(folder), StackOptions(partitions=8, buckets=16, is_measured=True)).start()
        with stack:
            report("hot", options.seed, _Hot(stack, options).figures())


class _Hot:
    def __init__(self, stack: Stack, options: argparse.Namespace) -> None:
        self._stack = stack
        self._options = options
        self._rows = max(options.records // RECORDS_PER_ROW, 10 * KEYS_PER_USER)
        self._changes = iter(Workload(options.seed, self._rows // KEYS_PER_USER, KEYS_PER_USER))
        self._state = stack.settings.serving.state_dir / TABLE

    def figures(self) -> dict[str, Any]:
        count = self._options.records
        self._write(count)
        server, first = self._caught_up("read")
        lookups = load_of(self._stack, users_of(self._options.seed, self._rows), 8, self._options.seconds)
        held = self._held()
        server.stop()
        say("a lost disk")
        shutil.rmtree(self._state / HOT)
        server, again = self._caught_up("read again")
        cycles = [self._committed(server)]
        for _ in range(self._options.cycles):
            self._write(count // 4)
            self._stack.wait_for(self._is_caught_up, "the tailer has read all", server, timeout=SECONDS_MAX)
            full = self._held()
            cycles.append(self._committed(server) | {"full": full})
        return {
            "records": count,
            "read_per_second": round(count / first),
            "held": held,
            "disk_bytes_per_record": round(held["disk_mb"] * MB / held["hot_records"], 1),
            "lookups_8": lookups,
            "after_a_lost_disk_per_second": round(count / again),
            "cycles": cycles,
            "last_cycle_to_first": {
                name: round(cycles[-1][when][name] / cycles[1][when][name], 3)
                for when, name in GROWTH
                if len(cycles) > 1
            },
        }

    def _write(self, count: int) -> None:
        write(self._stack, islice(self._changes, count))

    def _caught_up(self, what: str) -> tuple[Command, float]:
        """Starts the server; the seconds from the tailer's first status until it has all."""
        (self._state / TAILER_STATUS).unlink(missing_ok=True)
        server = self._stack.serve()
        self._stack.wait_for((self._state / TAILER_STATUS).exists, "the tailer is there", server)
        began = time.monotonic()
        self._stack.wait_for(self._is_caught_up, "the tailer has read all", server, timeout=SECONDS_MAX)
        seconds = time.monotonic() - began
        self._stack.wait_until_ready(server)
        say(f"  {what} in {seconds:.1f} s")
        return server, seconds

    def _committed(self, server: Command) -> dict[str, Any]:
        """Commits all that is there; how long the commits took, and after them the eviction of all of it."""
        owner = Owner.open(self._stack.settings, TABLE, SystemClock())
        began = time.monotonic()
        owner.catch_up(threading.Event())
        committed = time.monotonic()
        owner.close()
        self._stack.wait_for(
            lambda: self._status().get("hot_records") == 0, "all is evicted", server, timeout=SECONDS_MAX
        )
        evicted = time.monotonic()
        left = self._held()
        say(f"  committed in {committed - began:.1f} s, evicted {evicted - committed:.1f} s later: {left}")
        return {
            "commit_seconds": round(committed - began, 1),
            "evicted_after_seconds": round(evicted - committed, 1),
            "left": left,
        }

    def _held(self) -> dict[str, float]:
        """What the hot tier has and takes of the disk; and the processes' memory, less mapped files."""
        status = self._status()
        blocks = sum(path.stat().st_blocks for path in (self._state / HOT).rglob("*") if path.is_file())
        tailer = psutil.Process(status["pid"])
        parent = tailer.parent()
        assert parent is not None
        workers = [one for one in parent.children() if " api " in f" {' '.join(one.cmdline())} "]
        return {
            "hot_records": status["hot_records"],
            "generations": status["generations"],
            "disk_mb": round(blocks * 512 / MB, 1),
            "tailer_anonymous_mb": _anonymous_mb(tailer),
            "workers_anonymous_mb": round(sum(map(_anonymous_mb, workers)), 1),
        }

    def _is_caught_up(self) -> bool:
        positions = self._status().get("positions", {}).get(TABLE, {})
        ends = Log(self._stack.settings.kafka).ends([TABLE])
        return all(positions.get(str(partition)) == offset for _, partition, offset in ends.items())

    def _status(self) -> dict[str, Any]:
        try:
            status: dict[str, Any] = msgspec.json.decode((self._state / TAILER_STATUS).read_bytes())
        except FileNotFoundError:
            return {}
        return status


def _anonymous_mb(process: psutil.Process) -> float:
    rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
    return round(int(rollup.split("Anonymous:")[1].split()[0]) / 1024, 1)


if __name__ == "__main__":
    main()
