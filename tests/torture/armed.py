"""Failpoints of a group of processes: one file that they watch, rewritten for each fault."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.behaviour.armed import FAILS_BEFORE
from tests.failpoints.arming import arm, disarm, fired
from tests.failpoints.firing import environment
from tests.failpoints.point import Process
from tests.failpoints.points import POINTS, points_of

SKEW_MS_MAX: Final = 3_600_000
SLEEP: Final = "sleep:1.5"
TIMES: Final = (1, 1, 1, 2)
# What else has to fail or to die before a point is met.
BEFORE: Final = {
    **FAILS_BEFORE,
    "ownership.taken": "owner.plan=kill@1",
    "lease.read": "owner.plan=kill@1",
    "hot.open": "tailer.poll=kill@1",
}
# Of commands that no torture runs, or of what it never meets; and the clock, which is a fault of its own.
LEFT_OUT: Final = ("clock", "alter.", "resume.", "replay.", "dead-letters.", "orphans.")
# Always reached; their errors stop what a supervisor starts again.
INGEST: Final = (Process.INGEST, Process.TASK, Process.UPKEEP)
SERVING: Final = (Process.TAILER, Process.API)

Entry = tuple[str, str]
"""A point, and what happens there: ``kill@2``."""


class Armed:
    """What is armed now, of some kinds of processes. For any thread."""

    def __init__(self, path: Path, processes: tuple[Process, ...]) -> None:
        self.path = path
        names = {name for process in processes for name in points_of(process)}
        self._names = sorted(name for name in names if not name.startswith(LEFT_OUT))
        self._entries: list[Entry] = []
        self._happened: set[str] = set()
        self._skew_ms = 0
        self._lock = threading.Lock()

    @property
    def environment(self) -> Mapping[str, str]:
        """For the processes that are to watch the file."""
        return environment(file=self.path)

    def arm(self, choice: float) -> Entry:
        """One more entry, chosen by a number in [0, 1)."""
        name, rest = _split(choice, len(self._names))
        point = POINTS[self._names[name]]
        which, rest = _split(rest, len(actions := sorted(point.actions)))
        times, _ = _split(rest, len(TIMES))
        action = SLEEP if actions[which].startswith("sleep") else actions[which]
        entry = (self._names[name], f"{action}@{TIMES[times]}")
        with self._lock:
            self._entries.append(entry)
            self._write()
        return entry

    def disarm(self, entry: Entry) -> bool:
        """Takes an entry back; whether it happened."""
        with self._lock:
            self._entries.remove(entry)
            self._write()
            happened = _text(entry) in self._happened
            self._happened.discard(_text(entry))
        return happened

    def skew(self, part: float) -> None:
        """Lets the clocks of the processes be wrong by a part of an hour, from -1 to 1."""
        with self._lock:
            self._skew_ms = int(part * SKEW_MS_MAX)
            self._write()

    def unskew(self) -> None:
        """Lets them be right again."""
        with self._lock:
            self._skew_ms = 0
            self._write()

    def _write(self) -> None:
        # The journal is of the file as it stands. What is armed besides begins again, and may happen again.
        self._happened |= {one.entry for one in fired(self.path)}
        entries = [_text(entry) for entry in self._entries]
        entries += sorted({BEFORE[name] for name, _ in self._entries if name in BEFORE} - set(entries))
        if self._skew_ms:
            entries.append(f"clock=skew:{self._skew_ms}")
        if entries:
            arm(self.path, ";".join(entries))
        else:
            disarm(self.path)


def _text(entry: Entry) -> str:
    return f"{entry[0]}={entry[1]}"


def _split(choice: float, parts: int) -> tuple[int, float]:
    """Which of several, and what is left of the number for the next choice."""
    scaled = choice * parts
    return int(scaled), scaled - int(scaled)
