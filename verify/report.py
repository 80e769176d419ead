"""The report of a verification: differences, counted all and kept in part, and how much was judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from thermocline.verify.finding import Finding

if TYPE_CHECKING:
    from thermocline.rules.read_point import ReadPoint
    from thermocline.verify.row_judge import Reason

__all__ = ["KEPT_MAX", "Report"]

KEPT_MAX: Final = 1_000
"""Findings that are kept whole; beyond it a table is not damaged in places, but as a whole.

The first of every code is kept besides, so that a flood of one hides no other.
"""


@dataclass(slots=True)
class Report:
    """The result of one verification, filled while it runs.

    ``counts`` of findings are by code. ``rows`` are the live rows of the table that were looked at:
    ``agreed`` are the rows that are their key's last record, ``suppressed`` older rows with the last record's
    values, ``deleted`` the keys that the log deletes and the table has not. ``unjudged`` counts keys by
    reason. ``unchecked`` says which parts should have been compared and were not, and why; ``notes`` which
    parts nobody asked for, or nobody could.
    """

    table: str
    read_point: ReadPoint | None = None
    records: int = 0
    bad_records: int = 0
    filtered: int = 0
    rows: int = 0
    agreed: int = 0
    suppressed: int = 0
    deleted: int = 0
    contested: int = 0
    unjudged: Counter[Reason] = field(default_factory=Counter)
    extracted: int = 0
    hot: int = 0
    lookups: int = 0
    lookups_unjudged: Counter[str] = field(default_factory=Counter)
    unchecked: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    _known: set[tuple[str, str, str]] = field(default_factory=set)

    @property
    def agrees(self) -> bool:
        """Whether nothing differs."""
        return not self.counts

    @property
    def is_complete(self) -> bool:
        """Whether every part was compared."""
        return not self.unchecked

    @property
    def judged(self) -> int:
        """The keys of which the log could say whether their rows are right."""
        return self.agreed + self.suppressed + self.deleted

    def start_again(self) -> None:
        """Forgets how much was looked at, and keeps what was found: rows are compared once more."""
        self.read_point = None
        self.records = self.bad_records = self.filtered = self.rows = self.extracted = self.hot = (
            self.lookups
        ) = 0
        self.agreed = self.suppressed = self.deleted = self.contested = 0
        self.unjudged.clear()
        self.lookups_unjudged.clear()

    def add(self, finding: Finding) -> None:
        """Counts a finding, and keeps it while there is room; the same one twice counts once."""
        name = (finding.code, repr(finding.key), finding.what if finding.key is None else "")
        if name in self._known:
            return
        self.counts[finding.code] += 1
        if len(self.findings) < KEPT_MAX or self.counts[finding.code] == 1:
            self._known.add(name)
            self.findings.append(finding)

    def add_all(self, findings: Iterable[Finding]) -> None:
        """Counts several findings."""
        for finding in findings:
            self.add(finding)

    def to_dict(self) -> dict[str, Any]:
        """As one JSON document; what JSON has no form for is left to its writer."""
        return {
            "table": self.table,
            "agrees": self.agrees,
            "complete": self.is_complete,
            "read_point": self.read_point.to_dict() if self.read_point else None,
            "log": {"records": self.records, "bad": self.bad_records, "filtered": self.filtered},
            "rows": {
                "live": self.rows,
                "agreed": self.agreed,
                "suppressed": self.suppressed,
                "deleted": self.deleted,
                "not_judged": {reason.value: count for reason, count in sorted(self.unjudged.items())},
                "keys_in_several_partitions": self.contested,
            },
            "read_paths": {
                "extract_rows": self.extracted,
                "hot_records": self.hot,
                "lookups": self.lookups,
                "lookups_not_judged": dict(sorted(self.lookups_unjudged.items())),
            },
            "unchecked": self.unchecked,
            "notes": self.notes,
            "differences": dict(sorted(self.counts.items())),
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def summary(self) -> Iterator[tuple[str, str]]:
        """What was compared with what, and how much of it, as pairs of words."""
        others = f", {self.filtered:,} not the table's" if self.filtered else ""
        yield "log", f"{self.records:,} records read, {self.bad_records:,} of them bad{others}"
        judged = self.agreed + self.suppressed
        yield (
            "table",
            f"{self.rows:,} rows, {judged:,} of them as the log says; {self.deleted:,} keys deleted",
        )
        for reason, count in sorted(self.unjudged.items()):
            yield "", f"{count:,} keys not judged: {reason.value}"
        yield "extract", f"{self.extracted:,} rows"
        yield "hot tier", f"{self.hot:,} records"
        yield "lookups", f"{self.lookups:,} answers"
        for why, count in sorted(self.lookups_unjudged.items()):
            yield "", f"{count:,} entities not judged: {why}"
        for part in self.unchecked:
            yield "not checked", part
        for note in self.notes:
            yield "", note
