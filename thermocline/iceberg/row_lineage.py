"""Row lineage of format version 3: which row it is, and which commit last changed it.

Both are inherited from the file's manifest, until a row moves to another file: then the new file stores them.
A row that is null there is new in that file, and inherits.

Source: the Iceberg table specification, "Row Lineage", and its reserved field ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import numpy as np

    from thermocline.iceberg.files import RowOrigin

__all__ = ["LINEAGE", "with_lineage"]

_ROW_ID: Final = "_row_id"
_LAST_UPDATED: Final = "_last_updated_sequence_number"

LINEAGE: Final = pa.schema(
    [
        pa.field(_ROW_ID, pa.int64(), metadata={"PARQUET:field_id": "2147483540"}),
        pa.field(_LAST_UPDATED, pa.int64(), metadata={"PARQUET:field_id": "2147483539"}),
    ]
)
"""The columns of a file that holds moved rows, after those of the table."""


def with_lineage(
    rows: pa.Table,
    stored: pa.Table,
    positions: np.ndarray[tuple[int], np.dtype[np.int64]],
    origin: RowOrigin,
) -> pa.Table:
    """Rows of a file with their lineage, as it is to be stored where they move.

    ``stored`` are the same rows as the file has them, ``positions`` where they are in it, and ``origin`` is
    what they inherit.
    """
    first, sequence_number = origin.first_row_id, origin.sequence_number
    ids = pa.nulls(len(positions), pa.int64()) if first is None else pa.array(positions + first)
    updated = pa.repeat(pa.scalar(sequence_number, pa.int64()), len(positions))
    for field, inherited in zip(LINEAGE, (ids, updated), strict=True):
        rows = rows.append_column(field, _own(stored, field.name, inherited))
    return rows


def _own(stored: pa.Table, name: str, inherited: pa.Array) -> pa.ChunkedArray | pa.Array:
    # safety: moved-rows-keep-their-lineage
    return pc.coalesce(stored.column(name), inherited) if name in stored.column_names else inherited
