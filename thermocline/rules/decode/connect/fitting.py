"""The meaning of a column's JSON value by the type that its schema declares.

A type without a name of its own says no more than JSON does, and the record rule of JSON holds. Bytes are
base64, decimals their unscaled bytes, times numbers of a unit: what a column takes of these, and what
contradicts it, is as in Avro.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from thermocline.rules import scalars
from thermocline.rules.avro_schema import VARIABLE_DECIMAL, AvroType
from thermocline.rules.column_types import TYPES, ColumnType, Kind
from thermocline.rules.connect_schema import JSON_TEXT
from thermocline.rules.decode.avro.fitting import Convert, conversion

__all__ = ["fitted_type", "with_bytes_in"]


@dataclass(frozen=True, slots=True)
class _DeclaredType(ColumnType):
    """A column's type, whose values are in JSON as a schema says."""

    read_as: Any = None
    made_by: Convert | None = None

    @property
    def parsed(self) -> Any:
        """See `ColumnType`."""
        return self.read_as

    @property
    def convert(self) -> Convert | None:
        """See `ColumnType`."""
        return self.made_by


class _Variable(msgspec.Struct):
    """A decimal that says its scale itself."""

    scale: int
    value: str


def with_bytes_in(encoding: str, to: ColumnType) -> ColumnType:
    """The column's type, for bytes that are texts in an encoding, also within it."""
    if encoding not in _ENCODINGS:
        return to
    if to.kind is Kind.BINARY:
        return _declared(to, str, _ENCODINGS[encoding])
    fields = (replace(field, type=with_bytes_in(encoding, field.type)) for field in to.fields)
    return replace(to, fields=tuple(fields)) if to.fields else to


def fitted_type(of: AvroType, to: ColumnType) -> ColumnType:
    """The column's type, or one within it, for values that are declared to be of another."""
    if to.kind is Kind.JSON:
        return _declared(to, str, _json_text) if of.logical == JSON_TEXT else to
    match to.kind, of.kind:
        case Kind.STRUCT, "record":
            known = dict(of.fields)
            fields = (
                replace(field, type=fitted_type(known[field.name], field.type))
                if field.name in known
                else field
                for field in to.fields
            )
            return replace(to, fields=tuple(fields))
        case (Kind.LIST, "array") | (Kind.MAP, "map"):
            assert of.items is not None
            *key, inside = to.fields
            return replace(to, fields=(*key, replace(inside, type=fitted_type(of.items, inside.type))))
    return _fitted_scalar(of, to)


def _fitted_scalar(of: AvroType, to: ColumnType) -> ColumnType:
    if of.kind != "bytes" and of.logical in ("", JSON_TEXT):
        return to
    try:
        convert = conversion(of, to)
    except ValueError as error:
        return _declared(to, _ANY, _refusing(str(error)))  # safety: connect-other-type
    if of.logical == "decimal":
        return _declared(to, _DECIMAL, _decimal_reader(to, convert))
    if of.logical == VARIABLE_DECIMAL:
        return _declared(to, _Variable, lambda one: _made(convert, _fields_of(one)))
    if of.kind == "bytes":
        return _declared(to, str, lambda text: _made(convert, scalars.binary(text)))
    return _declared(to, _PARSED[of.kind], convert)


def _declared(to: ColumnType, read_as: Any, made_by: Convert | None) -> ColumnType:
    return _DeclaredType(to.kind, to.precision, to.scale, to.epoch, to.fields, read_as, made_by)


def _made(convert: Convert | None, value: Any) -> Any:
    return value if convert is None else convert(value)


def _refusing(reason: str) -> Convert:
    def refuse(_: Any) -> Any:
        raise ValueError(reason)

    return refuse


def _decimal_reader(to: ColumnType, convert: Convert | None) -> Convert:
    """Of base64, or of a number, as JsonConverter writes it with ``decimal.format`` NUMERIC."""
    of_number = to.convert
    assert of_number is not None

    def read(raw: msgspec.Raw) -> Any:
        token = bytes(raw)
        if not token.startswith(b'"'):
            return of_number(raw)
        return _made(convert, scalars.binary(msgspec.json.decode(token, type=str)))

    return read


def _fields_of(one: _Variable) -> dict[str, Any]:
    return {"scale": one.scale, "value": scalars.binary(one.value)}


def _json_text(text: str) -> str | None:
    msgspec.json.decode(text)
    return None if text.strip() == "null" else text


_ANY: Final = bool | int | float | str | list[Any] | dict[str, Any]
"""Whatever JSON has, but null."""
_ENCODINGS: Final[dict[str, Convert]] = {
    "base64-url-safe": scalars.url_safe_binary,
    "hex": scalars.hexadecimal,
}
_DECIMAL: Final = msgspec.Raw  # a float would round it
_PARSED: Final = {
    "int": TYPES[Kind.INT].parsed(ColumnType(Kind.INT)),
    "long": TYPES[Kind.LONG].parsed(ColumnType(Kind.LONG)),
    "string": str,
}
