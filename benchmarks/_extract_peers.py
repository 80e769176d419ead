"""What others take to give all rows of the benchmarked table, each in the form that it has for that."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Final

import duckdb

from benchmarks._postgres import postgres_with
from benchmarks._report import say
from benchmarks._table import KEYS_PER_USER
from thermocline.dev.stack import TABLE, TRINO_ADMIN, Stack
from thermocline.dev.workload import Workload
from thermocline.iceberg.catalog import load_table, open_catalog

ROUNDS: Final = 3
TRINO_SECONDS: Final = 20.0
"""Its client in Python makes objects of all values, so that all rows would take minutes."""


def extracts_of_peers(stack: Stack, rows: int, seed: int) -> dict[str, float]:
    """Rows a second, the fastest of a few rounds."""
    found = {
        "duckdb_arrow": _rate(rows, lambda: _duckdb(stack)),
        "pyiceberg_arrow": _rate(rows, lambda: _pyiceberg(stack)),
    }
    with postgres_with(Workload(seed, rows // KEYS_PER_USER, KEYS_PER_USER).load()) as postgres:
        found["postgres_copy_text"] = _rate(rows, postgres.copied)
    if stack.trino is not None:
        found["trino_client"] = _trino(stack)
    say(f"  others, rows a second: {found}")
    return found


def _rate(rows: int, read: Callable[[], Any]) -> float:
    seconds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        read()
        seconds.append(time.perf_counter() - began)
    return round(rows / min(seconds))


def _duckdb(stack: Stack) -> None:
    """Over the table's files; there are no deletes, so this is the table."""
    files = f"{stack.folder}/data/warehouse/app/{TABLE}/data/**/*.parquet"
    names = "app_id, user_id, key, value, updated_at"
    with duckdb.connect() as connection:
        found = connection.sql(f"SELECT {names} FROM read_parquet($files)", params={"files": files})
        _consume(found.to_arrow_reader(65_536))


def _pyiceberg(stack: Stack) -> None:
    table = load_table(open_catalog(stack.settings.catalog), TABLE, f"app.{TABLE}")
    names = ("app_id", "user_id", "key", "value", "updated_at")
    with table.scan(selected_fields=names).to_arrow_batch_reader() as reader:
        _consume(reader)


def _consume(batches: Iterator[Any]) -> None:
    for _ in batches:
        pass


def _trino(stack: Stack) -> float:
    import trino.dbapi  # noqa: PLC0415  # where it was asked for

    assert stack.trino is not None
    connection = trino.dbapi.connect(host=stack.trino.host, port=stack.trino.port, user=TRINO_ADMIN)
    with closing(connection), closing(connection.cursor()) as cursor:
        began, count = time.perf_counter(), 0
        cursor.execute(f"SELECT app_id, user_id, key, value, updated_at FROM lake.app.{TABLE}")
        while time.perf_counter() - began < TRINO_SECONDS and (more := cursor.fetchmany(10_000)):
            count += len(more)
        return round(count / (time.perf_counter() - began))
