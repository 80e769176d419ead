"""What `thermocline verify` takes for a table of a given size: seconds and memory.

.venv/bin/python -m benchmarks.verify --rows 2000000
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from itertools import islice
from pathlib import Path
from typing import Any

import psutil

from benchmarks._report import report, say
from benchmarks._table import KEYS_PER_USER, filled, write
from thermocline.dev.stack import TABLE, Stack
from thermocline.dev.workload import Workload

POLL_SECONDS = 0.05


def verified(stack: Stack, *options: str) -> dict[str, Any]:
    """Run the command; its seconds, its peak memory and what it compared."""
    started = time.monotonic()
    words = [
        sys.executable,
        "-m",
        "thermocline",
        "--config",
        str(stack.config_path),
        "verify",
        TABLE,
        "--json",
    ]
    with subprocess.Popen([*words, *options], stdout=subprocess.PIPE) as process:
        peak = [0]

        def watch() -> None:
            while process.poll() is None:
                try:
                    peak[0] = max(peak[0], psutil.Process(process.pid).memory_info().rss)
                except psutil.NoSuchProcess:
                    return
                time.sleep(POLL_SECONDS)

        thread = threading.Thread(target=watch)
        thread.start()
        output = process.communicate()[0]
        thread.join()
    document = json.loads(output)
    assert document["agrees"], document["differences"]
    figures = {
        "seconds": round(time.monotonic() - started, 1),
        "peak_mib": peak[0] >> 20,
        "log_records": document["log"]["records"],
        "rows": document["rows"]["live"],
        "extract_rows": document["read_paths"]["extract_rows"],
    }
    say(f"  {' '.join(options) or 'all'}: {figures}")
    return figures


def main() -> None:
    """Fill a table, change a part of it beyond the seam, and verify it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stack = filled(Path(folder), arguments.rows, arguments.seed)
        try:
            workload = Workload(arguments.seed, arguments.rows // KEYS_PER_USER, KEYS_PER_USER)
            write(stack, islice(workload, arguments.rows // 10))
            figures = {
                "all": verified(stack),
                "all_64_mb": verified(stack, "--memory-mb", "64"),
                "sample_1000": verified(stack, "--sample", "1000"),
            }
        finally:
            stack.stop()
    report("verify", arguments.seed, {"rows": arguments.rows, **figures})


if __name__ == "__main__":
    main()
