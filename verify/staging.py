"""Records and rows of all keys beside each other, in a DuckDB database that a verification makes and drops.

DuckDB joins them, and spills to its own folder what the memory limit does not hold.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thermocline.rules.comparable import nested_as_bytes
from thermocline.rules.definition import KEY, PARTITION_TIME, PROVENANCE, SEQUENCE, TOMBSTONE
from thermocline.rules.fold import absent_columns
from thermocline.rules.keys import buckets, decode_arrays
from thermocline.verify.log_decode import BATCH, MAYBE, SEGMENT, STATE, records_schema
from thermocline.verify.sample import entities_of

if TYPE_CHECKING:
    from thermocline.rules.column_types import ColumnType
    from thermocline.rules.definition import LiveTable
    from thermocline.verify.sample import Chosen

__all__ = [
    "EXTRACT",
    "HOT",
    "LAST",
    "LOG",
    "REMEMBERED",
    "STORED",
    "WHOLE",
    "Staging",
    "absent_names",
    "row_names",
    "value_names",
]

LOG: Final = "log"
STORED: Final = "stored"
EXTRACT: Final = "extract"
HOT: Final = "hot"
REMEMBERED: Final = "remembered"
LAST: Final = "last_records"
WHOLE: Final = "_whole"
_ADDED: Final = {
    LOG: (TOMBSTONE, BATCH, STATE, SEGMENT, PARTITION_TIME),
    STORED: (),
    EXTRACT: (),
    HOT: (TOMBSTONE,),
    REMEMBERED: (),
}

_BUCKET: Final = "_bucket"
# DuckDB refuses to work in less; two threads have buffers of their own.
MEMORY_BYTES_MIN: Final = 64 << 20
_THREADS: Final = 2
# Rows that are handed over together: a row group of DuckDB's.
_ROWS_AT_ONCE: Final = 122_880
# Rows of a result in memory at a time.
_RESULT_ROWS: Final = 8_192
_INTEGERS: Final = {32: pa.int32(), 64: pa.int64()}

STORAGE_ERRORS: Final = (duckdb.IOException, duckdb.OutOfMemoryException)
"""What DuckDB raises where its folder is full or fails."""


@dataclass(slots=True)
class Staging:
    """Five tables: `LOG`, `STORED`, `EXTRACT`, `HOT`, and `REMEMBERED` for deletes that the table remembers.

    Each has the key, provenance, the value columns and, where they belong to it, what is known of a record.
    `LAST` is made of `LOG`. With partial updates, `LOG` and `HOT` also say of each value column whether it is
    absent, and `LOG` of each record whether it is ``WHOLE`` by itself. Where columns order the records, all
    have their `SEQUENCE`.
    Values are in a form that is equal exactly where they are: a double is its bits, a string its bytes.

    Raises `duckdb.Error` where the folder fails or is full.
    """

    folder: Path | None
    definition: LiveTable
    memory_bytes: int
    _connection: duckdb.DuckDBPyConnection = field(init=False)
    _held: dict[str, list[pa.Table]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Opens the database, with empty tables."""
        self._connection = duckdb.connect(
            self.folder / "verify.duckdb" if self.folder else ":memory:",
            config={
                "threads": _THREADS,
                "memory_limit": f"{max(self.memory_bytes, MEMORY_BYTES_MIN)}B",
                **({"temp_directory": str(self.folder / "spilled")} if self.folder else {}),
                "preserve_insertion_order": False,
                "python_enable_replacements": False,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
            },
        )
        for side in _ADDED:
            self.clear(side)

    def close(self) -> None:
        """Lets go of the database."""
        self._connection.close()

    def add(self, side: str, rows: pa.Table) -> None:
        """Adds rows to a table. They have the key, all declared columns, and those of the table itself."""
        if rows.num_rows:
            held = self._held.setdefault(side, [])
            held.append(self._comparable(side, rows))
            held_bytes = sum(table.nbytes for table in held)
            if sum(table.num_rows for table in held) >= _ROWS_AT_ONCE or held_bytes >= self._held_bytes_max:
                self._flush(side)

    @property
    def _held_bytes_max(self) -> int:
        """Of each table's rows that wait to be handed over."""
        return self.memory_bytes // 8

    def clear(self, side: str) -> None:
        """Empties a table."""
        self._held.pop(side, None)
        empty = records_schema(self.definition).empty_table()
        self._connection.register("piece", self._comparable(side, empty))
        self._connection.execute(f"CREATE OR REPLACE TABLE {side} AS FROM piece")

    def count(self, table: str) -> int:
        """The number of rows."""
        (found,) = self.rows(f"SELECT count(*) FROM {table}")
        return int(found[0])

    def leave_out(self, unread: Collection[int]) -> None:
        """Drops all records and rows of some buckets."""
        for side in _ADDED:
            self.execute(f"DELETE FROM {side} WHERE {_BUCKET} IN ({', '.join(map(str, unread))})")

    def keep(self, chosen: Chosen) -> None:
        """Drops all records and rows of entities that are not chosen (any more)."""
        self._flush_all()
        for side in _ADDED:
            keys = self._connection.sql(f"SELECT DISTINCT {KEY} FROM {side}").to_arrow_table().column(KEY)
            arrays = decode_arrays(self.definition, keys.combine_chunks())
            identity = pa.table(arrays, names=list(self.definition.identity))
            is_left = np.invert(chosen.holds(entities_of(self.definition, identity)))
            self._connection.register("dropped", pa.table({KEY: keys.filter(pa.array(is_left, pa.bool_()))}))
            self.execute(f"DELETE FROM {side} WHERE {KEY} IN (FROM dropped)")

    def reduce_log(self) -> int:
        """Makes `LAST` of the records that can still decide; how many were dropped.

        Of a key, partition and stretch of the log, these are the last record and the last `MAYBE`. With
        partial updates they have each column from the last record that set it, on their side of the seam.
        Where columns order the records, the last one is that of the highest sequence.
        """
        if self.definition.merging.is_partial:
            self._lay_together()
        read = self.count(LOG)
        topic, partition, offset, _ = PROVENANCE
        if self.definition.merging.is_ordered:
            self.execute(
                f"CREATE TABLE {LAST} AS FROM {LOG} QUALIFY row_number() OVER ("
                f" PARTITION BY {KEY}, {topic}, {partition}, {SEGMENT}, {STATE} = {MAYBE}"
                f" ORDER BY {SEQUENCE} DESC, {offset} DESC) = 1"
            )
            self.clear(LOG)
            return read - self.count(LAST)
        self.execute(
            f"CREATE TABLE {LAST} AS FROM {LOG} SEMI JOIN ("
            f" SELECT {topic}, {partition}, max({offset}) AS {offset} FROM {LOG}"
            f" GROUP BY {KEY}, {topic}, {partition}, {SEGMENT}, {STATE} = {MAYBE}"
            f") USING ({topic}, {partition}, {offset})"
        )
        self.clear(LOG)
        return read - self.count(LAST)

    def _lay_together(self) -> None:
        columns = list(zip(value_names(self.definition), absent_names(self.definition), strict=True))
        topic, partition, offset, _ = PROVENANCE
        # A value that is null is in a struct that is not.
        sets = {value: f"CASE WHEN NOT {absent} THEN {{'v': {value}}} END" for value, absent in columns}
        last = ", ".join(
            f"last_value({one} IGNORE NULLS) OVER chain AS s_{value}" for value, one in sets.items()
        )
        known = ", ".join(
            f"s_{value}.v AS {value}, s_{value} IS NULL AS {absent}" for value, absent in columns
        )
        self.execute(
            f"CREATE OR REPLACE TABLE {LOG} AS"
            f" SELECT * EXCLUDE ({', '.join(f's_{value}' for value, _ in columns)}) REPLACE ({known}) FROM ("
            f" SELECT *, {last} FROM {LOG} WINDOW chain AS ("
            f" PARTITION BY {KEY}, {topic}, {partition}, {SEGMENT} = 0, {STATE} = {MAYBE} ORDER BY {offset}"
            " ROWS UNBOUNDED PRECEDING))"
        )

    def execute(self, statement: str) -> None:
        """Runs a statement on what was added."""
        self._flush_all()
        self._connection.execute(statement)

    def rows(self, query: str) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, as Python values. No other one may run before it has ended."""
        self._flush_all()
        with self._connection.sql(query).to_arrow_reader(_RESULT_ROWS) as reader:
            for batch in reader:
                yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    def register(self, name: str, table: pa.Table) -> None:
        """Makes a small table of facts known to queries."""
        self._connection.register(name, table)

    def _comparable(self, side: str, rows: pa.Table) -> pa.Table:
        columns = {name: rows.column(name) for name in (KEY, *PROVENANCE[:3])}
        columns[PROVENANCE[3]] = comparable(rows.column(PROVENANCE[3]).combine_chunks())
        values = self.definition.value_columns
        for name, column in zip(value_names(self.definition), values, strict=True):
            columns[name] = comparable(rows.column(column.name).combine_chunks(), column.type)
        if self.definition.merging.is_ordered:
            columns[SEQUENCE] = self._sequences(rows)
            if side == LOG:  # a delete has no values but those that order it, which the hot tier has apart
                nulled = {
                    name: pc.if_else(rows.column(TOMBSTONE), None, columns[name])
                    for name in value_names(self.definition)
                }
                columns |= nulled
        of_bucket = buckets(self.definition, rows.column(self.definition.bucket_column.name))
        added = {name: rows.column(name) for name in _ADDED[side]}
        if self.definition.merging.is_partial and side in (LOG, HOT):
            added |= self._absent(side, rows)
        return pa.table({**columns, **added, _BUCKET: pa.array(of_bucket, pa.int32())})

    def _sequences(self, rows: pa.Table) -> pa.Array:
        known = SEQUENCE in rows.column_names
        return rows.column(SEQUENCE) if known else self.definition.merging.sequences(rows)

    def _absent(self, side: str, rows: pa.Table) -> dict[str, pa.Array]:
        found, none = absent_columns(rows), np.zeros(rows.num_rows, np.bool_)
        flags = [found.get(column.name, none) for column in self.definition.value_columns]
        named = dict(zip(absent_names(self.definition), map(pa.array, flags), strict=True))
        return named if side == HOT else {WHOLE: pa.array(~np.any(flags, axis=0)), **named}

    def _flush_all(self) -> None:
        for side in list(self._held):
            self._flush(side)

    def _flush(self, side: str) -> None:
        self._connection.register("piece", pa.concat_tables(self._held.pop(side)))
        self._connection.execute(f"INSERT INTO {side} FROM piece")


def row_names(definition: LiveTable) -> list[str]:
    """The columns that the tables of rows have: key, provenance, values."""
    return [KEY, *PROVENANCE, *value_names(definition)]


def value_names(definition: LiveTable) -> list[str]:
    """What the value columns are called in the tables: DuckDB would not tell "a" from "A"."""
    return [f"v{number}" for number in range(len(definition.value_columns))]


def absent_names(definition: LiveTable) -> list[str]:
    """What says of each value column whether it is absent; nothing without partial updates."""
    count = len(definition.value_columns) if definition.merging.is_partial else 0
    return [f"a{number}" for number in range(count)]


def comparable(values: pa.Array, of: ColumnType | None = None) -> pa.Array:
    """The same values in a form that is equal exactly where they are.

    0.0 is not -0.0, which a reader tells apart, and NaN is itself; a string is whatever bytes it has.
    """
    if pa.types.is_floating(values.type) or pa.types.is_temporal(values.type):
        return values.view(_INTEGERS[values.type.bit_width])
    if of is not None and of.fields:  # safety: verify-nested
        return nested_as_bytes(of, values)
    return values.view(pa.binary()) if pa.types.is_string(values.type) else values
