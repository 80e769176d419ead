"""Raw records where Trino can read them: in an Iceberg table, as the Kafka connector would give them.

The connector makes a ``varchar`` of whatever bytes a record has; ``from_utf8`` and the like would put a
replacement in the place of bad ones. A Parquet file keeps them, so whole corpora need no topic of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyiceberg import types
from pyiceberg.schema import Schema

from tests.views.trino.conftest import ADMIN, TrinoSite
from thermocline.rules.column_types import Kind
from thermocline.rules.decode import decoder_for
from thermocline.rules.definition import Column, LiveTable
from thermocline.views import sql
from thermocline.views.render_records import GOOD, good_records

Record = tuple[bytes | None, bytes | None]

_SCHEMA = Schema(
    types.NestedField(1, "place", types.LongType()),
    types.NestedField(2, "key", types.StringType()),
    types.NestedField(3, "value", types.StringType()),
    types.NestedField(4, "key_length", types.LongType()),
    types.NestedField(5, "value_length", types.LongType()),
)


def write_raw(site: TrinoSite, name: str, records: Sequence[Record]) -> str:
    """Makes the table ``app.<name>`` of these records, and gives the query that reads them as from Kafka."""
    # No statistics: PyIceberg can't read those of a column that is not UTF-8.
    table = site.catalog.create_table(
        f"app.{name}", _SCHEMA, properties={"write.metadata.metrics.default": "none"}
    )
    sides = [[record[side] or b"" for record in records] for side in (0, 1)]
    columns = [
        pa.array(range(len(records)), pa.int64()),
        *(_unchecked(side) for side in sides),
        *(pa.array(map(len, side), pa.int64()) for side in sides),
    ]
    table.append(pa.table(columns, names=[field.name for field in _SCHEMA.fields]))
    return f"""\
SELECT 't' AS _topic, 0 AS _partition_id, place AS _partition_offset,
  TIMESTAMP '2026-01-01 00:00:00' AS _timestamp,
  nullif(key, '') AS _key, key_length AS _key_length,
  nullif(value, '') AS _message, value_length AS _message_length
FROM lake.app.{name}"""


def _unchecked(texts: Sequence[bytes]) -> pa.Array:
    binary = pa.array(texts, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(binary), binary.buffers())


def read_in_trino(site: TrinoSite, definition: LiveTable, records: str) -> dict[int, list[Any]]:
    """By offset, whether each good record deletes, and its columns; spelled as by ``read_by_decode``."""
    parts = ",\n".join(good_records(definition, records))
    columns = ", ".join(_spelled_in_trino(column) for column in definition.columns)
    rows = site.query(f"WITH {parts}\nSELECT _partition_offset, _deleted, {columns} FROM {GOOD}", user=ADMIN)
    assert len({row[0] for row in rows}) == len(rows)
    doubles = [place for place, column in enumerate(definition.columns) if column.type.kind is Kind.DOUBLE]
    found = {row[0]: list(row[1:]) for row in rows}
    for row in found.values():
        for place in doubles:
            row[place + 1] = None if row[place + 1] is None else repr(float(row[place + 1]))
    return found


def read_by_decode(definition: LiveTable, records: Sequence[Record]) -> dict[int, list[Any]]:
    """The same from ``thermocline.rules.decode``."""
    keys, values = map(list, zip(*records, strict=True))
    decoded = decoder_for(definition).decode(keys, values)
    columns = [
        [_spelled(column, value) for value in decoded.columns[column.name]] for column in definition.columns
    ]
    rows = zip(decoded.tombstones, *columns, strict=True)
    return dict(zip(decoded.good, map(list, rows), strict=True))


def _spelled_in_trino(column: Column) -> str:
    """As text with every digit: the client's Python values have fewer years, and round."""
    name = sql.name(column.name)
    if column.type.kind is Kind.TIMESTAMPTZ:
        return f"CAST({name} AT TIME ZONE 'UTC' AS varchar)"
    return f"to_hex({name})" if column.type.kind is Kind.BINARY else f"CAST({name} AS varchar)"


def _spelled(column: Column, value: Any) -> str | None:
    if value is None:
        return None
    if column.type.kind is Kind.TIMESTAMPTZ:
        return f"{value.year:04d}-{value:%m-%d %H:%M:%S.%f} UTC"
    if column.type.kind is Kind.TIMESTAMP:
        return f"{value.year:04d}-{value:%m-%d %H:%M:%S.%f}"
    if column.type.kind is Kind.TIME:
        return str(value.isoformat("microseconds"))
    if column.type.kind is Kind.BINARY:
        return bytes(value).hex().upper()
    if column.type.kind is Kind.DECIMAL:
        return f"{value:f}"
    return str(value).lower() if column.type.kind is Kind.BOOLEAN else str(value)
