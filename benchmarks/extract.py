"""Extracts of a whole table over HTTP, with and without a hot overlay of a tenth of its rows."""

from __future__ import annotations

import argparse
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import psutil
import pyarrow as pa

from benchmarks._report import report, say
from benchmarks._table import KEYS_PER_USER, filled, write
from benchmarks.lookup import lag
from embedded.stack import TABLE, Command, Stack
from embedded.workload import Workload

ROUNDS = 3
MEDIA = {"arrow": "application/vnd.apache.arrow.stream", "parquet": "application/vnd.apache.parquet"}


def main() -> None:
    """Run it and print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        with filled(Path(folder), options.rows, options.seed) as stack:
            server = stack.serve()
            stack.wait_until_ready(server)
            figures: dict[str, Any] = {"rows": options.rows}
            for name in MEDIA:
                figures[f"cold_{name}"] = _extracts(stack, name)
            hot = options.rows // 10
            write(
                stack, islice(Workload(options.seed + 1, options.rows // KEYS_PER_USER, KEYS_PER_USER), hot)
            )
            stack.wait_for(lambda: lag(stack) == 0, "the tailer has read all", server)
            figures["hot_records"] = hot
            for name in MEDIA:
                figures[f"overlaid_{name}"] = _extracts(stack, name)
            figures["server_peak_mb"] = _peak_mb(server)
        cold, overlaid = (
            figures["cold_arrow"]["rows_per_second"],
            figures["overlaid_arrow"]["rows_per_second"],
        )
        figures["overlay_slowdown"] = round(cold / overlaid - 1, 3)
    report("extract", options.seed, figures)


def _extracts(stack: Stack, name: str) -> dict[str, float]:
    """The best of a few rounds: the stream is read and thrown away, as a client with a quick disk would."""
    seconds = [seconds_of_extract(stack, name) for _ in range(ROUNDS)]
    rows = _count(stack)
    say(f"  {name}: {rows:,} rows in {min(seconds):.2f} s")
    return {"seconds": round(min(seconds), 2), "rows_per_second": round(rows / min(seconds)), "rows": rows}


def seconds_of_extract(stack: Stack, name: str) -> float:
    """One extract as a stream that is thrown away."""
    began = time.perf_counter()
    url = f"{stack.url}/v1/tables/{TABLE}/extract"
    with httpx.stream("POST", url, json={}, headers={"Accept": MEDIA[name]}, timeout=120) as answer:
        answer.raise_for_status()
        for _ in answer.iter_raw(1 << 20):
            pass
    return time.perf_counter() - began


def _count(stack: Stack) -> int:
    url = f"{stack.url}/v1/tables/{TABLE}/extract"
    answer = httpx.post(url, json={"columns": ["app_id"]}, headers={"Accept": MEDIA["arrow"]}, timeout=120)
    return sum(batch.num_rows for batch in pa.ipc.open_stream(answer.content))


def _peak_mb(server: Command) -> int:
    """The largest resident memory of any of the server's processes, over its life."""
    processes = psutil.Process(server.process.pid).children(recursive=True)
    status = [Path(f"/proc/{process.pid}/status").read_text() for process in processes]
    peaks = [int(text.split("VmHWM:")[1].split()[0]) for text in status if "VmHWM:" in text]
    return max(peaks) // 1024


if __name__ == "__main__":
    main()
