"""Arrow columns as columns of text, spelled as JSON has the values, without its quotes."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from thermocline.rules.column_types import ColumnType

__all__ = ["base64_texts", "clock_texts", "decimal_texts", "moment_texts", "uuid_texts", "wall_clock_texts"]

_DATE_LENGTH: Final = 10  # a blank follows


def decimal_texts(of: ColumnType, values: pa.Array) -> pa.Array:
    """Decimals in plain notation."""
    texts = values.cast(pa.string())
    if of.spelled is None:
        return texts
    has_exponent = pc.fill_null(pc.match_substring(texts, "E"), False)
    plain = [of.spelled(one) for one in values.filter(has_exponent).to_pylist()]
    return pc.replace_with_mask(texts, has_exponent, pa.array(plain, pa.string()))


def wall_clock_texts(_: ColumnType, values: pa.Array) -> pa.Array:
    """Times without a zone as RFC 3339 has them, with six digits of a fraction or none."""
    # Of a time with a zone, Arrow makes text thirty times as slowly.
    texts = values.view(pa.timestamp("us")).cast(pa.string())
    texts = pc.binary_replace_slice(texts, _DATE_LENGTH, _DATE_LENGTH + 1, "T")
    return pc.replace_substring(texts, ".000000", "")


def moment_texts(of: ColumnType, values: pa.Array) -> pa.Array:
    """Times with their zone, which is UTC."""
    return pc.binary_join_element_wise(wall_clock_texts(of, values), "Z", "")


def clock_texts(_: ColumnType, values: pa.Array) -> pa.Array:
    """Times of day, with six digits of a fraction or none."""
    return pc.replace_substring(values.cast(pa.string()), ".000000", "")


def uuid_texts(_: ColumnType, values: pa.Array) -> pa.Array:
    """UUIDs in their canonical form, of their 16 bytes."""
    return pa.array(
        [None if one is None else str(UUID(bytes=one)) for one in values.to_pylist()], pa.string()
    )


def base64_texts(_: ColumnType, values: pa.Array) -> pa.Array:
    """Bytes in base64."""
    coded = [None if one is None else base64.b64encode(one).decode() for one in values.to_pylist()]
    return pa.array(coded, pa.string())
