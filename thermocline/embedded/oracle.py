"""What a table must hold: a plain replay, into a dict, of what the broker acknowledged.

It shares no code with ``decode``, ``keys`` and ``fold``, so that a mistake in those can't hide here.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Message

from thermocline.seam import Seam

__all__ = ["Acknowledged", "Oracle", "Row", "RowKey"]

RowKey = tuple[int, str, str]
Row = dict[str, Any]


class Acknowledged(NamedTuple):
    """A record that the broker has."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes | None


class Oracle:
    """Remembers what was acknowledged, and says which rows that comes to.

    ``newest`` is the last record acknowledged; ``refused`` says why the broker did not take one, in which
    case nobody knows what the topic holds. One thread feeds it; any may ask.
    """

    def __init__(self) -> None:
        self._records: dict[tuple[str, int], list[Acknowledged]] = defaultdict(list)
        self.newest: Acknowledged | None = None
        self.refused = ""

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        """The producer's delivery callback."""
        if error is not None:
            self.refused = error.str()
            return
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        key = message.key()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        assert isinstance(key, bytes)
        value = message.value()
        assert value is None or isinstance(value, bytes)
        self.acknowledge(Acknowledged(topic, partition, offset, message.timestamp()[1], key, value))

    def acknowledge(self, record: Acknowledged) -> None:
        """Remembers a record."""
        self._records[record.topic, record.partition].append(record)
        self.newest = record

    def __len__(self) -> int:
        """How many records were acknowledged."""
        return sum(map(len, list(self._records.values())))

    @property
    def end(self) -> Seam:
        """The next offset of each partition, after the records acknowledged."""
        ends = {place: max(record.offset for record in held) + 1 for place, held in self._held().items()}
        return Seam(ends)

    def rows(self, end: Seam | Mapping[tuple[str, int], int] | None = None) -> dict[RowKey, Row]:
        """The rows by key, as of the given next offset of each partition, or of all that was acknowledged.

        A row holds all declared columns; ``updated_at`` is a datetime in UTC.
        """
        rows: dict[RowKey, Row] = {}
        for place, held in self._held().items():
            for record in sorted(held, key=lambda record: record.offset):
                if end is None or record.offset < end.get(place, 0):
                    _apply(rows, record)
        return rows

    def _held(self) -> dict[tuple[str, int], list[Acknowledged]]:
        """A copy that the feeding thread doesn't change meanwhile."""
        return {place: list(held) for place, held in list(self._records.items())}


def _apply(rows: dict[RowKey, Row], record: Acknowledged) -> None:
    names = json.loads(record.key)
    key = (names["app_id"], names["user_id"], names["key"])
    if record.value is None:
        rows.pop(key, None)
        return
    fields = json.loads(record.value)
    updated_at = datetime.fromisoformat(fields["updated_at"])
    rows[key] = {**names, "value": fields["value"], "updated_at": updated_at}
