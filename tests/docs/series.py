"""The series that Prometheus has of Thermocline, taken from the metrics that the code declares."""

from __future__ import annotations

import re
from itertools import chain

from prometheus_client.metrics import MetricWrapperBase

from thermocline.ingest.owner import measures as ingest_measures
from thermocline.maintenance import measures as maintenance_measures
from thermocline.process import metrics
from thermocline.serving.store import measures

NAME = re.compile(r"\bthermocline_\w+")
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}


def series() -> dict[str, tuple[str, ...]]:
    """What a PromQL expression can name, with its labels."""
    found = [
        value
        for module in (metrics, measures, ingest_measures, maintenance_measures)
        for value in vars(module).values()
    ]
    named: dict[str, tuple[str, ...]] = {}
    for metric in found:
        if isinstance(metric, MetricWrapperBase):
            (described,) = metric.describe()
            named |= {described.name + end: metric._labelnames for end in SUFFIXES[described.type]}
    collected = (metrics.SEAM_OFFSET, metrics.END_OFFSET, metrics.USAGE)
    for family in chain.from_iterable(one.describe() for one in collected):
        end = "_total" if family.type == "counter" else ""
        named[family.name + end] = family._labelnames  # type: ignore[attr-defined]
    return named


SERIES = series()
