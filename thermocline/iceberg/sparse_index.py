"""The sparse index of a data file: the first full key of each row group.

Parquet's own statistics are per column, and a minimum per column is no bound for a composite key. Every file
that we write carries its index in the footer; a file of another writer is indexed by reading its key columns.
"""

from __future__ import annotations

import base64
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow.parquet as pq

from thermocline.iceberg.files import open_input
from thermocline.rules.keys import encode_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.io import FileIO

    from thermocline.rules.definition import LiveTable

FOOTER_KEY = "thermocline.first-keys"


@dataclass(frozen=True, slots=True)
class SparseIndex:
    """``first_keys[i]`` is the first key of row group ``i``, which holds ``rows[i]`` rows.

    A key may come several times, as a row and as remembered deletes of it. So the first key of a row group
    may stand at the end of the one before, too.

    ``is_sorted`` is False for a foreign file whose rows are not in key order: any of its row groups may then
    hold any key.
    """

    first_keys: list[bytes]
    rows: np.ndarray[tuple[int], np.dtype[np.int64]]
    is_sorted: bool = True
    row_starts: np.ndarray[tuple[int], np.dtype[np.int64]] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "row_starts", np.concatenate(([0], np.cumsum(self.rows)[:-1])).astype(np.int64)
        )

    def candidates(self, low: bytes, high: bytes | None) -> range:
        """The row groups that may hold a key in [low, high); ``high`` None means no upper bound."""
        if not self.is_sorted:
            return range(len(self.first_keys))
        first = max(bisect_left(self.first_keys, low) - 1, 0)  # safety: index-key-over-groups
        end = len(self.first_keys) if high is None else bisect_left(self.first_keys, high)
        return range(first, max(first, end))

    def groups_of(self, keys: Sequence[bytes]) -> list[int]:
        """The row groups that may hold any of the given keys, ascending; ``keys`` are sorted."""
        if not self.is_sorted:
            return list(range(len(self.first_keys)))
        # Keys below the first row group can't be in the file.
        starts = [bisect_left(keys, first) for first in self.first_keys]
        # safety: index-keys-over-groups
        ends = [bisect_right(keys, first) for first in self.first_keys[1:]] + [len(keys)]
        groups = range(len(self.first_keys))
        return [group for group, start, end in zip(groups, starts, ends, strict=False) if end > start]


def footer_entry(first_keys: Sequence[bytes]) -> dict[str, str]:
    """The key-value metadata that a data file's footer carries its index in."""
    return {FOOTER_KEY: base64.b64encode(msgspec.msgpack.encode(list(first_keys))).decode()}


def load_sparse_index(
    io: FileIO, path: str, definition: LiveTable, metadata: pq.FileMetaData | None = None
) -> SparseIndex:
    """The index of a data file, from its footer; built from its key columns where the footer has none."""
    if metadata is not None and (known := _index_in(metadata)) is not None:
        return known
    with open_input(io, path) as source:
        file = pq.ParquetFile(source, metadata=metadata)
        return _index_in(file.metadata) or _index_by_reading(file, definition)


def first_keys_in(footer: pq.FileMetaData) -> list[bytes] | None:
    """The first keys of a file's row groups that its footer gives; None where it gives none of this file.

    Others merge files by copying their row groups, with the metadata of the first one: of our files each has
    at least one row group, so the result has more than that one had.
    """
    entry = (footer.metadata or {}).get(FOOTER_KEY.encode())
    if entry is None:
        return None
    first_keys = msgspec.msgpack.decode(base64.b64decode(entry), type=list[bytes])
    return first_keys if len(first_keys) == footer.num_row_groups else None  # safety: index-of-this-file


def _index_in(footer: pq.FileMetaData) -> SparseIndex | None:
    first_keys = first_keys_in(footer)
    return None if first_keys is None else SparseIndex(first_keys, _rows_of_groups(footer))


def _rows_of_groups(footer: pq.FileMetaData) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([footer.row_group(i).num_rows for i in range(footer.num_row_groups)], dtype=np.int64)


def _index_by_reading(file: pq.ParquetFile, definition: LiveTable) -> SparseIndex:
    rows = _rows_of_groups(file.metadata)
    first_keys: list[bytes] = []
    last_key, is_sorted = b"", True
    for group in range(len(rows)):
        # safety: whole-identity
        rows_of_group = file.read_row_group(group, columns=list(definition.identity))
        keys = encode_table(definition, rows_of_group).to_pylist()
        is_sorted = is_sorted and keys == sorted(keys) and last_key <= keys[0]  # safety: index-unsorted
        first_keys.append(keys[0])
        last_key = keys[-1]
    return SparseIndex(first_keys, rows, is_sorted)
