"""Checks of tables that are there: do they fit the log, which fields do they leave, and how do files lie?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from thermocline.doctor.finding import Finding, Outcome, of_error, well
from thermocline.doctor.spans import shown_ms
from thermocline.errors import ThermoclineError
from thermocline.iceberg.catalog import UNREAD_PROPERTY
from thermocline.rules.identity import check_log

if TYPE_CHECKING:
    from thermocline.doctor.check import Examination

__all__ = ["against_log", "layout", "layout_of", "undeclared", "undeclared_of"]

DEBT_SECONDS_MAX: Final = 600.0
"""Of rewrites that are worth it, in a core's time: where maintenance keeps up, it owes less."""
NAMES_SHOWN_MAX: Final = 10


def against_log(examination: Examination) -> Sequence[Finding]:
    """Whether the log is the one that fed each table, and holds all from its seam on."""
    assert examination.log is not None
    found = []
    for name, state in examination.states.items():
        try:
            definition = examination.definition(name)
            _, ends = check_log(name, state, examination.log, definition, examination.clock.now_ms())
        except ThermoclineError as error:
            found.append(of_error(error, name))
            continue
        lag = sum(max(end - state.seam.get((topic, p)), 0) for topic, p, end in ends.items())
        found.append(well(f"the log holds all from the seam on; {lag:,} offsets are not committed yet", name))
    return found


def undeclared(examination: Examination) -> Sequence[Finding]:
    """Fields of values that no column is read from, as ingest noted them."""
    found = []
    for name, table in examination.loaded.items():
        names = json.loads(table.properties.get(UNREAD_PROPERTY, "[]"))
        found.append(undeclared_of(name, names))
    return found


def undeclared_of(name: str, names: Sequence[str]) -> Finding:
    """A new field of the producer's, or one that is misspelt in the columns."""
    if not names:
        return well("every field that was seen has its column", name)
    more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
    return Finding(
        Outcome.WARNING,
        f"fields that no column is read from: {', '.join(names[:NAMES_SHOWN_MAX])}{more}",
        "their values are in no row, also if a column is added later: only records from then on have them",
        f"# declare those that you want in [tables.{name}.columns], with ingest stopped; then\n"
        f"thermocline table alter {name}",
        name,
    )


def layout(examination: Examination) -> Sequence[Finding]:
    """What maintenance would do, from the manifests alone."""
    from thermocline.maintenance.status import examine  # noqa: PLC0415  (slow)

    found = []
    for name in examination.states:
        try:
            seen = examine(examination.settings, name)
        except ThermoclineError as error:
            found.append(of_error(error, name))
            continue
        measured, plan = seen.measured, seen.plan
        depth = max((bucket.depth for bucket in measured.buckets.values()), default=0.0)
        shown = (
            f"{measured.files:,} files, {measured.rows:,} rows, {measured.dead_rows:,} of them deleted; a "
            f"lookup looks into up to {depth:.1f} files"
        )
        found.append(layout_of(name, shown, len(plan.wanted), plan.debt_seconds))
    return found


def layout_of(name: str, shown: str, wanted: int, debt_seconds: float) -> Finding:
    """Whether maintenance is behind."""
    if debt_seconds <= DEBT_SECONDS_MAX:
        return well(f"{shown}; {wanted:,} rewrites are worth it", name)
    return Finding(
        Outcome.WARNING,
        f"{shown}; {wanted:,} rewrites are worth it, and take a core {shown_ms(debt_seconds * 1000)}",
        "maintenance is behind, so reads cost more than they need to",
        "# with ingest running, that does it: set maintenance.enabled = true; by hand, with ingest stopped\n"
        f"thermocline maintain run {name}",
        name,
    )
