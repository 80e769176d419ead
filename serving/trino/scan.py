"""Scans of hot rows: which rows one wants, and these rows as columns.

What Trino pushes down may be answered with more rows than it asks for, since it applies each condition again.
So of a condition only values of the leading key columns count, which make few ranges of keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thermocline.rules.column_types import Kind
from thermocline.rules.decode import unpack_arrays
from thermocline.rules.definition import KEY, TOMBSTONE
from thermocline.rules.fold import absent_columns
from thermocline.rules.hot_columns import DELETED, HIDDEN, hot_columns, kept_columns
from thermocline.rules.keys import decode_arrays
from thermocline.serving.hot.scan import ABSENT_NAMES, PAYLOAD
from thermocline.serving.trino.blocks import as_served, value_in
from thermocline.serving.where.key_range import PREFIXES_MAX, KeyRange

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable
    from thermocline.rules.hot_columns import HotColumn
    from thermocline.rules.seam import Seam
    from thermocline.serving.hot.record import HotRow
    from thermocline.serving.hot.view import HotView

__all__ = ["Part", "Scan", "columns_of", "parts", "rows_of", "scan_of"]

PARTS_MAX: Final = 4
"""Splits of a whole scan: they only let Trino ask for the next rows while it works on the last ones."""
_EXACTLY: Final = 2
_ROWS: Final = pa.schema([(KEY, pa.large_binary()), (TOMBSTONE, pa.bool_()), (PAYLOAD, pa.large_binary())])
_PARTIAL_ROWS: Final = _ROWS.append(ABSENT_NAMES)


class Part(msgspec.Struct, frozen=True, array_like=True):
    """Some buckets of a scan, and the beginnings of the keys wanted in them; all, where it says None."""

    buckets: tuple[int, ...]
    prefixes: tuple[bytes, ...] | None = None


class Scan(msgspec.Struct, frozen=True, array_like=True):
    """What the hidden columns say: the snapshot, the query's time and number of scans, and the servers."""

    snapshot_id: int
    token: int
    scans: int
    servers: int


def scan_of(domains: Mapping[bytes, Any]) -> Scan | None:
    """The hidden columns' values in a condition; None where one of them is not fixed."""
    found = [_values(domains.get(name.encode()), Kind.LONG) for name in HIDDEN]
    if not all(values is not None and len(values) == 1 for values in found):
        return None
    return Scan(*(values[0] for values in found if values))


def parts(definition: LiveTable, domains: Mapping[bytes, Any], parts_max: int) -> list[Part]:
    """The parts of a scan with that condition, each a split."""
    fixed = {
        one.column.name: _values(domains.get(one.name.encode()), one.column.type.kind)
        for one in hot_columns(definition)
        if one.takes_conditions and one.column.name in definition.key
    }
    keys = KeyRange.of_columns(definition, fixed)
    buckets = [bucket for bucket in range(definition.buckets) if keys.has_bucket(bucket)]
    if keys.prefixes is not None and len(buckets) * len(keys.prefixes) <= PREFIXES_MAX:
        return [Part(tuple(buckets), keys.prefixes)]
    count = max(1, min(PARTS_MAX, parts_max, len(buckets)))
    return [Part(tuple(int(one) for one in some)) for some in np.array_split(buckets, count)]


def rows_of(definition: LiveTable, view: HotView, bucket: int, part: Part, seam: Seam) -> pa.Table:
    """The winners of a bucket that a part wants: key, whether it is a tombstone, payload; in no order.

    With partial updates also the names of the columns that no hot record set.
    """
    schema = _PARTIAL_ROWS if definition.merging.is_partial else _ROWS
    if part.prefixes is None:
        return view.scan(bucket, seam).select(schema.names)
    found: dict[bytes, HotRow | None] = {}
    for prefix in part.prefixes:
        found |= view.lookup(bucket, prefix, seam)
    rows, names = list(found.values()), [column.name for column in definition.value_columns]
    columns: list[list[Any]] = [
        list(found),
        [row is None for row in rows],
        [b"" if row is None else row.payload for row in rows],
        [[] if row is None else [names[place] for place in row.kept] for row in rows],
    ]
    arrays = [pa.array(one, field.type) for one, field in zip(columns, schema, strict=False)]
    return pa.Table.from_arrays(arrays, schema=schema)


def columns_of(
    definition: LiveTable, rows: pa.Table, wanted: Sequence[str], scan: Scan
) -> list[tuple[pa.Array, str]]:
    """The columns wanted of such rows, with the connector's types. Raises KeyError for an unknown one."""
    known = {one.name: one for one in hot_columns(definition)}
    keys, deleted, payloads = (rows.column(name).combine_chunks() for name in _ROWS.names)
    hidden = dict(zip(HIDDEN, (scan.snapshot_id, scan.token, scan.scans, scan.servers), strict=True))
    served = {DELETED: (deleted, "boolean")}
    served |= {says: (flags, "boolean") for says, flags in _kept(definition, rows, wanted).items()}
    for name in hidden.keys() & set(wanted):
        served[name] = pa.repeat(pa.scalar(hidden[name], pa.int64()), len(rows)), "bigint"
    declared = [known[name] for name in wanted if name not in served]
    values = {
        **_key_values(definition, keys, declared),
        **_payload_values(definition, payloads, deleted, declared),
    }
    for one in declared:
        served[one.name] = as_served(values[one.column.name], one.column.type), one.type
    return [served[name] for name in wanted]


def _kept(definition: LiveTable, rows: pa.Table, wanted: Sequence[str]) -> dict[str, pa.Array]:
    """Of each row, whether no hot record sets the columns that the wanted ones tell this of."""
    kept = {says: name for name, says in kept_columns(definition).items() if says in wanted}
    absent = absent_columns(rows) if kept else {}
    none = np.zeros(len(rows), np.bool_)
    # safety: trino-kept-columns
    return {says: pa.array(absent.get(name, none)) for says, name in kept.items()}


def _key_values(definition: LiveTable, keys: pa.Array, wanted: Sequence[HotColumn]) -> dict[str, pa.Array]:
    if not any(one.column.name in definition.key for one in wanted):
        return {}
    return dict(zip(definition.key, decode_arrays(definition, keys), strict=True))


def _payload_values(
    definition: LiveTable, payloads: pa.Array, deleted: pa.Array, wanted: Sequence[HotColumn]
) -> dict[str, pa.Array]:
    """The value columns, null in tombstones."""
    names = {one.column.name for one in wanted} - set(definition.key)
    if not names:
        return {}
    is_live = pc.invert(deleted)
    unpacked = unpack_arrays(definition, payloads.filter(is_live), names)
    if not deleted.true_count:
        return unpacked
    places = np.cumsum(is_live.to_numpy(zero_copy_only=False)) - 1
    taken = pc.if_else(is_live, pa.array(places, pa.int64()), None)
    return {name: values.take(taken) for name, values in unpacked.items()}


def _values(domain: Mapping[int, Any] | None, kind: Kind) -> list[Any] | None:
    """The values that a column's condition leaves; None where they are not a few, or may be null."""
    ranges = None if domain is None or domain.get(2, False) else domain[1].get(3)
    if ranges is None:
        return None
    values = list(_exact(ranges[1], kind))
    return values if len(values) == len(ranges[1]) and len(values) <= PREFIXES_MAX else None


def _exact(ranges: Sequence[Mapping[int, Any]], kind: Kind) -> Iterator[Any]:
    """The values of those ranges that are one value each."""
    for one in ranges:
        low, high = one[1], one[2]
        if 1 in low and low == high and low[2] == _EXACTLY:
            with suppress(ValueError):  # a date that no row can have
                yield value_in(low[1], kind)
