"""Commits every ten seconds under a steady load, while rewrites never end: what each costs the other.

By its settings, readers are so many that every rewrite is worth it. At the end, reads are compared with those
of a table that was just written from the same log, by one commit. Then the stock way has the same load: a
table of Spark's, changed by ``MERGE``, and ``rewrite_data_files`` one after the other beside it.
"""

from __future__ import annotations

import argparse
import logging
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from benchmarks._report import percentiles_ms, report, say
from benchmarks._table import KEYS_PER_USER, Forgetful, serve_cold, write
from benchmarks.lookup import load_of
from benchmarks.merge import INSERTED, MERGE, UPDATED, event_of, make_twin, write_folded
from thermocline.dev.stack import TABLE, TOPIC, Stack, StackOptions
from thermocline.dev.workload import Event, produce
from thermocline.iceberg.catalog import load_table, open_catalog
from thermocline.ingest.commit.java import JAVA_ERRORS
from thermocline.ingest.engine.spark import start_spark
from thermocline.ingest.owner import turns
from thermocline.ingest.owner.owner import Owner
from thermocline.maintenance import planning
from thermocline.maintenance.compact import rewrite_of
from thermocline.maintenance.upkeep import TableUpkeep
from thermocline.process.clock import SystemClock
from thermocline.settings import load_settings

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import SparkSession

FRESH = "fresh"
INTERVAL_SECONDS = 10.0
LOOKUP_ROUNDS = 3
LOOKUP_SECONDS = 5.0
SCANS = 5
# Everything is worth a rewrite; and a table of the same definition for the comparison, filled by one batch.
SETTINGS = """
[maintenance]
scans_per_hour = 1e6
lookups_per_second = 1e6
"""
FRESH_SETTINGS = "batch_records_max = 100_000_000\nbatch_bytes_max = 100_000_000_000\n"
REWRITES = {
    "defaults": "map()",
    "everything": "map('rewrite-all', 'true')",
    "everything_in_parts": "map('rewrite-all', 'true', 'partial-progress.enabled', 'true')",
}
"""How the stock rewrite is called, for a third of the time each."""


def main() -> None:
    """Run it and print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--stock-minutes", type=float, default=6.0)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=2_000)
    parser.add_argument("--engine", choices=("local", "spark"), default="local")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    figures: dict[str, Any] = {name: getattr(options, name) for name in ("minutes", "rows", "rate", "engine")}
    with tempfile.TemporaryDirectory() as folder, _stack(Path(folder), options.engine) as stack:
        load = Load(options.seed, options.rows // KEYS_PER_USER)
        figures["ours"] = _ours(stack, load, options)
        figures["reads"] = _reads(stack, load)
        figures["ours"]["write_amplification"] = _amplification(figures)
        if options.stock_minutes:
            figures["stock"] = _stock(stack, load, options)
    report("busy", options.seed, figures)


def _stack(folder: Path, engine: str) -> Stack:
    stack = Stack(
        folder,
        StackOptions(
            partitions=8,
            buckets=16,
            workers=2,
            engine=engine,
            is_measured=True,
            spark_conf={"spark.driver.memory": "4g"},
            commit_interval_seconds=INTERVAL_SECONDS,
        ),
    )
    text = stack.config_path.read_text()
    again = text[text.index(f"[tables.{TABLE}]") :].replace(f"tables.{TABLE}", f"tables.{FRESH}")
    again = again.replace(f"app.{TABLE}", f"app.{FRESH}")
    again = again.replace('start = "earliest"\n', f'start = "earliest"\n{FRESH_SETTINGS}')
    stack.config_path.write_text(text + again + SETTINGS)
    stack.settings = load_settings(stack.config_path)
    return stack.start()


class Load:
    """Each row of some users once, then changes of rows anywhere: the hardest for deletes and probes."""

    def __init__(self, seed: int, users: int) -> None:
        self.users = users
        self._rng = random.Random(seed)
        self._number = 0

    def rows(self) -> Iterator[Event]:
        """Each once."""
        for user in range(self.users):
            for key in range(KEYS_PER_USER):
                yield event_of(user, f"attribute_{key}", f"value {user * KEYS_PER_USER + key} of the load")

    def changes(self) -> Iterator[Event]:
        """Without end."""
        while True:
            self._number += 1
            user, key = self._rng.randrange(self.users), f"attribute_{self._rng.randrange(KEYS_PER_USER)}"
            is_deleted = self._rng.random() >= UPDATED + INSERTED
            yield event_of(user, key, None if is_deleted else f"value {self._number} of the changes")

    def entities(self) -> list[tuple[int, str]]:
        """All of them, shuffled."""
        found = [event_of(user, "", None).row[:2] for user in range(self.users)]
        random.Random(self.users).shuffle(found)
        return found


class Said(logging.Handler):
    """What ingest and maintenance log: how often, and the sums of the numbers in it."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.count: Counter[str] = Counter()
        self.sums: Counter[str] = Counter()
        self.problems: list[str] = []
        for name in ("thermocline.ingest.owner.table_batch", "thermocline.maintenance"):
            logging.getLogger(name).addHandler(self)
            logging.getLogger(name).setLevel(logging.INFO)

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps it."""
        message, data = record.getMessage(), getattr(record, "fields", {})
        self.count[message] += 1
        for name in ("applied", "late_deletes", "carried_rows"):
            self.sums[name] += data.get(name, 0)
        if record.levelno >= logging.WARNING:
            self.problems.append(f"{message}: {data}"[:500])


@dataclass(slots=True)
class Watch:
    """What the owner did, and when, with the bytes that its commits added."""

    steps: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    turns: list[float] = field(default_factory=list)
    dead_ratios: list[float] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    bytes: Counter[str] = field(default_factory=Counter)
    known: set[str] = field(default_factory=set)
    due: float | None = None

    def committed(self, owner: Owner) -> None:
        """A snapshot more."""
        for files in owner.position.files.values():
            rows = sum(file.rows for file in files)
            dead = sum(file.deletes.cardinality for file in files if file.deletes is not None)
            self.dead_ratios.append(dead / max(rows, 1))
            self.files.append(len(files))
            for file in files:
                self._add("rewrites" if rewrite_of(file.path) else "batches", file.path, file.bytes)
                if file.deletes is not None:
                    self._add("deletes", file.deletes.path, file.deletes.file_bytes)

    def _add(self, what: str, path: str, size: int) -> None:
        if path not in self.known:
            self.known.add(path)
            self.bytes[what] += size


class WatchedOwner(Owner):
    """Says when its batches were due, when they began, and how long they took."""

    watch: Watch

    def step(self) -> bool:
        """Timed."""
        began = time.monotonic()
        if self.watch.due is not None:
            self.watch.late.append(max(began - self.watch.due, 0.0))
        is_behind = super().step()
        self.watch.steps.append(time.monotonic() - began)
        self.watch.due = None if is_behind else began + self.settings.commit_interval_seconds
        return is_behind


class WatchedUpkeep(TableUpkeep):
    """Says how long its turns kept the owner."""

    watch: Watch

    def turn(self, owner: Any) -> None:
        """Timed."""
        began = time.monotonic()
        super().turn(owner)
        self.watch.turns.append(time.monotonic() - began)


def _ours(stack: Stack, load: Load, options: argparse.Namespace) -> dict[str, Any]:
    write(stack, load.rows())
    setattr(planning, "PLAN_SECONDS", 1.0)  # noqa: B010  a constant; no rewrite shall wait for a plan
    upkeep = WatchedUpkeep(stack.settings.maintenance, SystemClock())
    owner = WatchedOwner.open(stack.settings, TABLE, SystemClock())
    assert isinstance(owner, WatchedOwner)
    owner.watch = Watch()
    try:
        owner.catch_up(threading.Event())
        owner.watch.committed(owner)
        owner.watch = upkeep.watch = watch = Watch(known=owner.watch.known)
        owner.on_commit, owner.upkeep, said = partial(watch.committed, owner), upkeep, Said()
        seconds = _followed(stack, load, owner, options)
        figures = _figures(watch, said, upkeep, seconds)
        owner.catch_up(threading.Event())  # what came since the last commit
    finally:
        owner.close()
    say(f"  ours: {figures}")
    return figures


def _followed(stack: Stack, load: Load, owner: Owner, options: argparse.Namespace) -> float:
    stop, config = threading.Event(), stack.settings.kafka.client_config()
    producing = threading.Thread(
        target=partial(produce, config, TOPIC, load.changes(), Forgetful(), rate=options.rate, stop=stop)
    )
    producing.start()
    timer = threading.Timer(60 * options.minutes, stop.set)
    timer.daemon = True
    timer.start()
    began = time.monotonic()
    try:
        turns.follow(owner, stop)
    finally:
        stop.set()
        producing.join()
    return time.monotonic() - began


def _figures(watch: Watch, said: Said, upkeep: TableUpkeep, seconds: float) -> dict[str, Any]:
    for problem in said.problems:
        say(f"  {problem}")
    done, steps = upkeep.done, sorted(watch.steps)
    return {
        "commits": said.count["committed"],
        "commits_failed": said.count["will try again"],
        "batch": percentiles_ms(steps),
        "batch_late_ms_max": _ms_max(watch.late),
        "turn": percentiles_ms(watch.turns),
        "turn_ms_max": _ms_max(watch.turns),
        "rewrites": done.rewrites,
        "rewrites_dropped": done.dropped,
        "maintenance_failures": done.failures,
        "rewriting_share": round(done.seconds / seconds, 2),
        "late_deletes": said.sums["late_deletes"],
        "dead_ratio_p95": _percentile(watch.dead_ratios, 0.95),
        "dead_ratio_max": round(max(watch.dead_ratios), 3),
        "files_of_a_bucket_p95": _percentile(watch.files, 0.95),
        "applied_rows": said.sums["applied"],
        "written_bytes": dict(watch.bytes),
    }


def _ms_max(seconds: Sequence[float]) -> float:
    return round(1000 * max(seconds, default=0.0), 1)


def _percentile(values: Sequence[float], share: float) -> float:
    ranked = sorted(values)
    return round(ranked[min(int(len(ranked) * share), len(ranked) - 1)], 3)


def _reads(stack: Stack, load: Load) -> dict[str, Any]:
    """Of the table as the load left it, and of one with the same rows that was just written."""
    stack.run("create-fresh", "table", "create", FRESH)
    stack.run("ingest-fresh", "ingest", "run", FRESH, "--once")
    server = serve_cold(stack)
    stack.wait_until_ready(server)
    figures: dict[str, Any] = {name: {} for name in (TABLE, FRESH)}
    entities = load.entities()
    part = len(entities) // (2 * LOOKUP_ROUNDS)
    for turn in range(LOOKUP_ROUNDS):  # by turns: what else the machine does is for both alike
        for name, first in ((TABLE, 2 * turn * part), (FRESH, (2 * turn + 1) * part)):
            found = load_of(stack, entities[first : first + part], 1, LOOKUP_SECONDS, name)
            figures[name].setdefault("lookup_rounds", []).append(found)
    for found in figures.values():
        found["lookup"] = min(found.pop("lookup_rounds"), key=lambda one: one["p99_ms"])
    for name, found in figures.items():
        found["extract_seconds"] = _fastest(partial(_extract, stack, name))
    server.stop()
    catalog = open_catalog(stack.settings.catalog)
    for name, found in figures.items():
        table = load_table(catalog, name, f"app.{name}")
        found["pyiceberg_scan_seconds"] = _fastest(partial(_scan, table))
        found["rows"] = table.scan().count()
        found["bytes"] = sum(task.file.file_size_in_bytes for task in table.scan().plan_files())
        say(f"  {name}: {found}")
    ours, fresh = figures[TABLE], figures[FRESH]
    return {
        "busy": ours,
        "fresh": fresh,
        "lookup_p99_against_fresh": round(ours["lookup"]["p99_ms"] / fresh["lookup"]["p99_ms"], 2),
        "extract_against_fresh": round(ours["extract_seconds"] / fresh["extract_seconds"], 2),
        "scan_against_fresh": round(ours["pyiceberg_scan_seconds"] / fresh["pyiceberg_scan_seconds"], 2),
    }


def _extract(stack: Stack, name: str) -> None:
    """The whole table, as DuckDB reads it for the server."""
    url, accept = f"{stack.url}/v1/tables/{name}/extract", {"Accept": "application/vnd.apache.arrow.stream"}
    with httpx.stream("POST", url, json={}, headers=accept, timeout=120) as answer:
        answer.raise_for_status()
        for _ in answer.iter_raw(1 << 20):
            pass


def _scan(table: Table) -> None:
    table.scan().to_arrow()


def _fastest(read: Callable[[], object]) -> float:
    times = []
    for _ in range(SCANS):
        began = time.perf_counter()
        read()
        times.append(time.perf_counter() - began)
    return round(min(times), 3)


def _amplification(figures: dict[str, Any]) -> float:
    """Bytes written for each byte of the rows that came, as large as they are in the fresh table."""
    fresh = figures["reads"]["fresh"]
    came: float = figures["ours"]["applied_rows"] * fresh["bytes"] / fresh["rows"]
    written: int = sum(figures["ours"]["written_bytes"].values())
    return round(written / came, 2)


def _stock(stack: Stack, load: Load, options: argparse.Namespace) -> dict[str, Any]:
    """The same load on a table of Spark's, in folded batches that need no log."""
    spark = start_spark(stack.settings, "stock")
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    try:
        make_twin(spark)
        _merge(spark, load, options, stack.folder / "warm-up.parquet")  # compiles its code
        _rewrite(spark, REWRITES["everything"])
        minutes = options.stock_minutes / len(REWRITES)
        return {
            name: _beside_rewrites(spark, load, options, stack.folder / name, call, 60 * minutes)
            for name, call in REWRITES.items()
        }
    finally:
        spark.stop()


def _beside_rewrites(
    spark: SparkSession, load: Load, options: argparse.Namespace, folder: Path, call: str, seconds: float
) -> dict[str, Any]:
    """A merge every ten seconds, or at once where one takes longer, and rewrites without a pause."""
    folder.mkdir()
    stop, rewrites, merges = threading.Event(), Attempts(), Attempts()

    def rewrite() -> None:
        while not stop.is_set():
            files_before = rewrites.files
            rewrites.attempt(lambda: _rewrite(spark, call))
            if rewrites.files == files_before:
                stop.wait(1.0)  # nothing to do, or a conflict

    beside = threading.Thread(target=rewrite)
    beside.start()
    until = time.monotonic() + seconds
    while (began := time.monotonic()) < until:
        path = folder / f"{len(merges.seconds)}.parquet"
        merges.attempt(partial(_merge, spark, load, options, path))
        time.sleep(max(began + INTERVAL_SECONDS - time.monotonic(), 0))
    stop.set()
    beside.join()
    figures = {"merges": merges.figures(), "rewrites": rewrites.figures()}
    say(f"  {folder.name}: {figures}")
    return figures


@dataclass(slots=True)
class Attempts:
    """At a commit of Spark's."""

    seconds: list[float] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)
    """By what Iceberg says."""
    files: int = 0
    """Rewritten, where that is known."""

    def attempt(self, run: Callable[[], int]) -> None:
        """Once."""
        began = time.monotonic()
        try:
            self.files += run()
        except JAVA_ERRORS as error:
            self.failed[_cause(error)] += 1
        self.seconds.append(time.monotonic() - began)

    def figures(self) -> dict[str, Any]:
        """For the line."""
        return {
            "tried": len(self.seconds),
            "failed": sum(self.failed.values()),
            "causes": dict(self.failed),
            "rewritten_files": self.files,
            **percentiles_ms(self.seconds),
        }


def _cause(error: BaseException) -> str:
    """What the line says that tells of the conflict, without paths."""
    lines = [line.strip() for line in str(error).splitlines()]
    told = next((line for line in lines if "ValidationException: " in line), lines[0] if lines else "")
    return told.partition("ValidationException: ")[2].partition(":")[0] or told[:200]


def _merge(spark: SparkSession, load: Load, options: argparse.Namespace, path: Path) -> int:
    write_folded(list(islice(load.changes(), int(options.rate * INTERVAL_SECONDS))), path)
    spark.read.parquet(path.as_uri()).createOrReplaceTempView("changes")
    spark.sql(MERGE)
    return 0


def _rewrite(spark: SparkSession, options: str) -> int:
    """All that is there, as ours is told to."""
    call = f"CALL lake.system.rewrite_data_files(table => 'app.twin', options => {options})"
    (done,) = spark.sql(call).collect()
    return int(done.rewritten_data_files_count)


if __name__ == "__main__":
    main()
