"""Every benchmark runs: its sizes are tiny here, so that its figures say nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SIZES = {
    "access": "--rows 20000 --seconds 1 --rounds 1",
    "busy": "--minutes 0.2 --stock-minutes 0.2 --rows 20000 --rate 200",
    "commits": "--rows 20000 --commits 4 --records 200",
    "day": "--rows 5000 --commits 6 --records 100",
    "decode": "--records 1000 --rounds 1",
    "extract": "--rows 20000",
    "freshness": "--rate 200 --seconds 3",
    "hot": "--records 20000 --cycles 1 --seconds 1",
    "hour": "--minutes 0.5 --windows 2 --rows 20000 --rate 200 --commit-seconds 5 --engine local",
    "ingest": "--records 2000",
    "lake": "--rows 20000 --latency-ms 1 --seconds 1",
    "live": "--rows 20000 --hot 500 1000",
    "lookup": "--rows 20000 --seconds 1",
    "measure": "--files 200 --buckets 4",
    "merge": "--rows 20000 --batches 500",
    "one_topic": "--tables 1 3 --seconds 1 --samples 2",
    "policy": "--hours 1",
    "rewrite": "--rows 20000",
    "shared_scans": "--records 2000 --few 2 --many 3 --round-records 60",
    "tables": "--tables 2 --records 20",
    "verify": "--rows 20000",
    "views": "--rows 20000 --hot 1000 --queries 2 --scans 1 --changes 2 --seconds-max 10 --trino-gb 2",
    "watched": "--tables 2 --records 5 --viewers 2 --workers 2 --seconds 2 --rounds 1",
}
FOLDER = Path(__file__).parents[2] / "benchmarks"
WITH_TRINO = {"views"}
TIMEOUT_SECONDS = 900.0


def test_each_benchmark_is_run_here() -> None:
    assert SIZES.keys() == {path.stem for path in FOLDER.glob("[a-z]*.py")}


def _marked(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.trino if name in WITH_TRINO else pytest.mark.jvm)


@pytest.mark.full
@pytest.mark.parametrize("name", [_marked(name) for name in SIZES])
def test_a_benchmark_runs_and_prints_one_line_of_figures(name: str) -> None:
    command = [sys.executable, "-m", f"benchmarks.{name}", *SIZES[name].split()]
    done = subprocess.run(
        command, cwd=FOLDER.parent, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_SECONDS, check=True
    )
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    assert found["benchmark"] == name
    assert found["figures"]
