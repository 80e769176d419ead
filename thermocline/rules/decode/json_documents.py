"""JSON documents: one JSON object each, read by the record rule.

The rule stands in docs/architecture.md, "The record rule (JSON)".

msgspec reads each document straight into its columns. What it refuses is read a second time, column by
column: that tells which column is wrong, and lets the last of duplicate names win where an earlier one has
another type. What it lets through although the rule does not is caught here: invalid UTF-8 in fields that no
column asks for, and documents nested more deeply, or with longer names, than every reader of JSON can follow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Any, Final

import msgspec

from thermocline.rules.column_types import ColumnType
from thermocline.rules.decode.formats import Refusals
from thermocline.rules.definition import Column

__all__ = ["NESTING_MAX", "JsonDocuments"]

NESTING_MAX: Final = 500
"""Levels of arrays and objects. Parsers that recurse give up near 1,000, sooner when called from deep below;
a record must be good or bad regardless of who reads it."""
NAME_LENGTH_MAX: Final = 50_000
"""Of a field's name, in UTF-16 code units. Jackson, by which Trino reads, takes no longer ones."""

_NULL: Final = msgspec.Raw(b"null")
# One that never ends lasts to the end of the text: else each of its quotes would be tried as a beginning.
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
_STRING_AND_COLON: Final = re.compile(b"(" + _STRING.pattern + rb")(\s*:)?", re.DOTALL)
_STEPS: Final = [(byte in b"[{") - (byte in b"]}") for byte in range(256)]
_REFUSALS: Final = (msgspec.MsgspecError, ValueError, RecursionError)


class JsonDocuments:
    """Reads JSON objects into columns; see `Documents`."""

    empty = b"{}"

    def __init__(self, columns: Sequence[Column], required: Sequence[str]) -> None:
        """Prepares for documents with these columns, of which some must not be null."""
        self._columns = columns
        fields = [f"c{index}" for index in range(len(columns))]
        names = dict(zip(fields, (column.name for column in columns), strict=True))
        types = [_parsed_type(column.type, column.name in required) for column in columns]
        self._row = msgspec.defstruct(
            "Row",
            [
                (field, type_)
                if column.name in required
                else (field, type_, _NULL if type_ is msgspec.Raw else None)
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
    """What msgspec checks and gives for a column's JSON value."""
    parsed = type_.entry.parsed
    return parsed if required or parsed is msgspec.Raw else parsed | None


def _converted(column: Column, values: list[Any], refused: Refusals) -> list[Any]:
    convert, type_ = column.type.entry.convert, column.type
    if convert is None:
        return values
    try:
        return [None if value is None else convert(value, type_) for value in values]
    except _REFUSALS:
        return [_convert_one(column, convert, index, value, refused) for index, value in enumerate(values)]


def _convert_one(
    column: Column, convert: Callable[[Any, ColumnType], Any], index: int, value: Any, refused: Refusals
) -> Any:
    try:
        return None if value is None else convert(value, column.type)
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
