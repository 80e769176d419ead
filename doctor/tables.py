"""Checks of tables that are there: do they fit the log and its schemas, and how do their files lie?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from thermocline.doctor.finding import Finding, Outcome, of_error, well
from thermocline.doctor.sample import sample_of
from thermocline.doctor.spans import shown_ms
from thermocline.errors import SchemaStopped, ThermoclineError
from thermocline.iceberg.alterations import last_by_contract
from thermocline.iceberg.catalog import UNREAD_COUNTS_PROPERTY, find_table, quarantine_identifier
from thermocline.iceberg.holder import holder_of
from thermocline.iceberg.newest_rows import newest_rows
from thermocline.process.clock import iso_time
from thermocline.rules.contract.refusing import REFUSED
from thermocline.rules.decode.unread import OTHER, Sampled
from thermocline.rules.identity import check_log
from thermocline.rules.unread_counts import UnreadCounts
from thermocline.text.unread import declaring, each_field

if TYPE_CHECKING:
    from thermocline.doctor.check import Examination
    from thermocline.iceberg.alterations import NotedAlteration
    from thermocline.iceberg.holder import Holder

__all__ = [
    "Refused",
    "against_log",
    "layout",
    "layout_of",
    "schema_changes",
    "schema_changes_of",
    "undeclared",
    "undeclared_of",
]

DEBT_SECONDS_MAX: Final = 600.0
"""Of rewrites that are worth it, in a core's time: where maintenance keeps up, it owes less."""
QUARANTINED_MAX: Final = 5_000
"""Of a quarantine, the newest, as the status page reads them."""
REASONS_SHOWN_MAX: Final = 3


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
    """Fields of values that no column is read from: in the newest records, else as ingest counted them."""
    found = []
    for name, table in examination.loaded.items():
        counts = UnreadCounts.of_json(table.properties.get(UNREAD_COUNTS_PROPERTY, ""))
        found.append(undeclared_of(name, _newest(examination, name), counts))
    return found


def _newest(examination: Examination, name: str) -> Sampled:
    """What a sample of the newest records has; nothing where the log can't be read, which others say."""
    if examination.log is None:
        return Sampled()
    try:
        return sample_of(examination, name).unread
    except ThermoclineError:
        return Sampled()


def undeclared_of(name: str, newest: Sampled, counts: UnreadCounts) -> Finding:
    """A new field of the producer's, or one that is misspelt in the columns."""
    if newest.values:
        fields = {field: count for field, count in newest.names.items() if field != OTHER}
        others, values, whose = newest.names.get(OTHER, 0), newest.values, "the newest records"
    else:
        fields, others, values, whose = counts.names, counts.others, counts.values, "some of what ingest read"
    if not fields:
        seen = f"every field of {values:,} sampled values has its column ({whose})"
        return well(
            seen
            if values
            else "no values were looked at: none are there, or none of a format that has fields",
            name,
        )
    by_count = dict(sorted(fields.items(), key=lambda one: (-one[1], one[0])))
    return Finding(
        Outcome.WARNING,
        f"no column is read from: {', '.join(each_field(by_count, others, values))} ({whose})",
        "their values are in no row, even if a column is added later: only records from then on have them",
        declaring(name),
        name,
    )


class Refused(NamedTuple):
    """Records in quarantine that a contract refuses, by its reasons; so many were looked at, the newest."""

    reasons: Mapping[str, int] = {}
    looked_at: int = 0
    is_all: bool = True


def schema_changes(examination: Examination) -> Sequence[Finding]:
    """What tables took up of their writers' schemas, by their contracts, and what these stop or refuse."""
    found = []
    for name, table in examination.loaded.items():
        try:
            refused = _refused(examination, name)
        except ThermoclineError as error:
            found.append(of_error(error, name))
            continue
        holder, last = holder_of(table.io, table.location()), last_by_contract(table.properties)
        found.append(schema_changes_of(name, holder, last, refused))
    return found


def _refused(examination: Examination, name: str) -> Refused:
    """Raises `CatalogUnreachable`."""
    assert examination.catalog is not None
    identifier = quarantine_identifier(examination.settings.table(name).identifier)
    quarantine = find_table(examination.catalog, identifier)
    if quarantine is None:
        return Refused()
    rows, is_all = newest_rows(quarantine, ("topic_id", "partition", "offset", "reason"), QUARANTINED_MAX)
    # A crash of ingest leaves repeats.
    reasons = {(row["topic_id"], row["partition"], row["offset"]): row["reason"] for row in rows}
    counts = Counter(reason for reason in reasons.values() if reason.startswith(REFUSED))
    return Refused(dict(counts.most_common()), len(reasons), is_all)


def schema_changes_of(
    name: str, holder: Holder | None, last: NotedAlteration | None, refused: Refused
) -> Finding:
    """The gravest of them: ingest that stopped, records that are in no row, or how the table changed last."""
    letting_in = (
        f"# declare the fields in [tables.{name}.columns], or change contract, with ingest stopped; then\n"
        f"thermocline table alter {name}"
    )
    if holder is not None and holder.stopped_by == SchemaStopped.code:
        return Finding(
            Outcome.PROBLEM,
            f"ingest stopped {holder.ended}: {holder.stopped_because}",
            "nothing is committed until the table lets the schema in; the records are still in the log",
            f"{letting_in}\nthermocline ingest run {name}",
            name,
            SchemaStopped.code,
            SchemaStopped.exit_code,
        )
    if refused.reasons:
        whose = "in quarantine" if refused.is_all else f"of the newest {refused.looked_at:,} in quarantine"
        reasons = [
            f"{reason}: {count:,} record{'s' if count > 1 else ''}"
            for reason, count in refused.reasons.items()
        ]
        more = len(reasons) - REASONS_SHOWN_MAX
        shown = "; ".join([*reasons[:REASONS_SHOWN_MAX], *([f"and {more} more reasons"] if more > 0 else [])])
        return Finding(
            Outcome.WARNING,
            f"{shown} ({whose})",
            "they are in no row until the table lets their schema in, and they are replayed",
            f"{letting_in}\n# what would be applied; then without --dry-run\n"
            f"thermocline quarantine replay {name} --all --dry-run",
            name,
        )
    if last is not None:
        return well(f"changed by its contract {iso_time(last.at_ms)}: {'; '.join(last.sentences)}", name)
    return well("its contract changed nothing that is known, and refuses none in quarantine", name)


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
