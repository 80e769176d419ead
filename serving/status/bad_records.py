"""Bad records in a table's status: those of the quarantine, and those refused since the last commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from thermocline.rules.bad_codes import MEANINGS, BadCode
from thermocline.serving.hot.file_version import file_version
from thermocline.serving.status.document import BadGroupStatus, BadRecordsStatus
from thermocline.serving.tail.bad_facts import BAD_FACTS, BadFacts, BadRecord, grouped, read_bad_facts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from thermocline.rules.definition import LiveTable
    from thermocline.serving.hot.refused import Refused
    from thermocline.serving.status.document import ServerStatus, TableStatus
    from thermocline.serving.tail.bad_facts import BadGroup

__all__ = ["KeptBadFacts", "bad_records_of", "without_reasons"]


class KeptBadFacts:
    """What the followers of tables left about their quarantines, read again only where it changed."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[object, BadFacts | None]] = {}

    def of(self, name: str, folder: Path) -> BadFacts | None:
        """Of one table; None before anybody looked."""
        try:
            version: object = file_version(folder / BAD_FACTS)
        except OSError:
            return None
        known = self._kept.get(name)
        if known is None or known[0] != version:
            known = self._kept[name] = version, read_bad_facts(folder)
        return known[1]


def bad_records_of(
    facts: BadFacts | None, refused: Iterable[Refused], has_more_refused: bool, definition: LiveTable
) -> BadRecordsStatus:
    """Both kinds in groups, with all that their reasons say: see `without_reasons`."""
    hot = [
        BadRecord(one.topic, one.partition, one.offset, one.stage, one.reason, one.timestamp_ms)
        for one in refused
    ]
    kept = facts or BadFacts(0)
    groups = [
        *_groups("refused", grouped(hot, definition)),
        *_groups("quarantine", kept.groups),
    ]
    return BadRecordsStatus(
        groups=tuple(sorted(groups, key=lambda one: -(one.last_ms or 0))),
        more_groups=kept.more_groups,
        looked_at=kept.looked_at,
        is_all=kept.is_all,
        refused_more=has_more_refused,
        as_of_ms=None if facts is None else facts.as_of_ms,
        problem=kept.problem,
    )


def without_reasons(status: ServerStatus) -> ServerStatus:
    """The same for a caller who may not read the rows: a reason may quote what a record has."""
    return status.model_copy(update={"tables": {name: _without(one) for name, one in status.tables.items()}})


def _without(table: TableStatus) -> TableStatus:
    if table.details is None:
        return table
    bad = table.details.bad_records
    groups = tuple(group.model_copy(update={"reason": None}) for group in bad.groups)
    bad = bad.model_copy(update={"groups": groups})
    return table.model_copy(update={"details": table.details.model_copy(update={"bad_records": bad})})


def _groups(where: Literal["quarantine", "refused"], groups: Sequence[BadGroup]) -> list[BadGroupStatus]:
    return [
        BadGroupStatus(
            where=where,
            stage=one.stage,
            code=one.code,
            means=MEANINGS[BadCode(one.code)],
            column=one.column,
            records=one.records,
            first_ms=one.first_ms,
            last_ms=one.last_ms,
            example=one.example,
            reason=one.reason,
        )
        for one in groups
    ]
