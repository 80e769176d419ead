"""Nested values as bytes, equal exactly where the values are: Arrow and DuckDB compare scalars better."""

from __future__ import annotations

from typing import Final

import msgspec
import pyarrow as pa

__all__ = ["nested_as_bytes"]

# In MessagePack a double is its bits, so that -0.0 is not 0.0 and NaN is itself. The entries of a map have no
# order of their own; those of a struct are always the same.
_PACK: Final = msgspec.msgpack.Encoder(order="sorted").encode


def nested_as_bytes(values: pa.Array) -> pa.Array:
    """Values of a struct, a list or a map, of one type; null stays null.

    Raises `ValueError` for a map that has a key twice, as only another writer stores it.
    """
    try:
        found = values.to_pylist(maps_as_pydicts="strict")
    except KeyError as error:
        raise ValueError(f"a map has a key twice: {error}") from error
    return pa.array([None if value is None else _PACK(value) for value in found], pa.binary())
