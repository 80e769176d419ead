"""What every benchmark prints: one line of JSON with the machine, the versions, the seed and the figures."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import psutil

PACKAGES = ("thermocline-lake", "pyspark", "pyiceberg", "pyarrow", "duckdb", "confluent-kafka", "lmdb")


def report(name: str, seed: int, figures: Mapping[str, Any]) -> None:
    """Print the line; figures carry their unit at the end of their names."""
    document = {
        "benchmark": name,
        "seed": seed,
        "figures": figures,
        "machine": _machine(),
        "versions": _versions(),
    }
    print(json.dumps(document))


def say(text: str) -> None:
    """What is going on, for a person; results are on stdout alone."""
    print(text, file=sys.stderr, flush=True)


def percentiles_ms(seconds: Sequence[float]) -> dict[str, float]:
    """p50 and p99 in milliseconds."""
    ranked = sorted(seconds)
    return {
        "p50_ms": round(statistics.median(ranked) * 1000, 3),
        "p99_ms": round(ranked[min(int(len(ranked) * 0.99), len(ranked) - 1)] * 1000, 3),
    }


def cpu_seconds() -> float:
    """Of this process and all below it but the broker; workers that end in between are missed."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    total = 0.0
    for process in processes:
        try:
            if "kafka.Kafka" not in process.cmdline():
                times = process.cpu_times()
                total += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return total


def _machine() -> dict[str, Any]:
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "load_1min": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
    }


def _versions() -> dict[str, str]:
    return {package: importlib.metadata.version(package) for package in PACKAGES}
