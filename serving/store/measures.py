"""The metrics of a server: what all its workers counted, and the state of its tables at this moment.

Counters and histograms live in files that the workers share (prometheus_client's multiprocess mode, switched
on by the server before it starts them). Gauges are set when they are asked for, by the worker that is asked.
"""

from __future__ import annotations

import asyncio
import math
import os
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from thermocline.process import metrics
from thermocline.process.usage import MULTIPROCESS_FOLDER

if TYPE_CHECKING:
    from prometheus_client.core import Metric

# What was answered the short way is counted this late at most; of a worker's last moment it is not.
TALLY_SECONDS: Final = 0.1

EXTRACT_ROWS: Final = Counter(
    "thermocline_extract_rows", "Rows sent by extracts.", ("table",), registry=metrics.REGISTRY
)
ROWS_FOUND: Final = Counter(
    "thermocline_rows_found",
    "Reads of an entity's rows in one data file, answered from the store of rows that the workers share.",
    ("table",),
    registry=metrics.REGISTRY,
)
ROWS_READ: Final = Counter(
    "thermocline_rows_read",
    "Reads of an entity's rows in one data file, answered from the file: the store of rows lacked them.",
    ("table",),
    registry=metrics.REGISTRY,
)
ROWS_EVICTED: Final = Counter(
    "thermocline_rows_evicted_bytes",
    "Bytes on disk that the store of rows deleted to stay below its maximum size.",
    ("table",),
    registry=metrics.REGISTRY,
)
ROWS_AHEAD: Final = Counter(
    "thermocline_rows_ahead",
    "Rows in data files that were made ready to send before anybody asked for them.",
    ("table",),
    registry=metrics.REGISTRY,
)
LIVE_SNAPSHOTS: Final = Counter(
    "thermocline_live_snapshots",
    "Snapshots as of now that were made for the live catalog.",
    ("table",),
    registry=metrics.REGISTRY,
)
LIVE_FILES_WRITTEN: Final = Counter(
    "thermocline_live_files_written",
    "Files that were written for the live catalog: rows, deletes, manifests and metadata.",
    ("table",),
    registry=metrics.REGISTRY,
)
LIVE_BYTES_WRITTEN: Final = Counter(
    "thermocline_live_bytes_written",
    "Bytes of the files that were written for the live catalog.",
    ("table",),
    registry=metrics.REGISTRY,
)
LIVE_FILES_REMOVED: Final = Counter(
    "thermocline_live_files_removed",
    "Files of the live catalog that were removed, since no query is expected to read them any more.",
    ("table",),
    registry=metrics.REGISTRY,
)
ROWS_WARMED: Final = Counter(
    "thermocline_rows_warmed",
    "Recently requested entities that a worker read again before it moved to the next snapshot.",
    ("table",),
    registry=metrics.REGISTRY,
)
REQUESTS_LIMITED: Final = Counter(
    "thermocline_requests_limited",
    "Requests that were refused because of a limit, by client (address, where none is known) and reason: "
    "requests, bytes, extracts or failures; connections, where an address has too many and uses all of them.",
    ("client", "reason"),
    registry=metrics.REGISTRY,
)
ADDRESS_CONNECTIONS_ENDED: Final = Counter(
    "thermocline_address_connections_ended",
    "Connections that were closed while idle, or refused, since their address had as many as it may have.",
    registry=metrics.REGISTRY,
)
CLIENT_CERTIFICATES_REFUSED: Final = Counter(
    "thermocline_client_certificates_refused",
    "Connections that ended within TLS's handshake, since the client's certificate could not be verified.",
    registry=metrics.REGISTRY,
)
EXTRACTS: Final = Counter(
    "thermocline_extracts",
    "Streamed extracts that ended, by outcome: complete, broken off, or refused (too many were waiting).",
    ("table", "outcome"),
    registry=metrics.REGISTRY,
)
EXTRACT_WAIT_SECONDS: Final = Histogram(
    "thermocline_extract_wait_seconds",
    "Time that streamed extracts waited for their turn, in seconds.",
    buckets=(0.1, 1, 5, 15, 60, 300),
    registry=metrics.REGISTRY,
)
AUDIT_RECORDS: Final = Counter(
    "thermocline_audit_records",
    "Records written to the audit log.",
    registry=metrics.REGISTRY,
)
AUDIT_LOST: Final = Counter(
    "thermocline_audit_lost",
    "Records that the audit log lacks: they waited while it could not be written, and were too many.",
    registry=metrics.REGISTRY,
)
EXTRACT_JOBS: Final = Gauge(
    "thermocline_extract_jobs",
    "Extract jobs that the server keeps, by state.",
    ("table", "state"),
    registry=metrics.REGISTRY,
)
HOT_RECORDS: Final = Gauge(
    "thermocline_hot_records", "Records in the table's hot tier.", ("table",), registry=metrics.REGISTRY
)
HOT_GENERATIONS: Final = Gauge(
    "thermocline_hot_generations",
    "Generations in the table's hot tier.",
    ("table",),
    registry=metrics.REGISTRY,
)
HOT_BYTES_MAX: Final = Gauge(
    "thermocline_hot_bytes_max",
    "Maximum size on disk of the table's hot tier, in bytes. When it is reached, the tailer pauses.",
    ("table",),
    registry=metrics.REGISTRY,
)
CATALOG_PROBLEM: Final = Gauge(
    "thermocline_catalog_problem",
    "1 if the table's newest snapshot could not be requested or taken up, else 0.",
    ("table",),
    registry=metrics.REGISTRY,
)
TAILER_LAG_SECONDS: Final = Gauge(
    "thermocline_tailer_lag_seconds",
    "Age of the oldest record that the tailer has not read, by the record's own time, in seconds; 0 if none "
    "waits. NaN while it is not known.",
    ("table",),
    registry=metrics.REGISTRY,
)
STALE: Final = Gauge(
    "thermocline_stale", "1 if answers are marked as stale, else 0.", ("table",), registry=metrics.REGISTRY
)
PAUSED: Final = Gauge(
    "thermocline_tailer_paused",
    "1 if the tailer is paused until its hot tier has room again, else 0.",
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


def measure_standing(table: str, said: Mapping[str, Any]) -> None:
    """Sets the gauges of a table's lag and headroom to what its tailer said."""
    metrics.show_standing_as(table, said)
    unread = said.get("tailer_lag_seconds")
    TAILER_LAG_SECONDS.labels(table).set(math.nan if unread is None else unread)


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
        own = [metric.name for metric in metrics.USAGE.describe()]  # it speaks for all processes
        yield from (
            metric for metric in metrics.REGISTRY.collect() if metric.type == "gauge" or metric.name in own
        )
