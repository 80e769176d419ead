"""Extracts: all rows of a table at one read point, bucket by bucket, as a stream of record batches.

DuckDB reads a bucket's files and leaves out the deleted positions and the keys that the hot tier mentions;
the hot winners follow. What one bucket needs is all that is in memory. Files in an object store are fetched
first: the next bucket's while one is read.

A condition is laid on both sides once the hot keys have hidden the cold rows: a row that matched before its
last record, and does not now, is gone. DuckDB then moves it down to the files' row groups.

The queries never name a table's columns: a column named ``file_row_number`` or ``file_index`` would hide
DuckDB's own column of that name, which tells where a row stands. A file's columns are ``c0``, ``c1`` and so
on, in the file's order; the columns that a query gives are ``n0``, ``n1`` and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any, Final

import duckdb
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thermocline.errors import NotReady
from thermocline.failpoints import failpoint
from thermocline.rules import fold
from thermocline.rules.decode import arrow_array, unpack_arrays
from thermocline.rules.definition import KEY, PROVENANCE, SEQUENCE, TOMBSTONE, LiveTable
from thermocline.rules.field_ids import field_ids
from thermocline.rules.keys import decode_arrays
from thermocline.rules.nested_types import nullable
from thermocline.rules.read_point import ReadPoint
from thermocline.serving.hot.compatibility import incompatibility
from thermocline.serving.hot.scan import PAYLOAD
from thermocline.serving.read.encode import READ_POINT_METADATA
from thermocline.serving.read.fetched import fetched, own_folder
from thermocline.serving.read.stored_columns import fitted_sql
from thermocline.serving.store.storage import failures_noted, storage_named
from thermocline.serving.where.expression import expression_of

if TYPE_CHECKING:
    from pyroaring import BitMap

    from thermocline.rules.column_types import ColumnType
    from thermocline.rules.fold import Flags, Indexes
    from thermocline.serving.cold.index import ColdFile
    from thermocline.serving.hot.pinned import PinnedHot
    from thermocline.serving.read.look import ColdSide
    from thermocline.serving.read.selection import Selection

# Large enough that the cost per batch doesn't show, small enough that a few in flight are a few megabytes.
BATCH_ROWS: Final = 65_536
# As the rows are stored, compressed: of long rows a batch has fewer.
_BATCH_BYTES: Final = 16 << 20
_LONG_BATCH_ROWS: Final = 2_048
# A bucket's hot keys and deleted positions, and DuckDB's own buffers; beyond it DuckDB spills to disk.
MEMORY_LIMIT: Final = "256MB"
# More would take the cores from lookups and from encoding.
THREADS: Final = 2
# What it says when it can't read a file, or when nothing is left of the disk to spill to.
DUCKDB_STORAGE_ERRORS: Final = (duckdb.IOException, duckdb.OutOfMemoryException)


@dataclass(frozen=True, slots=True)
class _HotRows:
    """The hot side of one bucket: the keys that it mentions, and the rows that are not tombstones.

    ``ordered`` are winners of which the table may have later ones; keys and rows follow from the others.
    """

    keys: pa.Table
    rows: list[pa.RecordBatch]
    partial: _PartialRows | None = None
    ordered: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class _BucketRows:
    """A bucket's wanted files, where each can be read on this machine, and the hot side.

    ``changed``, of an extract of changes: the keys that had a record.
    """

    files: Sequence[ColdFile]
    places: Mapping[str, str]
    hot: _HotRows
    changed: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class _PartialRows:
    """Hot rows that lack columns, and their keys; ``absent``: of each column, which of the rows lack it."""

    rows: pa.Table
    keys: pa.Table
    absent: Mapping[str, Flags]

    def filled(self, places: Indexes, cold: pa.Table) -> Iterator[pa.RecordBatch]:
        """The rows, with the columns that they lack from the cold rows below them."""
        # safety: extract-fills
        yield from fold.filled(self.rows, self.absent, places, cold).to_batches(BATCH_ROWS)


class Extract:
    """One extract: its columns and read point, and the rows. To be closed, which also releases its pin.

    ``rows`` counts those given so far.
    """

    def __init__(
        self,
        cold: ColdSide,
        hot: PinnedHot,
        selection: Selection,
        age_seconds: float,
        spill_folder: Path,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        """Takes over ``hot``. ``selection`` is of the snapshot's table; ``spill_folder`` may not exist yet.

        Raises:
            NotReady: the pinned hot tier can't be laid over the snapshot.
        """
        index = cold.index
        self.table = index.definition.name
        self._definition = index.definition
        self._cold = cold
        self._hot = hot
        self._on_close = on_close
        self._selection = selection
        named = dict.fromkeys(
            (*index.definition.identity, *selection.read, *index.definition.merging.ordered_by)
        )
        self._names = {name: f"n{place}" for place, name in enumerate(named)}
        predicate = selection.predicate
        self._matches = None if predicate is None else expression_of(predicate, self._names)
        self._spill_folder = spill_folder
        self.age_seconds = age_seconds
        self.rows = 0
        problem = incompatibility(index, hot)  # safety: extract-fit
        if problem is not None:
            hot.close()
            raise NotReady(table=index.definition.name, detail=problem)
        self.read_point = ReadPoint(index.snapshot_id, index.seam, hot.end.merged_max(index.seam))
        self._is_abandoned = False
        self._places: Mapping[str, str] = {}
        metadata = {READ_POINT_METADATA: self.read_point.to_header()}
        known = index.definition.given_schema
        self._given_schema = pa.schema(map(known.field, selection.columns), metadata)
        self.schema = self._given_schema
        given = {column.name: column for column in index.definition.given_columns}
        self.columns = tuple(given[name] for name in selection.columns)
        self._read_schema = pa.schema(map(known.field, selection.read), metadata)
        self._nested = {column.name: column.type for column in index.definition.columns if column.type.fields}
        self._key_schema = pa.schema(
            [known.field(name).with_name(self._names[name]) for name in index.definition.identity]
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Every row that is wanted once, in no order. Called once, in any one thread.

        Raises:
            StorageFailed: a disk or the store of the table's files failed.
        """
        with storage_named(self.table, *DUCKDB_STORAGE_ERRORS), failures_noted(self._cold.reader):
            limit = self._selection.limit
            if limit == 0:
                return
            with closing(self._batches()) as batches:
                for batch in batches:
                    given = batch if limit is None else batch.slice(0, min(limit - self.rows, batch.num_rows))
                    self.rows += given.num_rows
                    yield given
                    if self.rows == limit:
                        return

    def by_bucket(self) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
        """Each bucket that may have wanted rows, with these rows, to be read before the next bucket.

        Instead of ``batches``, and without its limit. Raises as it does.
        """
        with closing(self._parts()) as parts:
            for bucket, rows in parts:
                yield bucket, self._counted(rows)

    def _counted(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with storage_named(self.table, *DUCKDB_STORAGE_ERRORS), failures_noted(self._cold.reader):
            for batch in rows:
                self.rows += batch.num_rows
                yield batch

    def _batches(self) -> Generator[pa.RecordBatch]:
        with closing(self._parts()) as parts:
            for _, rows in parts:
                yield from rows

    def _parts(self) -> Generator[tuple[int, Iterator[pa.RecordBatch]]]:
        failpoint("extract.begin")
        buckets = [*filter(self._selection.keys.has_bucket, range(self._definition.buckets))]
        with (
            own_folder(self._spill_folder) as folder,
            duckdb.connect(config=_config(folder)) as connection,
            ThreadPoolExecutor(1) as ahead,
        ):
            is_ahead = self._selection.limit is None  # else the next bucket may never be needed
            upcoming: Future[_BucketRows] = ahead.submit(self._prepared, buckets[0], folder)
            for bucket, following in zip(buckets, [*buckets[1:], None], strict=True):
                if self._is_abandoned:
                    return
                failpoint("extract.bucket")
                prepared = upcoming.result()
                if following is not None and is_ahead:
                    upcoming = ahead.submit(self._prepared, following, folder)
                yield bucket, self._bucket(connection, prepared)
                if following is not None and not is_ahead:
                    upcoming = ahead.submit(self._prepared, following, folder)
                rmtree(folder / str(bucket), ignore_errors=True)

    def _prepared(self, bucket: int, folder: Path) -> _BucketRows:
        """What a bucket needs before it can be read: also what takes long, as it is done ahead."""
        files_of = self._cold.index.buckets.get(bucket, ())
        wanted = [file for file in files_of if self._selection.keys.may_be_in(file.sparse)]
        places = fetched(self._cold.reader.io, [file.data.path for file in wanted], folder / str(bucket))
        return _BucketRows(wanted, places, self._hot_rows(bucket))

    def abandon(self) -> None:
        """Ends with the bucket that is being read, as nobody takes the rows any more. From any thread."""
        self._is_abandoned = True

    def close(self) -> None:
        """Lets go of the snapshot and the generations. May be repeated."""
        self._hot.close()
        self._on_close()

    def _bucket(
        self, connection: duckdb.DuckDBPyConnection, prepared: _BucketRows
    ) -> Iterator[pa.RecordBatch]:
        self._places = prepared.places
        wanted, hot = prepared.files, prepared.hot
        selects = []
        for number, files in enumerate(_alike(wanted)):
            connection.register(f"deleted_{number}", self._positions(files, self._cold.reader.deleted))
            selects.append(self._cold_select(files, number))
        if hot.ordered is not None:
            hot = _HotRows(*self._keys_and_rows(self._unsurpassed(connection, wanted, hot.ordered)))
        if hot.partial is not None:
            filled = hot.partial.filled(*self._below(connection, hot.partial, selects))
            yield from self._hot_matches(connection, filled)
        if selects:
            # Every key that the hot side mentions, also where its row does not match.
            connection.register("hot", hot.keys)  # safety: where-after-overlay
            cold = f"SELECT * FROM ({' UNION ALL '.join(selects)}) c"  # noqa: S608  # all names are ours
            if hot.keys.num_rows:  # safety: overlay-extract
                cold += f" ANTI JOIN hot USING ({self._named(self._definition.identity)})"
            yield from self._given(connection.sql(cold), _batch_rows(wanted))
        yield from self._hot_matches(connection, hot.rows)

    def _hot_matches(
        self, connection: duckdb.DuckDBPyConnection, rows: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Of hot rows, those that are wanted."""
        if self._matches is None:
            yield from filter(len, rows)
            return
        names = [self._names[name] for name in self._read_schema.names]
        for batch in rows:
            yield from self._given(connection.from_arrow(pa.table(batch.columns, names)))

    def _given(
        self, relation: duckdb.DuckDBPyRelation, batch_rows: int = BATCH_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """Of overlaid rows, or of hot ones, those that are wanted, with the columns that are."""
        # Not before the overlay: it would show the cold row of a key whose last record does not match.
        if self._matches is not None:
            relation = relation.filter(self._matches)
        yield from self._conform(relation.project(self._named(self._selection.columns)), batch_rows)

    def _unsurpassed(
        self, connection: duckdb.DuckDBPyConnection, wanted: Sequence[ColdFile], winners: pa.Table
    ) -> pa.Table:
        """The winners that do not lose against a row, or a remembered delete, of their key in these files."""
        groups = list(_alike(wanted))
        if not groups or not winners.num_rows:
            return winners
        selects = []
        for number, files in enumerate(groups):
            connection.register(f"hidden_{number}", self._positions(files, self._cold.reader.hidden))
            selects.append(self._cold_select(files, number, "hidden"))
        keys = pa.Table.from_batches([self._keys(one) for one in winners.to_batches(BATCH_ROWS)])
        places = pa.array(range(winners.num_rows), pa.int64())
        connection.register("ordered", keys.append_column("place", places))
        names = self._definition.merging.ordered_by
        found = connection.sql(
            f"SELECT place, {self._named(names)} FROM ({' UNION ALL '.join(selects)}) c"  # noqa: S608
            f" JOIN ordered USING ({self._named(self._definition.identity)})"
        ).to_arrow_table()
        columns = [found.column(self._names[name]) for name in names]
        below = self._definition.merging.sequences(pa.table(columns, names=list(names)))
        place = found.column("place").combine_chunks()
        loses = pc.less(winners.column(SEQUENCE).combine_chunks().take(place), below)  # as `fold.loses`
        is_kept = np.ones(winners.num_rows, np.bool_)
        is_kept[place.filter(loses).to_numpy()] = False  # safety: extract-sequence
        return winners.filter(pa.array(is_kept))

    def _below(
        self, connection: duckdb.DuckDBPyConnection, partial: _PartialRows, selects: Sequence[str]
    ) -> tuple[Indexes, pa.Table]:
        """The cold rows below partial ones: which of these each belongs to, and what they lack."""
        schema = pa.schema([self._read_schema.field(name) for name in partial.absent])
        if not selects:
            return np.empty(0, np.int64), schema.empty_table()
        places = pa.array(range(partial.rows.num_rows), pa.int64())
        connection.register("partial", partial.keys.append_column("place", places))
        found = connection.sql(
            f"SELECT place, {self._named(schema.names)} FROM ({' UNION ALL '.join(selects)}) c"  # noqa: S608
            f" JOIN partial USING ({self._named(self._definition.identity)})"
        ).to_arrow_table()
        columns = [
            conformed(found.column(self._names[field.name]), field.type, self._nested.get(field.name))
            for field in schema
        ]
        return found.column("place").to_numpy(), pa.table(columns, schema=schema)

    def _cold_select(self, files: Sequence[ColdFile], number: int, without: str = "deleted") -> str:
        """The wanted and the key columns of files that are alike, without the positions of that table."""
        first = files[0]
        columns = ", ".join(
            f"{_expression(name, first, self._definition)} AS {given}" for name, given in self._names.items()
        )
        stored = ", ".join(_stored_names(first).values())
        paths = ", ".join(_literal(_plain(self._places[file.data.path])) for file in files)
        select = f"SELECT {columns} FROM read_parquet([{paths}], hive_partitioning = false) f({stored})"  # noqa: S608
        if any(file.data.deletes for file in files):  # safety: overlay-extract-deletes
            select += (
                f" ANTI JOIN {without}_{number} d ON f.file_index = d.file AND f.file_row_number = d.position"
            )
        return select

    def _named(self, columns: Sequence[str]) -> str:
        """The names of the columns in the queries."""
        return ", ".join(self._names[name] for name in columns)

    def _conform(self, relation: duckdb.DuckDBPyRelation, batch_rows: int) -> Iterator[pa.RecordBatch]:
        # A connection takes no other query while a result is open, also one that the caller gave up.
        with relation.to_arrow_reader(batch_rows) as reader:
            for batch in reader:
                if batch.num_rows:
                    arrays = [
                        conformed(column, field.type, self._nested.get(field.name))
                        for column, field in zip(batch, self._given_schema, strict=True)
                    ]
                    yield pa.RecordBatch.from_arrays(arrays, schema=self._given_schema)

    def _positions(
        self, files: Sequence[ColdFile], positions_of: Callable[[ColdFile], BitMap | None]
    ) -> pa.Table:
        numbers, positions = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
        for number, file in enumerate(files):
            deleted = positions_of(file)
            if deleted is not None:
                positions.append(np.asarray(deleted.to_array(), dtype=np.int64))
                numbers.append(np.full(len(deleted), number, np.uint64))
        return pa.table({"file": np.concatenate(numbers), "position": np.concatenate(positions)})

    def _hot_rows(self, bucket: int) -> _HotRows:
        winners = self._hot.scan(bucket, self._cold.index.seam)
        if self._definition.merging.is_ordered:
            return _HotRows(self._key_schema.empty_table(), [], ordered=winners)
        if not self._definition.merging.is_partial:
            return _HotRows(*self._keys_and_rows(winners))
        absent = fold.absent_columns(winners)
        is_partial = np.zeros(winners.num_rows, np.bool_)
        for name in absent.keys() & set(self._selection.read):
            is_partial |= absent[name]
        if not is_partial.any():
            return _HotRows(*self._keys_and_rows(winners))
        keys, rows = self._keys_and_rows(winners.filter(pa.array(~is_partial)))
        partial_keys, partial = self._keys_and_rows(winners.filter(pa.array(is_partial)))
        lacked = {name: absent[name][is_partial] for name in absent if name in self._selection.read}
        below = _PartialRows(pa.Table.from_batches(partial, self._read_schema), partial_keys, lacked)
        return _HotRows(pa.concat_tables([keys, partial_keys]), rows, below)

    def _keys_and_rows(self, winners: pa.Table) -> tuple[pa.Table, list[pa.RecordBatch]]:
        batches = winners.to_batches(_rows_at_once(winners.num_rows, winners.nbytes))
        keys = [self._keys(batch) for batch in batches]
        rows = [self._live_rows(*parts) for parts in zip(batches, keys, strict=True)]
        return pa.Table.from_batches(keys, self._key_schema), rows

    def _keys(self, winners: pa.RecordBatch) -> pa.RecordBatch:
        arrays = decode_arrays(self._definition, winners.column(KEY))
        return pa.RecordBatch.from_arrays(arrays, schema=self._key_schema)

    def _live_rows(self, winners: pa.RecordBatch, keys: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of those winners that are not tombstones."""
        is_live = pc.invert(winners.column(TOMBSTONE))  # safety: overlay-extract-tombstones
        live, live_keys = winners.filter(is_live), keys.filter(is_live)
        values = {
            **dict(zip(self._definition.identity, live_keys.columns, strict=True)),
            **unpack_arrays(self._definition, live.column(PAYLOAD), self._selection.read),
            **{name: live.column(name) for name in PROVENANCE},
        }
        arrays = [_cast(values[field.name], field.type) for field in self._read_schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._read_schema)


def _batch_rows(files: Sequence[ColdFile]) -> int:
    rows, size = sum(file.data.rows for file in files), sum(file.data.bytes for file in files)
    return max(_LONG_BATCH_ROWS, _rows_at_once(rows, size))


def _rows_at_once(rows: int, size: int) -> int:
    """Of so many rows with so many bytes."""
    return max(1, min(BATCH_ROWS, _BATCH_BYTES * rows // max(size, 1)))


def _config(folder: Path) -> dict[str, str | bool | int | float | list[str]]:
    return {
        "threads": THREADS,
        "memory_limit": MEMORY_LIMIT,
        "preserve_insertion_order": False,
        "python_enable_replacements": False,
        "temp_directory": str(folder / "duckdb"),
        # Nothing is fetched from anywhere while a request waits.
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }


def _alike(files: Iterable[ColdFile]) -> Iterator[list[ColdFile]]:
    """The files of a bucket in groups that have the same columns, stored alike.

    DuckDB reads several files as it finds the first one: what that one does not have, or has as a narrower
    type, would be missing or fail in the others. Columns of one name may be others by their field ids.
    """

    def shape(file: ColdFile) -> tuple[list[tuple[str, str]], list[str], list[tuple[str, int]]]:
        types = sorted((field.name, str(field.type)) for field in file.schema)
        ids = [(name, -1 if number is None else number) for name, number in field_ids(file.schema)]
        return types, sorted(file.uuids), sorted(ids)  # safety: narrow-files

    return (list(group) for _, group in groupby(sorted(files, key=shape), key=shape))


def _stored_names(file: ColdFile) -> dict[str, str]:
    """Each column's name in the queries, in the file's order."""
    return {name: f"c{place}" for place, name in enumerate(file.schema.names)}  # safety: extract-names


def _expression(name: str, file: ColdFile, definition: LiveTable) -> str:
    match = file.columns.get(name)
    types = {column.name: column.numbered_type for column in definition.columns}
    if match is None:
        return f"CAST(NULL AS {_duckdb_type(name, types.get(name))})"
    stored = f"f.{_stored_names(file)[match.stored.name]}"
    if not match.is_alike:
        return fitted_sql(stored, match, types[name])
    if match.stored.name in file.uuids:
        return f"unhex(replace(CAST({stored} AS VARCHAR), '-', ''))"
    return stored


def _duckdb_type(name: str, column_type: Any) -> str:
    if column_type is None:
        return {"_kafka_topic": "VARCHAR", "_kafka_partition": "INTEGER", "_kafka_offset": "BIGINT"}.get(
            name, "TIMESTAMPTZ"
        )
    return str(column_type.duckdb)


def _plain(path: str) -> str:
    """The path with the characters that DuckDB takes for patterns made plain."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in path)


def conformed(found: pa.Array, wanted: pa.DataType, nested: ColumnType | None) -> pa.Array:
    """A column as DuckDB gives it, of the wanted type; ``nested`` is the column's, where it is nested."""
    if nested is None:
        return _cast(found, wanted)
    try:
        return _cast(found, wanted)
    except pa.ArrowInvalid:
        # UUIDs in it that another writer stored as such: DuckDB gives their text.
        values = found.to_pylist(maps_as_pydicts="strict")
        return arrow_array(nested, msgspec.convert(values, list[nullable(nested.python)]))  # type: ignore[misc]


def _cast(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    return column if column.type == wanted else column.cast(wanted)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
