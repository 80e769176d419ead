"""Watches the table's commits: each with its seam, what became of its records, and how long it took."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thermocline.iceberg.catalog import SnapshotState, load_table, open_catalog, state_of
from thermocline.rules.seam import Seam
from thermocline.settings import Settings

COMMITTED = "committed"
"""The phrase of ingest's log line for a batch that landed."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A batch that landed; ``seconds`` from its plan to its commit, None where ingest has not said so yet."""

    snapshot_id: int
    seam: Seam
    counts: Mapping[str, int]
    seconds: float | None


class Commits:
    """The commits of a table, the oldest first; ``look`` brings them up to date."""

    def __init__(self, settings: Settings, table: str, ingest_log: Path) -> None:
        self._catalog = open_catalog(settings.catalog)
        self._table = table
        self._identifier = settings.table(table).identifier
        self._ingest_log = ingest_log
        self._states: list[SnapshotState] = []
        self._log_bytes = -1
        self._seconds: Mapping[int, float] = {}

    @property
    def epoch(self) -> int:
        """Of the newest snapshot: 0 until an owner has taken the table."""
        return self._states[-1].epoch if self._states else 0

    def look(self) -> None:
        """Takes up what has landed. Raises `CatalogUnreachable` and `TableUnowned`."""
        table = load_table(self._catalog, self._table, self._identifier)
        known = {state.snapshot_id for state in self._states}
        new = [snapshot for snapshot in table.snapshots() if snapshot.snapshot_id not in known]
        # The catalog may be read between two snapshots; their order is that of their making.
        new.sort(key=lambda snapshot: snapshot.sequence_number or 0)
        self._states.extend(state_of(snapshot, self._table) for snapshot in new)

    def batches(self) -> Sequence[Commit]:
        """Those that had records; not the first, empty snapshot, nor those that only take ownership."""
        log_bytes = self._ingest_log.stat().st_size
        if log_bytes != self._log_bytes:
            self._log_bytes = log_bytes
            self._seconds = seconds_of(self._ingest_log.read_text(errors="replace").splitlines())
        return batches_of(self._states, self._seconds)


def batches_of(states: Iterable[SnapshotState], seconds: Mapping[int, float]) -> Sequence[Commit]:
    """The commits among the snapshots that moved the seam, with the seconds that are known of them."""
    return [
        Commit(state.snapshot_id, state.seam, state.counts, seconds.get(state.snapshot_id))
        for state in states
        if state.counts.get("read", 0)
    ]


def seconds_of(lines: Iterable[str]) -> Mapping[int, float]:
    """From the lines of ingest's log, by snapshot; what is no JSON or says something else is passed over."""
    seconds: dict[int, float] = {}
    for line in lines:
        entry = _entry(line)
        if entry.get("message") == COMMITTED:
            seconds[int(entry["snapshot_id"])] = entry["run_seconds"] + entry["commit_seconds"]
    return seconds


def _entry(line: str) -> Mapping[str, Any]:
    if not line.startswith("{"):
        return {}  # Spark has a word to say before logging begins
    try:
        entry: dict[str, Any] = json.loads(line)
    except ValueError:
        return {}  # a line that is being written
    return entry
