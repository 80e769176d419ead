"""Fields that no column is read from, of what the batches of a table met: in its properties, metrics, log."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from thermocline.iceberg.catalog import UNREAD_COUNTS_PROPERTY, UNREAD_PROPERTY
from thermocline.ingest.owner.measures import SAMPLED_VALUES, UNREAD_FIELDS
from thermocline.process.logs import fields
from thermocline.rules.decode.unread import NAMES_MAX, OTHER, Sampled, UnreadFields, bounded
from thermocline.rules.unread_counts import UnreadCounts

if TYPE_CHECKING:
    from thermocline.ingest.batch.read_task import ReadReport
    from thermocline.rules.definition import LiveTable

__all__ = ["UnreadNames"]

_logger = logging.getLogger(__name__)


class UnreadNames:
    """The names that were met, and in how many values; see `UnreadCounts`.

    What a batch met counts once it has landed: a batch that is rejected is read again.
    """

    def __init__(self, definition: LiveTable, properties: Mapping[str, str]) -> None:
        """What the table's properties have."""
        self._definition = definition
        self._is_read = UnreadFields(definition).is_read
        self._counts = UnreadCounts.of_json(properties.get(UNREAD_COUNTS_PROPERTY, ""))
        self._names: list[str] = json.loads(properties.get(UNREAD_PROPERTY, "[]"))
        self._labels: set[str] = set()  # of the metric, which keeps them for as long as the process lives
        self._met = Sampled()
        self._next = self._counts

    def follow(self, definition: LiveTable) -> None:
        """What batches meet from now on is of that one."""
        self._definition = definition
        self._is_read = UnreadFields(definition).is_read

    def met(self, reports: Iterable[ReadReport], now_ms: int) -> dict[str, str]:
        """What a batch met; the properties to commit with it, if it has values that were looked at."""
        values, names = 0, Counter[str]()
        for report in reports:
            values += report.sampled_values
            names.update(report.unread_fields)
        self._met = Sampled(values, bounded(names, list(self._counts.names)))
        self._next = self._counts.with_sampled(self._met, self._definition.version, now_ms, self._is_read)
        if not values:
            return {}
        shown = json.dumps(sorted(self._next.names))  # what earlier releases read
        return {UNREAD_PROPERTY: shown, UNREAD_COUNTS_PROPERTY: self._next.to_json()}

    def landed(self) -> None:
        """That batch has landed."""
        table = self._definition.name
        SAMPLED_VALUES.labels(table).inc(self._met.values)
        for name, count in self._met.names.items():
            # safety: unread-metric-bounded
            label = name if name in self._labels or len(self._labels) < NAMES_MAX else OTHER
            self._labels.add(label)
            UNREAD_FIELDS.labels(table, label).inc(count)
        new = [name for name in self._next.names if name not in self._names]
        self._counts, self._met = self._next, Sampled()
        self._names = list(self._next.names)
        if new:
            shown = ", ".join(json.dumps(name, ensure_ascii=False) for name in new)
            text = "values have fields that no column is read from"
            _logger.info(text, extra=fields(table=table, fields=shown))
