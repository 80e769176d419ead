"""Ingest: a million upserts from Kafka to one commit, into an empty table and into a full one."""

from __future__ import annotations

import argparse
import tempfile
import time
from itertools import islice
from pathlib import Path

from benchmarks._report import cpu_seconds, report, say
from benchmarks._table import KEYS_PER_USER, write
from embedded.stack import TABLE, Stack
from embedded.workload import Workload
from ingest.owner import Owner
from thermocline.process.clock import SystemClock


def main() -> None:
    """Run it and print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        Stack(Path(folder), partitions=8, buckets=16, is_measured=True) as stack,
    ):
        stack.start()
        workload = Workload(options.seed, options.records // KEYS_PER_USER, KEYS_PER_USER)
        changes = iter(workload)
        owner = Owner.open(stack.settings, TABLE, SystemClock())
        try:
            say("warming up: 10,000 records")
            write(stack, islice(changes, 10_000))
            _batch(owner)
            figures = {}
            for name, events in (
                ("first_million", workload.load()),
                ("second_million", islice(changes, options.records)),
                ("fifty_thousand", islice(changes, 50_000)),
                ("one_thousand", islice(changes, 1_000)),
            ):
                write(stack, events)
                figures[name] = _batch(owner)
                say(f"  {name}: {figures[name]}")
        finally:
            owner.close()
    report("ingest", options.seed, figures)


def _batch(owner: Owner) -> dict[str, float]:
    """One batch from planning to commit: seconds, records a second, CPU seconds of Spark and its workers."""
    before, cpu_before, started = owner.committer, cpu_seconds(), time.monotonic()
    seam_before = owner.position.seam
    owner.step()
    seconds, cpu = time.monotonic() - started, cpu_seconds() - cpu_before
    assert before is owner.committer
    records = sum(offset - seam_before[topic, p] for topic, p, offset in owner.position.seam.items())
    return {
        "records": records,
        "seconds": round(seconds, 2),
        "records_per_second": round(records / seconds),
        "records_per_cpu_second": round(records / cpu),
    }


if __name__ == "__main__":
    main()
