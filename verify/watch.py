"""Verification that goes on: in each round random entities, through all read paths, under any load.

The first round compares as a single verification does, and remembers a pool of entities. Each further round
takes some of them at random, looks them up, extracts the table, and compares each answer at its own read
point; the log is read on, not again.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from thermocline.errors import ReadPointGone, ThermoclineError
from thermocline.process.private_folder import temporary_folder
from thermocline.verify.comparison import failed
from thermocline.verify.entities import Entities, entity_key
from thermocline.verify.extract_file import extracted_rows, write_extract
from thermocline.verify.finding import Finding
from thermocline.verify.log_pass import sampled
from thermocline.verify.sample import Named
from thermocline.verify.verifier import run_again

if TYPE_CHECKING:
    from collections.abc import Iterator
    from threading import Event

    from thermocline.verify.lookups import LookupChecks
    from thermocline.verify.read_paths import ReadPaths
    from thermocline.verify.report import Report
    from thermocline.verify.verifier import Verifier

__all__ = ["POOL", "VerifyRound", "VerifyWatch"]

POOL: Final = 1_000
"""Entities that are remembered: all their records since the first round are, too."""
# Records of the pool that are kept before those that no answer needs any more are dropped.
_RECORDS_MAX: Final = 100_000
# A server may restart while it is watched; one that is unavailable for so many rounds is unavailable.
_AWAY_MAX: Final = 30
_PAUSE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class VerifyRound:
    """What one round did. ``away`` is the error where a source was unavailable, and nothing was compared.

    ``differences`` are new ones by code, ``total`` all since the beginning.
    """

    number: int
    lookups: int
    extracted: int
    records: int
    differences: Counter[str] = field(default_factory=Counter)
    total: int = 0
    findings: tuple[Finding, ...] = ()
    away: ThermoclineError | None = None

    def to_dict(self) -> dict[str, Any]:
        """As one line of JSON."""
        return {
            "round": self.number,
            "lookups": self.lookups,
            "extract_rows": self.extracted,
            "log_records": self.records,
            "differences": dict(sorted(self.differences.items())),
            "differences_in_all": self.total,
            "findings": [finding.to_dict() for finding in self.findings],
            "away": None if self.away is None else {"code": self.away.code, "what": self.away.what},
        }


@dataclass(slots=True)
class VerifyWatch:
    """Rounds after a first verification. ``each`` entities are looked up in a round."""

    verifier: Verifier
    lookups: LookupChecks
    report: Report
    each: int

    def rounds(self, stop: Event, rounds_max: int | None = None) -> Iterator[VerifyRound]:
        """One after the other, until told to stop, or so many were run.

        Raises `ThermoclineError` where a source stays away, or what is wrong does not pass.
        """
        # Nobody joins later, so that what is remembered does not grow with the table.
        self.lookups.chosen = Named(tuple(self.lookups.chosen.prefixes))
        chooser = random.Random(self.verifier.choices.seed)
        number, away = 1, 0
        while not stop.wait(_PAUSE_SECONDS) and (rounds_max is None or number < rounds_max):
            number += 1
            before = replace(self.report, counts=Counter(self.report.counts))
            kept = len(self.report.findings)
            try:
                self._round(chooser)
                away = 0
            except (OSError, pa.ArrowException) as error:
                raise failed(self.verifier.settings, self.verifier.name, None, error) from error
            except ReadPointGone as gone:
                raise run_again(gone) from gone
            except ThermoclineError as error:
                away += 1
                if not error.retryable or away > _AWAY_MAX:
                    raise
                yield self._said(number, before, kept, error)
                continue
            yield self._said(number, before, kept, None)

    def _said(self, number: int, before: Report, kept: int, away: ThermoclineError | None) -> VerifyRound:
        report = self.report
        return VerifyRound(
            number=number,
            lookups=report.lookups - before.lookups,
            extracted=report.extracted - before.extracted,
            records=report.records - before.records,
            differences=report.counts - before.counts,
            total=report.counts.total(),
            findings=tuple(report.findings[kept:]),
            away=away,
        )

    def _round(self, chooser: random.Random) -> None:
        pool = list(self.lookups.chosen.prefixes)
        prefixes = chooser.sample(pool, min(self.each, len(pool)))
        with self.verifier.open_read_paths() as read_paths:
            self.lookups.lookup = read_paths.lookup
            if self.lookups.verified.definition.has_key:
                self.lookups.round(prefixes)
            self._extract(read_paths, pool)
        entities = self.lookups.verified.log.entities
        if entities.records > _RECORDS_MAX:
            entities.forget(self.lookups.ends)

    def _extract(self, read_paths: ReadPaths, pool: list[bytes]) -> None:
        """The pool's rows in an extract, compared at the extract's own read point."""
        verified, definition = self.lookups.verified, self.lookups.verified.definition
        shown = Entities(definition, verified.reading)
        with temporary_folder("thermocline-verify-") as temporary:
            path = temporary / "extract.arrows"
            point = write_extract(read_paths, definition, path)
            for rows in extracted_rows(definition, path):
                self.report.extracted += rows.num_rows
                shown.take_rows(sampled(definition, rows, self.lookups.chosen))
        self.lookups.read_on([point])
        for prefix in pool:
            expected = verified.log.entities.rows_at(prefix, point, self.lookups.reading_at)
            if isinstance(expected, str):
                self.report.lookups_unjudged[expected] += 1
            elif shown.is_large(prefix) or expected != shown.stored(prefix):
                what = f"the extract's rows of the entity are not those of the log at {point.to_header()}"
                finding = Finding("extract-differs", what, entity_key(definition, prefix))
                self.lookups.note(finding, prefix, point)
        self.lookups.settle()
