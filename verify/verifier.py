"""All of a verification: structure, rows, read paths and lookups, with the history of what differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from thermocline.errors import (
    ForeignSchema,
    ForeignSnapshot,
    ReadPointGone,
    StorageFailed,
    ThermoclineError,
    first_line,
)
from thermocline.iceberg.catalog import definition_of, open_table
from thermocline.kafka.log import Log, read_ranges
from thermocline.process.masking import mask_password
from thermocline.process.private_folder import temporary_folder
from thermocline.rules.keys import encode_one
from thermocline.verify.comparison import MEMORY_BYTES, Scope, Verification
from thermocline.verify.file_scan import UNREADABLE
from thermocline.verify.history import KEYS_MAX, histories_of
from thermocline.verify.lookups import LookupChecks
from thermocline.verify.report import Report
from thermocline.verify.sample import Named, Sample, named
from thermocline.verify.structure import structure_findings

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.process.clock import Clock
    from thermocline.rules.definition import LiveTable
    from thermocline.settings import Settings
    from thermocline.verify.finding import Finding
    from thermocline.verify.log_pass import Progress
    from thermocline.verify.read_paths import ReadPaths
    from thermocline.verify.sample import Chosen

__all__ = ["LOOKUPS", "Choices", "OpenReadPaths", "Verifier", "run_again"]

LOOKUPS: Final = 100
"""Entities that are looked up by default: enough to meet a read path that is wrong as a whole."""
FOLDER_PREFIX: Final = "thermocline-verify-"
# A read point may go before all is compared, by an expiry or an alteration; one that goes twice goes always.
_READ_POINTS_MAX: Final = 2
_NOTHING_JUDGED: Final = (
    "rows: none could be judged, since the log no longer holds their records;"
    " keep it for longer (retention.ms), or verify again after further batches"
)

OpenReadPaths = Callable[[], "AbstractContextManager[ReadPaths]"]


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
    open_read_paths: OpenReadPaths
    choices: Choices
    clock: Clock
    progress: Progress

    def verify(self) -> tuple[Report, LookupChecks | None]:
        """The report, and what asks for the same entities again; None where the read paths refuse the table.

        The log is asked first, so that one that is unavailable is said at once.

        Raises:
            ThermoclineError: a source is unavailable, or nothing could be compared.
        """
        structure = Report(self.name)
        table = open_table(self.settings, self.name)
        definition = definition_of(table, self.name)
        self.choices.chosen(definition)  # raises where the entity is none
        Log(self.settings.kafka).cluster_id()
        self._check_structure(table, definition, structure)
        report, lookups = self._at_a_read_point(structure)
        if report.agrees and report.unjudged and not report.judged:  # safety: verify-nothing-judged
            report.unchecked.append(_NOTHING_JUDGED)
        self._tell(table, definition, report)
        return report, lookups

    def _at_a_read_point(self, structure: Report) -> tuple[Report, LookupChecks | None]:
        """Rows and read paths, added to what is known; at a newer read point where one goes meanwhile."""
        for attempt in range(1, _READ_POINTS_MAX + 1):
            report = deepcopy(structure)
            definition = definition_of(open_table(self.settings, self.name), self.name)
            scope = Scope(self.choices.chosen(definition), self.choices.is_part, self.choices.memory_bytes)
            try:
                return report, self._check_rows(scope, report)
            except ReadPointGone as gone:
                if attempt == _READ_POINTS_MAX:
                    _note(report, "rows, extract, hot tier and lookups", run_again(gone))
                    return report, None
        raise AssertionError("unreachable")

    def _check_structure(self, table: Table, definition: LiveTable, report: Report) -> None:
        if self.choices.is_part:
            report.notes.append("files, history and accounting are checked where all rows are")
            return
        try:
            report.add_all(structure_findings(table, definition, self.progress))
        except OSError as error:
            report.unchecked.append(f"files and history: {mask_password(first_line(error))}")

    def _check_rows(self, scope: Scope, report: Report) -> LookupChecks | None:
        """Through the read paths; where these refuse the table, its rows alone. Raises `ReadPointGone`."""
        read_paths = "extract, hot tier and lookups"
        try:
            with temporary_folder(FOLDER_PREFIX) as temporary, self.open_read_paths() as opened:
                return self._check_read_paths(opened, scope, temporary, report)
        except ReadPointGone:
            raise
        except ForeignSnapshot as refused:
            report.unchecked.append(f"{read_paths}: they refuse the table, {refused.what}")
        except ForeignSchema as refused:  # neither can its rows be read by the definition
            _note(report, f"rows, {read_paths}", refused)
            return None
        except (StorageFailed, *UNREADABLE) as error:  # a file that they need is missing or damaged
            what = error.what if isinstance(error, StorageFailed) else first_line(error)
            report.unchecked.append(f"{read_paths}: {mask_password(what)}")
        except Exception as error:  # noqa: BLE001  a damaged file fails as its reader does, whoever that is
            _note(report, f"rows, {read_paths}", error)
            return None
        report.start_again()
        try:
            # What the table has now, against the log up to the last seam that is known.
            with temporary_folder(FOLDER_PREFIX) as temporary:
                self._verification(None, scope, temporary, report).run()
        except ReadPointGone:
            raise
        except Exception as error:  # noqa: BLE001  as above
            _note(report, "rows", error)
        return None

    def _check_read_paths(
        self, read_paths: ReadPaths, scope: Scope, folder: Path, report: Report
    ) -> LookupChecks:
        if read_paths.hot_problem:
            instead = "" if read_paths.hot is None else ", but a private one"
            report.notes.append(f"no server's hot tier was looked at{instead}: {read_paths.hot_problem}")
        verified = self._verification(read_paths, scope, folder, report).run()
        lookups = LookupChecks(
            verified,
            read_paths.lookup,
            self.settings.kafka.client_config(),
            Log(self.settings.kafka),
            lambda: open_table(self.settings, self.name),
            scope.chosen,
            self.clock,
            report,
            self.settings.registry.client(),
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

    def _verification(
        self, read_paths: ReadPaths | None, scope: Scope, folder: Path, report: Report
    ) -> Verification:
        return Verification(
            self.settings, self.name, read_paths, scope, folder, self.clock, self.progress, report
        )

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
                self.settings.registry.client(),
            )
        except (ThermoclineError, OSError) as error:
            report.notes.append(f"the history of the keys could not be read: {first_line(error)}")
            return
        for index, key in keys.items():
            report.findings[index] = replace(report.findings[index], history=told[key])


def run_again(gone: ReadPointGone) -> ReadPointGone:
    """The same error, for somebody who verifies."""
    again = f"thermocline verify {gone.table}      (it takes a newer read point)"
    return ReadPointGone(table=gone.table, detail=gone.detail, again=again)


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
