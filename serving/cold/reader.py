"""Reads the cold rows of one entity: a few row groups, less their deleted rows.

Row groups are found by the sparse index, their deleted positions by the deletion vector; nothing is planned
and nothing is scanned. Readers may be used by several threads at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap

from serving.bounded import Bounded
from thermocline.definition import Kind, LiveTable
from thermocline.deletes import read_vector
from thermocline.files import local_path, open_input
from thermocline.keys import bucket_of, encode_one, prefix_end

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from serving.cold.index import ColdFile, ColdIndex

# A parsed footer takes about 3.4 kB a row group: 30,000 row groups (60 million rows) are about 100 MB.
FOOTER_ROW_GROUPS_MAX: Final = 30_000
# A deletion vector of 1 % of two million rows takes 40 kB.
VECTOR_BYTES_MAX: Final = 64 * 1024 * 1024

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
TIMES: Final = pa.timestamp("us", "UTC")

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Entity:
    """What a lookup asks for: the rows whose key begins with ``values``, all in one bucket.

    ``values`` are those of the entity's columns and, where given, of the key columns that follow them.
    """

    values: tuple[Any, ...]
    prefix: bytes
    bucket: int

    @classmethod
    def of(cls, definition: LiveTable, values: Sequence[Any]) -> Entity:
        """From natural values in key order, at least one for each entity column."""
        last = values[len(definition.entity) - 1]
        return cls(tuple(values), encode_one(definition, values), bucket_of(definition, last))


@dataclass(frozen=True, slots=True)
class _Opened:
    """A data file's parsed footer, and its memory map where it is local. Any thread may read from both."""

    footer: pq.FileMetaData
    mapped: pa.MemoryMappedFile | None


class ColdReader:
    """Reads entities from the data files of one table."""

    def __init__(self, io: FileIO) -> None:
        self._io = io
        self._files: Bounded[str, _Opened] = Bounded(FOOTER_ROW_GROUPS_MAX)
        self._vectors: Bounded[tuple[str, int], BitMap] = Bounded(VECTOR_BYTES_MAX)

    def rows(self, index: ColdIndex, entity: Entity) -> dict[bytes, Row]:
        """The entity's rows in this snapshot by key, each with the natural values of the declared columns."""
        definition = index.definition
        end = prefix_end(entity.prefix)
        names = [column.name for column in definition.columns]
        key_of = itemgetter(*(names.index(name) for name in definition.key))
        found: dict[bytes, Row] = {}
        files = index.buckets.get(entity.bucket, ())
        candidates = [(file, file.sparse.candidates(entity.prefix, end)) for file in files]
        candidates = [(file, groups) for file, groups in candidates if groups]
        for file, groups in candidates:
            for row in self._rows_of_file(definition, file, groups, entity, is_sure=len(candidates) == 1):
                key = key_of(row)
                found[encode_one(definition, key if len(definition.key) > 1 else (key,))] = row
        return found

    def deleted(self, file: ColdFile) -> BitMap | None:
        """The deleted positions of a data file; None when none are."""
        deletes = file.data.deletes
        if deletes is None:
            return None
        place = (deletes.path, deletes.offset)
        known = self._vectors.get(place)
        if known is not None:
            return known
        return self._vectors.put(place, read_vector(self._io, deletes), weight=deletes.length)

    def warm(self, file: ColdFile) -> None:
        """Loads what every lookup in the file needs, so that the first one does not wait for it."""
        self._opened(file)
        self.deleted(file)

    def _rows_of_file(
        self, definition: LiveTable, file: ColdFile, groups: range, entity: Entity, is_sure: bool
    ) -> Iterator[Row]:
        deleted = self.deleted(file)
        opened = self._opened(file)
        with nullcontext(opened.mapped) if opened.mapped else open_input(self._io, file.data.path) as source:
            # Away from this machine the number of requests counts: one for the whole row group.
            is_local = opened.mapped is not None
            parquet = pq.ParquetFile(source, metadata=opened.footer, pre_buffer=not is_local)
            probes_first = is_local and not is_sure
            for group in groups:
                positions, columns = _matching(parquet, group, definition, entity, file, probes_first)
                start = int(file.sparse.row_starts[group])
                for position, row in zip(positions, zip(*columns, strict=True), strict=True):
                    if deleted is None or start + position not in deleted:
                        yield row

    def _opened(self, file: ColdFile) -> _Opened:
        known = self._files.get(file.data.path)
        if known is not None:
            return known
        footer = _read_footer(file.footer, self._io, file.data.path)
        # A map that stays costs no page faults at the next lookup.
        mapped = open_input(self._io, file.data.path) if local_path(file.data.path) is not None else None
        return self._files.put(file.data.path, _Opened(footer, mapped), weight=footer.num_row_groups)


def _read_footer(footer: Path, io: FileIO, path: str) -> pq.FileMetaData:
    try:
        return pq.read_metadata(footer)
    except FileNotFoundError:
        with open_input(io, path) as source:
            return pq.read_metadata(source)


def _matching(
    parquet: pq.ParquetFile,
    group: int,
    definition: LiveTable,
    entity: Entity,
    file: ColdFile,
    probes_first: bool,
) -> tuple[list[int], list[list[Any]]]:
    """The positions within a row group of the entity's rows, and the values of the declared columns.

    ``probes_first`` reads the columns to compare before the others: where several files come into question,
    the entity is mostly not in each, and then the rest, three quarters of the cost, is spared.
    """
    declared = [column.name for column in definition.columns if column.name in file.columns]
    compared = list(definition.key[: len(entity.values)])
    batch = _read(parquet, group, compared if probes_first else declared)
    matches = pc.indices_nonzero(_mask(batch, definition, entity)).to_pylist()
    if not matches:
        return [], [[] for _ in definition.columns]
    rest = [name for name in declared if name not in compared]
    others = _read(parquet, group, rest) if probes_first and rest else batch
    values = {
        name: _values(source.column(name), matches)
        for source in (others, batch)
        for name in source.schema.names
    }
    columns: list[list[Any]] = [
        _natural(column.type.kind, values[column.name]) if column.name in values else [None] * len(matches)
        for column in definition.columns
    ]
    return matches, columns


def _read(parquet: pq.ParquetFile, group: int, columns: Sequence[str]) -> pa.RecordBatch:
    # One chunk per column: a row group of ours is one, and combining is free then.
    table = parquet.read_row_group(group, columns=list(columns), use_threads=False)
    return table.combine_chunks().to_batches()[0] if table.num_rows else _no_rows(table.schema)


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)


def _mask(batch: pa.RecordBatch, definition: LiveTable, entity: Entity) -> pa.Array:
    mask: pa.Array | None = None
    for column, value in zip(definition.key_columns, entity.values, strict=False):
        wanted = pa.scalar(value.bytes if isinstance(value, UUID) else value, column.type.arrow)
        equal = pc.equal(_storage(batch.column(column.name)), wanted)
        mask = equal if mask is None else pc.and_(mask, equal)
    return mask


def _storage(array: pa.Array) -> pa.Array:
    """What stands for the values in memory; of times the microseconds, since Arrow makes datetimes slowly."""
    if pa.types.is_timestamp(array.type):
        return array.cast(TIMES).view(pa.int64())
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _values(array: pa.Array, positions: Sequence[int]) -> list[Any]:
    first, count = positions[0], len(positions)
    plain = _storage(array)
    if positions[-1] - first + 1 == count:  # always, where rows are sorted by key
        return plain.slice(first, count).to_pylist()  # type: ignore[no-any-return]
    return plain.take(pa.array(positions)).to_pylist()  # type: ignore[no-any-return]


def _natural(kind: Kind, values: list[Any]) -> list[Any]:
    if kind is Kind.TIMESTAMPTZ:
        return [None if value is None else EPOCH + timedelta(microseconds=value) for value in values]
    if kind is Kind.UUID:
        return [None if value is None else UUID(bytes=value) for value in values]
    return values
