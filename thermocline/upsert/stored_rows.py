"""Rows of a data file by their position, read in pieces of a bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from thermocline.iceberg.files import open_input
from thermocline.iceberg.rows import stored_columns
from thermocline.rules.field_ids import named_by
from thermocline.upsert.probe import together

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from thermocline.rules.definition import LiveTable
    from thermocline.upsert.probe import Positions

# Row groups read at once, unpacked: a quarter of a million rows of 200 bytes, and of rows of a megabyte no
# more than one row group.
BYTES_AT_ONCE = 64 << 20
# However little it takes packed: a value that repeats is written once, and is there for each row unpacked.
_GROUP_BYTES_MIN = BYTES_AT_ONCE // 128


def rows_at(
    io: FileIO, definition: LiveTable, path: str, positions: Positions, columns: Sequence[str]
) -> Iterator[tuple[slice, pa.Table]]:
    """The rows at some positions (ascending), piece by piece: which of the positions, and their rows.

    Reads the row groups of these rows alone. Columns that the file lacks, by field id, are left out.
    """
    with open_input(io, path) as source:
        parquet = pq.ParquetFile(source, pre_buffer=True)
        sizes = np.array([parquet.metadata.row_group(g).num_rows for g in range(parquet.num_row_groups)])
        starts = np.cumsum(sizes) - sizes
        group_of = np.searchsorted(starts, positions, side="right") - 1
        known = stored_columns(parquet.schema_arrow, definition, columns)
        names = [match.stored.name for match in known.values()]
        for some in together(
            np.unique(group_of).tolist(),
            lambda group: max(parquet.metadata.row_group(group).total_byte_size, _GROUP_BYTES_MIN),
            BYTES_AT_ONCE,
        ):
            begin, end = np.searchsorted(group_of, [some[0], some[-1] + 1]).tolist()
            of_some = np.searchsorted(some, group_of[begin:end])
            read_starts = np.cumsum(sizes[some]) - sizes[some]
            rows = positions[begin:end] - starts[some][of_some] + read_starts[of_some]
            stored = parquet.read_row_groups(some, columns=names, use_threads=False)
            yield slice(begin, end), named_by(stored.take(pa.array(rows)), known)


__all__ = ["rows_at"]
