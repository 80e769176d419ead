"""JSON records: key and value are each one JSON object, read by the record rule.

The rule stands in docs/architecture.md, "The record rule (JSON)".

msgspec reads each document straight into its columns. What it refuses is read a second time, column by
column: that tells which column is wrong, and lets the last of duplicate names win where an earlier one has
another type. What it lets through although the rule does not is caught here: invalid UTF-8 in fields that no
column asks for, and documents nested more deeply, or with longer names, than every reader of JSON can follow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, compress
from operator import attrgetter
from typing import Annotated, Any, Final

import msgspec

from thermocline.rules import scalars
from thermocline.rules.decode.record import Bad, Decoded, Stage
from thermocline.rules.definition import Column, ColumnType, Kind, LiveTable

__all__ = ["NESTING_MAX", "JsonDecoder"]

NESTING_MAX: Final = 500
"""Levels of arrays and objects. Parsers that recurse give up near 1,000, sooner when called from deep below;
a record must be good or bad regardless of who reads it."""
NAME_LENGTH_MAX: Final = 50_000
"""Of a field's name, in UTF-16 code units. Jackson, by which Trino reads, takes no longer ones."""

_TOMBSTONE: Final = b"{}"
_NULL: Final = msgspec.Raw(b"null")
# One that never ends lasts to the end of the text: else each of its quotes would be tried as a beginning.
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
_STRING_AND_COLON: Final = re.compile(b"(" + _STRING.pattern + rb")(\s*:)?", re.DOTALL)
_STEPS: Final = [(byte in b"[{") - (byte in b"]}") for byte in range(256)]
_REFUSALS: Final = (msgspec.MsgspecError, ValueError, RecursionError)

Refusals = dict[int, tuple[Column | None, str]]
"""By input index: why a document is refused, and the column at fault unless it is the document as a whole."""


class JsonDecoder:
    """Reads a live table's JSON records."""

    def __init__(self, definition: LiveTable) -> None:
        """Prepares the readers of the documents that the definition describes."""
        self._definition = definition
        self._key_in_key = definition.key_from == "key"
        value_columns = definition.value_columns if self._key_in_key else definition.columns
        self._value = _Document(value_columns, required=definition.key)
        self._key = _Document(definition.key_columns if self._key_in_key else (), required=definition.key)

    def decode(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Decoded:
        """Decodes records given as aligned raw keys and values; see ``Decoder``."""
        tombstones = [not value for value in values]
        bad: dict[int, Bad] = {}
        columns = self._values(values, bad)
        if self._key_in_key:
            columns |= self._keys(keys, bad)
        columns = {column.name: columns[column.name] for column in self._definition.columns}
        return _without_bad(columns, tombstones, bad)

    def _values(self, values: Sequence[bytes | None], bad: dict[int, Bad]) -> dict[str, list[Any]]:
        refused: Refusals = {}
        columns = self._value.read([value or _TOMBSTONE for value in values], refused)
        for index, (column, reason) in refused.items():
            bad[index] = Bad(index, self._stage_of(column), reason)
        if not self._key_in_key:
            # Whose row a tombstone is about would stand in the value.
            stage = Stage.KEY if self._definition.has_key else Stage.DECODE
            empty = (index for index, value in enumerate(values) if not value)
            bad.update((index, Bad(index, stage, "the value is empty")) for index in empty)
        return columns

    def _keys(self, keys: Sequence[bytes | None], bad: dict[int, Bad]) -> dict[str, list[Any]]:
        refused: Refusals = {}
        columns = self._key.read([key or b"" for key in keys], refused)
        for index, (_, reason) in refused.items():
            bad[index] = Bad(index, Stage.KEY, reason if keys[index] else "the record has no key")
        return columns

    def _stage_of(self, column: Column | None) -> Stage:
        if column is None:
            return Stage.DECODE
        return Stage.KEY if column.name in self._definition.key else Stage.CONTRACT


class _Document:
    """Reads JSON objects into columns."""

    def __init__(self, columns: Sequence[Column], required: Sequence[str]) -> None:
        self._columns = columns
        fields = [f"c{index}" for index in range(len(columns))]
        names = dict(zip(fields, (column.name for column in columns), strict=True))
        types = [_parsed_type(column.type, column.name in required) for column in columns]
        self._row = msgspec.defstruct(
            "Row",
            [
                (field, type_) if column.name in required else (field, type_, _default(column.type))
                for field, type_, column in zip(fields, types, columns, strict=True)
            ],
            rename=names,
            gc=False,
            kw_only=True,
        )
        raw = msgspec.defstruct("RawRow", [(field, msgspec.Raw, _NULL) for field in fields], rename=names)
        self._row_decoder = msgspec.json.Decoder(self._row)
        self._raw_decoder = msgspec.json.Decoder(raw)
        self._column_decoders = [msgspec.json.Decoder(type_) for type_ in types]
        self._getters = [attrgetter(field) for field in fields]
        self._fields = fields
        self._nothing = self._row(**dict.fromkeys(fields))

    def read(self, texts: Sequence[bytes], refused: Refusals) -> dict[str, list[Any]]:
        """One list of natural values per column, aligned with the texts; refused texts give anything."""
        rows = self._rows(texts, refused)
        refused.update(_refused_as_a_whole(texts))
        return {
            column.name: _converted(column, list(map(getter, rows)), refused)
            for column, getter in zip(self._columns, self._getters, strict=True)
        }

    def _rows(self, texts: Sequence[bytes], refused: Refusals) -> list[Any]:
        decode = self._row_decoder.decode
        rows = []
        for index, text in enumerate(texts):
            try:
                rows.append(decode(text))
            except _REFUSALS:
                rows.append(self._read_by_column(index, text, refused))
        return rows

    def _read_by_column(self, index: int, text: bytes, refused: Refusals) -> Any:
        try:
            raw = self._raw_decoder.decode(text)
        except _REFUSALS as error:
            refused[index] = (None, f"not one JSON object: {error}")
            return self._nothing
        values = {}
        for column, field, decoder in zip(self._columns, self._fields, self._column_decoders, strict=True):
            try:
                values[field] = decoder.decode(getattr(raw, field))
            except _REFUSALS as error:
                refused[index] = (column, _reason(column, error))
                return self._nothing
        return self._row(**values)


def _parsed_type(type_: ColumnType, required: bool) -> Any:
    """What msgspec checks and gives for a column's JSON value; ``_converter`` does the rest."""
    parsed: Any = str
    if type_.kind is Kind.DECIMAL:
        return msgspec.Raw  # a float would round it
    if type_.kind is Kind.INT:
        parsed = Annotated[int, msgspec.Meta(ge=scalars.INT_RANGE[0], le=scalars.INT_RANGE[1])]
    elif type_.kind is Kind.LONG or type_.epoch:
        parsed = Annotated[int, msgspec.Meta(ge=scalars.LONG_RANGE[0], le=scalars.LONG_RANGE[1])]
    elif type_.kind is Kind.DOUBLE:
        parsed = float
    elif type_.kind is Kind.BOOLEAN:
        parsed = bool
    return parsed if required else parsed | None


def _default(type_: ColumnType) -> msgspec.Raw | None:
    return _NULL if type_.kind is Kind.DECIMAL else None


def _converter(type_: ColumnType) -> Callable[[Any], Any] | None:
    if type_.kind is Kind.DECIMAL:
        return lambda raw: _decimal(raw, type_)
    if type_.epoch is not None:
        microseconds = {"s": 1_000_000, "ms": 1_000, "us": 1}[type_.epoch]
        return lambda number: scalars.instant(number * microseconds)
    by_kind: dict[Kind, Callable[[str], Any]] = {
        Kind.DATE: scalars.calendar_date,
        Kind.TIMESTAMPTZ: scalars.timestamp,
        Kind.UUID: scalars.uuid,
        Kind.BINARY: scalars.binary,
    }
    return by_kind.get(type_.kind)


def _decimal(raw: msgspec.Raw, type_: ColumnType) -> Any:
    token = bytes(raw)
    if token == b"null":
        return None
    assert type_.precision is not None
    assert type_.scale is not None
    text = msgspec.json.decode(token, type=str) if token.startswith(b'"') else token.decode()
    return scalars.decimal(text, type_.precision, type_.scale)


def _converted(column: Column, values: list[Any], refused: Refusals) -> list[Any]:
    convert = _converter(column.type)
    if convert is None:
        return values
    try:
        return [None if value is None else convert(value) for value in values]
    except _REFUSALS:
        return [_convert_one(column, convert, index, value, refused) for index, value in enumerate(values)]


def _convert_one(
    column: Column, convert: Callable[[Any], Any], index: int, value: Any, refused: Refusals
) -> Any:
    try:
        return None if value is None else convert(value)
    except _REFUSALS as error:
        refused.setdefault(index, (column, _reason(column, error)))
        return None


def _refused_as_a_whole(texts: Sequence[bytes]) -> Iterator[tuple[int, tuple[None, str]]]:
    if not b"".join(texts).isascii():
        for index, text in enumerate(texts):
            if not _is_utf8(text):
                yield index, (None, "not UTF-8")
    for index, text in enumerate(texts):
        # Each level takes two bytes, so that a short document can't be deep.
        if len(text) > 2 * NESTING_MAX and _nesting(text) > NESTING_MAX:
            yield index, (None, f"nested more than {NESTING_MAX} levels deep")
        elif len(text) > NAME_LENGTH_MAX and _name_length(text) > NAME_LENGTH_MAX:
            yield index, (None, f"a field's name is longer than {NAME_LENGTH_MAX:,} UTF-16 code units")


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _nesting(text: bytes) -> int:
    if text.count(b"[") + text.count(b"{") <= NESTING_MAX:
        return 0
    return max(accumulate(map(_STEPS.__getitem__, _STRING.sub(b"", text))), default=0)


def _name_length(text: bytes) -> int:
    """Of the longest name; 0 where all are short, or one is none of JSON."""
    found = _STRING_AND_COLON.finditer(text)
    long = [string[1] for string in found if string[2] and string.end(1) - string.start(1) > NAME_LENGTH_MAX]
    try:
        names = [msgspec.json.decode(string, type=str) for string in long]
    except _REFUSALS:
        return 0
    return max((len(name.encode("utf-16-le")) // 2 for name in names), default=0)


def _reason(column: Column, error: BaseException) -> str:
    return f"{column.name} ({column.type}): {error}"


def _without_bad(columns: dict[str, list[Any]], tombstones: list[bool], bad: dict[int, Bad]) -> Decoded:
    good = list(range(len(tombstones)))
    if bad:
        kept = [index not in bad for index in good]
        good, tombstones = list(compress(good, kept)), list(compress(tombstones, kept))
        columns = {name: list(compress(values, kept)) for name, values in columns.items()}
    return Decoded(good, columns, tombstones, [bad[index] for index in sorted(bad)])
