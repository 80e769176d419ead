"""Fields that no column is read from, of what the batches of a table met: in its properties, metrics, log."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from thermocline.iceberg.catalog import UNREAD_PROPERTY
from thermocline.ingest.owner.measures import UNREAD_FIELDS
from thermocline.process.logs import fields
from thermocline.rules.decode.unread import NAMES_MAX, OTHER, bounded

if TYPE_CHECKING:
    from thermocline.ingest.batch.read_task import ReadReport

__all__ = ["UnreadNames"]

_logger = logging.getLogger(__name__)


class UnreadNames:
    """The names that were met so far, at most `NAMES_MAX`; see `rules.decode.unread`."""

    def __init__(self, table: str, properties: Mapping[str, str]) -> None:
        """Those that the table's properties have."""
        self._table = table
        self._known: list[str] = json.loads(properties.get(UNREAD_PROPERTY, "[]"))

    def met(self, reports: Iterable[ReadReport]) -> dict[str, str]:
        """Takes up what a batch met; the properties to commit, where it met new names."""
        counts: Counter[str] = Counter()
        for report in reports:
            counts.update(report.unread_fields)
        found = bounded(counts, self._known)
        for name, count in found.items():
            UNREAD_FIELDS.labels(self._table, name).inc(count)
        new = [name for name in found if name not in self._known and name != OTHER]
        new = new[: NAMES_MAX - len(self._known)]
        if not new:
            return {}
        self._known += new
        names = ", ".join(json.dumps(name, ensure_ascii=False) for name in new)
        _logger.info(
            "values have fields that no column is read from", extra=fields(table=self._table, fields=names)
        )
        return {UNREAD_PROPERTY: json.dumps(self._known)}
