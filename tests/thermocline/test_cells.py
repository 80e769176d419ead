from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thermocline.rules.byte_columns import big_endian, positions_and_bytes, text


@given(st.binary(min_size=1, max_size=60), st.data())
def test_text_is_what_slicing_gives_wherever_it_lies(data: bytes, draw: st.DataObject) -> None:
    """Spans of all lengths, overlapping and up to the last byte, some of them null."""
    place = st.integers(0, len(data))
    spans = draw.draw(st.lists(st.tuples(place, place, st.booleans()), max_size=20))
    starts = np.array([min(a, b) for a, b, _ in spans], np.int64)
    stops = np.array([max(a, b) for a, b, _ in spans], np.int64)
    is_null = np.array([null for _, _, null in spans], np.bool_)
    array = text(np.frombuffer(data, np.uint8), starts, stops, is_null)
    array.validate(full=True)
    slices = [data[min(a, b) : max(a, b)] for a, b, _ in spans]
    assert array.to_pylist() == [None if null else s for s, null in zip(slices, is_null, strict=True)]
    whole = text(np.frombuffer(data, np.uint8), starts, stops)
    assert whole.cast(pa.large_binary()).to_pylist() == slices


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f8"])
def test_numbers_are_read_at_any_position(dtype: str) -> None:
    data = bytes(range(100, 140))
    size = np.dtype(dtype).itemsize
    positions = np.arange(len(data) - size + 1)[::-1].copy()
    expected = [np.frombuffer(data[p : p + size], f">{dtype}")[0] for p in positions]
    assert big_endian(np.frombuffer(data, np.uint8), positions, dtype).tolist() == expected
    assert len(big_endian(np.zeros(0, np.uint8), np.zeros(0, np.int64), dtype)) == 0


@pytest.mark.parametrize("type_", [pa.binary(), pa.large_binary()])
@given(values=st.lists(st.binary(max_size=5), max_size=8), cut=st.integers(0, 8))
def test_positions_enclose_each_value_of_an_array_or_a_slice(
    type_: pa.DataType, values: list[bytes], cut: int
) -> None:
    positions, data = positions_and_bytes(pa.array(values, type_).slice(cut))
    ends = positions.tolist()
    assert [data[a:b].tobytes() for a, b in pairwise(ends)] == values[cut:]
