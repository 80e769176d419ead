"""A typed composite key as bytes that sort as the key does, and the bucket that a key falls into.

Each column's bytes end where the next one's begin, so the bytes of an entity are a prefix of the bytes of
all its rows, and comparing bytes compares keys column by column:

* int and date: 4 bytes, long: 8 bytes, big-endian with the sign bit flipped; a UUID: its 16 bytes;
* string (UTF-8) and binary: each 0x00 as 0x00 0xFF, then 0x00 0x01 as the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg_core import transform

from thermocline.errors import BadParameter
from thermocline.rules.byte_columns import Bytes, Positions, big_endian, positions_and_bytes, text
from thermocline.rules.column_types import ESCAPED_ZERO, KEY_END, KeyForm
from thermocline.rules.columns import PROVENANCE, Column
from thermocline.text.shown import Columns

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable

__all__ = [
    "bucket_of",
    "buckets",
    "check_key_columns",
    "decode_arrays",
    "decode_columns",
    "decode_one",
    "encode_columns",
    "encode_one",
    "encode_table",
    "encode_values",
    "flat_column",
    "named_columns",
    "parse_value",
    "prefix_end",
]

_ARROW_INTEGERS: Final = {4: pa.int32(), 8: pa.int64()}
"""By width."""


def encode_table(definition: LiveTable, table: pa.Table | pa.RecordBatch) -> pa.BinaryArray:
    """The key of every row, from the key columns found by name. Key columns must not be null."""
    columns = definition.key_columns
    return encode_columns(columns, [flat_column(table.column(column.name), column) for column in columns])


def encode_columns(columns: Sequence[Column], arrays: Sequence[pa.Array]) -> pa.BinaryArray:
    """The bytes of every row of some columns, of which each array has the declared type and no nulls."""
    parts: list[pa.Array | pa.Scalar] = []
    for column, values in zip(columns, arrays, strict=True):
        if _form(column).width is None:
            parts += [_escaped(values), pa.scalar(KEY_END, pa.binary())]
        else:
            parts.append(_fixed_bytes(values, _form(column)))
    keys = pc.binary_join_element_wise(*parts, b"") if len(parts) > 1 else parts[0]
    assert keys.null_count == 0, "a key column is null"
    return keys


def encode_one(definition: LiveTable, values: Sequence[object], first: int = 0) -> bytes:
    """The bytes of one key, or, from its leading columns only, the prefix of all keys that begin so.

    The values may begin at key column ``first``: the bytes are then those that follow a prefix.
    """
    return encode_values(definition.key_columns[first : first + len(values)], values)


def encode_values(columns: Sequence[Column], values: Sequence[object]) -> bytes:
    """The bytes of the natural values of some columns."""
    return b"".join(_form(column).encode(value) for column, value in zip(columns, values, strict=True))


def decode_one(definition: LiveTable, key: bytes, first: int = 0) -> tuple[object, ...]:
    """The natural Python values of one key, in key order.

    The bytes may begin at key column ``first``: the values are then those of that column and what follows.
    """
    values: list[object] = []
    position = 0
    for column in definition.key_columns[first:]:
        form = _form(column)
        end = key.index(KEY_END, position) if form.width is None else position + form.width
        values.append(form.decode(key[position:end]))
        position = end + len(KEY_END) if form.width is None else end
    assert position == len(key), "bytes beyond the key"
    return tuple(values)


def decode_arrays(definition: LiveTable, keys: pa.Array) -> list[pa.Array]:
    """The key columns of many keys, a binary array, as arrays of the declared types."""
    return decode_columns(definition.key_columns, keys)


def decode_columns(columns: Sequence[Column], keys: pa.Array) -> list[pa.Array]:
    """What ``encode_columns`` made the bytes of, as arrays of the declared types."""
    offsets, data = positions_and_bytes(keys)
    ends = np.flatnonzero((data[:-1] == KEY_END[0]) & (data[1:] == KEY_END[1]))
    position = offsets[:-1]
    arrays: list[pa.Array] = []
    for column in columns:
        width = _form(column).width
        if width is not None:
            arrays.append(_fixed_values(data, position, column))
            position = position + width
        else:
            # Fixed-width bytes may look like an end too, but only before the position of the search.
            stop = ends[np.searchsorted(ends, position)] if len(position) else position
            values = text(data, position, stop).cast(pa.binary())
            arrays.append(_unescaped(values).cast(column.type.arrow))
            position = stop + len(KEY_END)
    return arrays


def prefix_end(prefix: bytes) -> bytes | None:
    """The smallest byte string above all those with the prefix; None when there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


def bucket_of(definition: LiveTable, entity_last_value: object, of: int | None = None) -> int:
    """The bucket of the entity whose last column has that natural value; ``buckets`` for one, in 1 µs."""
    hashed = _form(definition.bucket_column).hashed(entity_last_value)
    return (mmh3.hash(hashed) & 0x7FFFFFFF) % (of or definition.buckets)


def buckets(
    definition: LiveTable, array: pa.Array | pa.ChunkedArray, of: int | None = None
) -> np.ndarray[Any, np.dtype[np.int32]]:
    """The bucket of each value of the entity's last column, ``of`` so many instead of the definition's.

    Source: Iceberg table specification, "Bucket Transform Details" and appendix B.
    """
    values = flat_column(array, definition.bucket_column)
    numbers: np.ndarray[Any, np.dtype[np.int32]] = transform.bucket(
        values, of or definition.buckets
    ).to_numpy()
    return numbers


def named_columns(definition: LiveTable, key: bytes) -> Columns:
    """The columns that identify a row, by name, as natural Python values; from its key's bytes."""
    return Columns(zip(definition.identity, decode_one(definition, key), strict=True))


def check_key_columns(definition: LiveTable, names: Iterable[str]) -> None:
    """Raises `BadParameter` for the first name that is none of the key's columns."""
    columns = [column.name for column in definition.columns]
    for name in names:
        if name in definition.key:
            continue
        if name in (*PROVENANCE, *columns):
            key = ", ".join(definition.key)
            raise BadParameter(name=name, problem=f"it is not a key column; the key is {key}")
        raise BadParameter.unknown_column(definition.name, name, columns)


def parse_value(column: Column, text: str) -> object:
    """A key value from a URL or the command line, as its natural Python value.

    Raises:
        ValueError: with a plain sentence, when the text is no value of the column's type.
    """
    try:
        assert column.type.of_text is not None, "no key column"
        return column.type.of_text(text)
    except ValueError as error:
        raise ValueError(f'{column.name} is {column.type.with_article}, and "{text}" is {error}') from None


def flat_column(values: pa.Array | pa.ChunkedArray, column: Column) -> pa.Array:
    """One array of the declared type, whatever width, dictionary or extension a file stored it with."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    return values if values.type == column.type.arrow else values.cast(column.type.arrow)


def _form(column: Column) -> KeyForm:
    form = column.type.entry.key
    assert form is not None, "no key column"
    return form


def _fixed_bytes(values: pa.Array, form: KeyForm) -> pa.Array:
    width = form.width
    assert width is not None
    if form.is_integer:
        assert values.null_count == 0, "a key column is null"
        numbers = values.view(_ARROW_INTEGERS[width]).to_numpy()
        unsigned = numbers.view(f"u{width}") ^ numbers.dtype.type(1).view(f"u{width}") << (8 * width - 1)
        packed = pa.py_buffer(unsigned.astype(f">u{width}"))
        values = pa.Array.from_buffers(pa.binary(width), len(values), [None, packed])
    return values.cast(pa.binary())


def _fixed_values(data: Bytes, position: Positions, column: Column) -> pa.Array:
    width = _form(column).width
    assert width is not None
    if not _form(column).is_integer:
        packed = pa.py_buffer(data[position[:, None] + np.arange(width)])
        return pa.Array.from_buffers(column.type.arrow, len(position), [None, packed])
    unsigned = big_endian(data, position, f"u{width}")
    numbers = (unsigned ^ unsigned.dtype.type(1) << (8 * width - 1)).view(f"i{width}")
    return pa.array(numbers).view(column.type.arrow)


def _escaped(values: pa.Array) -> pa.Array:
    raw = values.cast(pa.binary())
    _, data = positions_and_bytes(raw)
    if data.all():
        return raw
    return pc.replace_substring(raw, pattern=b"\x00", replacement=ESCAPED_ZERO)


def _unescaped(values: pa.Array) -> pa.Array:
    _, data = positions_and_bytes(values)
    return values if data.all() else pc.replace_substring(values, pattern=ESCAPED_ZERO, replacement=b"\x00")
