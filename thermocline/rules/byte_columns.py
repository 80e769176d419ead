"""Values that lie here and there in one run of bytes, as columns, without a Python object for each.

Keys, hot records and payloads are read a column at a time with these: where each value begins is an array of
positions, and numpy or Arrow take all values at once.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

__all__ = ["Bytes", "Positions", "big_endian", "positions_and_bytes", "text"]

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Positions = np.ndarray[Any, np.dtype[np.int64]]

# A view's four words are its length and either the bytes themselves, twelve at most, or their first four, the
# number of a buffer, and the position in it. Source: Arrow columnar format, "Variable-size Binary View".
INLINE_BYTES: Final = 12
_WORDS: Final = np.dtype(("V", INLINE_BYTES))
# By length, which bits of the three words belong to the value.
_KEPT: Final = (255 * np.tri(INLINE_BYTES + 1, INLINE_BYTES, -1)).astype(np.uint8).view(np.int32)
_BYTES_MAX: Final = 2**31 - 1


def positions_and_bytes(values: pa.Array) -> tuple[Positions, Bytes]:
    """Where each value of a binary array begins, and one more, and the bytes that these point into."""
    _, offsets, data = values.buffers()
    if offsets is None or data is None:
        return np.zeros(len(values) + 1, np.int64), np.zeros(0, np.uint8)
    width = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    places = np.frombuffer(offsets, width)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    return places - places[0], np.frombuffer(data, np.uint8)[places[0] : places[-1]]


def big_endian(data: Bytes, positions: Positions, dtype: str) -> np.ndarray[Any, Any]:
    """The numbers that begin at the positions; ``dtype`` is numpy's name without a byte order, as ``i8``."""
    return _items(data, positions, np.dtype(dtype).newbyteorder(">")).astype(dtype)


def text(
    data: Bytes,
    starts: Positions,
    stops: Positions,
    is_null: np.ndarray[Any, np.dtype[np.bool_]] | None = None,
) -> pa.Array:
    """The bytes between the positions, as an array of binary views into ``data``; to be cast to its type."""
    assert len(data) <= _BYTES_MAX, "a view reaches no further"
    lengths = stops - starts
    views = np.empty((len(starts), 4), np.int32)
    views[:, 0] = lengths
    views[:, 1:] = _beginnings(data, starts) & _KEPT.take(np.minimum(lengths, INLINE_BYTES), axis=0)
    is_long = lengths > INLINE_BYTES
    views[is_long, 2] = 0
    views[is_long, 3] = starts[is_long]
    valid = None if is_null is None else pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    buffers = [valid, pa.py_buffer(views), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary_view(), len(starts), buffers)


def _items(data: Bytes, positions: Positions, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """The items that begin at the positions, aligned or not: the bytes seen as items that overlap."""
    count = max(0, len(data) - dtype.itemsize + 1)
    return np.ndarray(count, dtype, data, strides=(1,))[positions]  # a fifth of the time of single bytes


def _beginnings(data: Bytes, starts: Positions) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Three words from each start on; what lies beyond the end of the data may be anything."""
    if len(data) < INLINE_BYTES:
        data = np.concatenate([data, np.zeros(INLINE_BYTES, np.uint8)])
    last = len(data) - INLINE_BYTES
    words = _items(data, np.minimum(starts, last), _WORDS).view(np.int32).reshape(-1, 3)
    near_end = np.flatnonzero(starts > last)
    places = starts[near_end, None] + np.arange(INLINE_BYTES)
    words[near_end] = data.take(places, mode="clip").view(np.int32)
    return words
