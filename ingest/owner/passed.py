"""Ranges of the log that held nothing for a table: its owner goes on behind them, and commits them later.

A topic that feeds many tables moves the seam of each of them with every batch, also of those that got no row.
A commit that would say no more than that is put off until the table has something to commit, or a bound is
reached. Until then the table's seam is behind what was read. That is always safe: whoever goes on from the
seam reads those records again, and filters them again, since a table's conditions never change.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self
from zlib import crc32

from thermocline.ingest.batch.accounting import Accounting
from thermocline.ingest.batch.plan import lag_of

if TYPE_CHECKING:
    from thermocline.ingest.commit.change import TableChange
    from thermocline.ingest.owner.position import Position
    from thermocline.rules.partition_time import PartitionTimes
    from thermocline.rules.seam import Seam

__all__ = ["LOG_PARTS", "OFFSETS_MAX", "SECONDS_MAX", "PassedOver", "is_due"]

OFFSETS_MAX: Final = 10_000_000
"""What an owner that takes the table after a crash may have to read again: about a minute's reading."""
SECONDS_MAX: Final = 1_800.0
"""Of a thousand tables without records, so few commits come with each minute; and what others see of a table
by its seam, as the lag that a server reports, is no older than this."""
LOG_PARTS: Final = 4
"""Of a partition that loses its oldest records, no more than such a part of what is there is put off: then
the log loses nothing beyond a table's seam before it has lost all the rest."""


@dataclass(frozen=True, slots=True)
class PassedOver:
    """How far an owner is beyond its table, and what the commit that tells it will say of that.

    ``since`` is when the first of it was passed over, in monotonic seconds.
    """

    seam: Seam
    watermark_ms: int
    drained_ms: int
    partition_times: PartitionTimes
    accounting: Accounting
    since: float

    @classmethod
    def of(cls, change: TableChange, since: float) -> Self:
        """Of the change that was not committed."""
        return cls(
            change.seam,
            change.watermark_ms,
            change.drained_ms,
            change.partition_times,
            change.accounting,
            since,
        )

    def beyond(self, table: Position) -> Position:
        """Where the owner of a table that is there goes on."""
        return replace(
            table,
            seam=self.seam,
            watermark_ms=self.watermark_ms,
            drained_ms=self.drained_ms,
            partition_times=self.partition_times,
        )


def is_due(table: str, committed: Seam, reached: Seam, starts: Seam, seconds: float) -> bool:
    """Whether a table's seam has to be committed, which has reached that place and was put off so long.

    Tables reach the bounds at different times, at half of them and later: a round has some of many then.
    """
    part = 0.5 + crc32(table.encode()) / (1 << 33)
    if lag_of(committed, reached) >= part * OFFSETS_MAX or seconds >= part * SECONDS_MAX:
        return True
    for topic, p, seam in committed.items():
        start, end = starts.get((topic, p)), reached.get((topic, p))
        if start > 0 and LOG_PARTS * (end - seam) > end - start:  # safety: passed-over-within-the-log
            return True
    return False
