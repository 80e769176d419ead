"""The rows of a snapshot's files, for a verification: live ones, and how far back they reach."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyroaring import BitMap

from thermocline.iceberg.deletes import read_deletes
from thermocline.iceberg.rows import live_rows, pieces
from thermocline.iceberg.tombstones import load_tombstones
from thermocline.rules.definition import PROVENANCE, LiveTable
from thermocline.verify.file_scan import UNREADABLE

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from thermocline.iceberg.files import DataFile
    from thermocline.iceberg.reading import Place

__all__ = ["RowsUnreadable", "bucket_rows", "least_offsets", "remembered_deletes"]


class RowsUnreadable(Exception):
    """A file of the table can't be read, which is no failure of the temporary folder."""


def bucket_rows(io: FileIO, definition: LiveTable, files: Sequence[DataFile]) -> Iterator[pa.Table]:
    """The rows of files that are not deleted, in pieces, by ``rows_schema``. Absent columns are null.

    Raises:
        RowsUnreadable: a file is not there or can't be read; its cause says more.
    """
    try:
        for file in files:
            deleted = None if file.deletes is None else read_deletes(io, file.deletes)
            yield from live_rows(io, definition, file.path, deleted)
    except UNREADABLE as error:
        raise RowsUnreadable from error


def remembered_deletes(io: FileIO, definition: LiveTable, files: Sequence[DataFile]) -> Iterator[pa.Table]:
    """The deletes that files remember, as rows without values, in pieces, by ``rows_schema``.

    Raises:
        RowsUnreadable: a file is not there or can't be read; its cause says more.
    """
    try:
        for file in files:
            positions = load_tombstones(io, file.path).positions
            if positions:
                others = BitMap(range(file.rows)) - positions
                yield from live_rows(io, definition, file.path, others)
    except UNREADABLE as error:
        raise RowsUnreadable from error


def least_offsets(io: FileIO, definition: LiveTable, files: Iterable[DataFile]) -> dict[Place, int]:
    """The least offset of each partition that a row of the files comes from, deleted rows included.

    A file that can't be read says nothing: then less of the log is believed to be in the table.
    """
    least: dict[Place, int] = {}
    topic, partition, offset = PROVENANCE[:3]
    for file in files:
        found: list[dict[str, Any]] = []
        with suppress(*UNREADABLE):
            for _, rows in pieces(io, definition, file.path, [topic, partition, offset]):
                found += rows.group_by([topic, partition]).aggregate([(offset, "min")]).to_pylist()
        for one in found:
            place = (one[topic], one[partition])
            lowest = one[f"{offset}_min"]
            if lowest is not None:
                least[place] = min(lowest, least.get(place, lowest))
    return least
