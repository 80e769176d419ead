"""The verdict, once the traffic has stopped: ``thermocline verify``, and answers against the oracle.

Verify folds the log again by the product's own rules. The lookups under way and the views are compared with a
plain replay that shares no code with those.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from thermocline.cli.verify_read_paths import open_read_paths
from thermocline.dev.demo.lookups import Entity, answer_of
from thermocline.dev.demo.reporter import Reporter, Task
from thermocline.dev.demo.site import Site
from thermocline.dev.demo.traffic import Kept
from thermocline.dev.demo.views import View
from thermocline.dev.oracle import Acknowledged, Row, RowKey, differences, named, row_of, row_of_json
from thermocline.dev.stack import TABLE
from thermocline.rules.seam import Seam
from thermocline.verify.report import Report
from thermocline.verify.verifier import Choices, Verifier

LOOKED_UP: Final = 1_000
"""Entities: most of the busy ones are among them, and they take some seconds."""
DIFFERENCES_SHOWN: Final = 10
"""More of them say nothing that the first ones don't."""
PINNED_NAME: Final = "demo"

Place = tuple[str, int]
"""A topic's partition."""


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison: what was compared, and a sentence for each difference."""

    compared: str
    differences: tuple[str, ...]

    @property
    def outcome(self) -> str:
        """In words."""
        return f"{len(self.differences):,} DIFFERENCES" if self.differences else "all agree"


def checks_of(site: Site, kept: Sequence[Sequence[Kept]], reporter: Reporter) -> dict[str, Check]:
    """Every comparison by name, each shown as it is made; ``kept`` was answered before, by each server.

    Raises:
        ThermoclineError: a part could not be asked.
    """
    site.await_served()
    rows = site.oracle.rows()
    checks: dict[str, Check] = {}

    def compare(name: str, check: Callable[[Task], Check]) -> None:
        task = reporter.begin(name)
        checks[name] = done = check(task)
        reporter.end(task, f"{done.compared}: {done.outcome}", not done.differences)
        for line in done.differences[:DIFFERENCES_SHOWN]:
            reporter.say(f"      {line}")

    reports: list[Report] = []
    history = EntityHistory(site.oracle.records())

    def judge(replica: int, answers: Sequence[Kept], by: str) -> None:
        compare(
            f"thermocline verify{by}",
            lambda task: check_of(_verified(site, replica, reports, task), len(rows)),
        )
        compare(f"the lookups under way{by}", lambda _: compare_kept(answers, history))

    for replica, answers in enumerate(kept):
        judge(replica, answers, f", server {replica + 1}" if len(kept) > 1 else "")
    report = reports[0]
    if site.stack.trino and report.read_point:
        views = site.views()
        pin = ("views", "pin", TABLE, "--at", report.read_point.to_header(), "--name", PINNED_NAME)
        site.stack.run("views-pin", *pin)
        site.await_margin()
        compare("the live view by key", lambda _: compare_rows(rows, views.all_rows(View.BY_KEY)))
        compare("the live view", lambda _: compare_rows(rows, views.all_rows(View.LIVE)))
        compare("the pinned view", lambda _: compare_rows(rows, views.all_rows(f"at_{PINNED_NAME}")))
    return checks


def check_of(report: Report, rows: int) -> Check:
    """What verify found. What it could not check counts as a difference; so does a wrong number of rows."""
    found = [f"[{finding.code}] {finding.key or ''} {finding.what}" for finding in report.findings]
    found += [f"not checked: {part}" for part in report.unchecked]
    if report.extracted != rows:
        found.append(f"the extract has {report.extracted:,} rows, the oracle {rows:,}")
    compared = (
        f"{report.records:,} records; {report.rows:,} rows in the table, {report.extracted:,} extracted,"
        f" {report.hot:,} records in the hot tier, {report.lookups:,} lookups"
    )
    return Check(compared, tuple(found))


def compare_rows(rows: Mapping[RowKey, Row], found: Iterable[Row]) -> Check:
    """Whether exactly the oracle's rows were answered, each once and with its values."""
    return Check(f"{len(rows):,} rows, key by key", tuple(differences(rows, found)))


def compare_kept(kept: Sequence[Kept], history: EntityHistory) -> Check:
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


class EntityHistory:
    """What each entity's rows were at any read point, by all that was acknowledged."""

    def __init__(self, records: Iterable[Acknowledged]) -> None:
        """Takes the records partition by partition, in the order of the offsets."""
        self._changes: defaultdict[Entity, list[tuple[Place, int, RowKey, Row | None]]] = defaultdict(list)
        for record in records:
            key, row = row_of(record)
            self._changes[key[:2]].append(((record.topic, record.partition), record.offset, key, row))

    def rows_of(self, entity: Entity, end: Seam) -> dict[RowKey, Row]:
        """The rows of an entity, from the records before ``end``."""
        ends = {(topic, partition): offset for topic, partition, offset in end.items()}
        changes = self._changes.get(entity, ())
        rows = {key: row for place, offset, key, row in changes if offset < ends.get(place, 0)}
        return {key: row for key, row in rows.items() if row is not None}


def _verified(site: Site, replica: int, reports: list[Report], task: Task) -> Report:
    """Verify's report on what a server answers, which is also added to those."""
    settings, url = site.stack.settings_of(replica), site.stack.urls[replica]

    def progress(what: str, done: int, total: int) -> None:
        task.note = f"{what} {done:,}" + (f" of {total:,}" if total else "")

    choices = Choices(seed=site.options.seed, lookups=LOOKED_UP)
    read_paths = partial(open_read_paths, settings, TABLE, url)
    report, _ = Verifier(settings, TABLE, read_paths, choices, site.clock, progress).verify()
    reports.append(report)
    return report
