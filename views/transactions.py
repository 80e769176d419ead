"""A look for transactions of a topic's producers, though the table's definition says nothing of them.

A transaction's records have the times of when they were appended, and come to light together when it is
committed, with all that came behind it in its partitions. No time bounds what a reader finds then: of the two
reads of the live view in one query one may see a record that the other does not, and show its row twice or
not at all. So such a view ends at literal offsets as soon as there is a sign of a transaction:

- The log has an open one now.
- A commit to the table passed offsets that gave no record. A transaction leaves its marker at one, and an
  aborted one all its records' offsets.

Compaction leaves such offsets, too. On a compacted topic only a commit counts whose records are too young for
that; what is behind has no sign. Until the first sign, at most a commit interval after the first transaction,
the view is without its ends: hence the setting ``transactional``, which needs no sign.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from thermocline.errors import ForeignSnapshot
from thermocline.iceberg.catalog import SUMMARY_ACCEPTED, state_of, summary_of
from thermocline.rules.identity import KEPT_MS_MIN

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from thermocline.iceberg.catalog import SnapshotState
    from thermocline.kafka.facts import TopicConfig
    from thermocline.kafka.log import Log

__all__ = ["has_committed_transactions", "has_open_transaction", "shows_transactions"]

COMMITS_MAX: Final = 200
"""How far back a sign counts: some hours at a commit a minute, and read within milliseconds."""


def shows_transactions(table: Table, name: str, log: Log, configs: Mapping[str, TopicConfig]) -> bool:
    """Whether table or log has a sign of transactions; ``configs`` are of all the table's topics."""
    topics = list(configs)
    # safety: views-transaction-open, views-transaction-committed
    return has_open_transaction(log, topics) or has_committed_transactions(table, name, configs)


def has_open_transaction(log: Log, topics: Sequence[str]) -> bool:
    """Whether a transaction holds a committed reader back now."""
    return bool(log.open_transactions(topics))


def has_committed_transactions(table: Table, name: str, configs: Mapping[str, TopicConfig]) -> bool:
    """Whether one of the table's newest commits passed offsets of transactions."""
    is_compacted = any(config.is_compacted for config in configs.values())
    return any(
        # safety: views-transaction-compacted
        _records_missing(before, after) > 0 and not (is_compacted and _may_be_compacted(before, after))
        for before, after in islice(_commits(table, name), COMMITS_MAX)
    )


def _commits(table: Table, name: str) -> Iterator[tuple[SnapshotState, SnapshotState]]:
    """Each commit that only read on in the log, the newest first: what the table said before and after it."""
    known = {snapshot.snapshot_id: snapshot for snapshot in table.snapshots()}
    after = table.current_snapshot()
    while after is not None:
        before = known.get(after.parent_snapshot_id or 0)
        if before is not None and SUMMARY_ACCEPTED not in summary_of(after):
            yield from _read_on(before, after, name)
        after = before


def _read_on(before: Snapshot, after: Snapshot, name: str) -> Iterator[tuple[SnapshotState, SnapshotState]]:
    try:
        states = state_of(before, name), state_of(after, name)
    except ForeignSnapshot:
        return
    earlier, later = states
    # Of a partition that is new nobody says here from where on it was read.
    if set(_places(later)) == set(_places(earlier)):
        yield states


def _places(state: SnapshotState) -> Iterator[tuple[str, int]]:
    return ((topic, partition) for topic, partition, _ in state.seam.items())


def _records_missing(before: SnapshotState, after: SnapshotState) -> int:
    passed = sum(offset - before.seam.get((topic, p)) for topic, p, offset in after.seam.items())
    return passed - after.counts.get("read", passed)


def _may_be_compacted(before: SnapshotState, after: SnapshotState) -> bool:
    """Whether the commit's records may be so old that their segments were closed and cleaned."""
    return after.timestamp_ms - before.drained_ms > KEPT_MS_MIN
