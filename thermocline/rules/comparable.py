"""Nested values as bytes, equal exactly where the values are: Arrow and DuckDB compare scalars better."""

from __future__ import annotations

from typing import Final

import msgspec
import pyarrow as pa

from thermocline.rules.column_types import ColumnType
from thermocline.rules.decode import natural_values

__all__ = ["nested_as_bytes"]

# In MessagePack a double is its bits, so that -0.0 is not 0.0 and NaN is itself.
_PACK: Final = msgspec.msgpack.Encoder(uuid_format="bytes").encode


def nested_as_bytes(of: ColumnType, values: pa.Array) -> pa.Array:
    """Values of a nested type, null where they are; the entries of a map have no order.

    Raises `ValueError` for a map that has a key twice, as only another writer stores it.
    """
    found = natural_values(of, values)
    return pa.array([None if value is None else _PACK(value) for value in found], pa.binary())
