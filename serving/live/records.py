"""Winners of the hot tier as records, as a batch of ingest has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from thermocline.rules.decode import unpack_arrays
from thermocline.rules.definition import KEY, SEQUENCE, TOMBSTONE
from thermocline.rules.keys import decode_arrays
from thermocline.serving.hot.scan import PAYLOAD

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable

__all__ = ["records_of"]


def records_of(definition: LiveTable, winners: pa.Table) -> pa.Table:
    """The winners that a scan of the hot tier gave, by ``definition.records_schema``, in the same order.

    A tombstone's values are null. Columns that no hot record set are null, too, and named as absent.
    """
    schema = definition.records_schema
    columns = {name: _one_array(winners.column(name)) for name in winners.column_names}
    is_live = pc.invert(columns[TOMBSTONE])
    payloads = columns[PAYLOAD].filter(is_live)
    names = [column.name for column in definition.value_columns]
    values = unpack_arrays(definition, payloads, names) if len(payloads) else {}
    # Where the values of each record are among those that have some.
    places = pc.if_else(is_live, pc.subtract(pc.cumulative_sum(is_live.cast(pa.int64())), 1), None)
    merging = definition.merging
    found = {
        **columns,
        **{name: values[name].take(places) for name in values},
        # Those of a tombstone count, too.
        **(merging.order_values(columns[SEQUENCE]) if merging.is_ordered else {}),
        **dict(zip(definition.identity, decode_arrays(definition, columns[KEY]), strict=True)),
    }
    arrays = [_declared(found.get(field.name), field.type, winners.num_rows) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return array.dictionary_decode() if isinstance(array, pa.DictionaryArray) else array


def _declared(array: pa.Array | None, wanted: pa.DataType, rows: int) -> pa.Array:
    if array is None:  # of a value column, where all are tombstones
        return pa.nulls(rows, wanted)
    return array if array.type == wanted else array.cast(wanted)
