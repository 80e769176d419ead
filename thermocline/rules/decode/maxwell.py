"""Maxwell's change events: JSON, of one row each.

Source: Maxwell's Daemon documentation, "Data Format" and "Bootstrapping".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from thermocline.rules.decode.envelopes import Parts
from thermocline.rules.decode.json_documents import refused_as_a_whole
from thermocline.rules.decode.json_object import REFUSALS
from thermocline.rules.decode.json_reasons import said_of
from thermocline.rules.decode.record import Bad, Stage
from thermocline.rules.headers import HeadersOf

__all__ = ["MaxwellEnvelope"]

_UPSERTS: Final = frozenset({"insert", "update", "bootstrap-insert"})
_DELETE: Final = "delete"
_NULL: Final = msgspec.Raw(b"null")


class _Event(msgspec.Struct):
    type: str | None = None
    data: msgspec.Raw = _NULL


class MaxwellEnvelope:
    """Takes change events apart; see `Envelope`. What is no change of one row is bad."""

    def __init__(self) -> None:
        """For records of a table that has its key in the record's key."""
        self._event = msgspec.json.Decoder(_Event).decode

    def open(self, keys: Sequence[bytes | None], values: Sequence[bytes | None], _: HeadersOf) -> Parts:
        """See `Envelope`."""
        rows: list[bytes | None] = []
        deletes: list[bool] = []
        bad: list[Bad] = []
        refused = dict(refused_as_a_whole([value or b"" for value in values]))
        for index, value in enumerate(values):
            row, problem = self._row(value, refused.get(index)) if value else (None, "")
            if problem:
                bad.append(Bad(index, Stage.DECODE, problem))
            rows.append(row)
            deletes.append(row is None and not problem)
        return Parts(keys, rows, deletes, bad, events=[value or None for value in values])

    def _row(self, value: bytes, refused: str | None) -> tuple[bytes | None, str]:
        """The row after the change, None where it is gone; and what is wrong."""
        if refused:
            return None, f"not a change event: {refused}"
        try:
            event = self._event(value)
        except REFUSALS as error:
            return None, f"not a change event: {said_of(error)}"
        if event.type == _DELETE:
            return None, ""
        row = bytes(event.data)
        if event.type not in _UPSERTS:  # safety: maxwell-type
            return (
                None,
                "not a change of one row: its type is not one of insert, update, delete, bootstrap-insert",
            )
        return (None, f"a change of type {event.type}, and without its row") if row == b"null" else (row, "")
