"""Ours, from Kafka to the commit, against Spark's MERGE INTO of the same changes, on growing tables.

MERGE has the easier task: its changes are folded already, and lie in one Parquet file; its table was written
again, sorted and without deletes, from the rows of ours; and its session has adaptive execution and memory.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks._report import cpu_seconds, report, say
from benchmarks._table import write
from thermocline.dev.stack import TABLE, Stack, StackOptions
from thermocline.dev.workload import Event
from thermocline.ingest.engine.spark import SparkEngine
from thermocline.ingest.owner.owner import Owner
from thermocline.process.clock import SystemClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS_PER_USER = 10
# Of the changes: rows that are there, rows that are not, and deletions.
UPDATED, INSERTED = 0.80, 0.15
# Spark's own need for a join with 20 million rows; ours passes packed batches through the JVM alone.
DRIVER_MEMORY = "8g"
# Ours runs without it, as ingest does; all that is MERGE's runs with it.
ADAPTIVE = "spark.sql.adaptive.enabled"
# The first of each compiles its code; it is not counted.
WARM_UP_RECORDS = 10_000
TWIN = "lake.app.twin"
COLUMNS = "app_id, user_id, key, value, updated_at"
MERGE = f"""
MERGE INTO {TWIN} t USING changes s ON t.app_id = s.app_id AND t.user_id = s.user_id AND t.key = s.key
WHEN MATCHED AND s.is_deleted THEN DELETE
WHEN MATCHED THEN UPDATE SET value = s.value, updated_at = s.updated_at
WHEN NOT MATCHED AND NOT s.is_deleted
THEN INSERT ({COLUMNS}) VALUES (s.app_id, s.user_id, s.key, s.value, s.updated_at)
"""
TIME_TEXT, TIME_US = "2026-03-01T12:00:00Z", 1_772_366_400_000_000


def main() -> None:
    """Run it and print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 5_000_000, 20_000_000])
    parser.add_argument("--batches", type=int, nargs="+", default=[50_000, 300_000, 1_000_000])
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, _stack(Path(folder)) as stack:
        run = _Run(stack, random.Random(options.seed))
        try:
            for rows in sorted(options.rows):
                run.grow(rows)
                run.batch(WARM_UP_RECORDS, Path(folder))
                for records in options.batches:
                    figures[f"{rows}_rows_{records}_records"] = run.batch(records, Path(folder))
                figures[f"{rows}_rows_agree"] = run.check()
        finally:
            run.owner.close()
    report("merge", options.seed, figures)


def _stack(folder: Path) -> Stack:
    conf = {"spark.driver.memory": DRIVER_MEMORY}
    return Stack(folder, StackOptions(partitions=8, buckets=16, is_measured=True, spark_conf=conf)).start()


class _Run:
    """One table of ours that grows, and a twin that is recreated from it whenever it has."""

    def __init__(self, stack: Stack, rng: random.Random) -> None:
        self._stack = stack
        self._rng = rng
        self._users = 0
        self._inserted = 0
        self._number = 0
        self.owner = Owner.open(stack.settings, TABLE, SystemClock())
        assert isinstance(self.owner.engine, SparkEngine)
        self._spark = self.owner.engine.session

    def grow(self, rows: int) -> None:
        """Load new users until so many rows were loaded, and make the twin again."""
        users = rows // KEYS_PER_USER
        say(f"growing the table to {rows:,} rows")
        started = time.monotonic()
        write(self._stack, self._load(self._users, users))
        self._users = users
        self._spark.conf.set(ADAPTIVE, "false")
        self.owner.catch_up(threading.Event())
        say(f"  ingested after {time.monotonic() - started:.1f} s")
        self._spark.conf.set(ADAPTIVE, "true")
        make_twin(self._spark)
        say(f"  twin made after {time.monotonic() - started:.1f} s")

    def batch(self, records: int, folder: Path) -> dict[str, Any]:
        """The same changes on both tables: seconds and CPU seconds of each, and how they compare."""
        changes = list(self._changes(records))
        write(self._stack, changes)
        source = folder / "changes.parquet"
        write_folded(changes, source)
        del changes
        self._spark.conf.set(ADAPTIVE, "false")
        ours = _timed(lambda: self.owner.catch_up(threading.Event()))
        self._spark.conf.set(ADAPTIVE, "true")
        self._spark.read.parquet(source.as_uri()).createOrReplaceTempView("changes")
        merge = _timed(lambda: self._spark.sql(MERGE))
        figures = {
            "ours": {**ours, "records_per_second": round(records / ours["seconds"])},
            "merge": {**merge, "records_per_second": round(records / merge["seconds"])},
            "faster": round(merge["seconds"] / ours["seconds"], 1),
            "less_cpu": round(merge["cpu_seconds"] / ours["cpu_seconds"], 1),
        }
        say(f"  {records:,} records: {figures}")
        return figures

    def check(self) -> bool:
        """Whether both tables hold the same rows: their number and the sum of their hashes."""
        query = "SELECT count(*), sum(cast(hash(app_id, user_id, key, value, updated_at) AS long)) FROM "
        ours, twin = (self._spark.sql(query + table).collect() for table in (f"lake.app.{TABLE}", TWIN))
        say(f"  ours {ours}, twin {twin}")
        return bool(ours == twin)

    def _load(self, first_user: int, end_user: int) -> Iterator[Event]:
        for user in range(first_user, end_user):
            for key in range(KEYS_PER_USER):
                yield event_of(user, f"attribute_{key}", f"value {user * KEYS_PER_USER + key} of the load")

    def _changes(self, count: int) -> Iterator[Event]:
        """Updates and deletions of rows anywhere in the table, and insertions of rows of its users."""
        self._number += 1
        for place in range(count):
            user, draw = self._rng.randrange(self._users), self._rng.random()
            key = f"attribute_{self._rng.randrange(KEYS_PER_USER)}"
            if UPDATED <= draw < UPDATED + INSERTED:
                self._inserted += 1
                key = f"inserted_{self._inserted}"
            value = f"value {place} of batch {self._number}" if draw < UPDATED + INSERTED else None
            yield event_of(user, key, value)


def make_twin(spark: SparkSession) -> None:
    """A table as Spark's users make it, with the rows of ours."""
    spark.sql(f"DROP TABLE IF EXISTS {TWIN} PURGE")
    spark.sql(
        f"CREATE TABLE {TWIN} "
        "(app_id int, user_id string, key string, value string, updated_at timestamp) "
        "USING iceberg PARTITIONED BY (bucket(16, user_id)) TBLPROPERTIES ("
        "'format-version' = '3', 'write.merge.mode' = 'merge-on-read', "
        "'write.parquet.compression-codec' = 'zstd')"
    )
    spark.sql(f"ALTER TABLE {TWIN} WRITE DISTRIBUTED BY PARTITION LOCALLY ORDERED BY app_id, user_id, key")
    spark.sql(f"INSERT INTO {TWIN} SELECT {COLUMNS} FROM lake.app.{TABLE}")


def event_of(user: int, key: str, value: str | None) -> Event:
    """A change of one row of a user."""
    row = (user % 3, f"u{user:08}", key)
    key_bytes = b'{"app_id":%d,"user_id":"u%08d","key":"%s"}' % (user % 3, user, key.encode())
    if value is None:
        return Event(key_bytes, None, row)
    return Event(key_bytes, b'{"value":"%s","updated_at":"%s"}' % (value.encode(), TIME_TEXT.encode()), row)


def write_folded(changes: list[Event], path: Path) -> None:
    """The last change of each key, as MERGE wants its source."""
    last = {event.row: event.value for event in changes}
    values = [None if value is None else value.split(b'"', 4)[3].decode() for value in last.values()]
    times = pa.array([None if value is None else TIME_US for value in values], pa.timestamp("us", "UTC"))
    table = pa.table(
        {
            "app_id": pa.array([row[0] for row in last], pa.int32()),
            "user_id": pa.array([row[1] for row in last]),
            "key": pa.array([row[2] for row in last]),
            "value": pa.array(values, pa.string()),
            "updated_at": times,
            "is_deleted": pa.array([value is None for value in values]),
        }
    )
    pq.write_table(table, path)


def _timed(run: Any) -> dict[str, float]:
    cpu_before, started = cpu_seconds(), time.perf_counter()
    run()
    seconds = time.perf_counter() - started
    return {"seconds": round(seconds, 2), "cpu_seconds": round(cpu_seconds() - cpu_before, 1)}


if __name__ == "__main__":
    main()
