"""Proof that others' commits after our newest snapshot only rewrote files, so that the table says the same.

That a snapshot calls itself a rewrite proves nothing. The live rows of all files that went are compared with
those of all files that came, in every column: two sums of hashes, in which the order of rows does not count.
Rows that came must be in the bucket of their file. Files that stay, with the deletes they had, are not read.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from math import gcd
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap

from thermocline.errors import ForeignSnapshot, StorageFailed, first_line
from thermocline.iceberg.catalog import (
    SnapshotState,
    ancestors,
    current_state,
    is_rolled_back,
    table_state_of,
)
from thermocline.iceberg.deletes import read_deletes
from thermocline.iceberg.files import DataFile, open_input, plan_files, spec_buckets
from thermocline.iceberg.lineage import Link, link_of
from thermocline.iceberg.rows import live_rows, rows_schema
from thermocline.iceberg.tombstones import load_tombstones
from thermocline.process.logs import fields
from thermocline.rules.alteration import definition_by
from thermocline.rules.comparable import nested_as_bytes
from thermocline.rules.definition import KEY
from thermocline.rules.field_ids import field_ids
from thermocline.rules.keys import buckets

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

    from thermocline.rules.column_types import ColumnType
    from thermocline.rules.definition import LiveTable

__all__ = [
    "NotARewrite",
    "Rewrite",
    "RowSums",
    "check_deletes_kept",
    "check_same_rows",
    "column_ids",
    "resume_state",
]

# Rows unpacked at a time, and their bytes: a file of others may hold rows of any size.
_ROWS_AT_ONCE: Final = 8_192
_BYTES_AT_ONCE: Final = 64 << 20
# A row's hash and the sums of them: that two sums are equal by chance is out of the question.
_HASH_BYTES: Final = 16
_SUM_MASK: Final = (1 << 8 * _HASH_BYTES) - 1
# What reading a file raises that another writer filled with something else.
_UNREADABLE: Final = (pa.ArrowException, ValueError, KeyError, AssertionError, FileNotFoundError)

_logger = logging.getLogger(__name__)


class NotARewrite(Exception):
    """What others committed may have changed what the table says; the text says why, in one line."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Snapshots of others that were proved to hold the rows of one of ours, which they follow.

    ``ours`` is that snapshot, ``others`` are theirs, oldest first; the last of them is the current one.
    """

    ours: int
    others: tuple[int, ...]

    @property
    def snapshot_id(self) -> int:
        """The current snapshot, which was proved."""
        return self.others[-1]


def resume_state(table: Table, definition: LiveTable, name: str) -> tuple[SnapshotState, Rewrite | None]:
    """Where ingest can go on: what our newest snapshot says, and the rewrite on top of it, if there is one.

    Raises `ForeignSnapshot` as `current_state` does where others did more than rewrite, and `StorageFailed`.
    """
    try:
        return current_state(table, name), None
    except ForeignSnapshot as foreign:
        others = _since_ours(table)
        if not others:  # it is one of ours that the table was rolled back to, or there is none
            raise
        try:
            ours = _below(table, others)
            ids = [link.snapshot_id for link in others]
            _logger.info("checking a rewrite of another writer", extra=fields(table=name, others=ids))
            check_same_rows(table, definition, ours, others)  # safety: rewrite-is-proved
        except NotARewrite as reason:
            detail = f"{foreign.detail}; it is not taken over: {reason}"
            raise replace(foreign, detail=detail, is_rewrite=False) from None
    return table_state_of(table, ours.snapshot, name), Rewrite(ours.snapshot_id, tuple(ids))


def check_same_rows(table: Table, definition: LiveTable, ours: Link, others: Sequence[Link]) -> None:
    """Compares a snapshot with the last one of others that follow it, and asks each what it did.

    In memory are the two lists of files, and of the rows a piece of 8,192 or 64 MB at a time.
    Raises `NotARewrite`, and `StorageFailed` where the store does not answer.
    """
    for link in others:
        if not link.is_rewrite:  # safety: rewrite-operation
            raise NotARewrite(f"snapshot {link.snapshot_id} is no rewrite by its own account")
        if link.snapshot.schema_id != ours.snapshot.schema_id:  # safety: rewrite-schema
            raise NotARewrite(f"snapshot {link.snapshot_id} has another schema")
    try:
        schema = table.schemas()[ours.snapshot.schema_id or 0]
        then = definition_by(definition, schema)
        ids = column_ids(schema)
        _check_partitions(table, definition, others[-1])
        before, after = _files(table, ours), _files(table, others[-1])
        # By file and deletes, each as often as it is listed.
        went, came = (before - after).elements(), (after - before).elements()
        unit = gcd(definition.buckets, *(file.part.of for file in before))
        for file in after - before:
            if file.part.within(unit) is None:  # safety: rewrite-in-units
                raise NotARewrite(f"{file.path} is in {file.part}, and the table has {unit}")
        check_deletes_kept(table.io, definition, before, after)
        was, is_now = RowSums(table.io, then), RowSums(table.io, then, ids)
        if was.rows_listed(before) != is_now.rows_listed(after):
            raise NotARewrite("it has another number of rows")
        if was.of(went) != is_now.of(came):  # safety: rewrite-same-rows
            raise NotARewrite("it holds other rows")
    except _UNREADABLE as error:
        raise NotARewrite(f"a file can't be read: {first_line(error)}") from error
    except OSError as error:
        raise StorageFailed(table=definition.name, detail=first_line(error)) from error


def check_deletes_kept(
    io: FileIO, definition: LiveTable, before: Counter[DataFile], after: Counter[DataFile]
) -> None:
    """Checks that no file is gone that remembers deletes, which others don't see and so don't keep.

    Raises `NotARewrite`.
    """
    kept = {file.path for file in after}
    for file in before if definition.merging.remembers_deletes else ():
        if file.path not in kept and load_tombstones(io, file.path).positions:  # safety: rewrite-forgets
            raise NotARewrite(f"{file.path} is gone, with deletes that late records must lose against")


def column_ids(schema: Schema) -> dict[str, int]:
    """The ids of columns and of the fields within them, by their full names, as a data file carries them."""
    numbers = schema.field_ids  # safety: rewrite-nested-ids
    return {str(schema.find_column_name(number)): number for number in numbers}


def _since_ours(table: Table) -> list[Link]:
    """Main's newest snapshots, oldest first, that others made."""
    return list(takewhile(lambda link: link.is_foreign, map(link_of, ancestors(table))))[::-1]


def _below(table: Table, others: Sequence[Link]) -> Link:
    """The snapshot of ours that others follow, which must be the last that was committed."""
    parent = others[0].snapshot.parent_snapshot_id
    snapshot = None if parent is None else table.snapshot_by_id(parent)
    if snapshot is None:
        raise NotARewrite("the snapshot before it is not there any more")
    ours = link_of(snapshot)
    # A rollback, whatever was committed on top of it since.
    # safety: rewrite-after-rollback
    if ours.state is None or is_rolled_back(ours.summary, table.properties):
        raise NotARewrite(f"snapshot {ours.snapshot_id} before it is not what was last committed here")
    return ours


def _files(table: Table, link: Link) -> Counter[DataFile]:
    try:
        # By one bucket: in which of its snapshot's time a file was does not matter here.
        return Counter(plan_files(table, link.snapshot_id, buckets=1))
    except ForeignSnapshot as refused:
        raise NotARewrite(refused.detail) from refused


def _check_partitions(table: Table, definition: LiveTable, link: Link) -> None:
    """Every file is in a bucket of a spec of ours."""
    specs = spec_buckets(table)
    for manifest in link.snapshot.manifests(table.io):
        if manifest.partition_spec_id not in specs:  # safety: rewrite-partitions
            raise NotARewrite(f"it holds files that are not in buckets of {definition.bucket_column.name}")


class RowSums:
    """Counts the live rows of files, and sums their hashes: equal for equal rows, however files hold them.

    ``ids``: the columns that each file must have, by name; then its rows must be in its bucket, too.
    """

    def __init__(self, io: FileIO, definition: LiveTable, ids: Mapping[str, int] | None = None) -> None:
        self._io = io
        self._definition = definition
        self._columns = [name for name in rows_schema(definition).names if name != KEY]
        self._nested = {column.name: column.type for column in definition.columns if column.type.fields}
        self._ids = ids or {}

    def rows_listed(self, files: Counter[DataFile]) -> int:
        """The live rows as the manifests count them."""
        return sum(times * _live(file) for file, times in files.items())

    def of(self, files: Iterable[DataFile]) -> tuple[int, int]:
        """Count and sum of all rows."""
        rows = sum_of_all = 0
        for file in files:
            count, total = self._of_file(file)
            rows, sum_of_all = rows + count, sum_of_all + total & _SUM_MASK
        return rows, sum_of_all

    def _of_file(self, file: DataFile) -> tuple[int, int]:
        rows_at_once = self._look_at(file)
        deleted = read_deletes(self._io, file.deletes) if file.deletes is not None else BitMap()
        count = total = 0
        for rows in live_rows(self._io, self._definition, file.path, deleted, rows_at_once):
            count += rows.num_rows
            if self._ids:
                self._check_bucket(file, rows)
            total += sum(_hashes(rows.select(self._columns), self._nested))
        if count != _live(file):
            raise NotARewrite(f"{file.path} has {count} live rows, and its manifest says {_live(file)}")
        return count, total

    def _check_bucket(self, file: DataFile, rows: pa.Table) -> None:
        numbers = buckets(self._definition, rows.column(self._definition.bucket_column.name), file.part.of)
        if (numbers != file.part.number).any():  # safety: rewrite-placed
            raise NotARewrite(f"{file.path} holds rows of other buckets than {file.part}")

    def _look_at(self, file: DataFile) -> int:
        """How many of its rows may be unpacked at a time."""
        with open_input(self._io, file.path) as source:
            parquet = pq.ParquetFile(source)
            footer: pq.FileMetaData = parquet.metadata
            fields = dict(field_ids(parquet.schema_arrow))
        if footer.num_rows != file.rows:
            raise NotARewrite(f"{file.path} has {footer.num_rows} rows, and its manifest says {file.rows}")
        # Readers go by its ids, and by the names of the columns of the key.
        if not self._ids.items() <= fields.items():  # safety: rewrite-columns
            raise NotARewrite(f"{file.path} has other columns than the table")
        unpacked = sum(footer.row_group(group).total_byte_size for group in range(footer.num_row_groups))
        row_bytes: int = unpacked // max(footer.num_rows, 1) + 1
        return min(max(_BYTES_AT_ONCE // row_bytes, 1), _ROWS_AT_ONCE)


def _live(file: DataFile) -> int:
    return file.rows - (file.deletes.cardinality if file.deletes is not None else 0)


def _hashes(rows: pa.Table, nested: Mapping[str, ColumnType]) -> Iterator[int]:
    """A number for each row: the same one for the same values of the same types alone."""
    encode = msgspec.msgpack.Encoder().encode
    columns = (_exact(rows.column(name).combine_chunks(), nested.get(name)) for name in rows.column_names)
    for row in zip(*(values.to_pylist() for values in columns), strict=True):
        yield int.from_bytes(hashlib.blake2b(encode(row), digest_size=_HASH_BYTES).digest())


def _exact(values: pa.Array, nested: ColumnType | None) -> pa.Array:
    """Times as their numbers, which takes a tenth of the time; doubles as their bits: -0.0 is not 0.0."""
    if nested is not None:
        return nested_as_bytes(nested, values)
    if pa.types.is_temporal(values.type) or pa.types.is_floating(values.type):
        return values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())
    return values
