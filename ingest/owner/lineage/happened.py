"""The few values that say what happened in a run: events are made of them later, in another thread."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Self

if TYPE_CHECKING:
    from thermocline.ingest.commit.change import TableChange
    from thermocline.ingest.commit.commit import Landed
    from thermocline.kafka.facts import OffsetRange
    from thermocline.rules.seam import Seam

__all__ = ["Committed", "EventType", "Happened", "Job", "Volume", "run_id_at"]

Job = Literal["ingest", "rewrite"]
EventType = Literal["START", "COMPLETE", "FAIL", "ABORT"]


@dataclass(frozen=True, slots=True)
class Volume:
    """Data files, and what is in them."""

    rows: int
    bytes: int
    files: int


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit did. ``removed`` are files whose live rows were written again, or that had none left."""

    snapshot_id: int
    batch_id: str
    seam: Seam
    records: Mapping[str, int]
    written: Volume
    carried_rows: int
    removed: Volume

    @classmethod
    def of(cls, landed: Landed, change: TableChange) -> Self:
        """Of a commit that landed."""
        added = [file for part in change.files for file in part.added]
        removed = [file for part in change.files for file in part.removed]
        dead_rows = sum(file.deletes.cardinality for file in removed if file.deletes is not None)
        return cls(
            landed.snapshot_id,
            change.batch_id,
            landed.seam,
            change.accounting.counts(),
            Volume(sum(file.live_rows for file in added), sum(file.file_bytes for file in added), len(added)),
            sum(part.carried for part in change.files),
            Volume(
                sum(file.rows for file in removed) - dead_rows,
                sum(file.bytes for file in removed),
                len(removed),
            ),
        )


@dataclass(frozen=True, slots=True)
class Happened:
    """A change of a run's state. ``ranges`` are what the run reads of the log; ``error`` is what ended it.

    ``topics`` are those of the table then; None: those that it had when it was taken.
    """

    job: Job
    type: EventType
    run_id: str
    at_ms: int
    ranges: tuple[OffsetRange, ...] = ()
    committed: Committed | None = None
    error: str = field(default="", kw_only=True)
    topics: tuple[str, ...] | None = field(default=None, kw_only=True)


def run_id_at(at_ms: int) -> str:
    """A new id of a run that begins at that time: a UUID of version 7, so that ids sort by time."""
    number = (at_ms & ((1 << 48) - 1)) << 80 | secrets.randbits(80)
    number = number & ~(0xF << 76) | 0x7 << 76  # the version
    number = number & ~(0x3 << 62) | 0x2 << 62  # the variant
    return str(uuid.UUID(int=number))
