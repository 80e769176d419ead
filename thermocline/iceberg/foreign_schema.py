"""A comparison of a table's Iceberg schema with the one that its definition says, column by column.

Data files have the definition's field ids, names and types; other engines find columns by what the schema
says. Another program may have changed that. Columns that it added are null in every row of ours, and the
order, identifier fields, documentation and partition spec of a table say nothing about a value: all harmless.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from thermocline.errors import ForeignSchema

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.types import NestedField

    from thermocline.rules.definition import LiveTable

__all__ = ["check_schema", "schema_differences"]


def check_schema(table: Table, definition: LiveTable) -> None:
    """Raises `ForeignSchema` where the table's current schema differs from its definition."""
    differences = schema_differences(definition, table.schema())
    if differences:
        raise ForeignSchema(table=definition.name, differences=differences)


def schema_differences(definition: LiveTable, found: Schema) -> tuple[str, ...]:
    """What differs, a sentence for each field, those within columns included; empty where nothing does."""
    ours = definition.iceberg_schema()
    if found.fields == ours.fields:  # as nearly always
        return ()
    return tuple(
        difference for number in sorted(ours.field_ids) for difference in _of_field(ours, found, number)
    )


def _of_field(ours: Schema, found: Schema, number: int) -> Iterator[str]:
    field, name = ours.find_field(number), str(ours.find_column_name(number))
    if number not in found.field_ids:
        other = " and added again under another field id" if name in found.column_names else ""
        yield f"{name} ({_kind(field)}) was dropped{other}"
        return
    there, there_name = found.find_field(number), str(found.find_column_name(number))
    if there_name != name:
        yield f"{name} was renamed to {there_name}"
    if _kind(there) != _kind(field):
        yield f"{name} became {_kind(there)}, from {_kind(field)}"
    if there.required and not field.required:
        yield f"{name} became required: the table's records may have null in it"


def _kind(field: NestedField) -> str:
    """A field's type; what is within a nested one are fields of their own."""
    kind = field.field_type
    return str(kind) if kind.is_primitive else str(kind).partition("<")[0]
