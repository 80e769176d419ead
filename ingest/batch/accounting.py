"""Accounts of a batch: where each of its records went, and how far in time the table has come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thermocline.ingest.batch.batch import BatchResult
    from thermocline.ingest.batch.plan import Batch
    from thermocline.ingest.batch.read_task import ReadReport
    from thermocline.rules.definition import OnError


@dataclass(frozen=True, slots=True)
class Accounting:
    """Every record of a batch, once.

    read = applied + superseded + unchanged + quarantined + skipped + filtered
    """

    read: int = 0
    applied: int = 0
    superseded: int = 0
    unchanged: int = 0
    quarantined: int = 0
    skipped: int = 0
    filtered: int = 0

    def counts(self) -> dict[str, int]:
        """The counts by the name that the snapshot summary gives them."""
        return asdict(self)

    def plus(self, other: Accounting) -> Accounting:
        """That of both together."""
        own, more = self.counts(), other.counts()
        return Accounting(**{name: count + more[name] for name, count in own.items()})

    def is_closed(self) -> bool:
        """Whether no record is missing from the sum, and none is counted twice."""
        return 2 * self.read == sum(self.counts().values())


def account(result: BatchResult, on_error: OnError) -> Accounting:
    """The accounting of what the tasks of a batch gave; bad records were kept but for stages that skip."""
    bad = bad_by_stage(result.reports)
    skipped = sum(count for stage, count in bad.items() if on_error.of(stage) == "skip")
    return Accounting(
        read=sum(report.records for report in result.reports),
        applied=sum(done.applied for done in result.buckets),
        superseded=sum(done.superseded for done in result.buckets),
        unchanged=sum(done.unchanged for done in result.buckets),
        quarantined=bad.total() - skipped,
        skipped=skipped,
        filtered=sum(report.filtered for report in result.reports),
    )


def bad_by_stage(reports: Sequence[ReadReport]) -> Counter[str]:
    """How many records of a batch were bad at each stage."""
    bad: Counter[str] = Counter()
    for report in reports:
        bad.update(report.bad)
    return bad


def greatest_times(batch: Batch, reports: Sequence[ReadReport]) -> dict[tuple[str, int], int]:
    """By partition, the greatest time of the batch's records; of those that had any."""
    found: dict[str, int] = {}
    for report in reports:
        for place, at_ms in report.greatest_timestamps_ms.items():
            found[place] = max(at_ms, found.get(place, at_ms))
    places = {f"{planned.topic}/{planned.partition}": planned for planned in batch.ranges}
    return {(places[place].topic, places[place].partition): at_ms for place, at_ms in found.items()}


def watermark_ms(batch: Batch, reports: Sequence[ReadReport], planned_at_ms: int, before_ms: int) -> int:
    """The least, over partitions, of the last committed record's timestamp.

    A partition that the batch drains counts with the time of planning, one that it doesn't touch with the
    watermark before.
    """
    # Of a partition that several tasks read, the last piece says it; reports come in any order.
    in_order = sorted(reports, key=lambda report: report.covered)
    last = {place: at_ms for report in in_order for place, at_ms in report.last_timestamps_ms.items()}
    return min(
        planned_at_ms
        if offset >= batch.log_ends.get((topic, partition), offset)
        else last.get(f"{topic}/{partition}", before_ms)
        for topic, partition, offset in batch.end.items()
    )
