"""The result of decoding, whatever the format: rows as columns of values, and the records that are bad."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from thermocline.rules.headers import HeadersOf, no_headers
from thermocline.rules.stage import Stage

__all__ = ["Bad", "Decoded", "Decoder", "Stage"]


@dataclass(frozen=True, slots=True)
class Bad:
    """A bad record: its index in the input, and why; its natural key in key order, if that could be read."""

    index: int
    stage: Stage
    reason: str
    key: tuple[Any, ...] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Decoded:
    """The rows of a chunk of records.

    ``good`` holds the ascending input indexes of the rows; ``columns`` (every declared column, in declared
    order, natural Python values) and ``tombstones`` align with it. A tombstone has only its key columns, and
    those that order it.
    ``bad`` holds all other records, ascending. ``absent`` aligns with ``good``, too: the names of the
    value columns that a record leaves as they are, which are None in ``columns``; a tombstone leaves none.
    It is None for a table without partial updates.
    """

    good: list[int]
    columns: dict[str, list[Any]]
    tombstones: list[bool]
    bad: list[Bad]
    absent: list[tuple[str, ...]] | None = None


class Decoder(Protocol):
    """Reads the records of one live table."""

    def decode(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers_of: HeadersOf = no_headers,
    ) -> Decoded:
        """Decodes records given as aligned raw keys and values. Never raises for what they hold."""
        ...
