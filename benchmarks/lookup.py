"""Lookups of one entity (10 rows) over HTTP: cold, ready and hot; by engines that scan, and by databases.

These are PostgreSQL, by statements that are prepared once or sent with each lookup, and Cassandra. ScyllaDB,
Redis and HBase are not here to be measured.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import httpx
import psutil
from prometheus_client.parser import text_string_to_metric_families

from benchmarks._cassandra import cassandra_with
from benchmarks._load import ClientTls, ask_http, client, overload_http, with_server_cpu
from benchmarks._postgres import postgres_with
from benchmarks._report import percentiles_ms, report, say
from benchmarks._table import KEYS_PER_USER, filled, serve_cold, write
from thermocline.dev.stack import TABLE, Stack
from thermocline.dev.workload import Event, Workload
from thermocline.iceberg.catalog import load_table, open_catalog
from thermocline.kafka.log import Log

AskDatabase = Callable[[Sequence[tuple[int, str]], int, float], dict[str, float]]

SCANS = 20
WARM_UP_SECONDS = 20.0
CONNECTIONS = (1, 8, 32)
OVERLOAD = 3
# So many that answers which come late don't keep the client from asking.
OVERLOAD_CONNECTIONS = 4_000


def main() -> None:
    """Run it and print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stack = filled(Path(folder), options.rows, options.seed, workers=2)
        with stack:
            users = users_of(options.seed, options.rows)
            figures: dict[str, Any] = {"rows": options.rows, "client": client()}
            figures["duckdb_scan"] = _scans(_duckdb(stack), users)
            figures["pyiceberg_scan"] = _scans(_pyiceberg(stack), users)
            server = serve_cold(stack)
            stack.wait_until_ready(server)
            rng = random.Random(options.seed)
            for connections in CONNECTIONS:
                say(f"cold, {connections} connections")
                figures[f"cold_{connections}"] = load_of(
                    stack, rng.sample(users, len(users)), connections, options.seconds
                )
            if client() == "go":
                say("cold, three times as many as are answered")
                rate = OVERLOAD * figures["cold_32"]["per_second"]
                figures["overload"] = overload_of(stack, rng.sample(users, len(users)), rate, options.seconds)
            server.stop()
            server = stack.serve()
            stack.wait_until_ready(server)
            began = time.perf_counter()
            stack.wait_for(lambda: _rows_ahead(stack) >= options.rows, "all rows are ready", server)
            figures["seconds_until_all_ready"] = round(time.perf_counter() - began, 1)
            for connections in CONNECTIONS:
                say(f"of all rows, made ready ahead, {connections} connections")
                figures[f"ahead_{connections}"] = load_of(
                    stack, rng.sample(users, len(users)), connections, options.seconds
                )
            few = users[:2_000]
            load_of(stack, few, 8, 2.0)
            say("cached, and databases by turns")
            with ExitStack() as stopping:
                databases = _databases(options.seed, options.rows, stopping) if client() == "go" else {}
                if "cassandra" in databases:  # Java compiles for a while
                    databases["cassandra"](few, CONNECTIONS[-1], WARM_UP_SECONDS)
                for connections in CONNECTIONS:
                    figures[f"cached_{connections}"] = load_of(stack, few, connections, options.seconds)
                    for name, ask in databases.items():
                        figures[f"{name}_{connections}"] = ask(few, connections, options.seconds)
            write(stack, _hot(options.seed, options.rows, len(few)))
            stack.wait_for(lambda: lag(stack) == 0, "the tailer has read all", server)
            say("hot")
            for connections in CONNECTIONS:
                figures[f"hot_{connections}"] = load_of(stack, few, connections, options.seconds)
        figures["cold_against_duckdb"] = round(
            figures["duckdb_scan"]["p50_ms"] / figures["cold_1"]["p50_ms"], 1
        )
        figures["cold_against_pyiceberg"] = round(
            figures["pyiceberg_scan"]["p50_ms"] / figures["cold_1"]["p50_ms"], 1
        )
    report("lookup", options.seed, figures)


def _rows_ahead(stack: Stack) -> float:
    """How many rows of data files were made ready to send before anybody asked for them."""
    text = httpx.get(f"{stack.url}/metrics").raise_for_status().text
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return sum(sample.value for sample in samples if sample.name == "thermocline_rows_ahead_total")


def _databases(seed: int, rows: int, stopping: ExitStack) -> dict[str, AskDatabase]:
    """With the same rows, asked by the compiled client alone."""

    def load() -> Iterator[Event]:
        return Workload(seed, rows // KEYS_PER_USER, KEYS_PER_USER).load()

    postgres = stopping.enter_context(postgres_with(load()))
    return {
        "postgres": postgres.load_of,
        "postgres_unprepared": partial(postgres.load_of, prepares=False),
        "cassandra": stopping.enter_context(cassandra_with(load())).load_of,
    }


def users_of(seed: int, rows: int) -> list[tuple[int, str]]:
    """Every entity, in the workload's order."""
    load = Workload(seed, rows // KEYS_PER_USER, KEYS_PER_USER).load()
    return [(event.row[0], event.row[1]) for event in islice(load, 0, None, KEYS_PER_USER)]


def _hot(seed: int, rows: int, users: int) -> islice[Event]:
    """New values for all rows of the first users, which stay uncommitted."""
    return islice(Workload(seed, rows // KEYS_PER_USER, KEYS_PER_USER).load(), users * KEYS_PER_USER)


def lag(stack: Stack) -> int:
    """How many offsets the server's answers are behind the log's ends."""
    answer = stack.get(f"/v1/tables/{TABLE}/rows?app_id=1&user_id=x")[1]
    ends = Log(stack.settings.kafka).ends([TABLE])
    read = answer["read_point"]["end"][TABLE]
    return sum(offset - int(read[str(partition)]) for _, partition, offset in ends.items())


def load_of(
    stack: Stack,
    users: list[tuple[int, str]],
    connections: int,
    seconds: float,
    table: str = TABLE,
    key: str | None = None,
    tls: ClientTls | None = None,
) -> dict[str, float]:
    """These users over keep-alive connections, one request at a time each, for some seconds.

    With the processor time that the API workers took for each, which includes the handshakes of TLS. ``key``
    is an API key.
    """
    paths = [f"/v1/tables/{table}/rows?app_id={app_id}&user_id={user_id}" for app_id, user_id in users]
    workers, said = _api_workers(stack, tls), "" if key is None else f"Bearer {key}"
    return with_server_cpu(
        lambda: ask_http(stack.url.removeprefix("http://"), paths, connections, seconds, said, tls),
        lambda: sum(sum(worker.cpu_times()[:2]) for worker in workers),
    )


def overload_of(
    stack: Stack, users: list[tuple[int, str]], rate: float, seconds: float
) -> dict[str, float | dict[str, float]]:
    """So many lookups a second; the workers' memory before and after, and one connection's lookups then."""
    paths = [f"/v1/tables/{TABLE}/rows?app_id={app_id}&user_id={user_id}" for app_id, user_id in users]
    workers = _api_workers(stack)
    before = _memory_mb(workers)
    under = overload_http(stack.url.removeprefix("http://"), paths, OVERLOAD_CONNECTIONS, seconds, rate)
    began = time.perf_counter()
    stack.wait_for(lambda: stack.get(paths[0])[0] == 200, "it answers again")
    recovered = time.perf_counter() - began
    return {
        "asked_per_second": round(rate),
        **under,
        "workers_mb_before": before,
        "workers_mb_after": _memory_mb(workers),
        "seconds_until_answered": round(recovered, 2),
        "then": load_of(stack, users, 1, 2.0),
    }


def _memory_mb(processes: list[psutil.Process]) -> float:
    """Of all together, without mapped files."""
    kilobytes = 0
    for process in processes:
        rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        kilobytes += int(rollup.split("Anonymous:")[1].split()[0])
    return round(kilobytes / 1024, 1)


def _api_workers(stack: Stack, tls: ClientTls | None = None) -> list[psutil.Process]:
    """The processes that answer: those beside the one that ``/status`` names."""
    # As anybody, who may see it, and not as who is told by a certificate.
    context = None if tls is None else ClientTls(tls.ca).context()
    (table, *_) = stack.get("/status", tls=context)[1]["tables"].values()
    answering = psutil.Process(table["worker_pid"])
    parent = answering.parent()
    assert parent is not None
    return [one for one in parent.children() if " api " in f" {' '.join(one.cmdline())} "]


def _scans(scan: Any, users: list[tuple[int, str]]) -> dict[str, float]:
    latencies = []
    for app_id, user_id in users[: SCANS * 1000 : 1000] or users[:SCANS]:
        began = time.perf_counter()
        assert scan(app_id, user_id) == KEYS_PER_USER
        latencies.append(time.perf_counter() - began)
    return percentiles_ms(latencies)


def _duckdb(stack: Stack) -> Any:
    """DuckDB over the table's files; there are no deletes yet, so this is the table."""
    files = f"{stack.folder}/data/warehouse/app/{TABLE}/data/**/*.parquet"
    connection = duckdb.connect()

    def scan(app_id: int, user_id: str) -> int:
        query = (
            "SELECT key, value, updated_at FROM read_parquet($files) WHERE app_id = $app AND user_id = $user"
        )
        found = connection.sql(query, params={"files": files, "app": app_id, "user": user_id})
        return int(found.to_arrow_table().num_rows)

    return scan


def _pyiceberg(stack: Stack) -> Any:
    table = load_table(open_catalog(stack.settings.catalog), TABLE, f"app.{TABLE}")

    def scan(app_id: int, user_id: str) -> int:
        found = table.scan(row_filter=f"app_id = {app_id} AND user_id = '{user_id}'").to_arrow()
        return int(found.num_rows)

    return scan


if __name__ == "__main__":
    main()
