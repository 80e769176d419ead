"""Protobuf values for nested columns: messages as structs, repeated fields as lists, maps as maps."""

from __future__ import annotations

from typing import Any

from thermocline.rules.column_types import ColumnType, Kind
from thermocline.rules.decode.protobuf.fitting import (
    WRAPPERS,
    Convert,
    conversion,
    described,
    is_closed_enum,
    is_map,
)
from thermocline.rules.decode.protobuf.json_values import check_closed_enum, json_text_of, json_text_of_one

__all__ = ["nested_conversion"]


def nested_conversion(field: Any, to: ColumnType) -> Convert | None:
    """What makes a natural value of a field's, for a column's type or one within it; None: as it is.

    Raises:
        ValueError: the type does not take it.
    """
    if to.kind is Kind.JSON:
        return json_text_of(field)
    if to.kind is Kind.LIST and field.is_repeated and not is_map(field):
        return _list_conversion(_single(field, to.fields[0].type))
    if to.kind is Kind.MAP and is_map(field):
        return _map_conversion(field.message_type, to)
    if field.is_repeated:
        raise ValueError(f"the record has a value of type {described(field)}")
    return _single(field, to)


def _single(field: Any, to: ColumnType) -> Convert | None:
    """Of one value of a field, which may be repeated."""
    if to.kind is Kind.JSON:
        return json_text_of_one(field)
    if to.kind is Kind.STRUCT and field.message_type is not None:
        return _struct_conversion(field.message_type, to)
    if field.message_type is not None and field.message_type.full_name in WRAPPERS:
        convert = conversion(field.message_type.fields_by_name["value"], to)
        return lambda wrapped: wrapped.value if convert is None else convert(wrapped.value)
    return conversion(field, to)


def _list_conversion(convert: Convert | None) -> Convert:
    return lambda values: list(values) if convert is None else [convert(value) for value in values]


def _map_conversion(entry: Any, to: ColumnType) -> Convert:
    key = conversion(entry.fields_by_name["key"], to.fields[0].type)
    value = nested_conversion(entry.fields_by_name["value"], to.fields[1].type)

    def convert(entries: Any) -> dict[str, Any]:
        found = {
            name if key is None else key(name): one if value is None else value(one)
            for name, one in ((name, entries[name]) for name in entries)
        }
        return dict(sorted(found.items()))

    return convert


def _struct_conversion(of: Any, to: ColumnType) -> Convert:
    """Fields by name; those that the schema lacks, or the message does not have, are null."""
    fields = [
        (one.name, field, nested_conversion(field, one.type))
        for one in to.fields
        if (field := of.fields_by_name.get(one.name)) is not None
    ]
    closed = [field for _, field, _ in fields if is_closed_enum(field)]
    absent = dict.fromkeys(one.name for one in to.fields)

    def convert(message: Any) -> dict[str, Any]:
        for field in closed:
            check_closed_enum(message, field)
        found: dict[str, Any] = absent.copy()
        for name, field, make in fields:
            if not field.has_presence or message.HasField(name):
                value = getattr(message, name)
                found[name] = value if make is None else make(value)
        return found

    return convert
