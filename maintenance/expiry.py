"""Snapshots that leave the metadata: old ones that nothing names. Pure.

The files of an expired snapshot stay (``sweep``), so whoever reads one goes on. Nobody can begin to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType

from thermocline.iceberg.lineage import lineage

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

__all__ = ["EXPIRED_AT_ONCE_MAX", "KEPT_SECONDS_MIN", "KeepRule", "expirable"]

EXPIRED_AT_ONCE_MAX: Final = 500
"""Snapshots in one commit and one note; a table that was neglected gets rid of them step by step."""

KEPT_SECONDS_MIN: Final = 1_200.0
"""No younger snapshot goes: publishers of views renew their leases every ten minutes, and clocks differ."""


@dataclass(frozen=True, slots=True)
class KeepRule:
    """Snapshots that are younger than ``seconds`` stay, as long as they are not more than ``count_max``.

    Every load and every commit of the table reads the whole list of them. The newest ones of a table that
    nobody writes to are kept, so that people see what happened last.
    """

    seconds: float
    count_max: int = 500
    newest_kept: int = 10


def expirable(table: Table, leased: Collection[int], rule: KeepRule, now_ms: int) -> list[Snapshot]:
    """The snapshots that may go, oldest first, at most `EXPIRED_AT_ONCE_MAX`.

    What stays: the current one, the newest that carries a seam, what the rule keeps, what a lease, a tag or
    another branch names, and on other branches all that leads to it.
    """
    kept = _kept(table, rule.newest_kept).union(leased)
    until_ms, at_least_ms = now_ms - int(1000 * rule.seconds), now_ms - int(1000 * KEPT_SECONDS_MIN)
    oldest_first = sorted(table.snapshots(), key=lambda one: one.timestamp_ms)
    beyond_count = len(oldest_first) - rule.count_max
    return [
        one
        for number, one in enumerate(oldest_first)
        if one.snapshot_id not in kept
        and one.timestamp_ms < (at_least_ms if number < beyond_count else min(until_ms, at_least_ms))
    ][:EXPIRED_AT_ONCE_MAX]


def _kept(table: Table, newest_kept: int) -> set[int]:
    """The snapshots that stay however old they are, whatever leases say."""
    links = lineage(table)
    kept = {link.snapshot_id for link in links[-newest_kept:]}
    ours = next((link.snapshot_id for link in reversed(links) if not link.is_foreign), None)
    kept |= {ours} if ours is not None else set()  # safety: expiry-keeps-the-seam
    for name, ref in table.metadata.refs.items():
        kept.add(ref.snapshot_id)  # safety: expiry-keeps-refs
        if ref.snapshot_ref_type == SnapshotRefType.BRANCH and name != MAIN_BRANCH:
            kept.update(_ancestors(table, ref.snapshot_id))
    return kept


def _ancestors(table: Table, snapshot_id: int) -> Iterator[int]:
    parents = {snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in table.snapshots()}
    at = parents.get(snapshot_id)
    while at is not None:
        yield at
        at = parents.get(at)
