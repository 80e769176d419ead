"""Groups of the records in a table's quarantine: kept in ``bad.json`` for the API workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from thermocline.rules.bad_codes import coded

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from thermocline.rules.definition import LiveTable

__all__ = ["BAD_FACTS", "GROUPS_MAX", "BadFacts", "BadGroup", "BadRecord", "grouped", "read_bad_facts"]

BAD_FACTS: Final = "bad.json"
"""In a table's folder."""
GROUPS_MAX: Final = 50
REASON_CHARACTERS_MAX: Final = 300
"""As of a refused record: a reason may quote what the producer sent."""


class BadRecord(msgspec.Struct, frozen=True):
    """One bad record; ``at_ms`` is its own time, None where it isn't known."""

    topic: str
    partition: int
    offset: int
    stage: str
    reason: str
    at_ms: int | None = None

    @property
    def place(self) -> str:
        """Where it stands, as commands take it."""
        return f"{self.topic}/{self.partition}@{self.offset}"


class BadGroup(msgspec.Struct, frozen=True):
    """Records that are bad in the same way: see `thermocline.rules.bad_codes`.

    ``first_ms`` and ``last_ms`` are times of the records. ``example`` is the newest, and ``reason`` its own,
    which may quote what it has.
    """

    stage: str
    code: str
    column: str | None
    records: int
    first_ms: int | None
    last_ms: int | None
    example: str
    reason: str


class BadFacts(msgspec.Struct, frozen=True):
    """The groups of the newest records in quarantine, those that came last first.

    ``looked_at`` is how many records these are, ``is_all`` whether there are no others, and ``more_groups``
    how many groups were left out. ``problem`` is why the quarantine could not be read.
    """

    as_of_ms: int
    groups: tuple[BadGroup, ...] = ()
    more_groups: int = 0
    looked_at: int = 0
    is_all: bool = True
    problem: str = ""


def grouped(records: Iterable[BadRecord], definition: LiveTable) -> list[BadGroup]:
    """The groups of some records, those that came last first."""
    of_group: dict[tuple[str, str, str | None], list[BadRecord]] = {}
    for record in records:
        code, column = coded(record.reason, definition)
        of_group.setdefault((record.stage, code.value, column), []).append(record)
    groups = [_group(*key, some) for key, some in of_group.items()]
    return sorted(groups, key=lambda one: (-(one.last_ms or 0), -one.records, one.example))


def _group(stage: str, code: str, column: str | None, records: list[BadRecord]) -> BadGroup:
    times = [record.at_ms for record in records if record.at_ms is not None]
    newest = max(records, key=lambda record: (record.at_ms or 0, record.offset))
    return BadGroup(
        stage=stage,
        code=code,
        column=column,
        records=len(records),
        first_ms=min(times, default=None),
        last_ms=max(times, default=None),
        example=newest.place,
        reason=newest.reason[:REASON_CHARACTERS_MAX],
    )


def read_bad_facts(folder: Path) -> BadFacts | None:
    """Those in a table's folder; None where there are none, or none that this release can read."""
    try:
        return msgspec.json.decode((folder / BAD_FACTS).read_bytes(), type=BadFacts)
    except (OSError, msgspec.DecodeError):
        return None
