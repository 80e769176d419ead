"""A day of commits, one per minute: what commits and reads cost at its end, with and without maintenance.

The commits follow each other as fast as they can, and maintenance has as much time as it takes, as it would
have within a minute. Its clock advances by a minute per commit. Snapshots have the machine's time, so the
rate of changes, which says for how long a rewrite helps, is told to it.

    maintained       as it ships: batches merge small files, rewrites run beside them
    rewrites_only    no merges in batches: compacting small files is left to rewrites
    not_maintained   neither
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trino.dbapi

from benchmarks._report import report, say
from benchmarks._table import KEYS_PER_USER, serve_cold, write
from benchmarks.extract import seconds_of_extract
from benchmarks.lookup import load_of, users_of
from thermocline.dev.stack import TABLE, TRINO_ADMIN, Stack, StackOptions
from thermocline.dev.workload import Event, Workload
from thermocline.iceberg.catalog import load_table, open_catalog
from thermocline.iceberg.files import local_path
from thermocline.ingest.owner.owner import Owner
from thermocline.maintenance import measure, plan
from thermocline.maintenance.upkeep import TableUpkeep
from thermocline.process.clock import SystemClock
from thermocline.upsert import tiers

WARM_UP = 5
MARKS = (10, 100)
WINDOW = 10
LOOKUP_SECONDS = 8.0
SCANS = 5
TRINO_GB: Final = 2
SCAN: Final = f"SELECT count(*), count(value), max(updated_at) FROM lake.app.{TABLE}"


@dataclass(frozen=True, slots=True)
class Variant:
    """What keeps the table's files few."""

    merges: bool
    rewrites: bool


VARIANTS: Final = {
    "maintained": Variant(merges=True, rewrites=True),
    "rewrites_only": Variant(merges=False, rewrites=True),
    "not_maintained": Variant(merges=False, rewrites=False),
}


class MinuteClock(SystemClock):
    """A minute goes by with each commit."""

    def __init__(self) -> None:
        self.minutes = 0

    def monotonic(self) -> float:
        """Seconds."""
        return super().monotonic() + 60 * self.minutes

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return super().now_ms() + 60_000 * self.minutes


def main() -> None:
    """Run it and print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--commits", type=int, default=1_440)
    parser.add_argument("--records", type=int, default=2_000)
    parser.add_argument("--format-version", type=int, choices=(2, 3), default=3)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    figures: dict[str, Any] = {
        "rows": options.rows,
        "records_per_commit": options.records,
        "format_version": options.format_version,
    }
    merged_bytes_max = tiers.MERGED_BYTES_MAX
    vars(measure)["_rows_per_hour"] = lambda *_: 60.0 * options.records
    for name in options.variants:
        say(f"{name}: {options.commits:,} commits")
        variant = VARIANTS[name]
        for module in (tiers, plan):
            vars(module)["MERGED_BYTES_MAX"] = merged_bytes_max if variant.merges else 0
        figures[name] = _day(options, variant)
        say(f"  {figures[name]}")
    report("day", options.seed, figures)


def _day(options: argparse.Namespace, variant: Variant) -> dict[str, Any]:
    rng = random.Random(options.seed)
    trino_gb = TRINO_GB if options.format_version == 2 else 0  # Trino 476 doesn't read version 3
    with (
        tempfile.TemporaryDirectory() as folder,
        Stack(
            Path(folder),
            StackOptions(
                partitions=8, buckets=16, workers=2, engine="local", trino_gb=trino_gb, is_measured=True
            ),
        ) as stack,
    ):
        stack.start_broker()
        stack.create_table()
        load = list(Workload(options.seed, options.rows // KEYS_PER_USER, KEYS_PER_USER).load())
        write(stack, load, quietly=True)
        owner = Owner.open(stack.settings, TABLE, SystemClock())
        clock = MinuteClock()
        upkeep = TableUpkeep(stack.settings.maintenance, clock)
        try:
            owner.catch_up(threading.Event())
            figures: dict[str, Any] = {"fresh": _reads(stack, options)}
            if variant.rewrites:
                owner.upkeep = upkeep
            steps: list[float] = []
            for number in range(WARM_UP + options.commits):
                write(stack, _changes(rng, load, options.records, number), quietly=True)
                started = time.perf_counter()
                owner.step()
                steps.append(time.perf_counter() - started)
                clock.minutes += 1
                if variant.rewrites:
                    _keep_up(owner, upkeep)
                if number % 100 == 0:
                    say(f"  commit {number}: {steps[-1]:.2f} s, {upkeep.done}")
            figures |= _commit_seconds(steps[WARM_UP:]) | _sizes(owner, stack)
            figures["after"] = _reads(stack, options)
            if variant.rewrites:
                figures["maintenance"] = {
                    "rewrites": upkeep.done.rewrites,
                    "seconds": round(upkeep.done.seconds, 1),
                    "read_bytes": upkeep.done.read_bytes,
                    "written_bytes": upkeep.done.written_bytes,
                    "expired_snapshots": upkeep.done.expired,
                    "deleted_files": upkeep.done.swept_files,
                    "dropped": upkeep.done.dropped,
                }
        finally:
            owner.close()
    return figures


def _keep_up(owner: Owner, upkeep: TableUpkeep) -> None:
    """All that is due, as within the minute before the next commit."""
    upkeep.turn(owner)
    while upkeep.is_busy:
        time.sleep(0.005)
        upkeep.turn(owner)


def _changes(rng: random.Random, rows: Sequence[Event], count: int, number: int) -> Iterator[Event]:
    for event in rng.sample(rows, count):
        value = json.dumps({"value": f"v{number}", "updated_at": "2026-03-01T12:00:00Z"}).encode()
        yield Event(event.key, value, event.row)


def _commit_seconds(steps: Sequence[float]) -> dict[str, float]:
    """Medians around some commits, and of the last ones."""

    def around(number: int) -> float:
        return round(statistics.median(steps[max(number - WINDOW, 0) : number]), 3)

    marks = {
        f"commit_{number}_seconds": around(number) for number in (*MARKS, len(steps)) if number <= len(steps)
    }
    ratio = around(len(steps)) / around(MARKS[0])
    return marks | {"last_against_10th": round(ratio, 2)}


def _sizes(owner: Owner, stack: Stack) -> dict[str, Any]:
    table = load_table(open_catalog(stack.settings.catalog), TABLE, f"app.{TABLE}")
    measured = measure.Measurer(owner.definition).measure(table, SystemClock().now_ms())
    folder = Path(local_path(table.location()) or "") / "data"
    stored = [path for path in folder.rglob("*") if path.is_file()]
    return {
        "data_files": measured.files,
        "delete_files": sum(bucket.delete_files for bucket in measured.buckets.values()),
        "dead_ratio": round(measured.dead_rows / measured.rows, 3),
        "bytes": measured.bytes,
        "snapshots": measured.snapshots,
        "manifests": measured.manifests,
        "stored_files": len(stored),
        "stored_bytes": sum(path.stat().st_size for path in stored),
        "metadata_bytes": len(table.io.new_input(table.metadata_location)),
    }


def _reads(stack: Stack, options: argparse.Namespace) -> dict[str, Any]:
    """Cold lookups over HTTP, and scans of the whole table."""
    table = load_table(open_catalog(stack.settings.catalog), TABLE, f"app.{TABLE}")
    users = users_of(options.seed, options.rows)
    random.Random(options.seed).shuffle(users)
    server = serve_cold(stack)
    stack.wait_until_ready(server)
    found: dict[str, Any] = {"lookup": load_of(stack, users, 1, LOOKUP_SECONDS)}
    found["extract_by_duckdb_seconds"] = _fastest(lambda: seconds_of_extract(stack, "arrow"))
    server.stop()
    found["pyiceberg_scan_seconds"] = _fastest(lambda: table.scan().to_arrow().num_rows)
    if stack.trino is not None:
        found["trino_scan_seconds"] = _trino_seconds(stack)
    return found


def _trino_seconds(stack: Stack) -> float:
    assert stack.trino is not None
    stack.start_trino()
    stack.trino.wait()
    with (
        closing(
            trino.dbapi.connect(host=stack.trino.host, port=stack.trino.port, user=TRINO_ADMIN)
        ) as connection,
        closing(connection.cursor()) as cursor,
    ):
        # Java compiles the first ones.
        seconds = min(_fastest(lambda: cursor.execute(SCAN).fetchall()) for _ in range(SCANS))
    stack.trino.stop()
    return seconds


def _fastest(scan: Any) -> float:
    times = []
    for _ in range(SCANS):
        started = time.perf_counter()
        scan()
        times.append(time.perf_counter() - started)
    return round(min(times), 3)


if __name__ == "__main__":
    main()
