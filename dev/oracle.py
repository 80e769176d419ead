"""The oracle: a plain replay, into a dict, of what the broker acknowledged, which a table must equal.

It shares no code with ``decode``, ``keys`` and ``fold``, so that a mistake in those can't hide here.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Message

from thermocline.rules.seam import Seam
from thermocline.text.shown import Columns, json_form, json_text

__all__ = ["Acknowledged", "Oracle", "Row", "RowKey", "differences", "named", "row_of", "row_of_json"]

KEY = ("app_id", "user_id", "key")

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
    case nobody knows what the topic holds. Any thread may feed it, and any may ask.
    """

    def __init__(self) -> None:
        self._records: dict[tuple[str, int], list[Acknowledged]] = {}
        self._ends: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()
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
        place = (record.topic, record.partition)
        # So that no thread loses another one's record or end.
        with self._lock:
            self._records.setdefault(place, []).append(record)
            self._ends[place] = max(self._ends.get(place, 0), record.offset + 1)
        self.newest = record

    def __len__(self) -> int:
        """How many records were acknowledged."""
        return sum(map(len, list(self._records.values())))

    @property
    def end(self) -> Seam:
        """The next offset of each partition, after the records acknowledged."""
        with self._lock:
            return Seam(self._ends)

    def rows(self, end: Seam | Mapping[tuple[str, int], int] | None = None) -> dict[RowKey, Row]:
        """The rows by key, as of the given next offset of each partition, or of all that was acknowledged.

        A row holds all declared columns; ``updated_at`` is a datetime in UTC.
        """
        rows: dict[RowKey, Row] = {}
        for record in self.records():
            if end is None or record.offset < end.get((record.topic, record.partition), 0):
                key, row = row_of(record)
                if row is None:
                    rows.pop(key, None)
                else:
                    rows[key] = row
        return rows

    def records(self) -> Iterator[Acknowledged]:
        """All that was acknowledged so far: partition by partition, in the order of the offsets."""
        for held in self._held().values():
            yield from sorted(held, key=lambda record: record.offset)

    def _held(self) -> dict[tuple[str, int], list[Acknowledged]]:
        """A copy that the feeding threads don't change meanwhile."""
        return {place: list(held) for place, held in list(self._records.items())}


def row_of(record: Acknowledged) -> tuple[RowKey, Row | None]:
    """The row that a record is about, and what it becomes; None for a tombstone."""
    names = json.loads(record.key)
    key = (names["app_id"], names["user_id"], names["key"])
    if record.value is None:
        return key, None
    fields = json.loads(record.value)
    updated_at = datetime.fromisoformat(fields["updated_at"])
    return key, {**names, "value": fields["value"], "updated_at": updated_at}


def row_of_json(row: Mapping[str, Any]) -> Row:
    """A row of a JSON answer in the oracle's form."""
    return {**row, "updated_at": row["updated_at"] and datetime.fromisoformat(row["updated_at"])}


def differences(rows: Mapping[RowKey, Row], answered: Iterable[Row]) -> list[str]:
    """A sentence for each key, in order, unless exactly the oracle's rows are answered, each once."""
    found: dict[RowKey, Row] = {}
    sentences: list[str] = []
    for row in answered:
        key = (row["app_id"], row["user_id"], row["key"])
        if key in found:
            sentences.append(f"{named(key)}: answered twice, {_said(found[key])} and {_said(row)}")
        found[key] = row
    return sentences + [
        f"{named(key)}: the oracle says {_said(rows.get(key))}, the answer {_said(found.get(key))}"
        for key in sorted(rows.keys() | found.keys())
        if rows.get(key) != found.get(key)
    ]


def named(key: RowKey | tuple[int, str]) -> str:
    """A row's key, or an entity, by its columns."""
    return str(Columns(zip(KEY, key, strict=False)))


def _said(row: Row | None) -> str:
    if row is None:
        return "that there is no such row"
    return f"{json_text(row['value'])} ({json_form(row['updated_at'])})"
