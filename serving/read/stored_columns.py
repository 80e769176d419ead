"""Nested columns of data files as SQL expressions for DuckDB, which find the fields within by their ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from thermocline.rules.column_types import Kind
from thermocline.rules.field_ids import id_of, within

if TYPE_CHECKING:
    from thermocline.rules.column_types import ColumnType, Kind, NestedField
from thermocline.rules.field_ids import Match

__all__ = ["fitted_sql"]

_WIDENED: Final = (Kind.LONG, Kind.DECIMAL)


def fitted_sql(expression: str, match: Match, wanted: ColumnType) -> str:
    """The values of a nested column that a file has otherwise than ``wanted``, which is numbered."""
    return _fitted(expression, match.stored, wanted, level=0)


def _fitted(value: str, stored: pa.Field, wanted: ColumnType, level: int) -> str:
    if not wanted.fields:
        is_narrow = wanted.kind in _WIDENED and stored.type != wanted.arrow
        return f"CAST({value} AS {wanted.duckdb})" if is_narrow else value
    fields = _stored_fields(stored, wanted)
    if pa.types.is_struct(stored.type):
        packed = ", ".join(
            f'"{field.name}" := {_of_field(value, there, field, level)}' for field, there in fields
        )
        return f"CASE WHEN {value} IS NULL THEN NULL ELSE struct_pack({packed}) END"
    each = f"e{level}"
    if pa.types.is_map(stored.type):
        (_, keys), (item, items) = fields
        assert items is not None
        assert keys is not None
        made = f"{{'key': {each}.key, 'value': {_fitted(f'{each}.value', items, item.type, level + 1)}}}"
        entries = f"list_transform(map_entries({value}), lambda {each}: {made})"
        return f"CASE WHEN {value} IS NULL THEN NULL ELSE map_from_entries({entries}) END"
    ((element, there),) = fields
    assert there is not None
    return f"list_transform({value}, lambda {each}: {_fitted(each, there, element.type, level + 1)})"


def _of_field(value: str, stored: pa.Field | None, wanted: NestedField, level: int) -> str:
    if stored is None:
        return f"CAST(NULL AS {wanted.type.duckdb})"
    return _fitted(f"struct_extract({value}, '{stored.name}')", stored, wanted.type, level)


def _stored_fields(stored: pa.Field, wanted: ColumnType) -> list[tuple[NestedField, pa.Field | None]]:
    """The wanted fields beside those of their ids; what has no ids goes by name."""
    inner = within(stored.type)
    by_id = {id_of(one): one for one in inner}
    by_name = {one.name: one for one in inner}
    has_ids = by_id.keys() != {None}
    # safety: extract-nested-by-id
    return [(one, by_id.get(one.field_id) if has_ids else by_name.get(one.name)) for one in wanted.fields]
