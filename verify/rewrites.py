"""Snapshots of others that ingest took over as rewrites: whether they were, as far as can be seen still."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from thermocline.iceberg.rewrite import NotARewrite, check_same_rows
from thermocline.verify.finding import Finding
from thermocline.verify.seam_history import name_of

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.iceberg.lineage import Link
    from thermocline.rules.definition import LiveTable


def taken_over(links: Sequence[Link]) -> frozenset[int]:
    """The snapshots of others that one of ours says were rewrites."""
    return frozenset(one for link in links if link.state is not None for one in link.taken_over)


def rewrite_findings(
    table: Table, definition: LiveTable, links: Sequence[Link], is_held: Callable[[int], bool]
) -> Iterator[Finding]:
    """Those that did more. Where the snapshot before them is expired, what ingest proved is believed."""
    for index, link in enumerate(links):
        first = index - len(link.taken_over)
        others = tuple(links[max(first, 0) : index])
        if not others or link.state is None:
            continue
        if any(one.snapshot_id not in link.taken_over for one in others):
            yield Finding("snapshot-foreign", f"{name_of(link)} names rewrites that it does not follow")
        elif first > 0:
            before = links[first - 1]
            try:
                check_same_rows(table, definition, before, others)  # safety: verify-rewrite
            except NotARewrite as reason:
                if is_held(before.snapshot_id):
                    facts = f"{name_of(link)} takes {name_of(others[-1])} for a rewrite"
                    yield Finding("snapshot-foreign", f"{facts}, and it is none: {reason}")
