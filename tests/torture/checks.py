"""What a table must be, at any moment: its rows those of the log up to its seam, its history whole."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa

from tests.torture.ledger import Ledger
from thermocline.dev.oracle import differences
from thermocline.dev.stack import TABLE, Stack
from thermocline.iceberg.catalog import current_state, load_table, open_catalog
from thermocline.iceberg.lineage import whole_lineage
from thermocline.rules.seam import Seam

if TYPE_CHECKING:
    from pyiceberg.table import Table

COLUMNS = ("app_id", "user_id", "key", "value", "updated_at")
IDENTITY = ("topic", "topic_id", "partition", "offset")
OUTCOMES = ("applied", "superseded", "unchanged", "quarantined", "skipped")


def table_of(stack: Stack) -> Table:
    """The table as it is now, through PyIceberg."""
    return load_table(open_catalog(stack.settings.catalog), TABLE, f"app.{TABLE}")


def check_rows(table: Table, ledger: Ledger) -> tuple[int, list[str]]:
    """How many rows the table has, and how they differ from the log up to its seam."""
    seam = current_state(table, TABLE).seam
    rows = table.scan(selected_fields=COLUMNS).to_arrow().to_pylist()
    return len(rows), differences(ledger.rows(seam), rows)


def check_history(table: Table, ledger: Ledger) -> tuple[int, list[str]]:
    """How many batches were committed, and what is wrong with their order, seams and accounts."""
    links = whole_lineage(table)
    states = [link.state for link in links if link.state is not None]
    wrong = []
    if not links[0].is_first or len(states) < len(links):
        wrong.append(
            f"the history begins with {links[0].snapshot_id}, {len(states)} of {len(links)} are ours"
        )
    if len({state.batch_id for state in states}) < len(states):
        wrong.append("a batch was committed twice")
    for before, after in pairwise(states):
        if after.epoch < before.epoch:
            wrong.append(f"epoch {after.epoch} came after {before.epoch}: {after}")
        if not after.seam.at_least(before.seam):
            wrong.append(f"{after.seam} came after {before.seam}")
        records, bad = ledger.count(before.seam, after.seam)
        accounted = sum(after.counts.get(outcome, 0) for outcome in OUTCOMES)
        if not records == after.counts["read"] == accounted:
            counted = f"{after.counts['read']} read, {accounted} accounted for"
            wrong.append(f"{records} records up to {after.seam}, {counted}")
        if after.counts["quarantined"] != bad:
            wrong.append(f"{bad} bad records up to {after.seam}, {after.counts['quarantined']} quarantined")
    total, _ = ledger.count(Seam(), states[-1].seam)
    if states[-1].totals["read"] != total:
        wrong.append(f"{total} records in all, the table says {states[-1].totals['read']}")
    return sum(before.seam != after.seam for before, after in pairwise(states)), wrong


def check_quarantine(stack: Stack, seam: Seam, ledger: Ledger) -> list[str]:
    """Whether each bad record before the seam is in quarantine; a crash may leave repeats."""
    catalog = open_catalog(stack.settings.catalog)
    found: pa.Table = load_table(catalog, TABLE, f"app.{TABLE}_quarantine").scan().to_arrow()
    kept = {tuple(row[name] for name in IDENTITY) for row in found.select(IDENTITY).to_pylist()}
    before = sum(seam.covers(topic, partition, offset) for topic, _, partition, offset in kept)
    _, bad = ledger.count(Seam(), seam)
    return [] if before == bad else [f"{bad} bad records were committed past, {before} are in quarantine"]
