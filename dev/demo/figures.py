"""Figures that the demo measures and shows: values only."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from thermocline.dev.stack import TABLE
from thermocline.rules.seam import Seam

COUNTS: Final = ("read", "applied", "superseded", "unchanged", "quarantined")


@dataclass(frozen=True, slots=True)
class Summary:
    """Of some timings, in milliseconds; None where there are none."""

    count: int = 0
    p50: float | None = None
    p99: float | None = None
    max: float | None = None


class Timings:
    """Collects seconds. Any thread adds; one closes windows and asks."""

    def __init__(self, *parts: Timings) -> None:
        """With all that others have so far."""
        self.windows_ms: list[float] = []
        self._seconds: list[float] = [seconds for part in parts for seconds in part._seconds]  # noqa: SLF001  of our own kind
        self._window_start = 0

    def __len__(self) -> int:
        return len(self._seconds)

    def add(self, seconds: float) -> None:
        """One more."""
        self._seconds.append(seconds)

    def close_window(self) -> None:
        """Ends a window, whose 99th percentile is kept if it had any, and begins the next one."""
        window = self._seconds[self._window_start :]
        self._window_start += len(window)
        if window:
            self.windows_ms.append(_percentile_ms(sorted(window), 0.99))

    def summary(self) -> Summary:
        """Of all so far."""
        ordered = sorted(self._seconds)
        if not ordered:
            return Summary()
        return Summary(len(ordered), *(_percentile_ms(ordered, share) for share in (0.5, 0.99, 1.0)))


def _percentile_ms(ordered: Sequence[float], share: float) -> float:
    """The least value that at least this share of them does not exceed (nearest rank)."""
    return round(ordered[math.ceil(share * len(ordered)) - 1] * 1000, 3)


@dataclass(frozen=True, slots=True)
class Commit:
    """A batch that landed, as ingest's log tells of it; ``seconds`` from its plan to its commit."""

    snapshot_id: str
    seam: Mapping[str, Mapping[str, int]]
    records: Mapping[str, int]
    seconds: float


def commits_in(log: Iterable[str]) -> list[Commit]:
    """The commits that the lines of ingest's log tell of, the oldest first; other lines are passed over."""
    return [
        Commit(
            str(entry["snapshot_id"]),
            entry["seam"],
            {name: entry[name] for name in COUNTS},
            round(entry["run_seconds"] + entry["commit_seconds"], 3),
        )
        for entry in (_entry(line) for line in log if line.startswith("{"))
        if entry.get("message") == "committed"
    ]


def _entry(line: str) -> dict[str, Any]:
    try:
        entry: dict[str, Any] = json.loads(line)
    except ValueError:
        return {}  # it is being written
    return entry


@dataclass(frozen=True, slots=True)
class StoryStep:
    """What happened to the story's row, what lookups say since, how long that took, and why it is right.

    ``view_ms`` is how long the view by key in Trino took to say the same.
    """

    what: str
    now: str
    ms: float
    why: str
    view_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Served:
    """What the server said of the table last."""

    rows: int = 0
    seam: Seam = field(default_factory=Seam)
    end: Seam = field(default_factory=Seam)
    hot_bytes: int = 0
    age_seconds: float = 0.0

    @property
    def uncommitted(self) -> int:
        """Offsets between seam and end."""
        return sum(end - self.seam.get((topic, p)) for topic, p, end in self.end.items())


def served_in(content: bytes, before: Served) -> Served:
    """From the server's ``/status``; a table that is not ready leaves it as it was."""
    status = json.loads(content)["tables"][TABLE]
    if "read_point" not in status:
        return before
    point = status["read_point"]
    return Served(
        status["snapshot"]["rows"],
        Seam.from_dict(point["seam"]),
        Seam.from_dict(point["end"]),
        status["tailer"].get("hot_bytes", 0),
        status["age_seconds"] or 0.0,
    )


@dataclass(frozen=True, slots=True)
class ViewFigures:
    """How fresh each view in Trino is, how long queries took, and how many were answered and refused."""

    freshness_ms: Mapping[str, Summary]
    query_ms: Mapping[str, Summary]
    answers: int
    refused: int


@dataclass(frozen=True, slots=True)
class Scene:
    """The traffic, and what has come of it so far; ``views`` where there is Trino.

    ``windows`` has the last seconds of messages a second, and of both timings' 99th percentiles.
    """

    elapsed_seconds: float
    total_seconds: float
    messages: int
    freshness: Summary
    lookups: Summary
    lookups_per_second: float
    windows: tuple[Sequence[float], Sequence[float], Sequence[float]]
    answers_checked: int
    refused: int
    served: Served
    commits: Sequence[Commit]
    story: Sequence[StoryStep]
    garbage: int
    views: ViewFigures | None = None

    @property
    def quarantined(self) -> int:
        """Records that the commits set aside."""
        return sum(commit.records["quarantined"] for commit in self.commits)

    def to_dict(self) -> dict[str, object]:
        """For JSON; without Trino, it says nothing of views."""
        steps = [
            {name: value for name, value in asdict(step).items() if value is not None} for step in self.story
        ]
        document: dict[str, object] = {
            "freshness_ms": asdict(self.freshness),
            "lookup_ms": asdict(self.lookups),
            "traffic": {
                "seconds": round(self.elapsed_seconds, 1),
                "messages": self.messages,
                "messages_per_second": round(self.messages / self.elapsed_seconds, 1),
                "lookups": self.lookups.count,
                "lookups_refused": self.refused,
                "answers_checked_at_once": self.answers_checked,
            },
            "commits": [asdict(commit) for commit in self.commits],
            "garbage": {"written": self.garbage, "quarantined": self.quarantined},
            "story": steps,
        }
        return document | ({"views": asdict(self.views)} if self.views else {})
