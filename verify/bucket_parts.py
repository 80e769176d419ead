"""A bucket's records and rows by parts of its keys, so that each part fits into memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from verify.log_fold import folded, records_schema
from verify.spill import Spill, part_of
from verify.table_rows import RowsUnreadable, rows_schema

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable

__all__ = ["Part", "parts_of"]

Part = tuple[tuple[pa.Table, int], pa.Table, pa.Table, pa.Table | None]
"""Of some keys: the log's deciding records and how many do not decide, the table's rows, the extract's, and
the hot tier's winners."""


def parts_of(
    definition: LiveTable,
    sides: Sequence[Iterator[pa.Table]],
    hot: pa.Table | None,
    count: int,
    folder: Path,
    held_bytes_max: int,
) -> Iterator[Part]:
    """So many parts of the log's records, the table's rows and the extract's, and of the hot tier's winners.

    More than one go through files below ``folder``, which are gone at the end. All rows are read before the
    first part is given. Raises `RowsUnreadable`.
    """
    if count == 1:
        yield _part(definition, sides, hot)
        return
    spills = [Spill(folder / f"part-{side}", held_bytes_max // 2) for side in range(len(sides))]
    try:
        for spill, side in zip(spills, sides, strict=True):
            for piece in side:
                spill.add(part_of(piece, count), piece)
    except RowsUnreadable:
        for spill in spills:  # the next bucket's parts go to the same files
            for number in range(count):
                spill.drop(number)
        raise
    hot_part = None if hot is None else part_of(hot, count)
    for number in range(count):
        of_hot = None if hot is None else hot.filter(pa.array(hot_part == number))
        yield _part(definition, [spill.read(number) for spill in spills], of_hot)
        for spill in spills:
            spill.drop(number)


def _part(definition: LiveTable, sides: Sequence[Iterator[pa.Table]], hot: pa.Table | None) -> Part:
    records, stored, shown = sides
    rows = rows_schema(definition).empty_table()
    return (
        folded(records, records_schema(definition).empty_table()),
        pa.concat_tables([rows, *stored]).combine_chunks(),
        pa.concat_tables([rows, *shown]).combine_chunks(),
        hot,
    )
