"""Rows of Parquet files as a source of a batch: rows that no topic ever had."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from thermocline.errors import SourceInvalid
from thermocline.iceberg.files import open_input
from thermocline.rules import keys
from thermocline.rules.definition import ABSENT, KEY, PROVENANCE, SEQUENCE, TOMBSTONE

if TYPE_CHECKING:
    from thermocline.ingest.batch.read_task import ReadReport, ReadTask
    from thermocline.ingest.batch.source import Together
    from thermocline.rules.definition import LiveTable

__all__ = ["ParquetFiles"]

ROWS_AT_ONCE = 65_536


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    """Files whose columns are a table's declared ones, by name; each is a part. See `Source`.

    ``paths`` are URIs that the table's store opens. A column that a file lacks is null; others are refused.
    """

    paths: Sequence[str]
    rows: int

    @property
    def parts(self) -> int:
        """See `Source`."""
        return len(self.paths)

    @property
    def records(self) -> int:
        """See `Source`."""
        return self.rows

    def pieces(self, task: ReadTask, part: int) -> Generator[pa.RecordBatch, None, None]:
        """See `Source`: batches of rows. Raises `SourceInvalid` for a file that has no rows of the table."""
        path = self.paths[part]
        with open_input(task.io, path) as file, pq.ParquetFile(file) as parquet:
            _check_columns(path, parquet.schema_arrow, task.definition)
            yield from parquet.iter_batches(ROWS_AT_ONCE)

    def reader(self, task: ReadTask, part: int, together: Together) -> FileReader:  # noqa: ARG002  a source's
        """See `Source`."""
        return FileReader(task.definition, self.paths[part], part)

    def check(self, reports: Sequence[ReadReport]) -> None:
        """See `Source`: every file was read to its end."""
        left = set(range(self.parts)) - {part for report in reports for part in report.parts}
        if left:  # safety: a-batch-reads-every-file
            raise SourceInvalid(source=self.paths[min(left)], problem="it was not read to its end")


@dataclass(frozen=True, slots=True)
class FileReader:
    """Makes records of the rows of one file; see `SourceReader`."""

    definition: LiveTable
    path: str
    part: int

    def take(self, piece: pa.RecordBatch, report: ReadReport) -> pa.Table:
        """See `SourceReader`. Raises `SourceInvalid` where its rows are none of the table's."""
        report.records += piece.num_rows
        return _records(self.path, pa.Table.from_batches([piece]), self.definition)

    def end(self, report: ReadReport) -> None:
        """See `SourceReader`."""
        report.parts.append(self.part)


def _check_columns(path: str, schema: pa.Schema, definition: LiveTable) -> None:
    """Makes sure that a file may have rows of the table. Raises `SourceInvalid`."""
    declared = [column.name for column in definition.columns]
    missing = [name for name in definition.key if name not in schema.names]
    unknown = [name for name in schema.names if name not in declared]
    if not definition.has_key:
        problem = "the table has no key: a row of it is known by its place in a topic"
        raise SourceInvalid(source=path, problem=problem)
    if missing or unknown:
        said = f"it lacks {', '.join(missing)}" if missing else f"the table has no {', '.join(unknown)}"
        raise SourceInvalid(source=path, problem=said)


def _records(path: str, rows: pa.Table, definition: LiveTable) -> pa.Table:
    """Rows as decoded records without provenance. Raises `SourceInvalid`."""
    count = rows.num_rows
    columns = {}
    for column in definition.columns:
        try:
            found = rows.column(column.name) if column.name in rows.column_names else pa.nulls(count)
            columns[column.name] = found.cast(column.type.arrow)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            said = f"column {column.name} can't be {column.type}: {error}"
            raise SourceInvalid(source=path, problem=said) from error
    for name in (*definition.key, *definition.merging.ordered_by):
        if columns[name].null_count:
            raise SourceInvalid(source=path, problem=f"column {name} is null in some of its rows")
    schema = definition.records_schema
    values = pa.table(columns)
    columns |= {name: pa.nulls(count, schema.field(name).type) for name in PROVENANCE}
    columns[TOMBSTONE] = pa.array(np.zeros(count, np.bool_))
    columns[KEY] = keys.encode_table(definition, values)
    if definition.merging.is_ordered:
        columns[SEQUENCE] = definition.merging.sequences(values)
    if definition.merging.is_partial:
        columns[ABSENT] = pa.array([[]] * count, schema.field(ABSENT).type)
    return pa.table([columns[field.name] for field in schema], schema=schema)
