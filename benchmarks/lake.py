"""Lookups and extracts of a table in an S3 store that is some milliseconds away, beside engines that scan.

With ``--files`` it is planning and committing instead, where so many files exist in the metadata alone.
Each figure is said as soon as it is measured.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import duckdb
import psutil
import pyarrow as pa
from fsspec.implementations.arrow import ArrowFSWrapper  # type: ignore[import-untyped]
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from benchmarks._far_store import FarStore, far_store
from benchmarks._report import percentiles_ms, report, say
from benchmarks._table import KEYS_PER_USER, filled, serve_cold
from benchmarks.extract import seconds_of_extract
from benchmarks.lookup import load_of, users_of
from benchmarks.measure import CONFIG, NAME, Listed
from thermocline.dev.stack import TABLE, Stack
from thermocline.iceberg.catalog import load_table, open_catalog
from thermocline.iceberg.files import plan_files
from thermocline.ingest.commit.java import small_jvm
from thermocline.maintenance.measure import Measurer
from thermocline.process.clock import SystemClock
from thermocline.settings import Settings, load_settings

User = tuple[int, str]

SCANS: Final = 20
"""Of a user by an engine that scans; each takes seconds."""
KEPT_USERS: Final = 200
"""So many, whose rows are in the store of rows then."""
WARM_SECONDS: Final = 5.0


class Figures(dict[str, Any]):
    """What is measured, said at once."""

    def add(self, name: str, **figures: Any) -> None:
        """Keep them, and say them."""
        self[name] = figures
        say(f"{name}  {json.dumps(figures)}")


def main() -> None:
    """Run it and print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--files", type=int, default=0, help="files in the metadata; then nothing is read")
    parser.add_argument("--buckets", type=int, default=256, help="of the table with so many files")
    parser.add_argument("--latency-ms", type=float, default=20.0, help="added to each request to the store")
    parser.add_argument("--seconds", type=float, default=6.0, help="of cold lookups, one after the other")
    parser.add_argument("--trino", action="store_true", help="ask Trino, too")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    figures = Figures(latency_ms=options.latency_ms)
    with tempfile.TemporaryDirectory() as folder, far_store(Path(folder)) as store:
        if options.files:
            measure_files(Path(folder), store, options, figures)
        else:
            measure_rows(Path(folder), store, options, figures)
    report("lake", options.seed, figures)


def measure_rows(folder: Path, store: FarStore, options: argparse.Namespace, figures: Figures) -> None:
    """Lookups cold and warm, extracts, and the same by others."""
    trino_gb = 2 if options.trino else 0
    with filled(
        folder / "stack", options.rows, options.seed, workers=2, rest=store, trino_gb=trino_gb
    ) as stack:
        table = load_table(open_catalog(stack.settings.catalog), TABLE, f"app.{TABLE}")
        files = plan_files(table, _snapshot_id(table))
        figures.add(
            "table", rows=options.rows, files=len(files), mb=round(sum(file.bytes for file in files) / 1e6, 1)
        )
        store.delay(options.latency_ms / 1000)
        users = users_of(options.seed, options.rows)
        random.Random(options.seed).shuffle(users)
        _measure_server(stack, store, users, options.seconds, figures)
        engines = {
            "pyiceberg": partial(_pyiceberg, stack),
            "duckdb": partial(_duckdb, table, [file.path for file in files]),
            **({"trino": partial(_trino, stack)} if options.trino else {}),
        }
        for name, engine in engines.items():
            _measure_engine(name, engine(), store, users, options.rows, figures)


def _measure_server(
    stack: Stack, store: FarStore, users: list[User], seconds: float, figures: Figures
) -> None:
    store.asked()
    began = time.perf_counter()
    server = serve_cold(stack)
    stack.wait_until_ready(server)
    figures.add("ready", seconds=round(time.perf_counter() - began, 2), requests=store.asked().requests)
    # Others than those that are asked for again later.
    fresh = iter([users[KEPT_USERS::2], users[KEPT_USERS + 1 :: 2]])
    for connections in (1, 8):
        # Not for longer: row groups that were read are kept decoded for a while.
        asked = load_of(stack, next(fresh), connections, seconds / connections)
        figures.add(f"lookup_cold_{connections}", **asked, **store.asked().each(int(asked["lookups"])))
    load_of(stack, users[:KEPT_USERS], 8, seconds)
    store.asked()
    for connections in (1, 8):
        asked = load_of(stack, users[:KEPT_USERS], connections, WARM_SECONDS)
        figures.add(f"lookup_warm_{connections}", **asked, **store.asked().each(int(asked["lookups"])))
    for name in ("extract", "extract_again"):
        store.asked()
        figures.add(name, seconds=round(seconds_of_extract(stack, "arrow"), 2), **store.asked().each(1))
    server.stop()


def _measure_engine(
    name: str,
    rows_of: Callable[[User | None], int],
    store: FarStore,
    users: Sequence[User],
    rows: int,
    figures: Figures,
) -> None:
    """One that scans: it gives how many rows a user has, or all have, which it has read."""
    store.asked()
    latencies = []
    for user in users[:SCANS]:
        began = time.perf_counter()
        assert rows_of(user) == KEYS_PER_USER
        latencies.append(time.perf_counter() - began)
    figures.add(
        f"{name}_lookup",
        **percentiles_ms(latencies),
        against_cold=round(percentiles_ms(latencies)["p50_ms"] / figures["lookup_cold_1"]["p50_ms"], 1),
        **store.asked().each(SCANS),
    )
    began = time.perf_counter()
    assert rows_of(None) == rows
    took = time.perf_counter() - began
    against = round(took / figures["extract"]["seconds"], 2)
    figures.add(f"{name}_all", seconds=round(took, 2), against_extract=against, **store.asked().each(1))


def _pyiceberg(stack: Stack) -> Callable[[User | None], int]:
    table = load_table(open_catalog(stack.settings.catalog), TABLE, f"app.{TABLE}")

    def rows_of(user: User | None) -> int:
        scan = table.scan() if user is None else table.scan(f"app_id = {user[0]} AND user_id = '{user[1]}'")
        return int(scan.to_arrow().num_rows)

    return rows_of


def _duckdb(table: Table, files: Sequence[str]) -> Callable[[User | None], int]:
    """Over the table's files, which have no deletes; by Arrow's client: DuckDB's is an extension."""
    assert isinstance(table.io, PyArrowFileIO)
    scheme, netloc, _ = table.io.parse_location(files[0])
    connection = duckdb.connect()
    connection.execute("SET parquet_metadata_cache = true")
    connection.register_filesystem(_Lake(table.io.fs_by_scheme(scheme, netloc)))
    places = [f"{_Lake.protocol}://{file.removeprefix(f'{scheme}://')}" for file in files]

    def rows_of(user: User | None) -> int:
        query = "SELECT * FROM read_parquet($files)"
        parameters: dict[str, Any] = {"files": places}
        if user is not None:
            query += " WHERE app_id = $app AND user_id = $user"
            parameters |= {"app": user[0], "user": user[1]}
        return int(connection.sql(query, params=parameters).to_arrow_table().num_rows)

    return rows_of


class _Lake(ArrowFSWrapper):  # type: ignore[misc]  # it publishes no types
    """Files do not change: what is known of one is not asked again."""

    protocol = "lake"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix(f"{cls.protocol}://")

    @cache  # noqa: B019  one for the whole run
    def info(self, path: str, **_: Any) -> dict[str, Any]:
        found: dict[str, Any] = super().info(path)
        return found

    def modified(self, path: str) -> Any:
        return self.info(path)["mtime"]

    def _open(self, path: str, *_: Any, **__: Any) -> _AtPlaces:
        return _AtPlaces(self.fs.open_input_file(path))


class _AtPlaces(threading.local):
    """A file that DuckDB's threads share; each reads at a place of its own."""

    place = 0

    def __init__(self, stream: pa.NativeFile) -> None:
        self.stream = stream

    def seek(self, place: int) -> None:
        self.place = place

    def tell(self) -> int:
        return self.place

    def read(self, count: int) -> bytes:
        found: bytes = self.stream.read_at(count, self.place)
        self.place += len(found)
        return found

    def close(self) -> None:
        self.stream.close()


def _trino(stack: Stack) -> Callable[[User | None], int]:
    from trino.dbapi import connect  # noqa: PLC0415  an optional package

    assert stack.trino is not None
    connection = connect(host=stack.trino.host, port=stack.trino.port, user="admin")
    table = f"{stack.settings.views.lake}.app.{TABLE}"

    def rows_of(user: User | None) -> int:
        where = "" if user is None else f" WHERE app_id = {user[0]} AND user_id = '{user[1]}'"
        columns = "count(value), count(updated_at), count(key)"  # all are read, and few are sent
        (row,) = connection.cursor().execute(f"SELECT {columns}, count(*) FROM {table}{where}").fetchall()
        return int(row[-1])

    return rows_of


def measure_files(folder: Path, store: FarStore, options: argparse.Namespace, figures: Figures) -> None:
    """Planning, measuring and committing, in this process, and its memory."""
    with small_jvm((settings := _settings_of_listed(folder, store, options.buckets)).catalog) as jvm:
        table = Listed(settings, jvm, random.Random(options.seed), options.buckets)
        try:
            table.fill(options.files)
            store.delay(options.latency_ms / 1000)
            _measure_listed(table, store, figures)
        finally:
            table.owned.release()


def _measure_listed(table: Listed, store: FarStore, figures: Figures) -> None:
    def loaded() -> Table:
        return load_table(open_catalog(table.settings.catalog), NAME, "app.profiles")

    def measure(name: str, work: Callable[[], Any]) -> None:
        store.asked()
        before = psutil.Process().memory_info().rss
        began, began_cpu = time.perf_counter(), time.process_time()
        result = work()
        figures.add(
            name,
            seconds=round(time.perf_counter() - began, 2),
            cpu_seconds=round(time.process_time() - began_cpu, 2),
            grown_mb=(psutil.Process().memory_info().rss - before) >> 20,
            **store.asked().each(1),
        )
        del result

    measurer = Measurer(table.definition)
    for name in ("commit", "commit_again"):
        measure(name, table.batch)
    measure("plan", lambda: plan_files(loaded(), table.snapshot_id))
    measure("plan_by_pyiceberg", lambda: list(loaded().scan().plan_files()))
    for name in ("measure", "measure_again"):
        measure(name, lambda: measurer.measure(loaded(), SystemClock().now_ms()))
    measure("manifests_put_in_order", table.order_manifests)
    measure("commit_in_order", table.batch)
    measure("plan_in_order", lambda: plan_files(loaded(), table.snapshot_id))
    snapshot = loaded().current_snapshot()
    assert snapshot is not None
    figures.add("table", files=figures_of(snapshot.summary), buckets=table.definition.buckets)


def figures_of(summary: Any) -> int:
    """The number of data files."""
    return int(summary["total-data-files"])


def _settings_of_listed(folder: Path, store: FarStore, buckets: int) -> Settings:
    config = folder / "thermocline.toml"
    properties = ", ".join(f'"{name}" = "{value}"' for name, value in store.properties.items())
    place = f'type = "rest"\nuri = "{store.url}"\nproperties = {{ {properties} }}'
    here = 'uri = "sqlite:///catalog.db"\nwarehouse = "warehouse"'
    assert here in CONFIG
    config.write_text(
        CONFIG.replace(here, place.replace("{", "{{").replace("}", "}}")).format(buckets=buckets)
    )
    return load_settings(config)


def _snapshot_id(table: Table) -> int:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


if __name__ == "__main__":
    main()
