"""Envelopes: they tell a record's key from its value, and whether it deletes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from thermocline.rules.column_types import ColumnType, Kind
from thermocline.rules.decode.absent import AbsentColumns
from thermocline.rules.decode.formats import Format, Refusals
from thermocline.rules.decode.framing import VALUE_HEADER, HeadOf, heads_in
from thermocline.rules.decode.record import Bad, Stage
from thermocline.rules.definition import (
    EMPTY_FORMATS,
    JSON_FORMATS,
    ONE_COLUMN,
    Column,
    DeleteRule,
    LiveTable,
)
from thermocline.rules.headers import HeadersOf, last_header

__all__ = ["Envelope", "Parts", "PlainEnvelope", "Rows"]

_OP: Final = "_op"
_OP_IS: Final = f"{_OP} (string): "
"""What the format says of it, as of a column: nobody has one of this name."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The columns of values that are read, aligned with the records, and what was refused of them."""

    columns: dict[str, list[Any]]
    refused: Refusals


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of records, aligned with them; a value is None where there is nothing to read.

    ``bad`` are those that say nothing that a table of that definition could take. ``absent``, by index: the
    names of the columns that a record leaves as they are; with partial updates alone. ``events`` are what is
    read beside the row: the change events, or the values of records that a rule calls deletes. ``rows``: what
    values have, where taking them apart has read them whole. ``unreadable``: why a value is none of its
    format. ``key_head_of`` and ``value_head_of`` give the schemas of documents that had them beside them;
    without these, headers may name some.
    """

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    deletes: list[bool]
    bad: list[Bad]
    absent: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    events: Sequence[bytes | None] = ()
    rows: Rows | None = None
    unreadable: Mapping[int, str] = field(default_factory=dict)
    key_head_of: HeadOf | None = None
    value_head_of: HeadOf | None = None


class Envelope(Protocol):
    """Takes records apart."""

    def open(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], headers_of: HeadersOf
    ) -> Parts:
        """The parts of aligned raw keys and values. Never raises for what they hold."""
        ...


class PlainEnvelope:
    """Key and value as they are. No value deletes, where the key says which row, or what a rule says.

    An empty value is none where it could not be one; a body of Avro without bytes is one if a header names
    its schema.
    """

    def __init__(self, definition: LiveTable, value_format: Format) -> None:
        """For the records of that table, whose values are in a format."""
        self._can_delete = definition.key_from == "key"
        self._may_be_empty = definition.format in (*ONE_COLUMN, *EMPTY_FORMATS)
        self._may_be_named = definition.format == "avro"
        # Whose row a tombstone is about would stand in the value.
        self._stage = Stage.KEY if definition.has_key else Stage.DECODE
        self._rule = definition.delete_when
        path = self._rule.path if self._rule is not None else ()
        in_value = [column for column in definition.value_columns if column.is_in_row]
        # Formats with schemas tell it as they read.
        is_json = definition.format in JSON_FORMATS
        self._absent = AbsentColumns(in_value) if definition.merging.is_partial and is_json else None
        self._op = value_format([Column(_OP, ColumnType(Kind.STRING), 0, path)], ()) if path else None

    def open(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], headers_of: HeadersOf
    ) -> Parts:
        """See `Envelope`."""
        if not self._may_be_empty and not all(values):
            values = [
                value if value or self._is_named(value, headers_of, index) else None
                for index, value in enumerate(values)
            ]
        bad: list[Bad] = []
        events: Sequence[bytes | None] = ()
        if not self._can_delete:
            empty = (index for index, value in enumerate(values) if value is None)
            bad = [Bad(index, self._stage, "the value is empty") for index in empty]  # safety: empty-value
        if self._rule is not None:
            events, values, bad = self._deleted(self._rule, values, headers_of)
        deletes = [value is None for value in values]
        return Parts(keys, values, deletes, bad, self._left_out(values), events)

    def _deleted(
        self, rule: DeleteRule, values: Sequence[bytes | None], headers_of: HeadersOf
    ) -> tuple[Sequence[bytes | None], Sequence[bytes | None], list[Bad]]:
        """The values that delete by the rule, the others, and the records of which it can't be told."""
        refused: Refusals = {}
        ops = self._ops(rule, values, headers_of, refused)
        is_deleted = [op in rule.values for op in ops]  # safety: delete-rule
        events = [value if gone else None for value, gone in zip(values, is_deleted, strict=True)]
        others = [None if gone else value for value, gone in zip(values, is_deleted, strict=True)]
        # What can't be read at all, the format says.
        bad = [
            Bad(index, Stage.CONTRACT, f"delete_when ({'.'.join(rule.path)}): {why.removeprefix(_OP_IS)}")
            for index, (_, why) in refused.items()
        ]
        return events, others, bad

    def _left_out(self, values: Sequence[bytes | None]) -> dict[int, tuple[str, ...]]:
        """The columns that each value leaves out, where it leaves out any."""
        if self._absent is None:
            return {}
        of = self._absent.of
        return {
            index: names for index, value in enumerate(values) if value is not None and (names := of(value))
        }

    def _is_named(self, value: bytes | None, headers_of: HeadersOf, index: int) -> bool:
        """Whether a header says what an empty value is a body of."""
        if value is None or not self._may_be_named:
            return False
        return last_header(headers_of(index), VALUE_HEADER) is not None  # safety: avro-empty-body

    def _ops(
        self, rule: DeleteRule, values: Sequence[bytes | None], headers_of: HeadersOf, refused: Refusals
    ) -> list[str | None]:
        """What each record says that it does; None where it says nothing."""
        if self._op is not None:
            found: Refusals = {}
            head_of = heads_in(headers_of, VALUE_HEADER)
            ops: list[str | None] = self._op.read(values, found, head_of)[_OP]
            refused |= {index: one for index, one in found.items() if one[0] is not None}
            return [None if index in found else op for index, op in enumerate(ops)]
        said = [last_header(headers_of(index), rule.header) for index in range(len(values))]
        return [None if one is None else one.decode(errors="replace") for one in said]
