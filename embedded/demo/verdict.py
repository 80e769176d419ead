"""The verdict, once the traffic has stopped: ``thermocline verify``, and the answers that were given under way.

`verify` folds the log again by the product's own rules. The answers under way and the views are compared with
the oracle, a plain replay that shares no code with those.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from embedded.demo.lookups import Entity, answer_of
from embedded.demo.reporter import Reporter, Task
from embedded.demo.site import Site
from embedded.demo.traffic import Kept
from embedded.demo.views import View
from embedded.oracle import Acknowledged, Row, RowKey, differences, named, row_of, row_of_json
from embedded.stack import TABLE
from thermocline.cli.verify_doors import open_doors
from thermocline.rules.seam import Seam
from verify.report import Report
from verify.verifier import Choices, Verifier

LOOKED_UP: Final = 1_000
"""Entities: most of the busy ones are among them, and they take some seconds."""
DIFFERENCES_SHOWN: Final = 10
"""More of them say nothing that the first ones don't."""
PINNED_NAME: Final = "demo"
VERIFY: Final = "thermocline verify"


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison: what was compared, and a sentence for each difference."""

    compared: str
    differences: tuple[str, ...]

    @property
    def outcome(self) -> str:
        """In words."""
        return f"{len(self.differences):,} DIFFERENCES" if self.differences else "all agree"


@dataclass(frozen=True, slots=True)
class Verdict:
    """All comparisons by name, and what verify reported."""

    checks: dict[str, Check]
    report: Report

    @property
    def agrees(self) -> bool:
        """Whether nothing differs."""
        return not any(check.differences for check in self.checks.values())

    @property
    def detail(self) -> str:
        """What differs, in a line."""
        bad = ((name, check) for name, check in self.checks.items() if check.differences)
        return "; ".join(f"{name}: {check.outcome}, {check.differences[0]}" for name, check in bad)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        checks = {name: asdict(check) for name, check in self.checks.items()}
        return {"agrees": self.agrees, "checks": checks, "verify": self.report.to_dict()}


def verdict_on(site: Site, kept: Sequence[Kept], reporter: Reporter) -> Verdict:
    """Every comparison, each shown as it is made; nothing is written meanwhile. ``kept`` was answered before.

    Raises:
        ThermoclineError: a part could not be asked.
    """
    site.await_served()
    checks: dict[str, Check] = {}

    def shown(name: str, compare: Callable[[], Check], task: Task | None = None) -> None:
        task = task or reporter.begin(name)
        check = checks[name] = compare()
        reporter.end(task, f"{check.compared}: {check.outcome}", not check.differences)
        for line in check.differences[:DIFFERENCES_SHOWN]:
            reporter.say(f"      {line}")

    rows = site.oracle.rows()
    task = reporter.begin(VERIFY)
    report = _verify(site, task)
    shown(VERIFY, lambda: check_of(report, len(rows)), task)
    shown("the lookups under way", lambda: compare_kept(kept, History(site.oracle.records())))
    if site.stack.trino and report.read_point:
        views = site.views()
        pin = ("views", "pin", TABLE, "--at", report.read_point.to_header(), "--name", PINNED_NAME)
        site.stack.run("views-pin", *pin)
        site.await_margin()
        for name, view in {
            "the live view by key": View.BY_KEY,
            "the live view": View.LIVE,
            "the pinned view": f"at_{PINNED_NAME}",
        }.items():
            shown(name, lambda view=view: compare_rows(rows, views.all_rows(view)))  # type: ignore[misc]
    return Verdict(checks, report)


def check_of(report: Report, rows: int) -> Check:
    """What verify found; what it could not check counts as a difference, and so does a wrong number of rows."""
    found = [f"[{finding.code}] {finding.key or ''} {finding.what}" for finding in report.findings]
    found += [f"not checked: {part}" for part in report.unchecked]
    if report.extracted != rows:
        found.append(f"the extract has {report.extracted:,} rows, the oracle {rows:,}")
    compared = (
        f"{report.records:,} records folded; {report.rows:,} rows in the table, {report.extracted:,} extracted,"
        f" {report.hot:,} records in the hot tier, {report.lookups:,} lookups"
    )
    return Check(compared, tuple(found))


def compare_rows(rows: Mapping[RowKey, Row], found: Iterable[Row]) -> Check:
    """Whether exactly the oracle's rows were answered, each once and with its values."""
    return Check(f"{len(rows):,} rows, key by key", tuple(differences(rows, found)))


def compare_kept(kept: Sequence[Kept], history: History) -> Check:
    """Whether each answer was right at its own read point, and none went back behind an earlier one."""
    found: list[str] = []
    reached = Seam()
    for entity, content in kept:
        answer = answer_of(content)
        point = answer.read_point
        wrong = differences(history.rows_of(entity, point.end), map(row_of_json, answer.rows))
        found += [f"{line}, at {point.to_header()}" for line in wrong]
        if not point.end.at_least(reached):
            found.append(f"{named(entity)}: answered at {point.end}, after an answer at {reached}")
        reached = reached.merged_max(point.end)
    if not kept:
        found.append("the server gave no answer at all")
    return Check(f"{len(kept):,} lookups, each as of its own read point", tuple(found))


class History:
    """What each entity's rows were at any read point, by all that was acknowledged."""

    def __init__(self, records: Iterable[Acknowledged]) -> None:
        """Takes the records partition by partition, in the order of the offsets."""
        self._changes: defaultdict[Entity, list[tuple[Acknowledged, RowKey, Row | None]]] = defaultdict(list)
        for record in records:
            key, row = row_of(record)
            self._changes[key[:2]].append((record, key, row))

    def rows_of(self, entity: Entity, end: Seam) -> dict[RowKey, Row]:
        """The rows of an entity, from the records before ``end``."""
        rows = {
            key: row
            for record, key, row in self._changes.get(entity, ())
            if end.covers(record.topic, record.partition, record.offset)
        }
        return {key: row for key, row in rows.items() if row is not None}


def _verify(site: Site, task: Task) -> Report:
    settings, url = site.stack.settings, site.stack.url

    def progress(what: str, done: int, total: int) -> None:
        task.note = f"{what} {done:,}" + (f" of {total:,}" if total else "")

    choices = Choices(seed=site.options.seed, lookups=LOOKED_UP)
    verifier = Verifier(
        settings, TABLE, lambda: open_doors(settings, TABLE, url), choices, site.clock, progress
    )
    return verifier.verify()[0]
