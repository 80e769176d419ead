"""The metrics of a process, in base units (seconds, bytes, records).

All are named ``thermocline_*``, but for those of processes, which have Prometheus's own names.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from thermocline.process.usage import Usage

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from thermocline.rules.headroom import Standing
    from thermocline.rules.seam import Seam

REGISTRY: Final = CollectorRegistry()
USAGE: Final = Usage()
REGISTRY.register(USAGE)
CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

# From a hot lookup (about 0.1 ms) to a request that waits for Thermocline-Read-After (10 s).
_REQUEST_SECONDS: Final = (0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0)
_PLACE: Final = ("table", "topic", "partition")


class BatchedHistogram(Histogram):
    """A histogram that also takes many observations at once."""

    @property
    def upper_bounds(self) -> Sequence[float]:
        """Of its buckets, ascending; the last one is infinite."""
        return self._upper_bounds

    def observe_all(self, counts: Sequence[int], total: float) -> None:
        """Adds as many observations to each bucket; ``total`` is the sum of what was observed."""
        self._sum.inc(total)
        for bucket, count in zip(self._buckets, counts, strict=True):
            if count:
                bucket.inc(count)


class OffsetGauge(Collector):
    """An offset of each partition of each table; those of a topic that left its table are not among them."""

    def __init__(self, name: str, documentation: str) -> None:
        self._name, self._documentation = name, documentation
        self._of_table: dict[str, Seam] = {}
        REGISTRY.register(self)

    def set(self, table: str, offsets: Seam) -> None:
        """A table's offsets, all of them."""
        self._of_table[table] = offsets

    def describe(self) -> Iterable[Metric]:
        """The same without values."""
        return [GaugeMetricFamily(self._name, self._documentation, labels=_PLACE)]

    def collect(self) -> Iterable[Metric]:
        """One sample for each partition."""
        family = GaugeMetricFamily(self._name, self._documentation, labels=_PLACE)
        for table, offsets in list(self._of_table.items()):
            for topic, partition, offset in offsets.items():
                family.add_metric((table, topic, str(partition)), offset)
        return [family]


REQUESTS: Final = Counter(
    "thermocline_requests",
    "Answered HTTP requests, by table (empty if it concerns none), method, route and status.",
    ("table", "method", "route", "status"),
    registry=REGISTRY,
)
REQUEST_SECONDS: Final = BatchedHistogram(
    "thermocline_request_seconds",
    "Time from a request's arrival to the first byte of its answer, in seconds.",
    ("route",),
    buckets=_REQUEST_SECONDS,
    registry=REGISTRY,
)
AGE_SECONDS: Final = Gauge(
    "thermocline_age_seconds",
    "Seconds since the table's worst partition was last known to be read up to its end.",
    ("table",),
    registry=REGISTRY,
)
INGEST_LAG_SECONDS: Final = Gauge(
    "thermocline_ingest_lag_seconds",
    "Age of the oldest record that is not committed, by the record's own time, in seconds; 0 if none waits. "
    "Looked at every 15 seconds, by ingest and by servers; NaN while it is not known.",
    ("table",),
    registry=REGISTRY,
)
HEADROOM_SECONDS: Final = Gauge(
    "thermocline_headroom_seconds",
    "Time until the broker may drop a record that is not committed, in seconds. Exported by ingest and by "
    "servers; NaN if nothing drops records, or it is not known.",
    ("table",),
    registry=REGISTRY,
)
RETENTION_SECONDS: Final = Gauge(
    "thermocline_retention_seconds",
    "Time for which the limit behind thermocline_headroom_seconds keeps a new record, in seconds.",
    ("table",),
    registry=REGISTRY,
)
SEAM_OFFSET: Final = OffsetGauge(
    "thermocline_seam_offset",
    "First offset of the partition that the served snapshot does not contain (its seam).",
)
END_OFFSET: Final = OffsetGauge(
    "thermocline_end_offset",
    "First offset of the partition that has not been read from the log yet.",
)
HOT_BYTES: Final = Gauge(
    "thermocline_hot_bytes",
    "Size on disk of the records that are not committed yet, in bytes.",
    ("table",),
    registry=REGISTRY,
)
BAD_RECORDS: Final = Gauge(
    "thermocline_bad_records",
    "Records read since the tailer started that do not match the table's definition, by stage.",
    ("table", "stage"),
    registry=REGISTRY,
)
_STANDING: Final = {
    "ingest_lag_seconds": INGEST_LAG_SECONDS,
    "headroom_seconds": HEADROOM_SECONDS,
    "retention_seconds": RETENTION_SECONDS,
}
VIEWS_REPLACED: Final = Counter(
    "thermocline_views_replaced",
    "Views created or replaced in Trino.",
    ("table",),
    registry=REGISTRY,
)
VIEW_FAILURES: Final = Counter(
    "thermocline_view_failures",
    "Failed attempts to publish the table's views, by error code.",
    ("table", "code"),
    registry=REGISTRY,
)
VIEWS_AGE_SECONDS: Final = Gauge(
    "thermocline_views_age_seconds",
    "Seconds since the table's views were last known to show its newest snapshot.",
    ("table",),
    registry=REGISTRY,
)


def show_standing(table: str, standing: Standing, now_ms: int) -> None:
    """Sets the gauges of a table's lag and headroom; what is not known is NaN, which fires no alert."""
    show_standing_as(table, standing.document(now_ms))


def show_standing_as(table: str, said: Mapping[str, object]) -> None:
    """The same, from `rules.headroom.Standing.document`."""
    for name, gauge in _STANDING.items():
        value = said.get(name)
        gauge.labels(table).set(value if isinstance(value, int | float) else math.nan)


def forget_standing(table: str) -> None:
    """Nobody in this process looks at it any more. Not in a process that shares its metrics with others."""
    for gauge in _STANDING.values():
        gauge.remove_by_labels({"table": table})


def render() -> bytes:
    """All metrics of this process in Prometheus's text format (``CONTENT_TYPE``)."""
    return generate_latest(REGISTRY)
