"""Many small commits in a row onto a large table: what each costs at the start and at the end."""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks._report import report, say
from benchmarks._table import KEYS_PER_USER, Stopwatch, Timings, write
from thermocline.dev.spark_cluster import LocalSparkCluster
from thermocline.dev.stack import TABLE, Stack, StackOptions
from thermocline.dev.workload import Event, Workload
from thermocline.ingest.claim.lease import OwnerLease
from thermocline.ingest.commit.commit import Committer
from thermocline.ingest.owner import table_batch
from thermocline.ingest.owner.owner import Owner
from thermocline.kafka.log import Log
from thermocline.process.clock import SystemClock

# Commits whose times are one figure: enough to even out a slow one.
WINDOW = 20
# Spark's first batches start its workers and compile its code.
WARM_UP = 5
DELETED = 0.05


def main() -> None:
    """Run it and print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--commits", type=int, default=200)
    parser.add_argument("--records", type=int, default=2_000)
    parser.add_argument("--cluster", action="store_true", help="on a standalone Spark with two workers")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        cluster = None
        if options.cluster:
            cluster = running.enter_context(LocalSparkCluster(folder / "cluster"))
        stack = running.enter_context(
            Stack(folder / "stack", StackOptions(partitions=8, buckets=16, is_measured=True, cluster=cluster))
        )
        stack.start()
        say(f"filling a table with {options.rows:,} rows")
        rows = [_row_of(event) for event in _load(options.seed, options.rows)]
        write(stack, _load(options.seed, options.rows))
        owner = Owner.open(stack.settings, TABLE, SystemClock())
        try:
            owner.catch_up(threading.Event())
            timings, safety = Timings(), _safety()
            for number in range(WARM_UP + options.commits):
                write(stack, _changes(rng, rows, options.records, number), quietly=True)
                safety.lap()
                started = time.perf_counter()
                owner.step()
                times = timings.step(time.perf_counter() - started, safety_seconds=safety.lap())
                if number % WINDOW == 0:
                    say(f"  commit {number}: {times}")
            figures = {
                "rows": options.rows,
                "records_per_commit": options.records,
                "commits": options.commits,
                "cluster": options.cluster,
                **_windows(timings.steps[WARM_UP:]),
                **_sizes(owner),
            }
        finally:
            owner.close()
    report("commits", options.seed, figures)


def _safety() -> Stopwatch:
    """Times all that a batch does only to be safe, but Iceberg's own validations within its commit.

    The log's identity, starts and ends are asked for before a batch, and again before it commits; the lease
    is looked at; epoch, base snapshot, seam and definition are compared in the metadata that is swapped out.
    """
    watch = Stopwatch()
    watch.watch(table_batch, "check_log", "check_identity", "check_against_log", "check_tombstones")
    watch.watch(Log, "starts", "bounds", "open_transactions")
    watch.watch(OwnerLease, "check")
    watch.watch(Committer, "_check")
    return watch


def _load(seed: int, rows: int) -> Iterator[Event]:
    return Workload(seed, rows // KEYS_PER_USER, KEYS_PER_USER).load()


def _row_of(event: Event) -> tuple[bytes, tuple[int, str, str]]:
    return event.key, event.row


def _changes(
    rng: random.Random, rows: Sequence[tuple[bytes, tuple[int, str, str]]], count: int, number: int
) -> Iterator[Event]:
    """Changes of rows anywhere in the table: the hardest for a probe, since each is in another row group."""
    for key, row in rng.sample(rows, count):
        value = json.dumps({"value": f"v{number}", "updated_at": "2026-03-01T12:00:00Z"}).encode()
        yield Event(key, None if rng.random() < DELETED else value, row)


def _windows(steps: Sequence[dict[str, float]]) -> dict[str, Any]:
    """The first and the last commits, by what they spend their time on, and how much slower the last are."""

    def median(some: Sequence[dict[str, float]]) -> dict[str, float]:
        return {name: round(statistics.median(step[name] for step in some), 3) for name in some[0]}

    first, last = median(steps[:WINDOW]), median(steps[-WINDOW:])
    ratio = last["step_seconds"] / first["step_seconds"]
    return {"first_commits": first, "last_commits": last, "last_against_first": round(ratio, 2)}


def _sizes(owner: Owner) -> dict[str, int]:
    owner.table.refresh()
    snapshot = owner.table.current_snapshot()
    assert snapshot is not None
    return {
        "files": sum(len(files) for files in owner.position.files.values()),
        "manifests": len(snapshot.manifests(owner.table.io)),
        "metadata_bytes": len(owner.table.io.new_input(owner.table.metadata_location)),
    }


if __name__ == "__main__":
    main()
