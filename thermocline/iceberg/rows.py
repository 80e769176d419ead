"""Rows of data files, of whichever definition they were written by, as the table is defined now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from thermocline.iceberg.files import open_input
from thermocline.iceberg.row_lineage import LINEAGE, with_lineage
from thermocline.rules.definition import ABSENT, KEY, SEQUENCE, TOMBSTONE
from thermocline.rules.field_ids import Match, matches, named_by
from thermocline.rules.keys import encode_table

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyroaring import BitMap

    from thermocline.iceberg.files import DataFile
    from thermocline.rules.definition import LiveTable

__all__ = ["declared", "live_rows", "moved_rows", "pieces", "rows_schema", "stored_columns", "with_keys"]

Positions = np.ndarray[tuple[int], np.dtype[np.int64]]

# What a record says of itself, and a row does not.
_OF_RECORDS: Final = (TOMBSTONE, ABSENT, SEQUENCE)
# Rows unpacked at a time: a few megabytes of short columns.
_ROWS_AT_ONCE: Final = 8_192


def rows_schema(definition: LiveTable) -> pa.Schema:
    """The declared columns, where each row comes from, and its key."""
    return pa.schema([field for field in definition.records_schema if field.name not in _OF_RECORDS])


def live_rows(
    io: FileIO, definition: LiveTable, path: str, deleted: BitMap | None, rows_at_once: int = _ROWS_AT_ONCE
) -> Iterator[pa.Table]:
    """The rows of a file but those at the deleted positions, in pieces, by ``rows_schema``."""
    wanted = rows_schema(definition).names
    for _, rows in _placed_rows(io, definition, path, wanted, deleted, rows_at_once):
        yield with_keys(definition, rows)


def moved_rows(
    io: FileIO,
    definition: LiveTable,
    file: DataFile,
    deleted: BitMap | None,
    rows_at_once: int = _ROWS_AT_ONCE,
) -> Iterator[tuple[Positions, pa.Table]]:
    """The same for rows that go to another file, with their positions in this one, and what is known of them.

    In format version 3 that is their lineage (`LINEAGE`), in version 2 nothing.
    """
    lineage = LINEAGE.names if definition.format_version > 2 else []
    wanted = [*rows_schema(definition).names, *lineage]
    for positions, stored in _placed_rows(io, definition, file.path, wanted, deleted, rows_at_once):
        rows = with_keys(definition, stored)
        yield positions, with_lineage(rows, stored, positions, file.origin) if lineage else rows


def _placed_rows(
    io: FileIO,
    definition: LiveTable,
    path: str,
    wanted: Sequence[str],
    deleted: BitMap | None,
    rows_at_once: int,
) -> Iterator[tuple[Positions, pa.Table]]:
    positions_deleted = np.asarray(() if deleted is None else deleted.to_array(), np.int64)
    for start, rows in pieces(io, definition, path, wanted, rows_at_once):
        first, end = np.searchsorted(positions_deleted, (start, start + rows.num_rows))
        is_live = np.ones(rows.num_rows, bool)
        is_live[positions_deleted[first:end] - start] = False
        if end - first < rows.num_rows:
            live = rows.filter(pa.array(is_live)) if end > first else rows
            yield start + np.flatnonzero(is_live), live


def with_keys(definition: LiveTable, rows: pa.Table) -> pa.Table:
    """Rows of whatever types a file or a stream has them in, by ``rows_schema``, with their keys.

    A column that is not there is null.
    """
    schema = rows_schema(definition)
    columns = [declared(rows, field, rows.num_rows) for field in schema if field.name != KEY]
    known = pa.table(columns, names=[field.name for field in schema if field.name != KEY])
    keys = encode_table(definition, known)
    return pa.Table.from_arrays([*known.columns, keys], schema=schema)


def pieces(
    io: FileIO, definition: LiveTable, path: str, wanted: Sequence[str], rows_at_once: int = _ROWS_AT_ONCE
) -> Iterator[tuple[int, pa.Table]]:
    """All rows of a file, with the position of the first one of each piece.

    Of the wanted columns those that the file has, by field id, in its types but for what is nested.
    """
    with open_input(io, path) as source:
        parquet = pq.ParquetFile(source)
        known = stored_columns(parquet.schema_arrow, definition, wanted)
        names = [match.stored.name for match in known.values()]
        start = 0
        for batch in parquet.iter_batches(rows_at_once, columns=names, use_threads=False):
            yield start, named_by(pa.Table.from_batches([batch]), known)
            start += batch.num_rows


def stored_columns(stored: pa.Schema, definition: LiveTable, wanted: Iterable[str]) -> dict[str, Match]:
    """Of wanted columns of the table, and of `LINEAGE`, those that a file has."""
    known = {field.name: field for field in (*definition.table_schema, *LINEAGE)}
    return matches(stored, [known[name] for name in wanted if name in known])


def declared(rows: pa.Table, field: pa.Field, count: int) -> pa.Array:
    """A column of so many rows as one array of the declared type; null where it is not there."""
    if field.name not in rows.column_names:
        return pa.nulls(count, field.type)
    values = rows.column(field.name).combine_chunks()
    if isinstance(values, pa.DictionaryArray):
        values = pc.cast(values, values.type.value_type)
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    return values if values.type == field.type else values.cast(field.type)
