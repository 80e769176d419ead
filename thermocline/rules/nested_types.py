"""Structs, lists and maps: what they are in each language, made of what their fields are in it.

A nested type has `fields`: a struct its own, a list the one that is called element, a map key and value, as
Iceberg calls them. Each function here makes one level, and asks the types of the fields for theirs.
Values of a struct and of a map are dictionaries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypedDict

import msgspec
import pyarrow as pa
from pyiceberg import types

if TYPE_CHECKING:
    from thermocline.rules.column_types import ColumnType, NestedField

__all__ = [
    "Convert",
    "arrow_list",
    "arrow_map",
    "arrow_struct",
    "iceberg_fields",
    "iceberg_list",
    "iceberg_map",
    "iceberg_struct",
    "map_of_pairs",
    "msgspec_struct",
    "names_within",
    "nullable",
    "nullable_schema",
    "parts_of",
    "rebuilt_list",
    "rebuilt_map",
    "rebuilt_struct",
    "struct_schema",
    "where_needed",
]

Convert = Callable[[Any], Any]
"""Makes one value of another, neither of them null; raises `ValueError` with a plain phrase."""
Inside = Callable[["ColumnType"], Any]
"""What the type of a field is in the language that is asked for."""

NESTED: Final = re.compile(r"(struct|list|map)\s*<(.*)>", re.IGNORECASE | re.DOTALL)


def parts_of(text: str) -> tuple[str, list[str]] | None:
    """What a nested type is spelled of, as ``map`` and ``["string", "list<int>"]``; None for others."""
    found = NESTED.fullmatch(text.strip())
    if found is None:
        return None
    parts, depth = [""], 0
    for character in found[2]:
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return found[1].lower(), parts


def names_within(of: ColumnType, name: str) -> Iterator[str]:
    """The full names that Iceberg has for the fields within a column of that name."""
    for field in of.fields:
        full = f"{name}.{field.name}"
        yield full
        yield from names_within(field.type, full)


def arrow_struct(of: ColumnType) -> pa.DataType:
    """The fields, each with its id where it has one."""
    return pa.struct([_arrow_field(field) for field in of.fields])


def arrow_list(of: ColumnType) -> pa.DataType:
    """See `arrow_struct`."""
    return pa.list_(_arrow_field(of.fields[0]))


def arrow_map(of: ColumnType) -> pa.DataType:
    """See `arrow_struct`. A key is never null."""
    key, value = map(_arrow_field, of.fields)
    return pa.map_(key.with_nullable(False), value)


def _arrow_field(field: NestedField) -> pa.Field:
    metadata = {"PARQUET:field_id": str(field.field_id)} if field.field_id else None
    return pa.field(field.name, field.type.arrow, metadata=metadata)


def iceberg_struct(of: ColumnType) -> types.IcebergType:
    """All fields are optional, as all that a record may lack."""
    return types.StructType(
        *(types.NestedField(one.field_id, one.name, one.type.iceberg, required=False) for one in of.fields)
    )


def iceberg_list(of: ColumnType) -> types.IcebergType:
    """See `iceberg_struct`."""
    (element,) = of.fields
    return types.ListType(element.field_id, element.type.iceberg, element_required=False)


def iceberg_map(of: ColumnType) -> types.IcebergType:
    """See `iceberg_struct`."""
    key, value = of.fields
    return types.MapType(
        key.field_id, key.type.iceberg, value.field_id, value.type.iceberg, value_required=False
    )


def iceberg_fields(of: types.IcebergType) -> tuple[types.NestedField, ...]:
    """The fields within an Iceberg type, with their ids; none of what is not nested."""
    match of:
        case types.StructType():
            return of.fields
        case types.ListType():
            return (of.element_field,)
        case types.MapType():
            return (of.key_field, of.value_field)
    return ()


def msgspec_struct(of: ColumnType, inside: Inside) -> Any:
    """A type of dictionaries that may lack fields, to decode by."""
    fields = {field.name: nullable(inside(field.type)) for field in of.fields}
    # msgspec (0.22) only finds a name that is not ASCII once Python has its UTF-8, as after it was written.
    msgspec.json.encode(list(fields))  # safety: nested-names
    return TypedDict("Struct", fields, total=False)  # type: ignore[operator]


def nullable(parsed: Any) -> Any:
    """A type to decode by, or null; raw text may be that of null anyway."""
    return parsed if parsed is msgspec.Raw else parsed | None


def struct_schema(of: ColumnType) -> dict[str, Any]:
    """The JSON schema of an object with all fields."""
    properties = {field.name: nullable_schema(field.type) for field in of.fields}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def nullable_schema(of: ColumnType) -> dict[str, Any]:
    """The JSON schema of a type's values and null."""
    schema = of.json_schema
    return {**schema, "type": [schema["type"], "null"]}


def rebuilt_struct(of: ColumnType, inside: Inside) -> Convert:
    """A struct with all fields in declared order, each converted by what ``inside`` gives for its type."""
    fields = [(field.name, inside(field.type)) for field in of.fields]

    def rebuild(value: Any) -> dict[str, Any]:
        return {
            name: found if (found := value.get(name)) is None or convert is None else convert(found)
            for name, convert in fields
        }

    return rebuild


def rebuilt_list(of: ColumnType, inside: Inside) -> Convert | None:
    """A list with its elements converted; None where there is nothing to convert."""
    convert: Convert | None = inside(of.fields[0].type)
    if convert is None:
        return None
    return lambda value: [None if one is None else convert(one) for one in value]


def rebuilt_map(of: ColumnType, inside: Inside) -> Convert:
    """A map ordered by key, so that equal ones are stored as the same, with its values converted."""
    convert: Convert | None = inside(of.fields[1].type)

    def rebuild(value: Any) -> dict[str, Any]:
        entries = sorted(value.items())
        if convert is None:
            return dict(entries)
        return {key: None if one is None else convert(one) for key, one in entries}

    return rebuild


def map_of_pairs(of: ColumnType, inside: Inside) -> Convert:
    """A map, ordered by key, of the pairs that Arrow gives. Raises `ValueError` where a key comes twice."""
    rebuild = rebuilt_map(of, inside)

    def make(pairs: Any) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("a map has a key twice")  # as only another writer stores it
        return rebuild(found)  # type: ignore[no-any-return]

    return make


def where_needed(rebuilt: Callable[[ColumnType, Inside], Convert | None], inside: Inside) -> Inside:
    """The same of values that are whole and in order already: None unless a field has to be converted."""
    return lambda of: rebuilt(of, inside) if any(inside(field.type) for field in of.fields) else None
