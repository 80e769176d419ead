"""Make a table's columns those of its definition again, after another program changed them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyiceberg.schema import Schema

from thermocline.ingest.commit.java import JAVA_ERRORS, JavaCatalog, class_name, small_jvm
from thermocline.ingest.commit.java_metadata import LOST_RACE

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable
    from thermocline.settings import CatalogSettings

# A running ingest commits once in seconds, and a swap takes milliseconds.
ATTEMPTS_MAX: Final = 5


def restore_schema(catalog: CatalogSettings, definition: LiveTable) -> None:
    """Swaps in the definition's columns, with their field ids, beside those that others added.

    Only metadata changes, and no snapshot is made, so it needs no ownership, and is safe to repeat. A column
    that was dropped has its values again.

    Raises `TableMissing`, `CatalogUnreachable` and `EngineFailed`.
    """
    with small_jvm(catalog) as jvm:
        java = JavaCatalog(jvm, catalog)
        for attempt in range(1, ATTEMPTS_MAX + 1):
            table = java.load(definition.identifier, definition.name)
            with java.errors():
                try:
                    _swap(jvm, table.operations(), definition)
                except JAVA_ERRORS as error:
                    if class_name(error) != LOST_RACE or attempt == ATTEMPTS_MAX:
                        raise
                else:
                    return


def _swap(jvm: Any, operations: Any, definition: LiveTable) -> None:
    iceberg = jvm.org.apache.iceberg
    base = operations.current()
    found = Schema.model_validate_json(iceberg.SchemaParser.toJson(base.schema()))
    wanted = iceberg.SchemaParser.fromJson(_restored(definition, found).model_dump_json())
    builder = iceberg.TableMetadata.buildFrom(base).setCurrentSchema(wanted, base.lastColumnId())
    operations.commit(base, builder.build())


def _restored(definition: LiveTable, found: Schema) -> Schema:
    """The definition's schema, and behind it the columns of others whose names it doesn't need."""
    ours = definition.iceberg_schema()
    others = [
        field
        for field in found.fields
        if field.field_id not in ours.field_ids and field.name not in ours.column_names
    ]
    return Schema(*ours.fields, *others, identifier_field_ids=ours.identifier_field_ids)
