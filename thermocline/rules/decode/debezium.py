"""Debezium's change events: the row after a change, or that it is gone.

In JSON, an event's bytes have those of the row. Of other formats, the row is read by paths into the event.

Source: Debezium reference documentation, "Change events" of the PostgreSQL and MySQL connectors; Kafka
Connect's JsonConverter, which puts each document beside its schema where ``schemas.enable`` is on.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import md5
from typing import Any, Final
from uuid import UUID

import msgspec

from thermocline.rules.column_types import ColumnType, Kind
from thermocline.rules.decode.absent import with_nulls
from thermocline.rules.decode.envelopes import Parts
from thermocline.rules.decode.formats import PRESENCE, Format, Refusals
from thermocline.rules.decode.framing import VALUE_HEADER, HeadOf, heads_in, no_heads
from thermocline.rules.decode.json_object import REFUSALS
from thermocline.rules.decode.payload import json_row
from thermocline.rules.decode.record import Bad, HeadersOf, Stage
from thermocline.rules.definition import Column, LiveTable

__all__ = ["UNAVAILABLE", "DebeziumEnvelope", "JsonDebeziumEnvelope", "RowAfter"]

UNAVAILABLE: Final = "__debezium_unavailable_value"
"""What stands in place of a large value that the change left alone, and the database did not log."""
# Of an array of UUIDs, the one that Java makes of the text.
# Source: Debezium, ``UnchangedToastedPlaceholder`` of the PostgreSQL connector.
_UNAVAILABLE_UUID: Final = str(
    UUID(bytes=md5(UNAVAILABLE.encode(), usedforsecurity=False).digest(), version=3)
)
_UNAVAILABLE_TEXTS: Final = frozenset({UNAVAILABLE, base64.b64encode(UNAVAILABLE.encode()).decode()})
_UNAVAILABLE_BYTES: Final = (
    *(text.encode() for text in (*_UNAVAILABLE_TEXTS, _UNAVAILABLE_UUID)),
    ",".join(map(str, UNAVAILABLE.encode())).encode(),  # of an array of numbers
)
_NOT_THERE: Final = "the change did not touch this value, and the event does not have it"
_UPSERTS: Final = frozenset({"c", "r", "u"})  # created, read by a snapshot, updated
_UPDATE: Final = "u"
_DELETE: Final = "d"
_TRUNCATE: Final = "t"
_NULL: Final = msgspec.Raw(b"null")
_AFTER: Final = "after"
_OP: Final = "_op"
# Of arrays and maps, too; an array of numbers has those of the text's bytes.
_UNAVAILABLE_SHAPES: Final[list[Any]] = [
    [_UNAVAILABLE_UUID],
    *(
        shape
        for text in sorted(_UNAVAILABLE_TEXTS)
        for shape in (text, [text], {text: text}, list(text.encode()))
    ),
]
_UNAVAILABLE_JSON: Final = frozenset(
    json.dumps(shape, separators=(",", ":")) for shape in _UNAVAILABLE_SHAPES
)
_UNAVAILABLE_VALUES: Final[dict[Kind, frozenset[Any]]] = {
    Kind.STRING: frozenset({UNAVAILABLE}),
    Kind.BINARY: frozenset({UNAVAILABLE.encode()}),
    Kind.JSON: _UNAVAILABLE_JSON,
}


class _Event(msgspec.Struct):
    """A change event, or, with its schema, one inside ``payload``."""

    op: str | None = None
    after: msgspec.Raw = _NULL
    payload: msgspec.Raw = _NULL


class JsonDebeziumEnvelope:
    """Takes change events in JSON apart; see `Envelope`. What is no change of one row is bad.

    So is one that makes a row, after a change of its key, without a value which that left alone: the row that
    has the value has another key.
    """

    def __init__(self, definition: LiveTable) -> None:
        """For the records of that table, which has its key in the record's key."""
        self._columns = [column for column in definition.value_columns if not column.header]
        self._is_partial = definition.partial_updates
        self._event = msgspec.json.Decoder(_Event).decode
        self._keys = _Keys(definition)

    def open(self, keys: Sequence[bytes | None], values: Sequence[bytes | None], _: HeadersOf) -> Parts:
        """See `Envelope`."""
        rows: list[bytes | None] = []
        deletes: list[bool] = []
        bad: list[Bad] = []
        absent: dict[int, tuple[str, ...]] = {}
        for index, value in enumerate(values):
            row, op, problem = self._row(value) if value else (None, None, None)
            if row is not None and (missing := self._missing(row)):
                if self._is_partial and op == _UPDATE:  # safety: debezium-unavailable-new
                    absent[index] = tuple(column.name for column in missing)
                    row = with_nulls(row, [column.read_from for column in missing])
                else:
                    row, problem = None, (Stage.CONTRACT, f"{missing[0].name}: {_NOT_THERE}")
            if problem is not None:
                bad.append(Bad(index, *problem))
            rows.append(row)
            deletes.append(row is None and problem is None)
        return Parts(self._keys.open(keys), rows, deletes, bad, absent)

    def _row(self, value: bytes) -> tuple[bytes | None, str | None, tuple[Stage, str] | None]:
        """The row after the change, None where it is gone; the change; and what is wrong."""
        try:
            event = self._event(value)
            if event.op is None and bytes(event.payload) != b"null":
                event = self._event(event.payload)
        except REFUSALS as error:
            return None, None, (Stage.DECODE, f"not a change event: {error}")
        row = bytes(event.after)
        problem = _problem(event.op, row != b"null")
        if problem or event.op == _DELETE:
            return None, event.op, (Stage.DECODE, problem) if problem else None
        return row, event.op, None

    def _missing(self, row: bytes) -> list[Column]:
        """The columns whose value is not there; most rows are told at a glance to have all."""
        if any(text in row for text in _UNAVAILABLE_BYTES):  # safety: debezium-unavailable
            return list(self._unavailable(row))
        return []

    def _unavailable(self, row: bytes) -> Iterator[Column]:
        for column in self._columns:
            if _value_at(msgspec.Raw(row), column.read_from) in _UNAVAILABLE_SHAPES:
                yield column


def _value_at(document: msgspec.Raw, path: Sequence[str]) -> Any:
    """What is at a path, whatever else the document holds; None where nothing can be read."""
    try:
        for name in path:
            document = msgspec.json.decode(document, type=dict[str, msgspec.Raw]).get(name, _NULL)
        return msgspec.json.decode(document)
    except REFUSALS:  # which the format says better
        return None


class DebeziumEnvelope:
    """Takes change events apart that are in any other format; see `Envelope`. `RowAfter` reads their rows."""

    def __init__(self, definition: LiveTable, value_format: Format) -> None:
        """For the records of that table, whose values are in a format."""
        self._keys = _Keys(definition)
        op = Column(_OP, ColumnType(Kind.STRING), 0, ("op",))
        after = Column(PRESENCE, ColumnType(Kind.JSON), 0, (_AFTER,))
        self._event = value_format([op, after], ())

    def open(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], headers_of: HeadersOf
    ) -> Parts:
        """See `Envelope`."""
        values = [value or None for value in values]
        refused: Refusals = {}
        found = self._event.read(values, refused, heads_in(headers_of, VALUE_HEADER))
        rows: list[bytes | None] = []
        deletes: list[bool] = []
        bad: list[Bad] = []
        for index, (value, op, after) in enumerate(zip(values, found[_OP], found[PRESENCE], strict=True)):
            problem = refused[index][1] if index in refused else _problem(op, after is not None)
            if value is not None and problem:
                bad.append(Bad(index, Stage.DECODE, problem))
            is_deleted = value is None or (op == _DELETE and not problem)
            deletes.append(is_deleted)
            rows.append(None if is_deleted else value)
        return Parts(self._keys.open(keys), rows, deletes, bad)


class RowAfter:
    """Reads the row after a change out of its event; see `Documents`."""

    def __init__(self, value_format: Format, columns: Sequence[Column], required: Sequence[str]) -> None:
        """Prepares for events in a format, whose rows have these columns."""
        inside = [replace(column, path=(_AFTER, *column.read_from)) for column in columns]
        self._documents = value_format(inside, required)
        self._columns = [
            column for column in columns if column.type.fields or column.type.kind in _UNAVAILABLE_VALUES
        ]

    def read(
        self, texts: Sequence[bytes | None], refused: Refusals, head_of: HeadOf = no_heads
    ) -> dict[str, list[Any]]:
        """See `Documents`. Refuses rows that lack a value which the change left alone."""
        found = self._documents.read(texts, refused, head_of)
        for column in self._columns:
            unavailable = _UNAVAILABLE_VALUES.get(column.type.kind, _UNAVAILABLE_JSON)
            for index, value in enumerate(found[column.name]):
                said = json_row(value).decode() if column.type.fields else value
                if said in unavailable:  # safety: debezium-unavailable-typed
                    refused.setdefault(index, (column, f"{column.name}: {_NOT_THERE}"))
        return found


def _problem(op: str | None, has_row: bool) -> str:
    """Why an event is no change of one row; empty where it is one."""
    if op == _TRUNCATE:
        return "TRUNCATE is no change of one row: the rows stay"
    if op == _DELETE:
        return ""
    if op not in _UPSERTS:
        return "not a change event: op is none of c, r, u, d, t"
    return "" if has_row else f"a change event with op {op}, and without the row after it"


class _Keys:
    """The keys of events, without their schemas where they are JSON and have one."""

    def __init__(self, definition: LiveTable) -> None:
        self._document = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
        # A key of the database may have such names itself.
        in_key = {column.read_from[0] for column in definition.key_columns}
        self._may_have_schema = definition.key_format == "json" and in_key.isdisjoint({"schema", "payload"})

    def open(self, keys: Sequence[bytes | None]) -> Sequence[bytes | None]:
        return [self._key(key) for key in keys] if self._may_have_schema else keys

    def _key(self, key: bytes | None) -> bytes | None:
        """The key, without its schema where it has one."""
        if not key:
            return key
        try:
            fields = self._document(key)
        except REFUSALS:
            return key
        return bytes(fields["payload"]) if fields.keys() == {"schema", "payload"} else key
