"""Extracts over HTTP: whole, in part, with a hot overlay of a tenth of the rows, and what changed.

In the same run, what others take to give the same rows.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psutil
import pyarrow as pa

from benchmarks._extract_peers import extracts_of_peers
from benchmarks._report import report, say
from benchmarks._table import KEYS_PER_USER, filled, write
from benchmarks.lookup import lag
from thermocline.dev.stack import TABLE, Command, Stack
from thermocline.dev.workload import Workload

ROUNDS = 3
MEDIA = {
    "arrow": "application/vnd.apache.arrow.stream",
    "parquet": "application/vnd.apache.parquet",
    "csv": "text/csv",
    "jsonl": "application/x-ndjson",
}
Body = dict[str, Any]
WHOLE: Body = {}
TEXTS = ("csv", "jsonl")
# An entity, of ten rows, and the rows with a value, each of a row that the table has.
CONDITIONS = {"key_prefix": "app_id = {app_id} AND user_id = '{user_id}'", "value": "value = '{value}'"}


def main() -> None:
    """Run it and print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--trino", action="store_true", help="ask Trino's client, too")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trino_gb = 2 if options.trino else 0
        with filled(Path(folder), options.rows, options.seed, trino_gb=trino_gb) as stack:
            server = stack.serve()
            stack.wait_until_ready(server)
            figures: dict[str, Any] = {"rows": options.rows}
            for name in MEDIA:
                figures[f"cold_{name}"] = _extracts(stack, name)
            point = _read_point(stack)
            figures["others_rows_per_second"] = extracts_of_peers(stack, options.rows, options.seed)
            hot = options.rows // 10
            write(
                stack, islice(Workload(options.seed + 1, options.rows // KEYS_PER_USER, KEYS_PER_USER), hot)
            )
            stack.wait_for(lambda: lag(stack) == 0, "the tailer has read all", server)
            figures["hot_records"] = hot
            for name in MEDIA:
                figures[f"overlaid_{name}"] = _extracts(stack, name)
            for name in TEXTS:
                rates = [figures[f"overlaid_{one}"]["rows_per_second"] for one in (name, "arrow")]
                figures[f"{name}_to_arrow"] = round(rates[0] / rates[1], 3)
            figures["since"] = _extracts(stack, "arrow", {"since": point})
            (row,) = _table(stack, {"limit": 1, "where": "value IS NOT NULL"}).to_pylist()
            for name, condition in CONDITIONS.items():
                figures[f"where_{name}"] = _extracts(stack, "arrow", {"where": condition.format(**row)})
            figures["server_peak_mb"] = _peak_mb(server)
        cold, overlaid = (
            figures["cold_arrow"]["rows_per_second"],
            figures["overlaid_arrow"]["rows_per_second"],
        )
        figures["overlay_slowdown"] = round(cold / overlaid - 1, 3)
    report("extract", options.seed, figures)


def _extracts(stack: Stack, name: str, body: Body = WHOLE) -> dict[str, float]:
    """The best of a few rounds: the stream is read and thrown away, as a client with a quick disk would."""
    seconds = [seconds_of_extract(stack, name, body) for _ in range(ROUNDS)]
    rows = _table(stack, body | {"columns": ["app_id", "user_id", "key"]}).num_rows
    say(f"  {name} {body or ''}: {rows:,} rows in {min(seconds):.2f} s")
    return {"seconds": round(min(seconds), 2), "rows_per_second": round(rows / min(seconds)), "rows": rows}


def _read_point(stack: Stack) -> Any:
    url = f"{stack.url}/v1/tables/{TABLE}/extract"
    answer = httpx.post(url, json={"limit": 0}, headers={"Accept": MEDIA["arrow"]}, timeout=120)
    return msgspec.json.decode(answer.raise_for_status().headers["Thermocline-Read-Point"])


def seconds_of_extract(stack: Stack, name: str, body: Body = WHOLE) -> float:
    """One extract as a stream that is thrown away."""
    began = time.perf_counter()
    url = f"{stack.url}/v1/tables/{TABLE}/extract"
    headers = {"Accept": MEDIA[name], "Accept-Encoding": "identity"}
    with httpx.stream("POST", url, json=body, headers=headers, timeout=120) as answer:
        answer.raise_for_status()
        for _ in answer.iter_raw(1 << 20):
            pass
    return time.perf_counter() - began


def _table(stack: Stack, body: Body) -> pa.Table:
    url = f"{stack.url}/v1/tables/{TABLE}/extract"
    answer = httpx.post(url, json=body, headers={"Accept": MEDIA["arrow"]}, timeout=120)
    return pa.ipc.open_stream(answer.raise_for_status().content).read_all()


def _peak_mb(server: Command) -> int:
    """The largest resident memory of any of the server's processes, over its life."""
    processes = psutil.Process(server.process.pid).children(recursive=True)
    status = [Path(f"/proc/{process.pid}/status").read_text() for process in processes]
    peaks = [int(text.split("VmHWM:")[1].split()[0]) for text in status if "VmHWM:" in text]
    return max(peaks) // 1024


if __name__ == "__main__":
    main()
