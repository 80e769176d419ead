"""Writing a data file: Parquet in small row groups, sorted by key, with its sparse index in the footer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.types import NestedField, PrimitiveType, StructType
from pyroaring import BitMap

from thermocline.failpoints import failstep
from thermocline.iceberg.file_buckets import UNPLACED, FileBucket
from thermocline.iceberg.files import new_file
from thermocline.iceberg.row_lineage import LINEAGE
from thermocline.iceberg.sparse_index import footer_entry
from thermocline.iceberg.tombstones import NO_TOMBSTONES, Tombstones
from thermocline.iceberg.tombstones import footer_entry as tombstones_entry
from thermocline.rules.definition import KEY

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.schema import Schema

    from thermocline.rules.definition import LiveTable

# A lookup decodes one row group: 0.15 ms with 1,024 rows, 0.26 ms with 2,048, which would be half of all
# that a cold lookup costs. For that, files are 2 % (long values) to 12 % (short ones) larger, and DuckDB
# scans them at five sixths of the speed.
ROW_GROUP_ROWS = 1_024
# Iceberg's own default for the bounds of strings: enough to prune by, short enough for a manifest.
_BOUND_CHARACTERS = 16
# Types that Arrow orders; the others (UUID, binary) go without bounds, which are optional.
_ORDERED = (
    pa.types.is_integer,
    pa.types.is_string,
    pa.types.is_floating,
    pa.types.is_temporal,
    pa.types.is_decimal,
)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """What a manifest says of a file; the counts and bounds are by field id, bounds as single-value bytes.

    ``tombstones`` are the positions of deletes to remember, as bytes of a bitmap: the commit deletes them.
    """

    path: str
    file_bytes: int
    rows: int
    null_counts: dict[int, int]
    lower_bounds: dict[int, bytes]
    upper_bounds: dict[int, bytes]
    part: FileBucket = UNPLACED
    tombstones: bytes = b""

    @property
    def live_rows(self) -> int:
        """Its rows but the deletes that it remembers."""
        return self.rows - (len(BitMap.deserialize(self.tombstones)) if self.tombstones else 0)


def write_data_file(
    io: FileIO, path: str, definition: LiveTable, rows: pa.Table, part: FileBucket = UNPLACED
) -> WrittenFile:
    """Write rows (``definition.records_schema``, sorted by key, at least one) as one data file.

    All of them are in the bucket ``part``. Rows that are tombstones are noted in the footer. Their lineage is
    stored where they have it (``row_lineage``), as rows that come from other files have.
    """
    with failstep("data-file.write"), DataFileWriter(io, path, definition, part) as writer:
        return writer.finish(rows)


class DataFileWriter:
    """A data file that is written in pieces; `finish` says what a manifest says of it.

    Left without `finish`, as by an error, what was written so far is of no use. All rows are in ``part``.
    """

    def __init__(self, io: FileIO, path: str, definition: LiveTable, part: FileBucket = UNPLACED) -> None:
        self.rows = 0
        self._part = part
        self._path = path
        self._definition = definition
        self._schema = _iceberg_schema(definition)
        self._sink = new_file(io, path)
        self._parquet: pq.ParquetWriter | None = None
        self._first_keys: list[bytes] = []
        self._pending: pa.Table | None = None
        self._null_counts: dict[int, int] = defaultdict(int)
        self._edges: dict[int, list[pa.Array]] = defaultdict(list)
        self._tombstones: Tombstones = NO_TOMBSTONES

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._parquet is not None and self._parquet.is_open:
                self._parquet.close()  # else it would do so when it is collected, after the sink
        finally:
            self._sink.close()

    @property
    def file_bytes(self) -> int:
        """What the whole row groups that were written so far take."""
        return int(self._sink.tell())

    def write(self, rows: pa.Table) -> None:
        """More rows, sorted by key, none of them below those before. A row group waits until it is full."""
        whole = self._joined(rows)
        end = whole.num_rows - whole.num_rows % ROW_GROUP_ROWS
        if end:
            self._write(whole.slice(0, end))
        self._pending = whole.slice(end) if end < whole.num_rows else None

    def finish(self, last: pa.Table | None = None) -> WrittenFile:
        """The file, complete, with these rows as its ``last``; it has at least one row.

        They go to Parquet at once: what `write` holds back until a row group is full costs a second pass.
        """
        rest = self._pending if last is None else self._joined(last)
        if rest is not None:
            self._write(rest)
        assert self._parquet is not None
        self._parquet.add_key_value_metadata(
            footer_entry(self._first_keys) | tombstones_entry(self._tombstones)
        )
        self._parquet.close()
        return self._described(self.file_bytes)

    def _joined(self, rows: pa.Table) -> pa.Table:
        """More rows, noted, behind those that wait."""
        self._tombstones = self._tombstones.with_rows(rows, self.rows)
        self.rows += rows.num_rows
        return rows if self._pending is None else pa.concat_tables([self._pending, rows])

    def _write(self, rows: pa.Table) -> None:
        starts = pa.array(range(0, rows.num_rows, ROW_GROUP_ROWS))
        self._first_keys += rows.column(KEY).take(starts).to_pylist()
        schema = self._definition.table_schema
        if LINEAGE.names[0] in rows.column_names:
            schema = pa.schema([*schema, *LINEAGE])
        table = rows.select(schema.names).cast(schema)
        if self._parquet is None:
            pruned_by = _pruned_by(self._definition)
            self._parquet = pq.ParquetWriter(
                self._sink, schema, write_statistics=pruned_by, **_encodings(table)
            )
        self._parquet.write_table(table, row_group_size=ROW_GROUP_ROWS)
        for field in self._schema.fields:
            for scalar, values in _scalars(field, table.column(field.name)):
                self._null_counts[scalar.field_id] += values.null_count  # safety: bounds-nulls
                if values.null_count < len(values) and any(is_type(values.type) for is_type in _ORDERED):
                    low_high = pc.min_max(values)
                    edges = pa.array([low_high["min"], low_high["max"]], values.type)
                    self._edges[scalar.field_id].append(edges)

    def _described(self, file_bytes: int) -> WrittenFile:
        lower: dict[int, bytes] = {}
        upper: dict[int, bytes] = {}
        for field_id, edges in self._edges.items():
            bounds = pc.min_max(pa.chunked_array(edges))
            low, high = _lower(bounds["min"].as_py()), _upper(bounds["max"].as_py())  # safety: bounds-lower
            field_type = self._schema.find_type(field_id)
            assert isinstance(field_type, PrimitiveType)
            lower[field_id] = to_bytes(field_type, low)
            if high is not None:
                upper[field_id] = to_bytes(field_type, high)
        return WrittenFile(
            self._path,
            file_bytes,
            self.rows,
            dict(self._null_counts),
            lower,
            upper,
            self._part,
            self._tombstones.positions.serialize() if self._tombstones.positions else b"",
        )


@lru_cache(maxsize=16)  # of a few tables: making one takes as long as writing a small file
def _iceberg_schema(definition: LiveTable) -> Schema:
    return definition.iceberg_schema()


def _scalars(field: NestedField, values: pa.ChunkedArray) -> Iterator[tuple[NestedField, pa.ChunkedArray]]:
    """A column, if it is a scalar; of a struct the scalars in it, of which each row has one.

    A list or a map has as many as it likes: no manifest counts them.
    """
    if isinstance(field.field_type, PrimitiveType):
        yield field, values
    elif isinstance(field.field_type, StructType):
        for place, inner in enumerate(field.field_type.fields):
            yield from _scalars(inner, pc.struct_field(values, place))  # safety: bounds-nested


def _pruned_by(definition: LiveTable) -> list[str]:
    """The columns with statistics in each row group, as Parquet calls them: those that it pays to prune by.

    In key order, every row group has rows of all times and offsets, unless these are the key. Without such
    statistics, and without a page index that would repeat the others (a column of a row group is about one
    page), a file is written in a seventh less time. The manifest has the bounds of all columns.
    """
    schema = definition.row_schema if definition.has_key else definition.table_schema
    return [path for field in schema for path in _paths(field)]


def _encodings(table: pa.Table) -> dict[str, Any]:
    """How each column is stored, decided by a row group from the middle.

    A dictionary of values that hardly repeat is one more page to decode: without it, such a column takes a
    tenth fewer bytes and a third less time to read. Where values do repeat, so little is left to compress
    that Zstandard would cost a lookup more to set up than it saves in bytes. What is nested is not looked
    into, and has both.
    """
    sample = table.slice(max(0, table.num_rows - ROW_GROUP_ROWS) // 2, ROW_GROUP_ROWS)
    nested = [path for field in table.schema if pa.types.is_nested(field.type) for path in _paths(field)]
    flat = [field.name for field in table.schema if not pa.types.is_nested(field.type)]
    repeating = [name for name in flat if 2 * pc.count_distinct(sample[name]).as_py() <= sample.num_rows]
    codecs = {name: "snappy" if name in repeating else "zstd" for name in (*flat, *nested)}
    return {"use_dictionary": [*repeating, *nested], "compression": codecs}


def _paths(field: pa.Field) -> Iterator[str]:
    """What Parquet calls the columns that a field is stored as."""
    if pa.types.is_struct(field.type):
        inner = list(field.type)
    elif pa.types.is_list(field.type):
        inner = [field.type.value_field.with_name("list.element")]
    elif pa.types.is_map(field.type):
        inner = [field.type.key_field.with_name("key_value.key")]
        inner += [field.type.item_field.with_name("key_value.value")]
    else:
        yield field.name
        return
    for one in inner:
        yield from (f"{field.name}.{path}" for path in _paths(one))


def _lower(value: Any) -> Any:
    """A lower bound that is no greater than the value."""
    if _is_zero(value):
        return -0.0
    return value[:_BOUND_CHARACTERS] if isinstance(value, str) else value


def _upper(value: Any) -> Any:
    """An upper bound that is no smaller than the value; None when a cut string can't be raised."""
    if _is_zero(value):
        return 0.0
    if not isinstance(value, str) or len(value) <= _BOUND_CHARACTERS:
        return value
    cut = value[:_BOUND_CHARACTERS]
    for end in range(len(cut), 0, -1):
        following = ord(cut[end - 1]) + 1
        if 0xD800 <= following <= 0xDFFF:
            # safety: bounds-surrogates
            following = 0xE000  # code points in between are surrogates, which no UTF-8 text holds
        if following <= 0x10FFFF:
            return cut[: end - 1] + chr(following)  # safety: bounds-cut
    return None  # safety: bounds-none


def _is_zero(value: Any) -> bool:
    """Whether it is a floating zero: to Iceberg -0.0 lies below 0.0, and Arrow takes the two for one."""
    return isinstance(value, float) and value == 0  # safety: bounds-zero
