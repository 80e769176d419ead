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
from thermocline.rules.definition.option import BY_RULE, FREE, IDENTITY, fixed, rarely
from thermocline.rules.definition.options import (
    BINARY_ENCODINGS,
    ENVELOPES,
    RECORD_BYTES_MAX,
    SCHEMA_FORMATS,
    TOMBSTONE_RETENTION_HOURS,
    UNAVAILABLE,
    DeleteRule,
    OnError,
)
from thermocline.rules.definition.parsing import parsed_options
from thermocline.rules.definition.stored import differences, from_stored, stored
from thermocline.rules.merging import Append, BySequence, LastWins, Merging, Partial

_SAME_ROW: Final = "the same record must mean the same row whenever it is read"
_SAME_KEY: Final = "the same record must have the same key whenever it is read"
_OWN_SCHEMA: Final = "records do not name their schema, and the log has some that this one wrote"


@dataclass(frozen=True, kw_only=True)
class LiveTable:
    """One live table's definition. Each field says whether it may be altered, and when it is stored.

    ``columns`` stand in declared order; ``entity`` is a prefix of ``key``. Both are empty for a table without
    a key, to which every record adds a row: where the record stands in the log identifies it. ``key_schema``
    and ``value_schema`` are the schemas of all records, of Avro its text, of Protobuf its descriptors in
    base64, with the message that ``key_message`` and ``value_message`` name; where there is none, each record
    names its own; ``schema_framed``: records name one that is not looked at. ``delete_when`` says which
    records delete, ``binary_encoding`` how JSON has bytes, ``unavailable_value_placeholder`` is as Debezium's
    connector has it. ``require_fields``: a value that isn't empty has to have one of the columns' fields. A
    record of more than ``record_bytes_max`` bytes, key and value, is bad. ``partial_updates`` and
    ``sequence_by`` say how records merge (see ``merging``); with the latter, deletes are remembered for
    ``tombstone_retention_hours``. ``buckets`` is how many units of work there are. ``file_buckets`` is into
    how many buckets new files are partitioned, in a table whose number was changed: a multiple of ``buckets``
    while it is being raised, then the same. None: it was never changed. ``version`` counts alterations;
    ``provenance_id`` is the first field id of the provenance columns.
    """

    name: str = field(metadata=IDENTITY)
    identifier: str = field(metadata=fixed("it is the table's name in the catalog"))
    # Where records come from.
    topics: tuple[str, ...] = field(metadata=BY_RULE)
    transactional: bool = field(default=False, metadata=FREE)
    # How they are read.
    format: str = field(default="json", metadata=fixed(_SAME_ROW))
    key_from: str = field(default="key", metadata=fixed(_SAME_KEY))
    key_format: str = field(metadata=fixed(_SAME_KEY))
    envelope: str = field(default=ENVELOPES[0], metadata=fixed(_SAME_ROW, left_out=True))
    delete_when: DeleteRule | None = field(default=None, metadata=fixed(_SAME_ROW, left_out=True))
    key_schema: str | None = field(default=None, metadata=fixed(_OWN_SCHEMA, left_out=True))
    value_schema: str | None = field(default=None, metadata=fixed(_OWN_SCHEMA, left_out=True))
    key_message: str | None = field(default=None, metadata=fixed(_OWN_SCHEMA, left_out=True))
    value_message: str | None = field(default=None, metadata=fixed(_OWN_SCHEMA, left_out=True))
    schema_framed: bool = field(default=False, metadata=fixed(_SAME_ROW, left_out=True))
    unavailable_value_placeholder: str = field(default=UNAVAILABLE, metadata=fixed(_SAME_ROW, left_out=True))
    binary_encoding: str = field(default=BINARY_ENCODINGS[0], metadata=fixed(_SAME_ROW, left_out=True))
    # What a row is.
    key: tuple[str, ...] = field(metadata=fixed("every row, index and delete in the table is found by it"))
    columns: tuple[Column, ...] = field(metadata=BY_RULE)
    partial_updates: bool = field(default=False, metadata=fixed(_SAME_ROW, left_out=True))
    sequence_by: tuple[str, ...] = field(
        default=(),
        metadata=fixed(
            "the rows in the table, and the deletes that it remembers, were ordered by it", left_out=True
        ),
    )
    # Where rows are.
    entity: tuple[str, ...] = field(metadata=fixed("rows are placed and looked up by it"))
    buckets: int = field(default=16, metadata=BY_RULE)
    file_buckets: int | None = field(default=None, metadata=rarely(BY_RULE))
    format_version: int = field(default=3, metadata=fixed("the deletes in the table are written in its form"))
    # What is done with them.
    on_error: OnError = field(default_factory=OnError, metadata=FREE)
    suppress_unchanged: bool = field(default=False, metadata=FREE)
    tombstone_retention_hours: int = field(default=TOMBSTONE_RETENTION_HOURS, metadata=FREE)
    require_fields: bool = field(default=True, metadata=rarely(FREE))
    record_bytes_max: int = field(default=RECORD_BYTES_MAX, metadata=rarely(FREE))
    # Which definition it is.
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

        The name, the identifier, the version and the field ids don't count: they say where a table is and how
        it came about, not what it is.
        """
        return tuple(differences(self, other))

    @property
    def needs_registry(self) -> bool:
        """Whether only a schema registry knows the schemas of its records' writers."""
        in_keys = self.key_from == "key" and self.key_format in SCHEMA_FORMATS
        in_values = self.format in SCHEMA_FORMATS
        return (in_keys and self.key_schema is None) or (in_values and self.value_schema is None)

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

    @property
    def buckets_written(self) -> int:
        """Into how many buckets new files are partitioned: what the configuration calls ``buckets``."""
        return self.file_buckets or self.buckets

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
