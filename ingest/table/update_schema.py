"""The schema of a table made another one, in a transaction of Iceberg's library, by the ids of its fields."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from pyiceberg.types import NestedField, StructType

from thermocline.rules.nested_types import iceberg_fields

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType

__all__ = ["update_schema"]


def update_schema(jvm: Any, transaction: Any, before: Schema, after: Schema) -> None:
    """Makes the one schema the other; does nothing where they are equal.

    New columns and fields are optional, with no default: rows that are there read as null in them. Iceberg
    gives them the ids that come next, so they are added in the order of the ids that they are to have; the
    caller checks that they got those.
    """
    if before.fields == after.fields:
        return
    update = transaction.updateSchema()
    for name in _dropped(before, after):
        update.deleteColumn(name)
    for name, renamed in _renamed(before, after):
        update.renameColumn(name, renamed)
    update.commit()
    # A column may be added under a name that was free a moment ago.
    update = transaction.updateSchema()
    types = jvm.org.apache.iceberg.SchemaParser.fromJson(after.model_dump_json())
    for parent, field in _added(before, after):
        name = f"{parent}.{field.name}" if parent else field.name
        update.addColumn(parent, field.name, types.findType(name), field.doc)
    for name in _widened(before, after):
        update.updateColumn(name, types.findType(name))
    for name, doc in _documented(before, after):
        update.updateColumnDoc(name, doc)
    for field in after.fields:
        _move(update, before, field.name, field.field_type)
    kept = [field.field_id for field in before.fields if field.field_id in after.field_ids]
    now = [field.field_id for field in after.fields]
    is_reordered = [number for number in now if number in kept] != kept
    _move_all(
        update, () if is_reordered else before.field_ids, "", [(f.field_id, f.name) for f in after.fields]
    )
    update.commit()


def _added(before: Schema, after: Schema) -> Iterator[tuple[str | None, NestedField]]:
    """What has no id before, with the full name of what it is in; in the order of ids."""
    seen: list[tuple[str | None, NestedField]] = [(None, field) for field in after.fields]
    found: list[tuple[str | None, NestedField]] = []
    while seen:
        parent, field = seen.pop()
        if field.field_id not in before.field_ids:
            found.append((parent, field))
        else:
            name = f"{parent}.{field.name}" if parent else field.name
            seen += [(name, one) for one in iceberg_fields(field.field_type)]
    # safety: added-in-order
    yield from sorted(found, key=lambda one: one[1].field_id)


def _dropped(before: Schema, after: Schema) -> Iterator[str]:
    """What has no id afterwards; not what is within it, which goes with it."""
    seen = [(field.name, field) for field in before.fields]
    while seen:
        name, field = seen.pop()
        if field.field_id not in after.field_ids:
            yield name
        else:
            seen += [(f"{name}.{one.name}", one) for one in iceberg_fields(field.field_type)]


def _renamed(before: Schema, after: Schema) -> Iterator[tuple[str, str]]:
    for field in before.fields:
        if field.field_id in after.field_ids:
            name = after.find_field(field.field_id).name
            if name != field.name:
                yield field.name, name


def _widened(before: Schema, after: Schema) -> Iterator[str]:
    for number in sorted(after.field_ids & before.field_ids):
        was, is_now = before.find_type(number), after.find_type(number)
        if is_now.is_primitive and was != is_now:
            yield str(after.find_column_name(number))


def _documented(before: Schema, after: Schema) -> Iterator[tuple[str, str | None]]:
    """The known columns with another documentation; None for none."""
    for field in after.fields:
        if field.field_id in before.field_ids and field.doc != before.find_field(field.field_id).doc:
            yield field.name, field.doc


def _move(update: Any, before: Schema, name: str, of: IcebergType) -> None:
    """Puts the fields within a column in their order; of a new one they are in it."""
    for field in iceberg_fields(of):
        full = f"{name}.{field.name}"
        if field.field_id in before.field_ids:
            _move(update, before, full, field.field_type)
    if isinstance(of, StructType):
        _move_all(update, before.field_ids, f"{name}.", [(field.field_id, field.name) for field in of.fields])


def _move_all(update: Any, stays: Collection[int], path: str, fields: list[tuple[int, str]]) -> None:
    """Puts each field of one level behind the one that it follows, but for those that stay."""
    previous = None
    for number, name in fields:
        if number not in stays and len(fields) > 1:
            if previous is None:
                update.moveFirst(path + name)
            else:
                update.moveAfter(path + name, path + previous)
        previous = name
