"""Sources of rows: what a batch reads. Ranges of Kafka's log are one kind (`KafkaRanges`)."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from thermocline.rules.decode import SharedTexts

if TYPE_CHECKING:
    import pyarrow as pa

    from thermocline.ingest.batch.read_task import ReadReport, ReadTask

__all__ = ["Source", "SourceReader", "Together"]


@dataclass(frozen=True, slots=True)
class Together:
    """What the readers of a part have in common: the number of tables, and what is read once for all."""

    tables: int = 1
    texts: SharedTexts = field(default_factory=SharedTexts)


class SourceReader(Protocol):
    """One table's reader of one part of a source: it makes records of pieces that were read once for all."""

    def take(self, piece: Any, report: ReadReport) -> pa.Table:
        """The good records of a piece, by ``definition.records_schema``; what was read is counted there."""
        ...

    def end(self, report: ReadReport) -> None:
        """All pieces of the part were taken: what was covered is noted there."""
        ...


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

    def pieces(self, task: ReadTask, part: int) -> Generator[Any, None, None]:
        """What a part has, in pieces, each once for all tables; ``task`` is that of any of them."""
        ...

    def reader(self, task: ReadTask, part: int, together: Together) -> SourceReader:
        """What makes one table's records of the pieces of a part, which several may be reading."""
        ...

    def check(self, reports: Sequence[ReadReport]) -> None:
        """Raises `RangeIncomplete` where the reports do not cover all of it, or nothing of the kind."""
        ...
