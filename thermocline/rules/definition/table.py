"""The definition of a live table, and the schemas that follow from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
from pyiceberg import types
from pyiceberg.schema import Schema

from thermocline.errors import ConfigInvalid
from thermocline.rules.column_types import ColumnType, Kind
from thermocline.rules.columns import (
    ABSENT,
    KEY,
    PROVENANCE,
    SEQUENCE,
    TOMBSTONE,
    Column,
    ColumnText,
    numbered_within,
    parse_columns,
    with_nested_ids,
)
from thermocline.rules.definition.checks import problems_of
from thermocline.rules.definition.format import FormatOptions
from thermocline.rules.definition.layout import LayoutOptions
from thermocline.rules.definition.option import IDENTITY
from thermocline.rules.definition.parsing import parsed_options
from thermocline.rules.definition.policy import PolicyOptions
from thermocline.rules.definition.row import RowOptions
from thermocline.rules.definition.source import SourceOptions
from thermocline.rules.definition.stored import differences, from_stored, stored
from thermocline.rules.merging import Append, BySequence, LastWins, Merging, Partial


# Dataclasses take the fields of the last of them first.
@dataclass(frozen=True, kw_only=True)
class LiveTable(PolicyOptions, RowOptions, FormatOptions, SourceOptions, LayoutOptions):
    """One live table's definition: the options of its parts, and which definition it is.

    ``version`` counts alterations; ``provenance_id`` is the first field id of the provenance columns.
    """

    name: str = field(metadata=IDENTITY)
    provenance_id: int = field(metadata=IDENTITY)
    version: int = field(default=1, metadata=IDENTITY)

    @classmethod
    def build(
        cls,
        *,
        name: str,
        identifier: str,
        topics: Sequence[str],
        key: Sequence[str],
        columns: Mapping[str, ColumnText],
        field_ids: Mapping[str, int] | None = None,
        nested_ids: Mapping[str, Sequence[int]] | None = None,
        provenance_id: int | None = None,
        **options: Any,
    ) -> LiveTable:
        """A definition as a person writes it, checked; no ``entity`` means the whole key.

        ``options`` are the other fields; ``on_error`` and ``delete_when`` as their ``parse`` reads them.
        Without field ids, columns are numbered from 1 in declared order, then provenance, then what is within
        columns: as in a new table.

        Raises:
            ConfigInvalid: with every problem found, not only the first.
            TypeError: an option is none of ours.
        """
        problems: list[str] = []
        is_new = not field_ids
        field_ids = field_ids or {column: place for place, column in enumerate(columns, start=1)}
        parsed = tuple(parse_columns(columns, field_ids, problems))
        given_key_format = options.get("key_format")
        live_table = cls(
            name=name,
            identifier=identifier,
            topics=tuple(topics),
            key=tuple(key),
            columns=numbered_within(parsed) if is_new else with_nested_ids(parsed, nested_ids or {}),
            # safety: stored-provenance-id
            provenance_id=len(columns) + 1 if provenance_id is None else provenance_id,
            **parsed_options(options, tuple(key), problems),
        )
        problems += problems_of(live_table, list(columns), given_key_format)
        if problems:
            raise ConfigInvalid(of=f"of table {name}", problems=tuple(problems))
        return live_table

    @classmethod
    def from_json(cls, text: str, name: str) -> LiveTable:
        """The definition that a table carries, under the name that the configuration gives it.

        Raises:
            ConfigInvalid: when the text is not one that ``to_json`` wrote.
        """
        return from_stored(cls.build, text, name)

    def to_json(self) -> str:
        """The definition as the table carries it: without its name, equal for equal definitions."""
        return stored(self)

    def differences(self, other: LiveTable) -> tuple[str, ...]:
        """What an alteration would have to change to make this definition the other; empty when nothing.

        The name, the identifier, the version, the field ids and comments don't count: they say where a table
        is, how it came about, and what for, not what it is.
        """
        return tuple(differences(self, other))

    @property
    def has_key(self) -> bool:
        """False for a table to which every record adds a row."""
        return bool(self.key)

    @cached_property
    def identity(self) -> tuple[str, ...]:
        """The names of the columns that identify a row: the key, or else topic, partition and offset."""
        return self.key or PROVENANCE[:3]  # safety: append-identity

    @cached_property
    def key_columns(self) -> tuple[Column, ...]:
        """The columns of ``identity``, in its order: what the bytes of a key are made of."""
        by_name = {column.name: column for column in (*self.columns, *self._provenance_columns)}
        return tuple(by_name[name] for name in self.identity)

    @cached_property
    def fields_in_key(self) -> frozenset[tuple[str, ...]]:
        """The fields that key columns are read from in the record's key."""
        if self.key_from != "key" or not self.has_key:
            return frozenset()
        in_key = (column for column in self.columns if column.name in self.key and column.is_in_row)
        return frozenset(column.read_from for column in in_key)

    @cached_property
    def value_columns(self) -> tuple[Column, ...]:
        """The declared columns outside the key, in declared order."""
        return tuple(column for column in self.columns if column.name not in self.key)

    @cached_property
    def merging(self) -> Merging:
        """How the records of a key become its row."""
        if not self.has_key:
            return Append()
        if self.sequence_by:
            by_name = {column.name: column for column in self.columns}
            return BySequence(tuple(by_name[name] for name in self.sequence_by))
        return Partial(self.value_columns) if self.partial_updates else LastWins()

    @cached_property
    def bucket_column(self) -> Column:
        """The column that the table is partitioned by: the entity's last, or else the log's partition."""
        return self.key_columns[len(self.entity) - 1] if self.has_key else self._provenance_columns[1]

    @cached_property
    def row_schema(self) -> pa.Schema:
        """The declared columns."""
        return pa.schema([(column.name, column.type.arrow) for column in self.columns])

    @cached_property
    def records_schema(self) -> pa.Schema:
        """Decoded records: the declared columns, where each came from, whether it deletes, and its key.

        With partial updates also the names of the columns that it leaves as they are; where columns order the
        records, their bytes (`Merging.sequences`).
        """
        provenance = list(zip(PROVENANCE, _PROVENANCE_ARROW, strict=True))
        ours = pa.schema([*provenance, (TOMBSTONE, pa.bool_()), (KEY, pa.binary())])
        absent = [(ABSENT, pa.list_(pa.string()))] if self.merging.is_partial else []
        sequence = [(SEQUENCE, pa.binary())] if self.merging.is_ordered else []
        return pa.schema([*self.row_schema, *ours, *absent, *sequence])

    @cached_property
    def table_schema(self) -> pa.Schema:
        """A data file: the declared columns and provenance, with Iceberg's field ids; the key not null."""
        return pa.schema(
            pa.field(
                column.name,
                column.numbered_type.arrow,
                column.name not in self.key,
                {"PARQUET:field_id": str(column.field_id)},
            )
            for column in (*self.columns, *self._provenance_columns)
        )

    @property
    def given_columns(self) -> tuple[Column, ...]:
        """What can be asked for: the declared columns and provenance."""
        return (*self.columns, *self._provenance_columns)

    @cached_property
    def given_schema(self) -> pa.Schema:
        """What is given out of all columns: those of a data file, without field ids."""
        return pa.schema(
            pa.field(column.name, column.type.arrow, column.name not in self.key)
            for column in self.given_columns
        )

    def iceberg_schema(self) -> Schema:
        """The table's Iceberg schema, ordered as ``table_schema``; the key required and the identifier."""
        fields = [
            types.NestedField(
                column.field_id,
                column.name,
                column.numbered_type.iceberg,
                required=column.name in self.key,
                doc=column.comment or None,
            )
            for column in (*self.columns, *self._provenance_columns)
        ]
        identifier = [column.field_id for column in self.key_columns] if self.has_key else []
        return Schema(*fields, identifier_field_ids=identifier)

    @cached_property
    def _provenance_columns(self) -> tuple[Column, ...]:
        return tuple(
            Column(name, ColumnType(kind), self.provenance_id + place)
            for place, (name, kind) in enumerate(zip(PROVENANCE, _PROVENANCE_KINDS, strict=True))
        )


_PROVENANCE_KINDS: Final = (Kind.STRING, Kind.INT, Kind.LONG, Kind.TIMESTAMPTZ)
_PROVENANCE_ARROW: Final = tuple(ColumnType(kind).arrow for kind in _PROVENANCE_KINDS)
