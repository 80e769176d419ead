"""The result of decoding, whatever the format: rows as columns of values, and the records that are bad."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from thermocline.rules.headers import HeadersOf, no_headers
from thermocline.rules.stage import Stage

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable

__all__ = ["Bad", "Decoded", "Decoder", "Stage", "given_topic", "left_out", "too_large"]


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
    ``bad`` holds the bad records, ascending, and ``filtered`` the indexes of those that are not the table's,
    by its conditions; with ``good``, these are all. ``unmatched`` are those of ``good`` that are not the
    table's, either, and delete the row of their key (``delete_unmatched``). ``absent`` aligns with ``good``,
    too: the names of the value columns that a record leaves as they are, which are None in ``columns``; a
    tombstone leaves none. It is None for a table without partial updates.
    """

    good: list[int]
    columns: dict[str, list[Any]]
    tombstones: list[bool]
    bad: list[Bad]
    absent: list[tuple[str, ...]] | None = None
    filtered: Sequence[int] = ()
    unmatched: Sequence[int] = ()

    @property
    def others(self) -> frozenset[int]:
        """The indexes of records that are not the table's, whatever becomes of them."""
        return frozenset((*self.filtered, *self.unmatched))  # safety: deletes-of-others-are-others

    def ours_of(self, count: int) -> Sequence[int]:
        """The indexes of records that are the table's, of so many that were decoded."""
        others = self.others
        return [index for index in range(count) if index not in others] if others else range(count)


class Decoder(Protocol):
    """Reads the records of one live table."""

    def decode(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers_of: HeadersOf = no_headers,
        topic: str | None = None,
    ) -> Decoded:
        """Decodes records of one topic, given as aligned raw keys and values.

        Never raises for what they hold. Raises `ValueError` if the topic isn't given, and counts.
        """
        ...


def given_topic(topic: str | None) -> str:
    """The topic of the records, where a table looks at it."""
    if topic is None:  # safety: topic-given
        raise ValueError("whose records they are, or a column, is told by their topic, which is not given")
    return topic


def too_large(
    definition: LiveTable, keys: Sequence[bytes | None], values: Sequence[bytes | None]
) -> dict[int, Bad]:
    """The records that are not decoded, since that would take too much memory."""
    most = definition.record_bytes_max
    if _longest(keys) + _longest(values) <= most:
        return {}
    sizes = (len(key or b"") + len(value or b"") for key, value in zip(keys, values, strict=True))
    return {
        index: Bad(index, Stage.DECODE, f"{size:,} bytes, more than record_bytes_max = {most:,}")
        for index, size in enumerate(sizes)
        if size > most  # safety: record-bytes-max
    }


def left_out(texts: Sequence[bytes | None], without: Collection[int]) -> list[bytes | None]:
    """The same, with None in the place of some."""
    return [None if index in without else text for index, text in enumerate(texts)]


def _longest(texts: Sequence[bytes | None]) -> int:
    return max(map(len, filter(None, texts) if None in texts else texts), default=0)  # type: ignore[arg-type]
