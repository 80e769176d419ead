"""The metrics of a server: what all its workers counted, and the state of its tables at this moment.

Counters and histograms live in files that the workers share (prometheus_client's multiprocess mode, switched
on by the server before it starts them). Gauges are set when they are asked for, by the worker that is asked.
"""

from __future__ import annotations

import asyncio
import os
from bisect import bisect_left
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from thermocline.process import metrics

if TYPE_CHECKING:
    from prometheus_client.core import Metric

MULTIPROCESS_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
# What was answered the short way is counted this late at most; of a worker's last moment it is not.
TALLY_SECONDS: Final = 0.1

EXTRACT_ROWS: Final = Counter(
    "thermocline_extract_rows", "Rows sent by extracts.", ("table",), registry=metrics.REGISTRY
)
ROWS_FOUND: Final = Counter(
    "thermocline_rows_found",
    "What a data file has of an entity, taken from the store of rows that the workers share.",
    ("table",),
    registry=metrics.REGISTRY,
)
ROWS_READ: Final = Counter(
    "thermocline_rows_read",
    "The same, read from the data file, since the store did not have it.",
    ("table",),
    registry=metrics.REGISTRY,
)
ROWS_EVICTED: Final = Counter(
    "thermocline_rows_evicted_bytes",
    "Bytes on disk that the store of rows let go of, to stay below its size.",
    ("table",),
    registry=metrics.REGISTRY,
)
ROWS_AHEAD: Final = Counter(
    "thermocline_rows_ahead",
    "Rows of data files that were made ready to send before anybody asked for them.",
    ("table",),
    registry=metrics.REGISTRY,
)
ROWS_WARMED: Final = Counter(
    "thermocline_rows_warmed",
    "Entities asked for lately that were read again before a worker moved to the next snapshot.",
    ("table",),
    registry=metrics.REGISTRY,
)
EXTRACTS: Final = Counter(
    "thermocline_extracts",
    "Streamed extracts that are over, by outcome: complete, broken off, or refused as too many waited.",
    ("table", "outcome"),
    registry=metrics.REGISTRY,
)
EXTRACT_WAIT_SECONDS: Final = Histogram(
    "thermocline_extract_wait_seconds",
    "How long streamed extracts waited for others before them.",
    buckets=(0.1, 1, 5, 15, 60, 300),
    registry=metrics.REGISTRY,
)
EXTRACT_JOBS: Final = Gauge(
    "thermocline_extract_jobs",
    "Extract jobs that are kept, by state.",
    ("table", "state"),
    registry=metrics.REGISTRY,
)
HOT_RECORDS: Final = Gauge(
    "thermocline_hot_records", "Records in the hot tier.", ("table",), registry=metrics.REGISTRY
)
HOT_GENERATIONS: Final = Gauge(
    "thermocline_hot_generations", "Generations of the hot tier.", ("table",), registry=metrics.REGISTRY
)
HOT_BYTES_MAX: Final = Gauge(
    "thermocline_hot_bytes_max",
    "What the table's hot tier may take on disk; at it, the tailer pauses.",
    ("table",),
    registry=metrics.REGISTRY,
)
CATALOG_PROBLEM: Final = Gauge(
    "thermocline_catalog_problem",
    "1 where the table's newest snapshot could not be asked for or taken up, else 0.",
    ("table",),
    registry=metrics.REGISTRY,
)
STALE: Final = Gauge(
    "thermocline_stale", "1 where answers are marked stale, else 0.", ("table",), registry=metrics.REGISTRY
)
PAUSED: Final = Gauge(
    "thermocline_tailer_paused",
    "1 where the tailer waits for room in its byte budget, else 0.",
    ("table",),
    registry=metrics.REGISTRY,
)


class Tally:
    """Answers that are added up in memory first: counting takes three writes to shared files.

    For one thread, in which an event loop runs.
    """

    def __init__(self, seconds: metrics.BatchedHistogram, answers: Counter) -> None:
        """With the histogram of their times, and what counts them."""
        self._seconds = seconds
        self._bounds = seconds.upper_bounds
        self._answers = answers
        self._begin()

    def _begin(self) -> None:
        self._counts = [0] * len(self._bounds)
        self._total = 0.0

    def add(self, seconds: float) -> None:
        """One answer, which took so long."""
        if not self._total:
            asyncio.get_running_loop().call_later(TALLY_SECONDS, self.count)
        self._total += seconds
        self._counts[bisect_left(self._bounds, seconds)] += 1

    def count(self) -> None:
        """Counts all that were added since the last time."""
        counts, total = self._counts, self._total
        self._begin()
        self._seconds.observe_all(counts, total)
        self._answers.inc(sum(counts))


def render() -> bytes:
    """All metrics in Prometheus's text format; those of a single process where there are no other workers."""
    if MULTIPROCESS_FOLDER not in os.environ:
        return metrics.render()
    registry = CollectorRegistry()
    registry.register(_OverWorkers())
    return generate_latest(registry)


class _OverWorkers(Collector):
    def collect(self) -> Iterable[Metric]:
        counted = MultiProcessCollector(None).collect()  # type: ignore[no-untyped-call]
        yield from (metric for metric in counted if metric.type != "gauge")
        yield from (metric for metric in metrics.REGISTRY.collect() if metric.type == "gauge")
