"""Formats: they make columns of the bytes of a key or a value; and the source of the columns to look for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import msgspec

from thermocline.rules.decode.framing import HeadOf, no_heads
from thermocline.rules.definition import Column, LiveTable

__all__ = ["PRESENCE", "UNSET", "DeclaredColumns", "Documents", "Format", "Refusals", "SchemaSource"]

Refusals = dict[int, tuple[Column | None, str]]
"""By input index: why a document is refused, and the column at fault unless it is the document as a whole."""


class Documents(Protocol):
    """Reads the documents of one part of the records, in one format."""

    def read(
        self, texts: Sequence[bytes | None], refused: Refusals, head_of: HeadOf = no_heads
    ) -> dict[str, list[Any]]:
        """One list of natural values per column, aligned with the texts; refused texts give anything.

        Where there is no text, every column is null; that is refused only where one of them is required.
        """
        ...


Format = Callable[[Sequence[Column], Sequence[str]], Documents]
"""From the columns of a part, and the names of those that must not be null."""
UNSET: Final = msgspec.UNSET
"""In the place of a value that its record leaves as it is, where a format is to tell that."""
PRESENCE: Final = "_present"
"""The name of a ``json`` column of which only counts whether it is null; its values may be anything else."""


class SchemaSource(Protocol):
    """Says which columns the documents of each part have."""

    def of_keys(self) -> Sequence[Column]:
        """Those of the record's key."""
        ...

    def of_values(self) -> Sequence[Column]:
        """Those of the record's value."""
        ...


class DeclaredColumns:
    """The columns of the table's definition: the key's in the key, or all of them in the value."""

    def __init__(self, definition: LiveTable) -> None:
        """From the table's definition alone."""
        self._definition = definition

    def of_keys(self) -> Sequence[Column]:
        """The key columns, unless they stand in the value or in the topic's name."""
        if self._definition.key_from != "key":
            return ()
        return [column for column in self._definition.key_columns if column.is_in_row]

    def of_values(self) -> Sequence[Column]:
        """The others, or all."""
        is_split = self._definition.key_from == "key"
        columns = self._definition.value_columns if is_split else self._definition.columns
        return [column for column in columns if column.is_in_row]
