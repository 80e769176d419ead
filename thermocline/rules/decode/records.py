"""Records of one live table: an envelope takes them apart, a format reads the parts, one rule judges them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress
from typing import Any, Final

from thermocline.rules.decode.envelopes import Envelope, Parts, Rows
from thermocline.rules.decode.fields import needed_fields, without_fields
from thermocline.rules.decode.formats import UNSET, Documents, Format, Refusals, SchemaSource
from thermocline.rules.decode.framing import KEY_HEADER, VALUE_HEADER, HeadOf, heads_in
from thermocline.rules.decode.json_reasons import reason_of_column, reason_of_document
from thermocline.rules.decode.plain import header_reader, read_topic
from thermocline.rules.decode.record import Bad, Decoded, Stage, given_topic, left_out, too_large
from thermocline.rules.definition import EMPTY_FORMATS, JSON_FORMATS, Column, LiveTable
from thermocline.rules.headers import HeadersOf, HeadersUnreadable, last_header, no_headers

__all__ = ["RecordDecoder"]

_EMPTY_KEYS: Final = (*EMPTY_FORMATS, "string", "bytes")
"""Formats in which a key without bytes is one: an empty text, as StringSerializer writes it, or no bytes."""


class RecordDecoder:
    """Reads a live table's records; see `Decoder`."""

    def __init__(
        self,
        definition: LiveTable,
        envelope: Envelope,
        key_format: Format,
        value_format: Format,
        row_format: Format,
        schemas: SchemaSource,
    ) -> None:
        """Prepares the readers of both parts, and of what stands around a row.

        ``row_format`` reads values that are rows, ``value_format`` parts of any value.
        """
        self._definition = definition
        self._envelope = envelope
        self._key = key_format(schemas.of_keys(), definition.key)
        self._value = row_format(schemas.of_values(), definition.key)
        self._has_key_documents = bool(schemas.of_keys())
        self._from_headers = [column for column in definition.columns if column.header]
        self._from_topic = [column for column in definition.columns if column.topic]
        ordering = [column for column in definition.merging.order_columns if column.event or column.is_in_row]
        others = [column for column in definition.columns if column.event and column not in ordering]
        # Of a delete, the columns that order it are read although it has no row; by themselves, since a
        # format may give none of an event's columns where one is wrong.
        self._beside = [value_format(some, ()) for some in (others, ordering) if some]
        # Formats with schemas tell it as they read.
        self._needed_fields = needed_fields(definition) if definition.format in JSON_FORMATS else {}

    def decode(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers_of: HeadersOf = no_headers,
        topic: str | None = None,
    ) -> Decoded:
        """Decodes records given as aligned raw keys and values; see `Decoder`."""
        without = too_large(self._definition, keys, values)
        if without:
            keys, values = left_out(keys, without), left_out(values, without)
        headers_of = _noting_unreadable(headers_of, without)
        opened = self._envelope.open(keys, values, headers_of)
        bad: dict[int, Bad] = {}
        value_head_of = opened.value_head_of or heads_in(headers_of, VALUE_HEADER)
        rows = self._read_values(opened, value_head_of, bad)
        absent = dict(opened.absent)
        if self._definition.merging.is_partial:
            absent |= _nulls_for_unset(rows.columns)
        columns = rows.columns
        if self._has_key_documents:
            columns |= self._keys(opened, headers_of, bad)
        columns |= self._read_headers(opened, headers_of, bad)
        for column in self._from_topic:
            columns[column.name] = self._read_topic(column, given_topic(topic), opened.deletes, bad)
        for documents in self._beside:
            self._read_beside(documents, opened, columns, bad, value_head_of)
        _refuse_nulls(self._definition.merging.order_columns, columns, bad)
        bad.update((one.index, one) for one in opened.bad)  # what is no row at all needs no key
        bad |= without
        _add_keys(self._definition.key, columns, bad)
        columns = {column.name: columns[column.name] for column in self._definition.columns}
        decoded = _without_bad(columns, opened.deletes, bad)
        if not self._definition.merging.is_partial:
            return decoded
        return replace(decoded, absent=[absent.get(index, ()) for index in decoded.good])

    def _read_values(self, opened: Parts, head_of: HeadOf, bad: dict[int, Bad]) -> Rows:
        """The columns of the values; notes the bad ones."""
        rows = opened.rows or self._rows(opened.values, head_of)
        for index, (column, reason) in rows.refused.items():
            said = self._in_words(opened.values[index], column, reason, is_value=True)
            bad[index] = Bad(index, self._stage_of(column), said)
        if self._needed_fields:
            for index, reason in without_fields(self._needed_fields, opened.values, rows):
                bad.setdefault(index, Bad(index, Stage.CONTRACT, reason))
        for index, reason in opened.unreadable.items():
            bad[index] = Bad(index, Stage.DECODE, reason)
        return rows

    def _read_headers(
        self, opened: Parts, headers_of: HeadersOf, bad: dict[int, Bad]
    ) -> dict[str, list[Any]]:
        columns: dict[str, list[Any]] = {}
        for column in self._from_headers:
            is_ordering = column.name in self._definition.merging.ordered_by
            unread = [False] * len(opened.deletes) if is_ordering else opened.deletes
            columns[column.name] = _from_header(column, unread, headers_of, bad)
        return columns

    def _read_topic(
        self, column: Column, topic: str, deletes: Sequence[bool], bad: dict[int, Bad]
    ) -> list[Any]:
        """A column's values, all the same; where the topic's name has none, records that need it are bad."""
        needed = (*self._definition.key, *self._definition.merging.ordered_by)
        is_read = [column.name in needed or not deleted for deleted in deletes]
        value = None
        try:
            value = read_topic(column, topic)
        except ValueError as error:
            stage, why = self._stage_of(column), f"{column.name} ({column}): {error}"
            for index in compress(range(len(deletes)), is_read):  # safety: topic-without-value
                bad.setdefault(index, Bad(index, stage, why))
        return [value if one else None for one in is_read]

    def _rows(self, values: Sequence[bytes | None], head_of: HeadOf) -> Rows:
        refused: Refusals = {}
        return Rows(self._value.read(values, refused, head_of), refused)

    def _keys(self, opened: Parts, headers_of: HeadersOf, bad: dict[int, Bad]) -> dict[str, list[Any]]:
        refused: Refusals = {}
        keys, head_of = opened.keys, opened.key_head_of or heads_in(headers_of, KEY_HEADER)
        columns = self._key.read(keys, refused, head_of)
        for index, (column, reason) in refused.items():
            said = self._in_words(keys[index], column, reason, is_value=False)
            bad[index] = Bad(index, Stage.KEY, said)
        may_be_empty = self._definition.key_format in _EMPTY_KEYS
        for index, key in () if all(keys) else enumerate(keys):
            if key is None or not (key or may_be_empty):  # safety: empty-key
                why = "the record has no key" if key is None else "the record's key is empty"
                bad[index] = Bad(index, Stage.KEY, why)
        return columns

    def _in_words(self, text: bytes | None, column: Column | None, reason: str, is_value: bool) -> str:
        """Why a part is refused, in the words of whoever wrote it."""
        setting = "format" if is_value else "key_format"
        if text is None or getattr(self._definition, setting) != "json":
            return reason
        if column is None:
            return reason_of_document(text, reason, setting, is_value)
        return reason_of_column(text, column, reason)

    def _read_beside(
        self,
        documents: Documents,
        opened: Parts,
        columns: dict[str, list[Any]],
        bad: dict[int, Bad],
        head_of: HeadOf,
    ) -> None:
        """The columns that are read from what stands around a row, and of deletes those that order them."""
        refused: Refusals = {}
        events = opened.events or [None] * len(opened.values)
        for name, values in documents.read(events, refused, head_of).items():
            known = columns.setdefault(name, [None] * len(values))
            for index, event in enumerate(events):
                if event is not None:
                    known[index] = values[index]
        ordering = self._definition.merging.ordered_by
        for index, (column, reason) in refused.items():
            # Nothing of a delete counts but its key and what orders it.
            # safety: a-delete-needs-no-row
            if not opened.deletes[index] or column is None or column.name in ordering:
                bad.setdefault(index, Bad(index, self._stage_of(column), reason))

    def _stage_of(self, column: Column | None) -> Stage:
        if column is None:
            return Stage.DECODE
        return Stage.KEY if column.name in self._definition.key else Stage.CONTRACT


def _noting_unreadable(headers_of: HeadersOf, bad: dict[int, Bad]) -> HeadersOf:
    """The same headers; a record whose headers are asked for and can't be read is bad."""

    def noting(index: int) -> Sequence[tuple[str, bytes | None]] | None:
        try:
            return headers_of(index)
        except HeadersUnreadable as error:
            bad[index] = Bad(index, Stage.DECODE, str(error))
            return None

    return noting


def _nulls_for_unset(columns: dict[str, list[Any]]) -> dict[int, tuple[str, ...]]:
    """Puts null in the place of what is not set; gives the names of these columns by index."""
    absent: dict[int, tuple[str, ...]] = {}
    for name, values in columns.items():
        if UNSET not in values:
            continue
        for index, value in enumerate(values):
            if value is UNSET:
                absent[index] = (*absent.get(index, ()), name)
                values[index] = None
    return absent


def _refuse_nulls(ordering: Sequence[Column], columns: dict[str, list[Any]], bad: dict[int, Bad]) -> None:
    """Records that don't say where they stand in the order; also deletes."""
    for column in ordering:
        for index, value in enumerate(columns[column.name]):
            if value is None and index not in bad:  # safety: sequence-null
                why = f"{column.name} ({column.type}): missing, and it orders the table's records"
                bad[index] = Bad(index, Stage.CONTRACT, why)


def _from_header(
    column: Column, unread: Sequence[bool], headers_of: HeadersOf, bad: dict[int, Bad]
) -> list[Any]:
    """A column's values from the last header of its name; null where there is none, and of what is unread."""
    values: list[Any] = []
    read = header_reader(column.type)
    for index, is_unread in enumerate(unread):
        content = None if is_unread or index in bad else last_header(headers_of(index), column.header)
        try:
            values.append(None if content is None else read(content))
        except ValueError as error:
            bad[index] = Bad(index, Stage.CONTRACT, f"{column.name} ({column}): {error}")
            values.append(None)
    return values


def _add_keys(names: Sequence[str], columns: dict[str, list[Any]], bad: dict[int, Bad]) -> None:
    """Says of bad records which key they are of, where it could be read."""
    for index, one in bad.items() if names else ():
        key = tuple(columns[name][index] for name in names)
        if one.stage is not Stage.KEY and not any(value is None for value in key):
            bad[index] = replace(one, key=key)


def _without_bad(columns: dict[str, list[Any]], tombstones: list[bool], bad: dict[int, Bad]) -> Decoded:
    good = list(range(len(tombstones)))
    if bad:
        kept = [index not in bad for index in good]
        good, tombstones = list(compress(good, kept)), list(compress(tombstones, kept))
        columns = {name: list(compress(values, kept)) for name, values in columns.items()}
    return Decoded(good, columns, tombstones, [bad[index] for index in sorted(bad)])
