"""Debezium's change events: the row after a change, or that it is gone.

In JSON, an event's bytes have those of the row. In other formats, event and row are read at once, the row by
paths into the event.

Source: Debezium reference documentation, "Change events" of the PostgreSQL and MySQL connectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress
from typing import Any, Final, NamedTuple

import msgspec

from thermocline.rules.column_types import ColumnType, Kind
from thermocline.rules.decode.absent import with_nulls
from thermocline.rules.decode.envelopes import Parts, Rows
from thermocline.rules.decode.formats import PRESENCE, UNSET, Format, Refusals
from thermocline.rules.decode.framing import VALUE_HEADER, heads_in
from thermocline.rules.decode.json_documents import refused_as_a_whole
from thermocline.rules.decode.json_object import REFUSALS
from thermocline.rules.decode.json_reasons import said_of
from thermocline.rules.decode.record import Bad, Stage
from thermocline.rules.decode.unavailable import Unavailable
from thermocline.rules.definition import EMPTY_FORMATS, Column, LiveTable
from thermocline.rules.headers import HeadersOf

__all__ = ["DebeziumEnvelope", "JsonDebeziumEnvelope"]

_NOT_THERE: Final = "the change did not touch this value, and the event does not have it"
_UPSERTS: Final = frozenset({"c", "r", "u"})  # created, read by a snapshot, updated
_UPDATE: Final = "u"
_DELETE: Final = "d"
_TRUNCATE: Final = "t"
_NULL: Final = msgspec.Raw(b"null")
_AFTER: Final = "after"
_OP: Final = "_op"  # no column has such a name


class _Event(msgspec.Struct):
    """A change event."""

    op: str | None = None
    after: msgspec.Raw = _NULL


class _Opened(NamedTuple):
    """The row after an event, None where it is gone; the change; and what is wrong."""

    row: bytes | None = None
    op: str | None = None
    problem: tuple[Stage, str] | None = None


class JsonDebeziumEnvelope:
    """Takes change events in JSON apart; see `Envelope`. What is no change of one row is bad.

    So is one that makes a row, after a change of its key, without a value which that left alone: the row that
    has the value has another key.
    """

    def __init__(self, definition: LiveTable) -> None:
        """For the records of that table, which has its key in the record's key."""
        self._columns = [column for column in definition.value_columns if column.is_in_row]
        self._is_partial = definition.merging.is_partial
        self._event = msgspec.json.Decoder(_Event).decode
        self._unavailable = Unavailable(definition)

    def open(self, keys: Sequence[bytes | None], values: Sequence[bytes | None], _: HeadersOf) -> Parts:
        """See `Envelope`."""
        rows: list[bytes | None] = []
        deletes: list[bool] = []
        bad: list[Bad] = []
        absent: dict[int, tuple[str, ...]] = {}
        values = [value or None for value in values]
        refused = dict(refused_as_a_whole([value or b"" for value in values]))
        for index, value in enumerate(values):
            row, op, problem = self._opened(value, refused.get(index)) if value else _Opened()
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
        return Parts(keys, rows, deletes, bad, absent, values)

    def _opened(self, value: bytes, refused: str | None) -> _Opened:
        if refused:
            return _Opened(problem=(Stage.DECODE, f"not a change event: {refused}"))
        try:
            event = self._event(value)
        except REFUSALS as error:
            return _Opened(problem=(Stage.DECODE, f"not a change event: {said_of(error)}"))
        row = bytes(event.after)
        problem = _problem(event.op, row != b"null")
        if problem or event.op == _DELETE:
            return _Opened(op=event.op, problem=(Stage.DECODE, problem) if problem else None)
        return _Opened(row, event.op)

    def _missing(self, row: bytes) -> list[Column]:
        """The columns whose value is not there; most rows are told at a glance to have all."""
        if not self._unavailable.may_be_in(row):  # safety: debezium-unavailable
            return []
        return [
            column
            for column in self._columns
            if self._unavailable.is_value(_value_at(msgspec.Raw(row), column.read_from))
        ]


def _value_at(document: msgspec.Raw, path: Sequence[str]) -> Any:
    """What is at a path, whatever else the document holds; None where nothing can be read."""
    try:
        for name in path:
            document = msgspec.json.decode(document, type=dict[str, msgspec.Raw]).get(name, _NULL)
        return msgspec.json.decode(document)
    except REFUSALS:  # which the format says better
        return None


class DebeziumEnvelope:
    """Takes change events apart that are in any other format, and reads their rows; see `Envelope`."""

    def __init__(self, definition: LiveTable, value_format: Format) -> None:
        """For the records of that table, whose values are in a format."""
        self._may_be_empty = definition.format in EMPTY_FORMATS
        self._is_partial = definition.merging.is_partial
        columns = [column for column in definition.value_columns if column.is_in_row]
        self._unavailable = Unavailable(definition)
        self._watched = [column for column in columns if self._unavailable.watches(column.type)]
        op = Column(_OP, ColumnType(Kind.STRING), 0, ("op",))
        after = Column(PRESENCE, ColumnType(Kind.JSON), 0, (_AFTER,))
        inside = [replace(column, path=(_AFTER, *column.read_from)) for column in columns]
        self._events = value_format([op, after, *inside], ())

    def open(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], headers_of: HeadersOf
    ) -> Parts:
        """See `Envelope`."""
        if not self._may_be_empty:
            values = [value or None for value in values]
        refused: Refusals = {}
        found = self._events.read(values, refused, heads_in(headers_of, VALUE_HEADER))
        ops, present = found.pop(_OP), found.pop(PRESENCE)
        deletes: list[bool] = []
        bad: list[Bad] = []
        for index, (value, op, after) in enumerate(zip(values, ops, present, strict=True)):
            problem = _refused_event(refused.get(index)) or _problem(op, after is not None)
            if value is not None and problem:
                bad.append(Bad(index, Stage.DECODE, problem))
            deletes.append(value is None or (op == _DELETE and not problem))
        rows = _of_upserts(found, refused, deletes)
        self._mark_unavailable(rows, ops)
        return Parts(keys, values, deletes, bad, events=values, rows=rows)

    def _mark_unavailable(self, rows: Rows, ops: Sequence[str | None]) -> None:
        """Refuses rows that lack a value; with partial updates, an update leaves the value as it is."""
        for column in self._watched:
            for index in self._unavailable.places(column.type, rows.columns[column.name]):
                if self._is_partial and ops[index] == _UPDATE:  # safety: debezium-unavailable-new-typed
                    rows.columns[column.name][index] = UNSET
                else:
                    rows.refused.setdefault(index, (column, f"{column.name}: {_NOT_THERE}"))


def _refused_event(refusal: tuple[Column | None, str] | None) -> str:
    """Why what is no part of the row can't be read; empty where it can."""
    if refusal is None:
        return ""
    column, why = refusal
    return why if column is None or column.name == _OP else ""


def _of_upserts(columns: dict[str, list[Any]], refused: Refusals, deletes: Sequence[bool]) -> Rows:
    """The rows without those of deletes, of which nothing counts but the key."""
    for index in compress(range(len(deletes)), deletes):
        refused.pop(index, None)
        for values in columns.values():
            values[index] = None
    return Rows(columns, refused)


def _problem(op: str | None, has_row: bool) -> str:
    """Why an event is no change of one row; empty where it is one."""
    if op == _TRUNCATE:
        return "TRUNCATE is no change of one row: the rows stay"
    if op == _DELETE:
        return ""
    if op not in _UPSERTS:
        return "not a change event: op is not one of c, r, u, d, t"
    return "" if has_row else f"a change event with op {op}, and without the row after it"
