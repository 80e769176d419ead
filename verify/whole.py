"""All of a verification: structure, rows, doors and lookups, with the history of what differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from thermocline.catalog import definition_of
from thermocline.errors import TableUnowned, ThermoclineError, first_line
from thermocline.keys import encode_one
from thermocline.log import Log, read_ranges
from thermocline.masking import mask_password
from verify.history import KEYS_MAX, histories_of
from verify.lookups import Lookups
from verify.report import Report
from verify.run import MEMORY_BYTES, Scope, Verification, open_table
from verify.sample import Named, Sample, named
from verify.structure import structure_findings

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.clock import Clock
    from thermocline.definition import LiveTable
    from thermocline.settings import Settings
    from verify.doors import Doors
    from verify.finding import Finding
    from verify.log_pass import Progress
    from verify.sample import Chosen

__all__ = ["LOOKUPS", "Choices", "OpenDoors", "Verifier"]

LOOKUPS: Final = 100
"""Entities that are looked up where nobody says how many: enough to meet a door that is wrong as a whole."""
FOLDER_PREFIX: Final = "thermocline-verify-"

OpenDoors = Callable[[], "AbstractContextManager[Doors]"]


@dataclass(frozen=True, slots=True)
class Choices:
    """What a user asks for: all rows, a sample of so many entities, or one ``entity`` by its columns' texts.

    ``lookups`` is how many entities are looked up where all rows are compared; ``shown`` how many differing
    keys are told with their history.
    """

    seed: int
    sample: int | None = None
    entity: Mapping[str, str] | None = None
    lookups: int = LOOKUPS
    shown: int = 10
    memory_bytes: int = MEMORY_BYTES

    @property
    def is_part(self) -> bool:
        """Whether not all rows are compared."""
        return self.sample is not None or self.entity is not None

    def chosen(self, definition: LiveTable) -> Chosen:
        """The entities that are looked up, and those that are compared where that is not all."""
        if self.entity is not None:
            return Named((named(definition, self.entity),))
        return Sample(self.sample or self.lookups, self.seed)


@dataclass(slots=True)
class Verifier:
    """Verifies one table, and holds what further rounds of lookups go on from."""

    settings: Settings
    name: str
    open_doors: OpenDoors
    choices: Choices
    clock: Clock
    progress: Progress

    def verify(self) -> tuple[Report, Lookups | None]:
        """The report, and what asks for the same entities again; None where the doors refuse the table.

        Raises:
            ThermoclineError: a source is away, or nothing could be compared.
        """
        report = Report(self.name)
        table = open_table(self.settings, self.name)
        definition = definition_of(table, self.name)
        scope = Scope(self.choices.chosen(definition), self.choices.is_part, self.choices.memory_bytes)
        self._check_structure(table, definition, report)
        lookups = self._check_rows(scope, report)
        self._tell(table, definition, report)
        return report, lookups

    def _check_structure(self, table: Table, definition: LiveTable, report: Report) -> None:
        if self.choices.is_part:
            report.notes.append("files, history and accounting are checked where all rows are")
            return
        try:
            report.add_all(structure_findings(table, definition, self.progress))
        except OSError as error:
            report.unchecked.append(f"files and history: {mask_password(first_line(error))}")

    def _check_rows(self, scope: Scope, report: Report) -> Lookups | None:
        with TemporaryDirectory(prefix=FOLDER_PREFIX) as temporary:
            folder = Path(temporary)
            try:
                with self.open_doors() as doors:
                    return self._check_doors(doors, scope, folder, report)
            except TableUnowned as refused:
                report.unchecked.append(
                    f"extract, hot tier and lookups: they refuse the table, {refused.what}"
                )
            except Exception as error:  # noqa: BLE001  a damaged file fails as its reader does, whoever that is
                _note(report, "rows, extract, hot tier and lookups", error)
                return None
            try:
                # What the table has now, against the log up to the last seam that is known.
                self._verification(None, scope, folder, report).run()
            except Exception as error:  # noqa: BLE001  as above
                _note(report, "rows", error)
            return None

    def _check_doors(self, doors: Doors, scope: Scope, folder: Path, report: Report) -> Lookups:
        if doors.hot_problem:
            instead = "" if doors.hot is None else ", but a private one"
            report.notes.append(f"no server's hot tier was looked at{instead}: {doors.hot_problem}")
        verified = self._verification(doors, scope, folder, report).run()
        lookups = Lookups(
            verified,
            doors.lookup,
            self.settings.kafka.client_config(),
            Log(self.settings.kafka),
            lambda: open_table(self.settings, self.name),
            scope.chosen,
            self.clock,
            report,
        )
        if verified.definition.has_key:
            prefixes = scope.chosen.prefixes
            try:
                lookups.round(prefixes, lambda done: self.progress("lookups", done, len(prefixes)))
            except ThermoclineError as error:  # what was compared before stands
                report.unchecked.append(f"lookups: [{error.code}] {error.what}")
        else:
            report.notes.append("there are no lookups: the table has no key")
        return lookups

    def _verification(self, doors: Doors | None, scope: Scope, folder: Path, report: Report) -> Verification:
        return Verification(self.settings, self.name, doors, scope, folder, self.clock, self.progress, report)

    def _tell(self, table: Table, definition: LiveTable, report: Report) -> None:
        """Adds the history of the first keys that differ."""
        keys: dict[int, bytes] = {}
        for index, finding in enumerate(report.findings):
            if len(keys) >= min(self.choices.shown, KEYS_MAX):
                break
            key = _encoded(definition, finding)
            if key is not None:
                keys[index] = key
        if not keys:
            return
        config = self.settings.kafka.client_config()
        try:
            told = histories_of(
                table,
                Log(self.settings.kafka),
                lambda ranges: read_ranges(config, ranges, self.name, self.clock),
                definition,
                list(keys.values()),
            )
        except (ThermoclineError, OSError) as error:
            report.notes.append(f"the history of the keys could not be read: {first_line(error)}")
            return
        for index, key in keys.items():
            report.findings[index] = replace(report.findings[index], history=told[key])


def _note(report: Report, parts: str, error: Exception) -> None:
    """Says that some parts could not be compared; raises the error where nothing else was found, either."""
    if report.agrees:
        raise error
    what = f"[{error.code}] {error.what}" if isinstance(error, ThermoclineError) else first_line(error)
    report.unchecked.append(f"{parts}: {mask_password(what)}")


def _encoded(definition: LiveTable, finding: Finding) -> bytes | None:
    """The key of a finding as bytes; None where it is not about one row."""
    if finding.key is None or finding.history or set(finding.key) != set(definition.identity):
        return None
    try:
        return encode_one(definition, [finding.key[name] for name in definition.identity])
    except (AttributeError, TypeError, ValueError):
        return None  # an answer's key that is none
