"""Protobuf values as what JSON is written of, for ``json`` columns.

Fields in the schema's order, by the names that it gives them; those that are not there are null, or, where
there is no such thing, their defaults. Each function raises ``ValueError`` where JSON has no such value.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.unknown_fields import UnknownFieldSet

from thermocline.rules.decode.exact import decimal_of, finite, text_of_nanoseconds
from thermocline.rules.decode.protobuf.fitting import (
    DATE,
    DECIMAL,
    TIMESTAMP,
    WRAPPERS,
    checked_text,
    date_of,
    is_closed_enum,
    is_map,
    nanoseconds_of,
    symbol,
    symbols_of,
)

__all__ = ["check_closed_enum", "json_text_of", "json_text_of_one"]

Take = Callable[[Any], Any]
MICROSECOND: Final = 1_000  # nanoseconds
_JSON: Final = msgspec.json.Encoder(decimal_format="string")


def json_text_of(field: Any) -> Callable[[Any], str]:
    """What makes the text of a ``json`` column of a field's value."""
    return _text_by(_taker(field, {}))


def json_text_of_one(field: Any) -> Callable[[Any], str]:
    """The same of one of the values of a repeated field."""
    return _text_by(_single(field, {}))


def _text_by(take: Take) -> Callable[[Any], str]:
    return lambda value: _JSON.encode(take(value)).decode()


def check_closed_enum(message: Any, field: Any) -> None:
    """Raises `ValueError` where a field has a number that its closed enum lacks, which the library hides."""
    for unknown in UnknownFieldSet(message):
        if unknown.field_number == field.number:  # safety: protobuf-closed-enum
            raise ValueError("a number is not in its enum")


def _taker(field: Any, known: dict[str, Take]) -> Take:
    """Takes the value of a field, repeated or not."""
    if is_map(field):
        return partial(_map, take=_taker(field.message_type.fields_by_name["value"], known))
    one = _single(field, known)
    return (lambda values: [one(value) for value in values]) if field.is_repeated else one


def _single(field: Any, known: dict[str, Take]) -> Take:
    if field.enum_type is not None:
        return partial(symbol, symbols=symbols_of(field.enum_type))
    if field.message_type is not None:
        return _message(field.message_type, known)
    return _SCALARS.get(field.type, _same)


def _message(of: Any, known: dict[str, Take]) -> Take:
    name = of.full_name
    if name in _WELL_KNOWN:
        return _WELL_KNOWN[name]
    if name not in known:
        # One that contains itself finds itself here.
        known[name] = lambda message: known[name](message)  # noqa: PLW0108  (not known yet)
        value = _single(of.fields_by_name["value"], known) if name in WRAPPERS else None
        known[name] = partial(_wrapped, take=value) if value is not None else _fields_taker(of, known)
    return known[name]


def _fields_taker(of: Any, known: dict[str, Take]) -> Take:
    fields = [(field.name, field.has_presence, _taker(field, known)) for field in of.fields]
    closed = [field for field in of.fields if is_closed_enum(field)]
    return partial(_fields, fields=fields, closed=closed)


def _fields(message: Any, fields: list[tuple[str, bool, Take]], closed: list[Any]) -> dict[str, Any]:
    for field in closed:
        check_closed_enum(message, field)
    return {
        name: None if has_presence and not message.HasField(name) else take(getattr(message, name))
        for name, has_presence, take in fields
    }


def _map(entries: Any, take: Take) -> dict[str, Any]:
    """By its keys in their order: producers write them in any."""
    names = {key: _name(key) for key in entries}  # before they are compared: one may be no text
    return {names[key]: take(entries[key]) for key in sorted(names)}


def _name(key: Any) -> str:
    if isinstance(key, bytes):
        return checked_text(key)
    return str(key).lower() if isinstance(key, bool) else str(key)


def _wrapped(message: Any, take: Take) -> Any:
    return take(message.value)


def _timestamp(value: Any) -> str:
    text = text_of_nanoseconds(nanoseconds_of(value), "")
    whole, _, fraction = text.partition(".")
    fraction = fraction.rstrip("0")
    return f"{whole}{fraction and '.'}{fraction}Z"


def _decimal(value: Any) -> str:
    return format(decimal_of(value.value, value.scale), "f")


def _struct(value: Any) -> dict[str, Any]:
    return {name: _value(value.fields[name]) for name in sorted(map(checked_text, value.fields))}


def _list(value: Any) -> list[Any]:
    return [_value(one) for one in value.values]


def _value(value: Any) -> Any:
    match value.WhichOneof("kind"):
        case "number_value":
            return finite(value.number_value)
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case "struct_value":
            return _struct(value.struct_value)
        case "list_value":
            return _list(value.list_value)
    return None


def _same(value: Any) -> Any:
    return value


_SCALARS: Final[dict[int, Take]] = {
    FieldDescriptor.TYPE_DOUBLE: finite,
    FieldDescriptor.TYPE_FLOAT: finite,
    FieldDescriptor.TYPE_STRING: checked_text,
}
_WELL_KNOWN: Final[dict[str, Take]] = {
    TIMESTAMP: _timestamp,
    DATE: lambda value: date_of(value).isoformat(),
    DECIMAL: _decimal,
    "google.protobuf.Struct": _struct,
    "google.protobuf.ListValue": _list,
    "google.protobuf.Value": _value,
}
