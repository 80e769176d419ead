"""Reads the cold rows of one entity: a few row groups, less their deleted rows.

Row groups are found by the sparse index, their deleted positions by its deletes; nothing is planned
and nothing is scanned. Readers may be used by several threads at once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, partial, reduce
from itertools import count, groupby
from operator import itemgetter, methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap

from thermocline.bounded import Bounded
from thermocline.failpoints import failpoint
from thermocline.iceberg.deletes import read_deletes
from thermocline.iceberg.files import local_path, open_input
from thermocline.iceberg.store_retries import read_whole
from thermocline.iceberg.tombstones import tombstones_in
from thermocline.rules.column_types import ColumnType
from thermocline.rules.decode import natural_values
from thermocline.rules.definition import PROVENANCE, LiveTable
from thermocline.rules.keys import (
    bucket_of,
    encode_columns,
    encode_one,
    encode_table,
    flat_column,
    prefix_end,
)
from thermocline.serving.cold.decoded import DecodedGroups, Place
from thermocline.serving.cold.entity_filter import hash_of
from thermocline.serving.cold.place import ColdPlace, RecordPlace
from thermocline.serving.cold.ready import file_key, live_rows, packed, ready_rows, stored_key, unpacked
from thermocline.serving.store import measures

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from thermocline.serving.cold.entity_rows import EntityRows, JsonRow
    from thermocline.serving.cold.index import ColdFile, ColdIndex
    from thermocline.serving.cold.ready import ReadyRow
    from thermocline.serving.cold.row_store import RowStore

# A parsed footer takes about 3.4 kB a row group: 30,000 row groups (60 million rows) are about 100 MB.
FOOTER_ROW_GROUPS_MAX: Final = 30_000
# The deletes of 1 % of two million rows take 40 kB.
DELETES_BYTES_MAX: Final = 64 * 1024 * 1024

# In a store a file takes a request for its size, and two for its deletes: more at once only queue there.
WARMING_THREADS: Final = 8


AS_PYTHON: Final = methodcaller("as_py")

Row = tuple[Any, ...]
Located = tuple[int, bytes, Row]
"""A row with its position in the file and its key."""
ReadyEntity = tuple[bytes, bytes, int]
"""What the store keeps of an entity's rows in a file: key, value, and how many rows they are."""


@dataclass(frozen=True, slots=True)
class Entity:
    """What a lookup asks for: the rows whose key begins with ``values``, all in one bucket.

    ``values`` are those of the entity's columns and, where given, of the key columns that follow them;
    ``bucket`` is one of so many ``buckets``; ``hash`` is of the entity's columns, as `EntityFilter` has it.
    """

    values: tuple[Any, ...]
    prefix: bytes
    bucket: int
    buckets: int
    hash: int

    @classmethod
    def of(cls, definition: LiveTable, values: Sequence[Any]) -> Entity:
        """From natural values in key order, at least one for each entity column."""
        last = values[len(definition.entity) - 1]
        prefix = encode_one(definition, values)
        of_entity = values[: len(definition.entity)]
        is_whole = len(of_entity) == len(values)
        # safety: index-entity-hash
        hashed = hash_of(prefix if is_whole else encode_one(definition, of_entity))
        return cls(tuple(values), prefix, bucket_of(definition, last), definition.buckets, hashed)


@dataclass(frozen=True, slots=True)
class _OpenFile:
    """A data file's parsed footer, the file itself, and where it is local, readers of it that are idle.

    ``tombstones`` are the positions of the deletes that it remembers.

    Any thread may read from the file, but a reader is of one thread at a time. That a local file stays
    mapped, with its readers, spares the next lookup page faults and a fifth of its time; that a file in a
    store stays open, the request for its size.
    """

    footer: pq.FileMetaData
    source: pa.NativeFile
    is_local: bool
    tombstones: BitMap
    idle: list[pq.ParquetFile] = field(default_factory=list)


class ColdReader:
    """Reads entities from the data files of one table, which ``io`` opens."""

    def __init__(self, io: FileIO, store: RowStore | None = None, table: str = "") -> None:
        """``store`` keeps what is read of entities; ``table`` is the name that this is counted by."""
        self.io = io
        self.has_failed = False
        self._store = store
        # Finding a metric by its labels costs as much as counting.
        self._rows_found, self._rows_read = (
            measures.ROWS_FOUND.labels(table),
            measures.ROWS_READ.labels(table),
        )
        self._files: Bounded[str, _OpenFile] = Bounded(FOOTER_ROW_GROUPS_MAX)
        self._deletes: Bounded[tuple[str, int], BitMap] = Bounded(DELETES_BYTES_MAX)
        self._decoded = DecodedGroups()

    def entity_rows(self, index: ColdIndex, entity: Entity, to_json: Callable[[Row], JsonRow]) -> EntityRows:
        """The entity's rows in this snapshot as they are sent. Reads files for what the store lacks."""
        candidates = _candidates(index, entity)
        keys, stored = self._stored(index, entity, [file for file, _ in candidates])
        found = []
        for (file, groups), key, value in zip(candidates, keys, stored, strict=True):
            if value is not None:
                rows = unpacked(value)
            else:
                is_sure = len(candidates) == 1
                located = self._rows_of_file(index.definition, file, groups, entity, is_sure)
                rows = ready_rows(index.definition, located, to_json)
                if self._store:
                    self._store.put(key, packed(rows))
            found.append((rows, self.deleted(file), self._remembered(index, file)))
        missing = stored.count(None)
        self._count(len(stored) - missing, missing)
        return live_rows(found)

    def places(self, index: ColdIndex, entity: Entity) -> dict[bytes, ColdPlace]:
        """The place of each of the entity's rows in this snapshot, by key. Always reads files."""
        found = {}
        for file, groups in _candidates(index, entity):
            deleted, starts = self.deleted(file), file.sparse.row_starts.tolist()
            live: dict[int, list[tuple[int, bytes]]] = {}
            for position, key, _ in self._rows_of_file(index.definition, file, groups, entity, is_sure=True):
                if deleted is None or position not in deleted:  # safety: places-of-live-rows
                    live.setdefault(bisect_right(starts, position) - 1, []).append((position, key))
            for group, rows in live.items():
                records = self._records(file, group, [position - starts[group] for position, _ in rows])
                commit = file.data.origin.sequence_number
                for (position, key), record in zip(rows, records, strict=True):
                    found[key] = ColdPlace(file.data.path, group, position, commit, record)
        return found

    def _records(self, file: ColdFile, group: int, positions: Sequence[int]) -> list[RecordPlace | None]:
        """The records that rows of a row group were made of, as their file says."""
        if not file.columns.keys() >= {*PROVENANCE}:  # of another program
            return [None] * len(positions)
        with _reading(self._opened(file)) as parquet:
            batch = read_whole(partial(_read, parquet, group, PROVENANCE))
        columns = [_storage(_at(batch.column(name), positions)).to_pylist() for name in PROVENANCE]
        return [
            None
            if None in (topic, partition, offset, at_us)
            else RecordPlace(topic, partition, offset, at_us // 1_000)
            for topic, partition, offset, at_us in zip(*columns, strict=True)
        ]

    def ready_entities(
        self, index: ColdIndex, file: ColdFile, to_json: Callable[[Row], JsonRow]
    ) -> Iterator[ReadyEntity]:
        """What the store keeps of each entity of a file whose rows are sorted."""
        of_file = file_key(index, file)
        for prefix, group in groupby(self._ready_rows(index.definition, file, to_json), itemgetter(0)):
            rows = [row for _, row in group]
            yield of_file + prefix, packed(rows), len(rows)

    def _ready_rows(
        self, definition: LiveTable, file: ColdFile, to_json: Callable[[Row], JsonRow]
    ) -> Iterator[tuple[bytes, ReadyRow]]:
        """All rows of a file as they are stored, each with its entity's key."""
        declared = _stored_names(definition, file)
        of_entity = definition.key_columns[: len(definition.entity)]
        opened = self._opened(file)
        with _reading(opened) as parquet:
            for group, start in enumerate(file.sparse.row_starts[: opened.footer.num_row_groups].tolist()):
                batch = read_whole(partial(_read, parquet, group, declared))
                arrays = [flat_column(batch.column(column.name), column) for column in of_entity]
                entities = encode_columns(of_entity, arrays).to_pylist()
                keys = encode_table(definition, batch).to_pylist()
                found = dict(zip(batch.schema.names, batch.columns, strict=True))
                rows = zip(*_natural_columns(definition, file, found, batch.num_rows), strict=True)
                located = zip(count(start), keys, rows)
                yield from zip(entities, ready_rows(definition, located, to_json), strict=True)

    def known_rows(self, index: ColdIndex, entity: Entity) -> EntityRows | None:
        """The same without reading a data file; None where one is to be read, or deletes are."""
        if self._store is None:
            return None
        files = [file for file, _ in _candidates(index, entity)]
        if not all(self._knows_deletes(index, file) for file in files):
            return None
        _, stored = self._stored(index, entity, files)
        values = [value for value in stored if value is not None]
        if len(values) < len(files):
            return None
        self._rows_found.inc(len(files))
        return live_rows(
            (unpacked(value), self.deleted(file), self._remembered(index, file))
            for value, file in zip(values, files, strict=True)
        )

    def _stored(
        self, index: ColdIndex, entity: Entity, files: Sequence[ColdFile]
    ) -> tuple[list[bytes], list[bytes | None]]:
        """By what the rows of each file are stored, and what is; empty where the file has nothing of it."""
        of_files = [file_key(index, file) for file in files]
        keys = [stored_key(of_file, entity) for of_file in of_files]
        if self._store is None:
            return keys, [None] * len(keys)
        # Entities are made ready whole: of a part of one, nothing is known unless it was asked for.
        is_part = len(entity.values) > len(index.definition.entity)  # safety: whole-entities
        return keys, self._store.get(keys, () if is_part else of_files)

    def _count(self, found: int, read: int) -> None:
        if self._store is not None:
            self._rows_found.inc(found)
            self._rows_read.inc(read)

    def _knows_deletes(self, index: ColdIndex, file: ColdFile) -> bool:
        deletes = file.data.deletes
        if deletes is not None and self._deletes.get((deletes.path, deletes.offset)) is None:
            return False
        return not index.definition.merging.remembers_deletes or self._files.get(file.data.path) is not None

    def _remembered(self, index: ColdIndex, file: ColdFile) -> BitMap | None:
        """Which deleted positions are remembered deletes, which only tables have whose rows columns order."""
        return self._opened(file).tombstones if index.definition.merging.remembers_deletes else None

    def deleted(self, file: ColdFile) -> BitMap | None:
        """The deleted positions of a data file; None when none are."""
        deletes = file.data.deletes
        if deletes is None:
            return None
        place = (deletes.path, deletes.offset)
        known = self._deletes.get(place)
        if known is not None:
            return known
        failpoint("cold.deletes")
        return self._deletes.put(place, read_deletes(self.io, deletes), weight=deletes.length)

    def hidden(self, file: ColdFile) -> BitMap | None:
        """The deleted positions of a data file but those of deletes to remember; None when none are."""
        deleted = self.deleted(file)
        return None if deleted is None else deleted - self._opened(file).tombstones

    def warm(self, files: Sequence[ColdFile]) -> None:
        """Loads what every lookup in the files needs, so that the first one does not wait for it."""

        def warm(file: ColdFile) -> None:
            self._opened(file)
            self.deleted(file)

        if all(local_path(file.data.path) is not None for file in files):
            for file in files:
                warm(file)
            return
        with ThreadPoolExecutor(WARMING_THREADS) as pool:
            list(pool.map(warm, files))

    def keep_only(self, files: Iterable[ColdFile]) -> None:
        """Closes other files, and forgets their deletes; who still reads one opens it again.

        Each commit and each rewrite replaces some, so that without this they would add up.
        """
        kept = [file.data for file in files]
        self._files.keep_only({data.path for data in kept})
        self._deletes.keep_only({(one.path, one.offset) for data in kept if (one := data.deletes)})

    def _rows_of_file(
        self,
        definition: LiveTable,
        file: ColdFile,
        groups: range,
        entity: Entity,
        is_sure: bool,
    ) -> Iterator[Located]:
        """What a file has of the entity, deleted rows too."""
        key_of = _key_of(definition, entity)
        opened = self._opened(file)
        with ExitStack() as reading:
            parquet = cache(lambda: reading.enter_context(_reading(opened)))

            def read(group: int, columns: Sequence[str]) -> pa.RecordBatch:
                place: Place = (file.data.path, group, *columns)  # safety: decoded-place
                return self._decoded.get(place, lambda: read_whole(lambda: _read(parquet(), group, columns)))

            probes_first = opened.is_local and not is_sure
            for group in groups:
                failpoint("cold.read")
                positions, columns = _matching(partial(read, group), definition, entity, file, probes_first)
                start = int(file.sparse.row_starts[group])  # safety: index-row-starts
                for position, row in zip(positions, zip(*columns, strict=True), strict=True):
                    yield start + position, key_of(row), row

    def _opened(self, file: ColdFile) -> _OpenFile:
        known = self._files.get(file.data.path)
        if known is not None:
            return known
        footer = _read_footer(file.footer, self.io, file.data.path)
        opened = _OpenFile(
            footer,
            open_input(self.io, file.data.path),
            local_path(file.data.path) is not None,
            tombstones_in(footer).positions,
        )
        return self._files.put(file.data.path, opened, weight=footer.num_row_groups)


@contextmanager
def _reading(opened: _OpenFile) -> Iterator[pq.ParquetFile]:
    if not opened.is_local:
        # The number of requests counts: one for the whole row group. What it buffers goes with the reader.
        yield pq.ParquetFile(opened.source, metadata=opened.footer, pre_buffer=True)
        return
    try:
        parquet = opened.idle.pop()
    except IndexError:
        # Buffering ahead would take another thread for what is a copy in memory.
        parquet = pq.ParquetFile(opened.source, metadata=opened.footer, pre_buffer=False)
    yield parquet
    opened.idle.append(parquet)


def _candidates(index: ColdIndex, entity: Entity) -> list[tuple[ColdFile, range]]:
    """The files that may have rows of the entity, each with its row groups that may."""
    end = prefix_end(entity.prefix)
    files = [
        file
        for file in index.buckets.get(entity.bucket, ())
        if file.entities is None or file.entities.may_have(entity.hash)
    ]
    candidates = ((file, file.sparse.candidates(entity.prefix, end)) for file in files)
    return [(file, groups) for file, groups in candidates if groups]


def _key_of(definition: LiveTable, entity: Entity) -> Callable[[Row], bytes]:
    """What gives the whole key of one of the entity's rows."""
    names = [column.name for column in definition.columns]
    known = len(entity.values)
    rest = [names.index(name) for name in definition.key[known:]]
    return lambda row: entity.prefix + encode_one(definition, [row[place] for place in rest], first=known)


def _read_footer(footer: Path, io: FileIO, path: str) -> pq.FileMetaData:
    try:
        return pq.read_metadata(footer)
    except FileNotFoundError:
        with open_input(io, path) as source:
            return pq.read_metadata(source)


def _matching(
    read: Callable[[Sequence[str]], pa.RecordBatch],
    definition: LiveTable,
    entity: Entity,
    file: ColdFile,
    probes_first: bool,
) -> tuple[Sequence[int], list[list[Any]]]:
    """The positions within a row group of the entity's rows, and the values of the declared columns.

    ``probes_first`` reads the columns to compare before the others: where several files come into question,
    the entity is mostly not in each, and then the rest, three quarters of the cost, is spared.
    """
    declared = _stored_names(definition, file)
    compared = list(definition.key[: len(entity.values)])
    batch = read(compared if probes_first else declared)
    find = _range if file.sparse.is_sorted else _scan
    matches = find([_storage(batch.column(name)) for name in compared], definition, entity)
    if not matches:
        return [], [[] for _ in definition.columns]
    found = {name: _at(batch.column(name), matches) for name in batch.schema.names}
    rest = [name for name in declared if name not in found]
    if rest:
        others = read(rest)
        found |= {name: _at(others.column(name), matches) for name in rest}
    return matches, _natural_columns(definition, file, found, len(matches))


def _stored_names(definition: LiveTable, file: ColdFile) -> list[str]:
    """What the file calls the declared columns that it has; those of the key as the table does."""
    known = file.columns
    return [known[column.name].stored.name for column in definition.columns if column.name in known]


def _natural_columns(
    definition: LiveTable, file: ColdFile, found: Mapping[str, pa.Array], rows: int
) -> list[list[Any]]:
    """The values of the declared columns, null where the file lacks one; found by the file's names."""
    matches = (file.columns.get(column.name) for column in definition.columns)
    return [
        [None] * rows if match is None else natural(column.type, match.values(found[match.stored.name]))
        for column, match in zip(definition.columns, matches, strict=True)
    ]


def _read(parquet: pq.ParquetFile, group: int, columns: Sequence[str]) -> pa.RecordBatch:
    # One chunk per column: a row group of ours is one, and combining is free then.
    table = parquet.read_row_group(group, columns=list(columns), use_threads=False)
    return table.combine_chunks().to_batches()[0] if table.num_rows else _no_rows(table.schema)


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)


def _range(columns: Sequence[pa.Array], _: LiveTable, entity: Entity) -> range:
    """The entity's rows among sorted ones: where the columns before are equal, the next one is sorted.

    Arrow's kernels would compare every row, at three times the cost.
    """
    start, end = 0, len(columns[0])
    for column, value in zip(columns, _stored(entity), strict=True):
        start = bisect_left(column, value, start, end, key=AS_PYTHON)
        end = bisect_right(column, value, start, end, key=AS_PYTHON)
    return range(start, end)


def _scan(columns: Sequence[pa.Array], definition: LiveTable, entity: Entity) -> list[int]:
    """The entity's rows wherever they are."""
    types = [column.type.arrow for column in definition.key_columns]
    equal = [
        pc.equal(column, pa.scalar(value, arrow_type))
        for column, value, arrow_type in zip(columns, _stored(entity), types, strict=False)
    ]
    return pc.indices_nonzero(reduce(pc.and_, equal)).to_pylist()  # type: ignore[no-any-return]


def _stored(entity: Entity) -> list[Any]:
    return [value.bytes if isinstance(value, UUID) else value for value in entity.values]


def _at(array: pa.Array, positions: Sequence[int]) -> pa.Array:
    if isinstance(positions, range):
        return array.slice(positions.start, len(positions))
    return array.take(pa.array(positions))


def _storage(array: pa.Array) -> pa.Array:
    """What stands for the values in memory; of times the microseconds, since Arrow makes datetimes slowly."""
    if pa.types.is_timestamp(array.type):
        wanted = pa.timestamp("us", array.type.tz)
        return (array if array.type == wanted else array.cast(wanted)).view(pa.int64())
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def natural(of: ColumnType, array: pa.Array) -> list[Any]:
    """Natural values of what a file has, whose type may differ where it was widened or nested."""
    epoch = of.entry.since
    if epoch is not None:
        microseconds = _storage(array).to_pylist()
        return [None if one is None else epoch + timedelta(microseconds=one) for one in microseconds]
    if of.fields and array.type != of.arrow:
        array = array.cast(of.arrow)
    return natural_values(of, _storage(array))
