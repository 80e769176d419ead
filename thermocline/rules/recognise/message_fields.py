"""Fields that a message of Protobuf declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from thermocline.rules.column_types import FIELD_NAME, LEVELS_MAX
from thermocline.rules.decode.protobuf.fitting import (
    DATE,
    DECIMAL,
    TIME_OF_DAY,
    TIMESTAMP,
    WRAPPERS,
    described,
    is_map,
)
from thermocline.rules.recognise.fields import Field

__all__ = ["message_at_field", "message_fields"]

_PLAIN: Final = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), "int"),
    **dict.fromkeys(("uint32", "fixed32", "int64", "sint64", "sfixed64", "uint64", "fixed64"), "long"),
    "float": "double",
    "double": "double",
    "bool": "boolean",
    "string": "string",
    "bytes": "binary",
}
_KNOWN: Final = {TIMESTAMP: "timestamptz", DATE: "date", TIME_OF_DAY: "time"}
_AS_TEXT: Final = (
    DECIMAL,
    *(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue", "Any", "Duration")),
)
_UNSIGNED: Final = ("uint64", "fixed64")


def message_fields(message: Any, docs: Mapping[str, Mapping[str, str]]) -> list[Field]:
    """The fields of a message's descriptor, with what is said of those of each message, by its full name."""
    said = docs.get(message.full_name, {})
    return [_declared(field, said.get(field.name, "")) for field in message.fields]


def message_at_field(message: Any, name: str) -> Any:
    """The descriptor of the message in a field; None where there is none."""
    field = message.fields_by_name.get(name)
    return None if field is None or field.is_repeated else field.message_type


def _declared(field: Any, doc: str) -> Field:
    spelled = described(field)
    notes: tuple[str, ...] = ()
    if spelled in _UNSIGNED:
        notes += ("without a sign: a number beyond 2^63 is refused",)
    if field.message_type is not None and field.message_type.full_name == DECIMAL:
        notes += ("decimals of any scale: decimal(p,s) reads them, if they always fit",)
    return Field(field.name, _type(field, 0, ()), spelled, notes, not field.has_presence, doc=doc)


def _type(field: Any, level: int, around: tuple[str, ...]) -> str:
    if is_map(field):
        entry = field.message_type.fields_by_name
        if described(entry["key"]) != "string":
            return "json"
        return f"map<string, {_single(entry['value'], level + 1, around)}>"
    inner = _single(field, level + field.is_repeated, around)
    return f"list<{inner}>" if field.is_repeated else inner


def _single(field: Any, level: int, around: tuple[str, ...]) -> str:
    """The type of one value of a field, repeated or not."""
    if field.enum_type is not None:
        return "string"
    if field.message_type is None:
        return _PLAIN[described(field).removeprefix("repeated ")]
    of = field.message_type
    name = of.full_name
    if name in WRAPPERS:
        return _single(of.fields_by_name["value"], level, around)
    if name in _KNOWN:
        return _KNOWN[name]
    if name in _AS_TEXT or name in around or level >= LEVELS_MAX - 1 or not of.fields:
        return "json"
    parts = [(one.name, _type(one, level + 1, (*around, name))) for one in of.fields]
    if len({part.casefold() for part, _ in parts}) < len(parts):
        return "json"
    if not all(FIELD_NAME.fullmatch(part) for part, _ in parts):
        return "json"
    return f"struct<{', '.join(f'{part}: {type_}' for part, type_ in parts)}>"
