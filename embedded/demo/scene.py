"""What there is to see at one moment: values only, for a screen, for lines and for a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from embedded.demo.commits import Commit
from embedded.demo.story import Step
from embedded.demo.timings import Summary
from thermocline.rules.seam import Seam


@dataclass(frozen=True, slots=True)
class Reading:
    """What the server said of the table last."""

    snapshot_id: int = -1
    cold_rows: int = 0
    seam: Seam = field(default_factory=Seam)
    end: Seam = field(default_factory=Seam)
    hot_records: int = 0
    hot_bytes: int = 0
    bad_records: int = 0
    age_seconds: float = 0.0
    is_stale: bool = False

    @property
    def uncommitted(self) -> int:
        """Offsets between seam and end."""
        return sum(end - self.seam.get((topic, p)) for topic, p, end in self.end.items())


@dataclass(frozen=True, slots=True)
class ViewFigures:
    """How fresh the views in Trino are, how long queries on them took, and how many were answered."""

    by_key: Summary
    live: Summary
    by_key_queries: Summary
    live_queries: Summary
    answers: int
    refused: int


@dataclass(frozen=True, slots=True)
class Scene:
    """The traffic, and what has come of it so far; ``views`` where there is Trino."""

    elapsed_seconds: float
    total_seconds: float
    messages: int
    messages_per_second: Sequence[float]
    freshness: Summary
    lookups: Summary
    lookups_per_second: float
    answers_checked: int
    refused: int
    reading: Reading
    commits: Sequence[Commit]
    story: Sequence[Step]
    garbage: int
    views: ViewFigures | None = None

    @property
    def quarantined(self) -> int:
        """Records that the commits set aside."""
        return sum(commit.counts.get("quarantined", 0) for commit in self.commits)


def reading_of(status: Mapping[str, Any], before: Reading) -> Reading:
    """From the table's part of the server's ``/status``; a server that is not ready leaves it as it was."""
    if "read_point" not in status:
        return before
    point, tailer, snapshot = status["read_point"], status["tailer"], status["snapshot"]
    return Reading(
        snapshot_id=int(point["snapshot_id"]),
        cold_rows=snapshot["rows"],
        seam=Seam.from_dict(point["seam"]),
        end=Seam.from_dict(point["end"]),
        hot_records=tailer.get("hot_records", 0),
        hot_bytes=tailer.get("hot_bytes", 0),
        bad_records=sum(tailer.get("bad", {}).values()),
        age_seconds=status["age_seconds"] or 0.0,
        is_stale=status["stale"],
    )
