"""Sources of rows: what a batch reads. Ranges of Kafka's log are one kind (`KafkaRanges`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from thermocline.ingest.batch.read_task import ReadReport, ReadTask

__all__ = ["Source"]


class Source(Protocol):
    """What a batch reads, in parts that tasks read apart from each other. Picklable.

    A kind whose rows do not come from Kafka gives null for their provenance. Each key is then in one of its
    rows only: nothing says which of two came last.
    """

    @property
    def parts(self) -> int:
        """Into how many parts it is split."""
        ...

    @property
    def records(self) -> int:
        """How many records it has at most, for who waits for them."""
        ...

    def read(self, task: ReadTask, part: int, report: ReadReport) -> Iterator[pa.Table]:
        """The good records of a part, by ``definition.records_schema``, in pieces.

        Counts what was read in the report, and notes there what was covered once all of it was.
        """
        ...

    def check(self, reports: Sequence[ReadReport]) -> None:
        """Raises `RangeIncomplete` where the reports do not cover all of it, or nothing of the kind."""
        ...
