"""The rows of an entity as they are kept and sent: a JSON array, and where each row is in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Final, Self

JsonRow = bytes
JsonRows = bytes

NO_ROWS: Final[JsonRows] = b"[]"
# What a key, its place and the place of its row take beside their bytes.
_ROW_OVERHEAD_BYTES: Final = 100
_ENTITY_OVERHEAD_BYTES: Final = 300


@dataclass(frozen=True, slots=True)
class EntityRows:
    """Sorted by key. ``starts`` are the places of the rows in the array, and the one behind its end.

    ``sequences``: where columns order the records, those of the rows and of remembered deletes, by key.
    """

    json: JsonRows
    keys: tuple[bytes, ...]
    starts: tuple[int, ...]
    sequences: Mapping[bytes, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Mapping[bytes, JsonRow], sequences: Mapping[bytes, bytes]) -> Self:
        """From the rows by key."""
        keys = tuple(sorted(rows))
        starts = tuple(accumulate((len(rows[key]) + 1 for key in keys), initial=1))
        return cls(joined(rows[key] for key in keys), keys, starts, sequences)

    @property
    def weight(self) -> int:
        """About the bytes of memory that it takes."""
        own = len(self.json) + sum(map(len, self.keys))
        own += sum(len(key) + len(value) for key, value in self.sequences.items())
        entries = len(self.keys) + len(self.sequences)
        return own + _ENTITY_OVERHEAD_BYTES + entries * _ROW_OVERHEAD_BYTES

    def by_key(self) -> dict[bytes, JsonRow]:
        """The rows one by one."""
        rows = (self.json[start : after - 1] for start, after in pairwise(self.starts))
        return dict(zip(self.keys, rows, strict=True))


NO_ENTITY_ROWS: Final = EntityRows(NO_ROWS, (), (1,))


def joined(rows: Iterable[JsonRow]) -> JsonRows:
    """Rows as they are sent."""
    return b"[%b]" % b",".join(rows)
