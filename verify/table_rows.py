"""The live rows of a snapshot, bucket by bucket, read from its files with the product's own file readers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from thermocline.iceberg.deletes import read_deletes
from thermocline.iceberg.files import open_input
from thermocline.rules.definition import KEY, PROVENANCE, LiveTable
from thermocline.rules.keys import encode_table
from verify.file_scan import UNREADABLE

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from thermocline.iceberg.files import DataFile
    from thermocline.iceberg.reading import Place

__all__ = ["RowsUnreadable", "bucket_rows", "least_offsets", "rows_schema", "with_keys"]

# Rows unpacked at a time: some ten megabytes of short columns.
_ROWS_AT_ONCE: Final = 65_536


class RowsUnreadable(Exception):
    """A file of the table can't be read, which is no failure of the temporary folder."""


def rows_schema(definition: LiveTable) -> pa.Schema:
    """The declared columns, where each row comes from, and its key."""
    return pa.schema([field for field in definition.records_schema if field.name != "_tombstone"])


def bucket_rows(io: FileIO, definition: LiveTable, files: Sequence[DataFile]) -> Iterator[pa.Table]:
    """The rows of files that are not deleted, in pieces, by ``rows_schema``. Absent columns are null.

    Raises:
        RowsUnreadable: a file is not there or can't be read; its cause says more.
    """
    try:
        yield from _live_rows(io, definition, files)
    except UNREADABLE as error:
        raise RowsUnreadable from error


def _live_rows(io: FileIO, definition: LiveTable, files: Sequence[DataFile]) -> Iterator[pa.Table]:
    wanted = rows_schema(definition).names
    for file in files:
        for start, rows in _pieces(io, file.path, wanted):
            live = rows
            if file.deletes is not None:
                deleted = np.asarray(read_deletes(io, file.deletes).to_array(), np.int64)
                positions = np.arange(start, start + rows.num_rows)
                live = rows.filter(pa.array(~np.isin(positions, deleted)))
            if live.num_rows:
                yield with_keys(definition, live)


def least_offsets(io: FileIO, files: Iterable[DataFile]) -> dict[Place, int]:
    """The least offset of each partition that a row of the files comes from, deleted rows included.

    A file that can't be read says nothing: then less of the log is believed to be in the table.
    """
    least: dict[Place, int] = {}
    topic, partition, offset = PROVENANCE[:3]
    for file in files:
        found: list[dict[str, Any]] = []
        with suppress(*UNREADABLE):
            for _, rows in _pieces(io, file.path, [topic, partition, offset]):
                found += rows.group_by([topic, partition]).aggregate([(offset, "min")]).to_pylist()
        for one in found:
            place = (one[topic], one[partition])
            lowest = one[f"{offset}_min"]
            if lowest is not None:
                least[place] = min(lowest, least.get(place, lowest))
    return least


def with_keys(definition: LiveTable, rows: pa.Table) -> pa.Table:
    """Rows of whatever types a file or a stream has them in, by ``rows_schema``, with their keys."""
    schema = rows_schema(definition)
    columns = [_plain(rows, field) for field in schema if field.name != KEY]
    known = pa.table(columns, names=[field.name for field in schema if field.name != KEY])
    keys = encode_table(definition, known)
    return pa.Table.from_arrays([*known.columns, keys], schema=schema)


def _pieces(io: FileIO, path: str, wanted: Sequence[str]) -> Iterator[tuple[int, pa.Table]]:
    with open_input(io, path) as source:
        parquet = pq.ParquetFile(source)
        names = [name for name in wanted if name in parquet.schema_arrow.names]
        start = 0
        for batch in parquet.iter_batches(_ROWS_AT_ONCE, columns=names, use_threads=False):
            yield start, pa.Table.from_batches([batch])
            start += batch.num_rows


def _plain(rows: pa.Table, field: pa.Field) -> pa.Array:
    """One array of the declared type; a column that is not there is null."""
    if field.name not in rows.column_names:
        return pa.nulls(rows.num_rows, field.type)
    values = rows.column(field.name).combine_chunks()
    if isinstance(values, pa.DictionaryArray):
        values = pc.cast(values, values.type.value_type)
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    return values if values.type == field.type else values.cast(field.type)
