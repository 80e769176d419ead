"""Snapshots of the live catalog: what it takes to make one, with more and more hot rows, and to read it."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, Final

import httpx
import psutil
import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from benchmarks._report import report, say
from benchmarks._table import KEYS_PER_USER, filled, write
from thermocline.dev.stack import TABLE, Command, Stack
from thermocline.dev.workload import Workload
from thermocline.kafka.log import Log

SECONDS_MAX: Final = 1_800.0
STEPS: Final = (1, 1_000)
"""Records that come between two loads."""
READS: Final = 5


def main() -> None:
    """Run it and print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--hot", type=int, nargs="+", default=[10_000, 100_000, 1_000_000], help="records")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        filled(Path(folder), options.rows, options.seed, has_live_catalog=True, engine="local") as stack,
    ):
        report("live", options.seed, _Live(stack, options).figures())


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
            written += sum(STEPS)
        return found

    def _at(self, server: Command) -> dict[str, Any]:
        figures: dict[str, Any] = {"whole": self._made(server)}
        for step in STEPS:
            self._written(server, step)
            figures[f"after_{step}"] = self._made(server)
        figures["after_nothing"] = self._made(server)
        return figures | self._read()

    def _made(self, server: Command) -> dict[str, float]:
        """One load: how long it took, what the process that makes snapshots did for it, and what it wrote."""
        maker = self._maker(server)
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
        return bool(status["read_point"]["end"] == ends.to_dict())

    def _files(self) -> int:
        text = httpx.get(f"{self._stack.url}/metrics").text
        lines = [
            line for line in text.splitlines() if line.startswith("thermocline_live_files_written_total")
        ]
        return sum(int(float(line.rpartition(" ")[2])) for line in lines)

    def _maker(self, server: Command) -> psutil.Process:
        children = psutil.Process(server.process.pid).children(recursive=True)
        return next(one for one in children if "thermocline: live" in " ".join(one.cmdline()))


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
