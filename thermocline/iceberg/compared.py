"""A table beside the definition that the file has for it: what differs, in the definition and in Iceberg."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thermocline.iceberg.catalog import definition_of
from thermocline.iceberg.files import plan_files, store_named
from thermocline.iceberg.foreign_schema import schema_differences
from thermocline.rules.contract.in_file import with_evolved
from thermocline.rules.definition_diff import Difference, differences_of

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.settings import TableSettings

__all__ = ["Compared", "compared", "file_counts"]


@dataclass(frozen=True, slots=True)
class Compared:
    """What differs between a table and the file, and what another program changed of the table's columns.

    ``changed_by_others`` are columns of the definition that Iceberg has otherwise; `table alter` gives them
    back. ``added_by_others`` are columns that no definition has: null in every row of ours, and harmless.
    """

    table: str
    version: int
    differences: tuple[Difference, ...]
    changed_by_others: tuple[str, ...]
    added_by_others: tuple[str, ...]

    @property
    def is_same(self) -> bool:
        """Whether the table is as the file says."""
        return not self.differences and not self.changed_by_others

    @property
    def refusals(self) -> tuple[str, ...]:
        """Why no alteration makes the table as the file says; empty where one does."""
        return tuple(why for one in self.differences for why in one.refusals)


def compared(table: Table, configured: TableSettings, name: str) -> Compared:
    """The table as it was loaded, beside what the file has for it.

    Raises as `definition_of` does, and `ConfigInvalid`.
    """
    schema, definition = table.schema(), definition_of(table, name)
    wanted = with_evolved(configured.definition(name, definition), definition)
    is_other = definition.buckets_written != wanted.buckets_written
    files = file_counts(table, name) if is_other else None
    known = definition.iceberg_schema().field_ids
    return Compared(
        name,
        definition.version,
        differences_of(definition, wanted, table.metadata.last_column_id, files),
        schema_differences(definition, schema),
        tuple(field.name for field in schema.fields if field.field_id not in known),
    )


def file_counts(table: Table, name: str) -> dict[int, int]:
    """How many live files the table has, by how many buckets their partition spec has."""
    snapshot = table.current_snapshot()
    with store_named(name):
        files = () if snapshot is None else plan_files(table, snapshot.snapshot_id, name)
    return dict(Counter(file.part.of for file in files))
