"""A batch on a warm Spark cluster, and the same one on Spark in one process: what the cluster costs.

Both have two cores of this machine, and are warm. They take turns, since a process has one session.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks._report import percentiles_ms, report, say
from benchmarks._table import write
from embedded.spark_cluster import LocalSparkCluster
from embedded.stack import TABLE, Stack
from embedded.workload import Event, Workload
from ingest.owner import Owner
from thermocline.process.clock import SystemClock
from thermocline.settings import SparkSettings

# The first ones start Python workers, and compile what Spark's JVMs run.
WARM_UP = 6


def main() -> None:
    """Run it and print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000)
    parser.add_argument("--users", type=int, default=10_000, help="of ten rows each")
    parser.add_argument("--batches", type=int, default=10, help="of each turn")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    workload = Workload(options.seed, options.users)
    changes = iter(workload)
    seconds: dict[str, list[float]] = {"cluster": [], "local": []}
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalSparkCluster(Path(folder) / "spark") as cluster,
        Stack(Path(folder) / "stack", is_measured=True, cluster=cluster) as stack,
    ):
        stack.start()
        write(stack, workload.load())
        masters = {"local": SparkSettings(master="local[2]"), "cluster": stack.settings.spark}
        for turn in range(options.turns):
            for name, spark in masters.items():
                settings = stack.settings.model_copy(update={"spark": spark})
                owner = Owner.open(settings, TABLE, SystemClock())
                try:
                    taken = []
                    for _ in range(WARM_UP + options.batches):
                        taken.append(_batch(owner, stack, itertools.islice(changes, options.records)))
                        say(f"  turn {turn + 1}, {name}: {taken[-1]:.2f} s")
                finally:
                    owner.close()
                seconds[name] += taken[WARM_UP:]
    medians = {name: statistics.median(some) for name, some in seconds.items()}
    figures = {
        "records_per_batch": options.records,
        "batches": len(seconds["cluster"]),
        **{name: percentiles_ms(some) for name, some in seconds.items()},
        "cluster_to_local": round(medians["cluster"] / medians["local"], 2),
    }
    report("cluster", options.seed, figures)


def _batch(owner: Owner, stack: Stack, changes: Iterator[Event]) -> float:
    """Seconds from a plan to the commit that landed."""
    write(stack, changes, quietly=True)
    started = time.perf_counter()
    owner.step()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
