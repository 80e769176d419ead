"""The rows of one data file: in order, where they belong, and from records of their batch.

Only key and provenance columns are read, a bounded number of rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from thermocline.errors import first_line
from thermocline.iceberg.files import open_input
from thermocline.iceberg.sparse_index import first_keys_in
from thermocline.rules.definition import PROVENANCE
from thermocline.rules.keys import buckets, encode_table
from thermocline.verify.finding import Finding, Key, key_of

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from thermocline.iceberg.file_buckets import FileBucket
    from thermocline.rules.definition import LiveTable
    from thermocline.verify.current_files import StoredFile
    from thermocline.verify.origins import Mask, Origins

# With keys of 60 bytes some 4 MB.
_ROWS_AT_ONCE: Final = 65_536
# What reading a file raises that is damaged, or that another writer filled with columns of its own.
UNREADABLE: Final = (OSError, ValueError, KeyError, AssertionError, pa.ArrowException, msgspec.MsgspecError)

RowsRead = Callable[[int], None]
"""Called with the number of rows that were read."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of a file that follow one another: from which position on, their keys, and which are live.

    None of them counts as live where the deletes can't be read: what is not known is not judged.
    """

    start: int
    rows: pa.Table
    keys: pa.Array
    is_live: Mask

    @property
    def end(self) -> int:
        return self.start + len(self.keys)


def file_findings(
    io: FileIO,
    definition: LiveTable,
    file: StoredFile,
    part: FileBucket,
    origins: Origins,
    rows_read: RowsRead,
) -> Iterator[Finding]:
    """What is wrong with the rows of a data file, which should be in the bucket ``part``.

    One that is not there is another check's finding.
    """
    try:
        yield from _row_findings(io, definition, file, part, origins, rows_read)
    except FileNotFoundError:
        return
    except UNREADABLE as error:
        yield Finding("file-unreadable", f"{file.path} can't be read: {first_line(error)}")


def _row_findings(
    io: FileIO,
    definition: LiveTable,
    file: StoredFile,
    bucket: FileBucket,
    origins: Origins,
    rows_read: RowsRead,
) -> Iterator[Finding]:
    window = origins.of_file(file.listed.snapshot_id)
    first_keys, row_starts, rows = _index(io, file)
    if rows != file.listed.rows:
        facts = f"{rows} rows, and its manifest says {file.listed.rows}"
        yield Finding("file-differs", f"{file.path} has {facts}")
    seen = _WrongRows(definition, file, bucket)
    last_key = b""
    for part in _parts(io, definition, file):
        rows_read(len(part.keys))
        beyond, behind = window.outside(part.rows)
        seen.take("row-beyond-seam", part, beyond & part.is_live)
        seen.take("row-behind-seam", part, behind & part.is_live)
        of_bucket = buckets(definition, part.rows.column(definition.bucket_column.name), bucket.of)
        # A bucket that is no part of one of the table's has none of its rows in the right place.
        is_ours = bucket.within(definition.buckets) is not None
        seen.take("row-misplaced", part, (of_bucket != bucket.number) | (not is_ours))
        if first_keys is not None:
            seen.take("file-unsorted", part, _out_of_order(part, last_key, first_keys, row_starts))
        last_key = part.keys[-1].as_py()
    yield from seen.findings()


class _WrongRows:
    """How many rows of a file are wrong, by code, and the first of them."""

    _WORDS: Final = {
        "row-beyond-seam": "come from records at or beyond the seam of the snapshot that added them",
        "row-behind-seam": "come from records before those that the snapshot read which added them",
        "row-misplaced": "belong to other buckets",
        "file-unsorted": "are not where the file's order of keys, or the index in its footer, says",
    }

    def __init__(self, definition: LiveTable, file: StoredFile, bucket: FileBucket) -> None:
        self._definition, self._file, self._bucket = definition, file, bucket
        self._found: dict[str, tuple[int, Key, str]] = {}

    def take(self, code: str, part: _Part, wrong: Mask) -> None:
        count = int(np.count_nonzero(wrong))
        if not count:
            return
        before, key, place = self._found.get(code, (0, None, ""))
        if key is None:
            at = int(np.flatnonzero(wrong)[0])
            key = key_of(self._definition, part.keys[at].as_py())
            place = f"row {part.start + at}, from {origin_of(part.rows, at)}"
        self._found[code] = (before + count, key, place)

    def findings(self) -> Iterator[Finding]:
        for code, (count, key, place) in self._found.items():
            bucket = f" of {self._bucket}" if code == "row-misplaced" else ""
            added = f", added by snapshot {self._file.listed.snapshot_id}"
            what = f"{count} rows of {self._file.path}{bucket}{added}, {self._WORDS[code]}; first {place}"
            yield Finding(code, what, key)


def origin_of(rows: pa.Table | pa.RecordBatch, index: int) -> str:
    """Which record a row comes from, as ``topic/partition@offset``."""
    topic, partition, offset = (rows.column(name)[index].as_py() for name in PROVENANCE[:3])
    return "no record" if None in (topic, partition, offset) else f"{topic}/{partition}@{offset}"


def _index(io: FileIO, file: StoredFile) -> tuple[list[bytes] | None, list[int], int]:
    """The first keys that the footer gives (None: none), the row groups' first rows, and how many rows."""
    with open_input(io, file.path) as source:
        footer = pq.ParquetFile(source).metadata
        counts = [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]
        first_keys = first_keys_in(footer)  # another writer's file has none: it is read as whatever it is
    starts: list[int] = np.concatenate(([0], np.cumsum(counts)[:-1])).astype(np.int64).tolist()
    return first_keys, starts, sum(counts)


def _out_of_order(part: _Part, last_key: bytes, first_keys: Sequence[bytes], starts: Sequence[int]) -> Mask:
    """The rows with a lower key than the row before, and the first rows of groups that the index misses."""
    wrong = np.zeros(len(part.keys), np.bool_)
    wrong[0] = part.keys[0].as_py() < last_key
    wrong[1:] = pc.less(part.keys[1:], part.keys[:-1]).to_numpy(zero_copy_only=False)
    groups = np.flatnonzero((np.asarray(starts) >= part.start) & (np.asarray(starts) < part.end))
    for group in groups.tolist():
        at = starts[group] - part.start
        wrong[at] |= part.keys[at].as_py() != first_keys[group]
    return wrong


def _parts(io: FileIO, definition: LiveTable, file: StoredFile) -> Iterator[_Part]:
    deleted = file.deleted(io)
    columns = list(dict.fromkeys((*definition.identity, *PROVENANCE[:3])))
    positions = np.asarray(() if deleted is None else deleted.to_array(), np.int64)
    start = 0
    with open_input(io, file.path) as source:
        parquet = pq.ParquetFile(source, pre_buffer=True)
        for groups in _groups(parquet.metadata):
            for batch in parquet.iter_batches(_ROWS_AT_ONCE, row_groups=groups, columns=columns):
                rows = pa.Table.from_batches([batch])
                low, high = np.searchsorted(positions, [start, start + rows.num_rows])
                is_live = np.full(rows.num_rows, deleted is not None)
                is_live[positions[low:high] - start] = False
                yield _Part(start, rows, encode_table(definition, rows), is_live)
                start += rows.num_rows


def _groups(footer: pq.FileMetaData) -> Iterator[list[int]]:
    """The row groups that are fetched at once: small ones together, as a store answers slowly."""
    some: list[int] = []
    count = 0
    for group in range(footer.num_row_groups):
        some.append(group)
        count += footer.row_group(group).num_rows
        if count >= _ROWS_AT_ONCE:
            yield some
            some, count = [], 0
    if count:
        yield some
