"""One JSON object's fields as columns, with those of the objects inside it that columns have paths into.

msgspec reads each object straight into its columns. What it refuses is read a second time, field by field:
that tells which column is wrong, and lets the last of duplicate names win where an earlier one has another
type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import msgspec

from thermocline.rules.column_types import ColumnType
from thermocline.rules.decode.formats import Refusals
from thermocline.rules.decode.json_reasons import said_of
from thermocline.rules.definition import Column
from thermocline.rules.nested_types import Convert, nullable

__all__ = ["REFUSALS", "JsonObject"]

REFUSALS: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""What reading a text raises that is not as it should be."""

_NULL: Final = msgspec.Raw(b"null")


class JsonObject:
    """Reads objects of one shape: the paths of columns, from ``depth`` on, say which fields they have."""

    def __init__(self, columns: Sequence[Column], required: Sequence[str], depth: int = 0) -> None:
        """Prepares for objects with these columns, of which some must not be null."""
        self.columns = tuple(columns)
        self._path = ".".join(columns[0].read_from[:depth]) if columns else ""
        self.is_required = any(column.name in required for column in columns)
        by_name: dict[str, list[Column]] = {}
        for column in columns:
            by_name.setdefault(column.read_from[depth], []).append(column)
        self._fields = [
            _Field.of(some, required, depth, f"c{number}") for number, some in enumerate(by_name.values())
        ]
        rename = {field.attribute: name for field, name in zip(self._fields, by_name, strict=True)}
        self.struct = msgspec.defstruct(
            "Object",
            [
                (field.attribute, field.type)
                if field.is_required
                else (field.attribute, field.type, _NULL if field.type is msgspec.Raw else None)
                for field in self._fields
            ],
            rename=rename,
            gc=False,
            kw_only=True,
        )
        raw = msgspec.defstruct("RawObject", [(name, msgspec.Raw, _NULL) for name in rename], rename=rename)
        self._decode = msgspec.json.Decoder(self.struct).decode
        self._decode_raw = msgspec.json.Decoder(raw).decode

    def read(self, texts: Sequence[bytes], refused: Refusals) -> dict[str, list[Any]]:
        """One list of natural values per column, aligned with the texts; refused texts give anything."""
        objects: list[Any] = []
        decoding = map(self._decode, texts)
        while len(objects) < len(texts):
            try:
                objects.extend(decoding)  # what comes before one that is refused is kept
            except REFUSALS:
                index = len(objects)
                objects.append(self._read_by_field(index, texts[index], refused))
        return self.columns_of(objects, refused)

    def columns_of(self, objects: Sequence[Any], refused: Refusals) -> dict[str, list[Any]]:
        """The columns of objects as the decoder gives them, None where there is none."""
        found: dict[str, list[Any]] = {}
        has_all = None not in objects
        for field in self._fields:
            get = field.get
            values = list(map(get, objects)) if has_all else [one and get(one) for one in objects]
            if field.inner is not None and not field.is_shared:
                found |= field.inner.columns_of(values, refused)
                continue
            for column in field.columns:
                read = field.read_again(column, values, refused) if field.is_shared else values
                found[column.name] = _converted(column, read, refused)
            if field.inner is not None:
                found |= field.inner.columns_of(field.inner.read_again(values, refused), refused)
        return found

    def _read_by_field(self, index: int, text: bytes, refused: Refusals) -> Any:
        """The object, or None where it is refused."""
        try:
            raw = self._decode_raw(text)
        except REFUSALS as error:
            refused[index] = (None, f"not one JSON object: {said_of(error)}")
            return None
        values = {}
        for field in self._fields:
            token = field.get(raw)
            try:
                values[field.attribute] = field.decode(token)
            except REFUSALS as error:
                if field.inner is not None and not field.is_shared:
                    values[field.attribute] = field.inner.read_inner(index, token, refused)
                    if index not in refused:
                        continue
                else:
                    refused[index] = (field.columns[0], _reason(field.columns[0], error))
                return None
        return self.struct(**values)

    def read_inner(self, index: int, token: msgspec.Raw, refused: Refusals) -> Any:
        """An object inside another one; null is none, unless a column in it is required."""
        if bytes(token) == b"null" and not self.is_required:
            return None
        inner: Refusals = {}
        read = self._read_by_field(index, bytes(token), inner)
        for column, reason in inner.values():
            at_fault, why = (column, reason) if column else (self.columns[0], f"{self._path}: {reason}")
            refused.setdefault(index, (at_fault, why))
        return read

    def read_again(self, tokens: Sequence[Any], refused: Refusals) -> list[Any]:
        """Objects from tokens that are read for others, too."""
        return [
            None if token is None else self.read_inner(index, token, refused)
            for index, token in enumerate(tokens)
        ]


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of an object: a column's value, an object with others, or, if shared, several of these."""

    attribute: str
    type: Any
    is_required: bool
    is_shared: bool
    columns: tuple[Column, ...]
    inner: JsonObject | None
    get: Callable[[Any], Any]
    decode: Callable[[msgspec.Raw], Any]
    required: frozenset[str]

    @classmethod
    def of(cls, columns: Sequence[Column], required: Sequence[str], depth: int, attribute: str) -> _Field:
        """What columns whose paths agree up to here make of the next name."""
        own = tuple(column for column in columns if len(column.read_from) == depth + 1)
        others = [column for column in columns if column not in own]
        inner = JsonObject(others, required, depth + 1) if others else None
        is_shared = len(own) + (inner is not None) > 1
        type_: Any = msgspec.Raw
        is_required = not is_shared and any(column.name in required for column in columns)
        if not is_shared and inner is not None:
            type_ = inner.struct if is_required else inner.struct | None
        elif not is_shared:
            type_ = _parsed_type(own[0].type, is_required)
        decoder = msgspec.json.Decoder(type_)
        names = frozenset(column.name for column in own if column.name in required)
        return cls(
            attribute, type_, is_required, is_shared, own, inner, attrgetter(attribute), decoder.decode, names
        )

    def read_again(self, column: Column, tokens: Sequence[Any], refused: Refusals) -> list[Any]:
        """A column's values from tokens that are read for others, too."""
        decode = msgspec.json.Decoder(_parsed_type(column.type, column.name in self.required)).decode
        values: list[Any] = []
        for index, token in enumerate(tokens):
            try:
                values.append(None if token is None else decode(token))
            except REFUSALS as error:
                refused.setdefault(index, (column, _reason(column, error)))
                values.append(None)
        return values


def _parsed_type(type_: ColumnType, required: bool) -> Any:
    """What msgspec checks and gives for a column's JSON value."""
    parsed = type_.parsed
    return parsed if required else nullable(parsed)


def _converted(column: Column, values: list[Any], refused: Refusals) -> list[Any]:
    convert = column.type.convert
    if convert is None:
        return values
    try:
        return [None if value is None else convert(value) for value in values]
    except REFUSALS:
        return [_convert_one(column, convert, index, value, refused) for index, value in enumerate(values)]


def _convert_one(column: Column, convert: Convert, index: int, value: Any, refused: Refusals) -> Any:
    try:
        return None if value is None else convert(value)
    except REFUSALS as error:
        refused.setdefault(index, (column, _reason(column, error)))
        return None


def _reason(column: Column, error: BaseException) -> str:
    return f"{column.name} ({column.type}): {said_of(error)}"
