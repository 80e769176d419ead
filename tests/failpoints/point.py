"""What a failpoint is: its form, what it can do, and which processes come by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Action(StrEnum):
    """What an armed failpoint does."""

    ERROR = "error"
    APPLIED_THEN_ERROR = "applied-then-error"
    KILL = "kill"
    SLEEP = "sleep"
    SKEW = "skew"


class Form(StrEnum):
    """How a failpoint stands in the code, which says what it can do."""

    POINT = "failpoint"  # between two steps
    STEP = "failstep"  # around one
    CLOCK = "skew_ms"


class Process(StrEnum):
    """Kinds of processes."""

    INGEST = "ingest"  # the owner of a table: `ingest run`, and commands that commit
    TASK = "task"  # Spark's Python workers; of commands that need no Spark, the command itself
    UPKEEP = "upkeep"  # maintenance: turns and threads of `ingest run`, or `maintain run`, and its tasks
    PUBLISHER = "publisher"  # of views: a thread of `ingest run`, or a command of its own
    TAILER = "tailer"
    API = "api"
    LIVE = "live"  # makes the snapshots of the server's catalog
    COMMAND = "command"  # lookups and extracts without a server, `status`, and the server's parent


@dataclass(frozen=True, slots=True)
class Failpoint:
    """One failpoint. ``error`` makes what a real failure there raises, from a detail to be read by people."""

    name: str
    form: Form
    file: str
    meaning: str
    error: Callable[[str], Exception]
    processes: tuple[Process, ...]

    @property
    def actions(self) -> tuple[Action, ...]:
        """What it can do."""
        if self.form is Form.CLOCK:
            return (Action.SKEW,)
        between = (Action.ERROR, Action.KILL, Action.SLEEP)
        return (*between, Action.APPLIED_THEN_ERROR) if self.form is Form.STEP else between
