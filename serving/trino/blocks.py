"""Columns as the connector's blocks, and the values of its conditions."""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thermocline.rules.column_types import TYPES
from thermocline.serving.trino.wire import BOOL, DOUBLE, I32, I64, LIST, STOP, STRING, STRUCT, field

if TYPE_CHECKING:
    from thermocline.rules.column_types import ColumnType, Kind

__all__ = ["as_served", "block", "value_in"]

_IDS: Final = {"integer": 1, "bigint": 2, "double": 3, "varchar": 4, "boolean": 5, "date": 6}
_FORMS: Final = {
    "integer": (I32, pa.int32(), ">i4"),
    "bigint": (I64, pa.int64(), ">i8"),
    "double": (DOUBLE, pa.float64(), ">f8"),
    "boolean": (BOOL, pa.uint8(), "u1"),
    "date": (I32, pa.int32(), ">i4"),
}
"""By type: what its list is of, and the numbers in it."""
_LIST: Final = Struct(">bi")


def as_served(values: pa.Array, of: ColumnType) -> pa.Array:
    """A column of the declared type, as `block` takes it: what the connector has no type for as text.

    Times are microseconds since 1970, decimals, UUIDs and times of day their text, binary is base64.
    """
    form = of.entry.hot
    assert form is not None, "a table that the connector can't have"
    return form.served(of, values)


def block(values: pa.Array, type_name: str) -> bytes:
    """A column as a block of one of the connector's types."""
    nulls = b""
    if values.null_count:
        is_null = values.is_null().cast(pa.uint8()).to_numpy(zero_copy_only=False)
        nulls = field(LIST, 1, _numbers(BOOL, is_null))
    body = _varchar(values) if type_name == "varchar" else _plain(values, type_name)
    return field(STRUCT, _IDS[type_name], nulls + body + STOP) + STOP


def _plain(values: pa.Array, type_name: str) -> bytes:
    kind, arrow, numpy = _FORMS[type_name]
    filled = values.cast(arrow) if values.type != arrow else values
    if filled.null_count:
        filled = pc.fill_null(filled, 0)
    return field(LIST, 2, _numbers(kind, filled.to_numpy(zero_copy_only=False).astype(numpy)))


def _varchar(values: pa.Array) -> bytes:
    data = pc.fill_null(values.cast(pa.large_binary()), b"")
    sizes = pc.binary_length(data).to_numpy(zero_copy_only=False).astype(">i4")
    _, offsets, raw = data.buffers()
    ends = np.frombuffer(offsets, np.int64)[data.offset : data.offset + len(data) + 1] if offsets else [0, 0]
    content = memoryview(raw)[ends[0] : ends[-1]] if raw is not None else b""
    head = len(content).to_bytes(4, "big")
    return field(LIST, 2, _numbers(I32, sizes)) + field(STRING, 3, head + bytes(content))


def _numbers(kind: int, numbers: np.ndarray[Any, Any]) -> bytes:
    return _LIST.pack(kind, len(numbers)) + numbers.tobytes()


def value_in(found: Mapping[int, Any], kind: Kind) -> object:
    """The value of a column of that kind in a block of one value, as a condition has it."""
    form = TYPES[kind].hot
    assert form is not None
    assert form.condition is not None, "a column that takes no conditions"
    (of,) = found.values()
    return form.condition(bytes(of.get(3, b"")) if form.type == "varchar" else of[2][0])
