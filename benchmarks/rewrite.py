"""Our compaction task against Spark's `rewrite_data_files`, on the same files: rows a second, and per core.

Both read all files of a table, less their deleted rows, and write new ones; ours in key order, with a note of
where each row went. Ours runs one bucket after the other on one thread, Spark has all cores. What ours wrote
is compared with what Spark wrote, and is not committed.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from benchmarks._report import cpu_seconds, report, say
from benchmarks._table import KEYS_PER_USER, filled, write
from thermocline.dev.stack import TABLE, Stack
from thermocline.dev.workload import Workload
from thermocline.iceberg.files import data_location, local_path
from thermocline.ingest.engine.spark import SparkEngine
from thermocline.ingest.owner.owner import Owner
from thermocline.maintenance.compact import Compacted, CompactionTask
from thermocline.process.clock import SystemClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCHES = 3
"""In which the changes come: so many files a bucket beside the large one, fewer than ingest merges."""
WARM_UP_BUCKETS = 2


def main() -> None:
    """Run it and print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--dead", type=float, default=0.1, help="share of the rows that are updated before")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, filled(Path(folder), options.rows, options.seed) as stack:
        owner = Owner.open(stack.settings, TABLE, SystemClock())
        try:
            _age(stack, owner, options)
            figures = _compare(stack, owner)
        finally:
            owner.close()
    report("rewrite", options.seed, figures)


def _age(stack: Stack, owner: Owner, options: argparse.Namespace) -> None:
    """Update a share of the rows, so that as many dead ones are left."""
    rng, workload = random.Random(options.seed), Workload(options.seed, options.rows // KEYS_PER_USER)
    for _ in range(BATCHES):
        chosen = (event for event in workload.load() if rng.random() < options.dead / BATCHES)
        count = write(stack, chosen, quietly=True)
        owner.catch_up(threading.Event())
        say(f"  {count:,} rows updated")


def _compare(stack: Stack, owner: Owner) -> dict[str, Any]:
    assert isinstance(owner.engine, SparkEngine)
    files = [file for some in owner.position.files.values() for file in some]
    dead = sum(file.deletes.cardinality for file in files if file.deletes is not None)
    rows = sum(file.rows for file in files) - dead
    figures: dict[str, Any] = {"live_rows": rows, "dead_rows": dead, "files": len(files)}
    figures["deletion_vectors"] = sum(file.deletes is not None for file in files)
    tasks = _tasks(stack, owner)
    for task in tasks[:WARM_UP_BUCKETS]:
        task.run()
    done: list[Compacted] = []
    figures["ours"] = _measured(rows, lambda: done.extend(task.run() for task in tasks))
    say(f"  ours {figures['ours']}")
    ours = [local_path(file.path) or "" for one in done for file in one.added]
    figures["ours"]["bytes"] = sum(file.file_bytes for one in done for file in one.added)
    spark = owner.engine.session
    snapshot_id = owner.position.snapshot_id
    _rewrite(spark)  # its first one compiles its code
    spark.sql(f"CALL lake.system.rollback_to_snapshot('app.{TABLE}', {snapshot_id})").collect()
    figures["spark"] = _measured(rows, lambda: _rewrite(spark))
    say(f"  spark {figures['spark']}")
    listed = spark.sql(f"SELECT file_path, file_size_in_bytes FROM lake.app.{TABLE}.files").collect()
    figures["spark"]["bytes"] = sum(row.file_size_in_bytes for row in listed)
    figures["per_core_against_spark"] = _ratio(figures, "rows_per_cpu_second")
    figures["against_spark"] = _ratio(figures, "rows_per_second")
    figures["agree"] = _content(ours) == _content([local_path(row.file_path) or "" for row in listed])
    return figures


def _tasks(stack: Stack, owner: Owner) -> list[CompactionTask]:
    """All files of a bucket in one task, a bucket each."""
    table = owner.table
    moves, target_bytes = (
        f"{table.location()}/thermocline/moves",
        stack.settings.maintenance.target_file_bytes,
    )
    location = data_location(table)
    return [
        CompactionTask(table.io, owner.definition, location, moves, bucket, tuple(files), target_bytes)
        for bucket, files in sorted(owner.position.files.items())
    ]


def _rewrite(spark: SparkSession) -> None:
    options = "map('rewrite-all', 'true', 'target-file-size-bytes', '134217728')"
    spark.sql(f"CALL lake.system.rewrite_data_files(table => 'app.{TABLE}', options => {options})").collect()


def _measured(rows: int, run: Callable[[], object]) -> dict[str, float]:
    cpu_before, started = cpu_seconds(), time.perf_counter()
    run()
    seconds, cpu = time.perf_counter() - started, cpu_seconds() - cpu_before
    return {
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu, 2),
        "rows_per_second": round(rows / seconds),
        "rows_per_cpu_second": round(rows / cpu),
    }


def _ratio(figures: dict[str, Any], name: str) -> float:
    return round(float(figures["ours"][name] / figures["spark"][name]), 1)


def _content(paths: Sequence[str]) -> list[tuple[Any, ...]]:
    """The number of the rows in these files, and the sum of their hashes."""
    query = "SELECT count(*), sum(hash(app_id, user_id, key, value, updated_at, _kafka_offset)) FROM "
    files = ", ".join(f"'{path}'" for path in paths)
    return duckdb.connect().execute(f"{query} read_parquet([{files}], hive_partitioning = false)").fetchall()


if __name__ == "__main__":
    main()
