"""Avro values for nested columns: records as structs, arrays as lists, maps as maps.

Whether a record's bytes are Avro is found out first. So what a column can't have is told by an `Unfit` in its
place, and the record is read on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from thermocline.rules.avro_schema import AvroType
from thermocline.rules.column_types import ColumnType, Kind
from thermocline.rules.decode.avro.fitting import conversion, json_text
from thermocline.rules.decode.avro.values import (
    Passer,
    Taker,
    Unfit,
    check_level,
    passer,
    scalar_taker,
    take_array,
    take_map,
    take_union,
    taker,
)

__all__ = ["fitted", "nested_taker"]


def fitted(value: Any) -> Any:
    """A value that was taken. Raises `ValueError` where it is none that the column can have."""
    if isinstance(value, Unfit):
        raise ValueError(value.reason)  # noqa: TRY004  (what is refused is a ValueError throughout)
    return value


def nested_taker(of: AvroType, to: ColumnType) -> Taker:
    """Takes values of a type as natural values of a column's type, or of one within it."""
    if of.kind == "union":
        branches = [nested_taker(branch, to) for branch in of.branches]
        return lambda data, at, level: take_union(branches, data, at, level)
    if of.kind == "null":
        return lambda _data, at, _: (None, at)
    match to.kind, of.kind:
        case Kind.STRUCT, "record":
            return _struct_taker(of, to)
        case Kind.LIST, "array":
            return _list_taker(of, to)
        case Kind.MAP, "map":
            return _map_taker(of, to)
    return _scalar_taker(of, to)


def _struct_taker(of: AvroType, to: ColumnType) -> Taker:
    """Fields by name; those that the schema lacks are null, those that nothing asks for are passed over."""
    asked = {field.name: field.type for field in to.fields}
    absent = dict.fromkeys(asked)
    fields: list[tuple[str, Taker | None, Passer]] = [
        (name, nested_taker(type_, asked[name]) if name in asked else None, passer(type_))
        for name, type_ in of.fields
    ]

    def take(data: bytes, at: int, level: int) -> tuple[Any, int]:
        check_level(level)
        found: dict[str, Any] = absent.copy()
        for name, take_field, pass_field in fields:
            if take_field is None:
                at = pass_field(data, at, level + 1)
            else:
                found[name], at = take_field(data, at, level + 1)
        return _unless_unfit(found, found.items()), at

    return take


def _list_taker(of: AvroType, to: ColumnType) -> Taker:
    assert of.items is not None
    item, is_empty = nested_taker(of.items, to.fields[0].type), of.items.is_empty

    def take(data: bytes, at: int, level: int) -> tuple[Any, int]:
        items, at = take_array(item, is_empty, data, at, level)
        return _unless_unfit(items, enumerate(items)), at

    return take


def _map_taker(of: AvroType, to: ColumnType) -> Taker:
    assert of.items is not None
    item = nested_taker(of.items, to.fields[1].type)

    def take(data: bytes, at: int, level: int) -> tuple[Any, int]:
        entries, at = take_map(item, data, at, level)
        return _unless_unfit(entries, entries.items()), at

    return take


def _unless_unfit(whole: Any, parts: Iterable[tuple[object, Any]]) -> Any:
    """A value, unless a part of it is unfit: then that, with its place."""
    for place, part in parts:
        if isinstance(part, Unfit):  # safety: avro-nested-unfit
            return Unfit(f"{place}: {part.reason}")
    return whole


def _scalar_taker(of: AvroType, to: ColumnType) -> Taker:
    if to.kind is Kind.JSON:
        return _converting(taker(of), json_text)
    try:
        convert = conversion(of, to)
    except ValueError as error:
        reason, passed = str(error), passer(of)
        return lambda data, at, level: (Unfit(reason), passed(data, at, level))
    take = taker(of) if of.kind == "record" else scalar_taker(of)
    return take if convert is None else _converting(take, convert)


def _converting(take: Taker, convert: Any) -> Taker:
    def converted(data: bytes, at: int, level: int) -> tuple[Any, int]:
        value, at = take(data, at, level)
        try:
            return convert(fitted(value)), at
        except ValueError as error:
            return Unfit(str(error)), at

    return converted
