"""Counts the maintenance debt of a table: what its files cost beyond its rows, and a rewrite would take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from thermocline.serving.status.document import BucketStatus, DebtStatus
from thermocline.serving.status.findings import is_bad_bucket

if TYPE_CHECKING:
    from thermocline.serving.cold.index import ColdIndex
    from thermocline.serving.tail.table_facts import RewriteFact

__all__ = ["buckets_in", "debt_of"]


def buckets_in(index: ColdIndex) -> Iterator[BucketStatus]:
    """The buckets of a snapshot, by what its index says of their files."""
    for number, files in index.buckets.items():
        deletes = [one.data.deletes for one in files if one.data.deletes is not None]
        dead = sum(one.cardinality for one in deletes)
        rows = sum(one.data.rows for one in files) - dead
        yield BucketStatus(
            bucket=number,
            files=len(files),
            bytes=sum(one.data.bytes for one in files),
            rows=rows,
            dead_rows=dead,
            delete_files=len({one.path for one in deletes}),
            rewrite_bytes=sum(one.data.bytes for one in files if one.data.deletes is not None),
            is_bad=is_bad_bucket(len(files), rows, dead),
        )


def debt_of(buckets: Sequence[BucketStatus], rewrites: Sequence[RewriteFact] = ()) -> DebtStatus:
    """Of all buckets; how long a rewrite would take by those that were made."""
    shares = [one.dead_rows / (one.rows + one.dead_rows) for one in buckets if one.rows + one.dead_rows]
    rewrite_bytes = sum(one.rewrite_bytes for one in buckets)
    seconds_a_byte = None
    if rewrites:
        seconds_a_byte = sum(one.seconds for one in rewrites) / sum(one.bytes for one in rewrites)
    return DebtStatus(
        files=sum(one.files for one in buckets),
        bytes=sum(one.bytes for one in buckets),
        rows=sum(one.rows for one in buckets),
        dead_rows=sum(one.dead_rows for one in buckets),
        delete_files=sum(one.delete_files for one in buckets),
        rewrite_bytes=rewrite_bytes,
        rewrite_seconds=None if seconds_a_byte is None else rewrite_bytes * seconds_a_byte,
        worst_dead_share=max(shares, default=0.0),
        worst_files=max((one.files for one in buckets), default=0),
        buckets=len(buckets),
        bad_buckets=sum(one.is_bad for one in buckets),
    )
