"""A filter of entities for each data file, by hashes, so that a lookup opens few of a bucket's files.

A young file spans the whole bucket, since its records came in no order, and has few of its entities; the
sparse index names a row group of it for nearly every entity. A filter rules it out in a microsecond.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import mmh3
import pyarrow.compute as pc
from pyroaring import BitMap

from thermocline.rules.keys import encode_columns, flat_column

if TYPE_CHECKING:
    import pyarrow as pa

    from thermocline.rules.definition import LiveTable

# A larger file has most of what it is asked for. A filter takes about two bytes an entity in each worker.
ROWS_MAX: Final = 131_072
# One of 256 entities that a file does not have is not ruled out.
BITS_MORE: Final = 8


@dataclass(frozen=True, slots=True)
class EntityFilter:
    """The hashes of a file's entities, deleted rows too: all that may ever be asked of it."""

    hashes: BitMap
    bits: int

    @classmethod
    def of(cls, definition: LiveTable, rows: pa.Table) -> Self:
        """The filter of a file with these rows; only the entity's columns are needed."""
        columns = [definition.key_columns[place] for place in range(len(definition.entity))]
        arrays = [flat_column(rows.column(column.name), column) for column in columns]
        prefixes = pc.unique(encode_columns(columns, arrays)).to_pylist()
        bits = min(len(prefixes).bit_length() + BITS_MORE, 32)
        return cls(BitMap(hash_of(prefix) & (1 << bits) - 1 for prefix in prefixes), bits)

    @classmethod
    def deserialize(cls, content: bytes, bits: int) -> Self:
        """What `serialized` gave."""
        return cls(BitMap.deserialize(content), bits)

    def serialized(self) -> bytes:
        """The hashes as bytes."""
        content: bytes = self.hashes.serialize()
        return content

    def may_have(self, entity_hash: int) -> bool:
        """Whether the file may have rows of the entity with that `hash_of`."""
        return entity_hash & (1 << self.bits) - 1 in self.hashes


def hash_of(prefix: bytes) -> int:
    """The hash of an entity, from the bytes of its columns' values: 32 bits."""
    return mmh3.hash(prefix, signed=False)
