"""Debezium's change events in JSON: the row after a change, or that it is gone.

Source: Debezium reference documentation, "Change events" of the PostgreSQL and MySQL connectors; Kafka
Connect's JsonConverter, which puts each document beside its schema where ``schemas.enable`` is on.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from hashlib import md5
from typing import Any, Final
from uuid import UUID

import msgspec

from thermocline.rules.decode.absent import with_nulls
from thermocline.rules.decode.envelopes import Parts
from thermocline.rules.decode.json_object import REFUSALS
from thermocline.rules.decode.record import Bad, HeadersOf, Stage
from thermocline.rules.definition import Column, LiveTable

__all__ = ["UNAVAILABLE", "DebeziumEnvelope"]

UNAVAILABLE: Final = "__debezium_unavailable_value"
"""What stands in place of a large value that the change left alone, and the database did not log."""
# Of an array of integers it is the numbers of its bytes, of one of UUIDs the UUID that Java makes of it.
# Source: Debezium, ``UnchangedToastedPlaceholder`` of the PostgreSQL connector.
_UNAVAILABLE_NUMBERS: Final = list(UNAVAILABLE.encode())
_UNAVAILABLE_UUID: Final = UUID(bytes=md5(UNAVAILABLE.encode(), usedforsecurity=False).digest(), version=3)
_UNAVAILABLE_TEXTS: Final = frozenset(
    {UNAVAILABLE, base64.b64encode(UNAVAILABLE.encode()).decode(), str(_UNAVAILABLE_UUID)}
)
_UNAVAILABLE_BYTES: Final = (
    *(text.encode() for text in _UNAVAILABLE_TEXTS),
    ",".join(map(str, _UNAVAILABLE_NUMBERS)).encode(),
)
_NOT_THERE: Final = "the change did not touch this value, and the event does not have it"
_UPSERTS: Final = frozenset({"c", "r", "u"})  # created, read by a snapshot, updated
_DELETE: Final = "d"
_TRUNCATE: Final = "t"
_NULL: Final = msgspec.Raw(b"null")


class _Event(msgspec.Struct):
    """A change event, or, with its schema, one inside ``payload``."""

    op: str | None = None
    after: msgspec.Raw = _NULL
    payload: msgspec.Raw = _NULL


class DebeziumEnvelope:
    """Takes change events apart; see `Envelope`. What is no change of one row is bad."""

    def __init__(self, definition: LiveTable) -> None:
        """For the records of that table, which has its key in the record's key."""
        self._columns = [column for column in definition.value_columns if not column.header]
        self._is_partial = definition.partial_updates
        self._event = msgspec.json.Decoder(_Event).decode
        self._document = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
        # A key of the database may have such names itself.
        in_key = {column.read_from[0] for column in definition.key_columns}
        self._may_have_schema = in_key.isdisjoint({"schema", "payload"})

    def open(self, keys: Sequence[bytes | None], values: Sequence[bytes | None], _: HeadersOf) -> Parts:
        """See `Envelope`."""
        rows: list[bytes | None] = []
        deletes: list[bool] = []
        bad: list[Bad] = []
        absent: dict[int, tuple[str, ...]] = {}
        for index, value in enumerate(values):
            row, problem = self._row(value) if value else (None, None)
            if row is not None and (missing := self._missing(row)):
                if self._is_partial:
                    absent[index] = tuple(column.name for column in missing)
                    row = with_nulls(row, [column.read_from for column in missing])
                else:
                    row, problem = None, (Stage.CONTRACT, f"{missing[0].name}: {_NOT_THERE}")
            if problem is not None:
                bad.append(Bad(index, *problem))
            rows.append(row)
            deletes.append(row is None and problem is None)
        in_order = [self._key(key) for key in keys] if self._may_have_schema else keys
        return Parts(in_order, rows, deletes, bad, absent)

    def _row(self, value: bytes) -> tuple[bytes | None, tuple[Stage, str] | None]:
        """The row after the change, None where it is gone; and what is wrong."""
        try:
            event = self._event(value)
            if event.op is None and bytes(event.payload) != b"null":
                event = self._event(event.payload)
        except REFUSALS as error:
            return None, (Stage.DECODE, f"not a change event: {error}")
        if event.op == _DELETE:
            return None, None
        if event.op == _TRUNCATE:
            return None, (Stage.DECODE, "TRUNCATE is no change of one row: the rows stay")
        if event.op not in _UPSERTS:
            return None, (Stage.DECODE, "not a change event: op is none of c, r, u, d, t")
        row = bytes(event.after)
        if row == b"null":
            return None, (Stage.DECODE, f"a change event with op {event.op}, and without the row after it")
        return row, None

    def _missing(self, row: bytes) -> list[Column]:
        """The columns whose value is not there; most rows are told at a glance to have all."""
        if any(text in row for text in _UNAVAILABLE_BYTES):  # safety: debezium-unavailable
            return list(self._unavailable(row))
        return []

    def _unavailable(self, row: bytes) -> Iterator[Column]:
        try:
            fields = msgspec.json.decode(row, type=dict[str, Any])
        except REFUSALS:  # which the format says better
            return
        for column in self._columns:
            found: Any = fields
            for name in column.read_from:
                found = found.get(name) if isinstance(found, Mapping) else None
            if _is_unavailable(found):
                yield column

    def _key(self, key: bytes | None) -> bytes | None:
        """The key, without its schema where it has one."""
        if not key:
            return key
        try:
            fields = self._document(key)
        except REFUSALS:
            return key
        return bytes(fields["payload"]) if fields.keys() == {"schema", "payload"} else key


def _is_unavailable(found: Any) -> bool:
    """Whether a value is the placeholder, or an array or a map that holds it."""
    if isinstance(found, Mapping):
        found = list(found.values())
    if isinstance(found, list):
        return found == _UNAVAILABLE_NUMBERS or any(map(_is_unavailable, found))  # safety: debezium-arrays
    return isinstance(found, str) and found in _UNAVAILABLE_TEXTS
