"""Snapshots of the live catalog: what it takes to make one, with more and more hot rows, and to read it.

With ``--far-ms`` it is traffic instead, on a table in an S3 store so far away: what a load each second takes,
and what it costs by the list prices of a large cloud.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, Final

import httpx
import psutil
import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from benchmarks._beside import maker_of
from benchmarks._far_store import Asked, FarStore, far_store
from benchmarks._report import percentiles_ms, report, say
from benchmarks._table import KEYS_PER_USER, Forgetful, filled, write
from thermocline.dev.stack import TABLE, TOPIC, Command, Stack
from thermocline.dev.workload import Workload, produce
from thermocline.kafka.log import Log

SECONDS_MAX: Final = 1_800.0
STEPS: Final = (1, 1_000)
LOADS: Final = 5
"""Of each step, of which the median counts."""
"""Records that come between two loads."""
READS: Final = 5
PUT_DOLLARS: Final = 0.005 / 1_000
GET_DOLLARS: Final = 0.0004 / 1_000
"""Of S3 in its cheapest region."""


def main() -> None:
    """Run it and print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--hot", type=int, nargs="+", default=[10_000, 100_000, 1_000_000], help="records")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--far-ms", type=float, help="each request to the store takes so long")
    parser.add_argument("--rate", type=float, default=2_000.0, help="records a second, with --far-ms")
    parser.add_argument("--seconds", type=float, default=120.0, help="of traffic, with --far-ms")
    options = parser.parse_args()
    if options.far_ms is not None:
        far(options)
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        filled(Path(folder), options.rows, options.seed, has_live_catalog=True, engine="local") as stack,
    ):
        report("live", options.seed, _Live(stack, options).figures())


def far(options: argparse.Namespace) -> None:
    """Traffic and a load each second, on a store that is far away."""
    with (
        tempfile.TemporaryDirectory() as folder,
        far_store(Path(folder)) as store,
        filled(
            Path(folder) / "stack",
            options.rows,
            options.seed,
            has_live_catalog=True,
            engine="local",
            rest=store,
        ) as stack,
    ):
        report("live_far", options.seed, _Far(stack, store, options).figures())


class _Far:
    def __init__(self, stack: Stack, store: FarStore, options: argparse.Namespace) -> None:
        self._stack, self._store, self._options = stack, store, options

    def figures(self) -> dict[str, Any]:
        """Without loads, and with them: the difference is what they cost."""
        stack, options = self._stack, self._options
        server = stack.serve()
        stack.wait_until_ready(server)
        self._store.delay(options.far_ms / 1000)
        stop = threading.Event()
        workload = Workload(options.seed, options.rows // KEYS_PER_USER, KEYS_PER_USER)
        config = stack.settings.kafka.client_config()
        producer = threading.Thread(
            target=produce,
            args=(config, TOPIC, workload, Forgetful()),
            kwargs={"rate": options.rate, "stop": stop},
        )
        producer.start()
        try:
            idle = self._asked(lambda: None)
            seconds: list[float] = []
            loads = self._asked(lambda: seconds.append(self._load()))
        finally:
            stop.set()
            producer.join()
        hours = options.seconds / 3_600
        puts, gets = loads.puts - idle.puts, loads.requests - loads.puts - idle.requests + idle.puts
        return {
            "rows": options.rows,
            "far_ms": options.far_ms,
            "rate": options.rate,
            "loads": len(seconds),
            "load": percentiles_ms(seconds),
            "files_an_hour": round(self._counted("files_written") / hours),
            "mb_an_hour": round(self._counted("bytes_written") / hours / 1e6, 1),
            "puts_an_hour": round(puts / hours),
            "gets_an_hour": round(gets / hours),
            "dollars_an_hour": round((puts * PUT_DOLLARS + gets * GET_DOLLARS) / hours, 3),
        }

    def _asked(self, each_second: Callable[[], None]) -> Asked:
        """What is asked of the store while something is done each second."""
        self._store.asked()
        end = time.monotonic() + self._options.seconds
        while (began := time.monotonic()) < end:
            each_second()
            time.sleep(max(0.0, began + 1 - time.monotonic()))
        return self._store.asked()

    def _load(self) -> float:
        began = time.perf_counter()
        path = f"{self._stack.url}/iceberg/v1/namespaces/app/tables/{TABLE}"
        httpx.get(path, timeout=SECONDS_MAX).raise_for_status()
        return time.perf_counter() - began

    def _counted(self, what: str) -> float:
        return counted(self._stack, f"thermocline_live_{what}_total")


def counted(stack: Stack, name: str) -> float:
    """The sum of a counter of the server."""
    lines = httpx.get(f"{stack.url}/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


class _Live:
    def __init__(self, stack: Stack, options: argparse.Namespace) -> None:
        self._stack = stack
        self._options = options
        self._changes = iter(Workload(options.seed, options.rows // KEYS_PER_USER, KEYS_PER_USER))
        self._path = f"/iceberg/v1/namespaces/app/tables/{TABLE}"
        self._catalog: RestCatalog | None = None

    def figures(self) -> dict[str, Any]:
        server = self._stack.serve()
        self._stack.wait_until_ready(server)
        self._catalog = RestCatalog("live", uri=f"{self._stack.url}/iceberg")
        found: dict[str, Any] = {"rows": self._options.rows}
        written = 0
        for hot in self._options.hot:
            self._written(server, hot - written)
            written = hot
            say(f"{hot:,} hot records")
            found[f"hot_{hot}"] = self._at(server)
            written += LOADS * sum(STEPS)
        return found

    def _at(self, server: Command) -> dict[str, Any]:
        figures: dict[str, Any] = {"whole": self._made(server)}
        for step in STEPS:
            loads = []
            for _ in range(LOADS):
                self._written(server, step)
                loads.append(self._made(server))
            # The first load after that of all of them also frees what that one took.
            figures[f"after_{step}"] = {
                what: round(median(one[what] for one in loads), 3) for what in loads[0]
            }
        figures["after_nothing"] = self._made(server)
        return figures | self._read()

    def _made(self, server: Command) -> dict[str, float]:
        """One load: how long it took, what the process that makes snapshots did for it, and what it wrote."""
        maker = maker_of(server)
        cpu, files, began = _cpu_seconds(maker), self._files(), time.perf_counter()
        answer = httpx.get(f"{self._stack.url}{self._path}", timeout=SECONDS_MAX).raise_for_status()
        seconds = time.perf_counter() - began
        return {
            "seconds": round(seconds, 3),
            "cpu_seconds": round(_cpu_seconds(maker) - cpu, 3),
            "files": self._files() - files,
            "answer_kb": round(len(answer.content) / 1024, 1),
        }

    def _read(self) -> dict[str, Any]:
        """By PyIceberg: the table as of now beside the one as committed, one entity and all rows."""
        assert self._catalog is not None
        table = self._catalog.load_table(f"app.{TABLE}")
        committed = table.snapshot_by_name("committed")
        assert committed is not None
        return {
            f"pyiceberg_{name}_seconds": {
                "live": _fastest(read, table, None),
                "committed": _fastest(read, table, committed.snapshot_id),
            }
            for name, read in (("entity", _entity), ("count", _count))
        }

    def _written(self, server: Command, count: int) -> None:
        if count > 0:
            write(self._stack, islice(self._changes, count), quietly=True)
        self._stack.wait_for(self._is_read, "the server has read all", server, timeout=SECONDS_MAX)

    def _is_read(self) -> bool:
        status = self._stack.get("/status")[1]["tables"][TABLE]
        ends = Log(self._stack.settings.kafka).ends(self._stack.settings.table(TABLE).topics)
        return bool(status["read_point"]["end"] == ends.to_dict() and not status["stale"])

    def _files(self) -> int:
        return int(counted(self._stack, "thermocline_live_files_written_total"))


def _entity(table: Table, snapshot_id: int | None) -> int:
    where = "app_id = 1 AND user_id = 'u00001'"
    rows: pa.Table = table.scan(where, snapshot_id=snapshot_id).to_arrow()
    return len(rows)


def _count(table: Table, snapshot_id: int | None) -> int:
    rows: pa.Table = table.scan(selected_fields=("value",), snapshot_id=snapshot_id).to_arrow()
    return len(rows)


def _fastest(read: Callable[[Table, int | None], int], table: Table, snapshot_id: int | None) -> float:
    times = []
    for _ in range(READS):
        began = time.perf_counter()
        read(table, snapshot_id)
        times.append(time.perf_counter() - began)
    return round(min(times), 3)


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main()
