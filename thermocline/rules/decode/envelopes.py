"""Which part of a record is its key, which its value, and whether it deletes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from thermocline.rules.decode.record import Bad, Stage
from thermocline.rules.definition import ONE_COLUMN, LiveTable

__all__ = ["Envelope", "Parts", "PlainEnvelope"]


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of records, aligned with them; a value is None where there is nothing to read.

    ``bad`` are those that say nothing that a table of that definition could take.
    """

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    deletes: list[bool]
    bad: list[Bad]


class Envelope(Protocol):
    """Takes records apart."""

    def open(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Parts:
        """The parts of aligned raw keys and values. Never raises for what they hold."""
        ...


class PlainEnvelope:
    """Key and value as they are. No value deletes, where the key says which row.

    An empty one is none where it could not be a value.
    """

    def __init__(self, definition: LiveTable) -> None:
        """For the records of that table."""
        self._can_delete = definition.key_from == "key"
        self._may_be_empty = definition.format in ONE_COLUMN
        # Whose row a tombstone is about would stand in the value.
        self._stage = Stage.KEY if definition.has_key else Stage.DECODE

    def open(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Parts:
        """See `Envelope`."""
        if not self._may_be_empty:
            values = [value or None for value in values]
        deletes = [value is None for value in values]
        bad: list[Bad] = []
        if not self._can_delete:
            empty = (index for index, is_empty in enumerate(deletes) if is_empty)
            bad = [Bad(index, self._stage, "the value is empty") for index in empty]  # safety: empty-value
        return Parts(keys, values, deletes, bad)
