"""Columns, and what is nested in them, matched by their Iceberg field ids.

What stores rows by one schema, such as a data file, is read by another, as a table's definition has it now. A
column keeps its id whatever it is called and wherever it stands, and no id is given twice. So a column that
was dropped is not taken for one that has its name now. What has no ids at all is matched by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Match", "field_ids", "id_of", "matches", "named_by", "within"]

FIELD_ID: Final = b"PARQUET:field_id"


def id_of(field: pa.Field) -> int | None:
    """The field id that a schema has for a column or a field within one."""
    found = (field.metadata or {}).get(FIELD_ID)
    return None if found is None else int(found)


def within(of: pa.DataType) -> list[pa.Field]:
    """The fields of a nested type, called as Iceberg calls them, however a file does."""
    if pa.types.is_map(of):
        return [of.key_field.with_name("key"), of.item_field.with_name("value")]
    if pa.types.is_list(of) or pa.types.is_large_list(of):
        return [of.value_field.with_name("element")]
    return list(of) if pa.types.is_struct(of) else []


def field_ids(fields: Iterable[pa.Field], before: str = "") -> Iterator[tuple[str, int | None]]:
    """Ids of columns and of the fields within them, by their full names in Iceberg; None if missing."""
    for field in fields:
        name = before + field.name
        yield name, id_of(field)
        yield from field_ids(within(field.type), f"{name}.")


@dataclass(frozen=True)
class Match:
    """A column that is wanted, and the one that is stored under its id. The wanted one's fields have ids."""

    stored: pa.Field
    wanted: pa.Field

    @cached_property
    def is_alike(self) -> bool:
        """Whether what is nested is stored as it is wanted: then the values are, as far as this goes."""
        return _shape(self.stored) == _shape(self.wanted)

    def values(self, array: pa.Array) -> pa.Array:
        """The values as they are wanted; of what is alike, or not nested, a cast may be missing."""
        return array if self.is_alike else _fitted(array, self.stored, self.wanted)


def matches(stored: pa.Schema, wanted: Iterable[pa.Field]) -> dict[str, Match]:
    """By their wanted names, the columns that are stored; a column that is absent is null in every row."""
    found = _by_id_or_name(stored, wanted)
    return {field.name: Match(there, field) for field, there in found if there is not None}


def named_by(rows: pa.Table, known: dict[str, Match]) -> pa.Table:
    """Stored rows with the wanted names; what is nested is as it is wanted, others have the stored types."""
    names = [name for name, match in known.items() if match.stored.name in rows.column_names]
    columns = [_named(rows, known[name]) for name in names]
    return pa.Table.from_arrays(columns, names=names) if names else rows.select([])


def _named(rows: pa.Table, match: Match) -> pa.ChunkedArray | pa.Array:
    column = rows.column(match.stored.name)
    return column if match.is_alike else match.values(column.combine_chunks())


def _by_id_or_name(
    stored: Iterable[pa.Field], wanted: Iterable[pa.Field]
) -> Iterator[tuple[pa.Field, pa.Field | None]]:
    by_id, by_name = {}, {}
    for field in stored:
        by_name[field.name] = field
        if (number := id_of(field)) is not None:
            by_id[number] = field
    for field in wanted:
        number = id_of(field)
        # safety: columns-by-id
        yield field, by_id.get(number) if by_id and number is not None else by_name.get(field.name)


def _shape(field: pa.Field) -> object:
    """What has to be equal for values to be stored as they are wanted; of what is not nested, nothing."""
    inner = within(field.type)
    return [(one.name, id_of(one), _shape(one) or one.type) for one in inner]


def _fitted(values: pa.Array, stored: pa.Field, wanted: pa.Field) -> pa.Array:
    of = wanted.type
    if pa.types.is_struct(of):
        return _fitted_struct(values, stored, wanted)
    if pa.types.is_map(of):
        return _fitted_map(values, stored, wanted)
    if pa.types.is_list(of):
        (there,), (here,) = within(stored.type), within(of)
        elements = _fitted(values.values, there, here)
        return pa.ListArray.from_arrays(_offsets(values), elements, type=of, mask=_nulls(values))
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    return values if values.type == of else values.cast(of)


def _fitted_struct(values: pa.Array, stored: pa.Field, wanted: pa.Field) -> pa.Array:
    places = {field.name: place for place, field in enumerate(stored.type)}
    columns = [
        pa.nulls(len(values), here.type)
        if there is None
        else _fitted(values.field(places[there.name]), there, here)
        for here, there in _by_id_or_name(stored.type, wanted.type)
    ]
    return pa.StructArray.from_arrays(columns, fields=list(wanted.type), mask=_nulls(values))


def _fitted_map(values: pa.Array, stored: pa.Field, wanted: pa.Field) -> pa.Array:
    keys, items = within(wanted.type)
    stored_keys, stored_items = within(stored.type)
    return pa.MapArray.from_arrays(
        _offsets(values),
        _fitted(values.keys, stored_keys, keys),
        _fitted(values.items, stored_items, items),
        type=wanted.type,
        mask=_nulls(values),
    )


def _offsets(values: pa.Array) -> pa.Array:
    """Of its own, since those of a part of an array can't be taken together with nulls."""
    return pa.array(values.offsets.to_numpy(), values.offsets.type)


def _nulls(values: pa.Array) -> pa.Array:
    return pc.is_null(values)
