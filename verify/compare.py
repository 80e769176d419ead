"""Two sets of rows beside each other, column by column, for millions of them at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thermocline.rules.definition import KEY, PROVENANCE, LiveTable

__all__ = [
    "DIFFERS",
    "EXTRA",
    "MISSING",
    "TWICE",
    "Mask",
    "compared_columns",
    "differences",
    "first_twice",
    "rows_equal",
    "rows_equal_or_null",
]

Mask = np.ndarray[Any, np.dtype[np.bool_]]

MISSING: Final = "missing"
EXTRA: Final = "extra"
DIFFERS: Final = "differs"
TWICE: Final = "twice"


def rows_equal(ours: pa.Table, others: pa.Table, columns: Sequence[str]) -> Mask:
    """Row by row, whether all of the columns are equal; two nulls are, and a double is as its bits."""
    same: Mask = np.ones(ours.num_rows, bool)
    for name in columns:
        one, other = _comparable(ours.column(name)), _comparable(others.column(name))
        is_equal = pc.fill_null(pc.equal(one, other), pc.and_(one.is_null(), other.is_null()))
        same &= is_equal.to_numpy(zero_copy_only=False)
    return same


def rows_equal_or_null(ours: pa.Table, others: pa.Table, columns: Sequence[str]) -> Mask:
    """The same, where the others' columns may be null, too."""
    same: Mask = np.ones(ours.num_rows, bool)
    for name in columns:
        is_null = others.column(name).combine_chunks().is_null().to_numpy(zero_copy_only=False)
        same &= is_null | rows_equal(ours, others, [name])
    return same


def differences(expected: pa.Table, found: pa.Table, columns: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """What is different and the key, of two tables of rows with keys; ``columns`` are compared."""
    twice = first_twice(found)
    yield from ((TWICE, key) for key in twice.to_pylist())
    ours, others = expected.column(KEY).combine_chunks(), found.column(KEY).combine_chunks()
    at = pc.index_in(ours, value_set=others)
    is_missing = at.is_null().to_numpy(zero_copy_only=False)
    yield from ((MISSING, key) for key in ours.filter(pa.array(is_missing)).to_pylist())
    is_extra = pc.invert(pc.is_in(others, value_set=ours))
    yield from ((EXTRA, key) for key in others.filter(is_extra).to_pylist())
    both = expected.filter(pa.array(~is_missing))
    same = rows_equal(both, found.take(at.drop_null()), columns)  # safety: verify-extract
    yield from (
        (DIFFERS, key) for key in both.column(KEY).combine_chunks().filter(pa.array(~same)).to_pylist()
    )


def first_twice(rows: pa.Table) -> pa.Array:
    """The keys that are there more than once."""
    keys = rows.column(KEY).combine_chunks()
    counts = pc.value_counts(keys)
    return counts.field("values").filter(pc.greater(counts.field("counts"), 1))


def compared_columns(definition: LiveTable) -> list[str]:
    """The columns outside the key, and provenance."""
    return [*(column.name for column in definition.value_columns), *PROVENANCE]


def _comparable(values: pa.ChunkedArray) -> pa.Array:
    """As numbers, 0.0 equals -0.0, which a reader tells apart, and NaN does not equal itself."""
    array = values.combine_chunks()
    return array.view(pa.int64()) if pa.types.is_floating(array.type) else array
