"""What goes wrong in a history: the process that dies, pauses or is refused, and answers that get lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from thermocline.errors import LogReplaced, ThermoclineError


class Violation(AssertionError):
    """A promise of the product was broken; ``kind`` is one word for which."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind


class Crash(BaseException):
    """The process dies here: nothing of it runs any more, and nothing catches this but the world."""


Trouble = Literal["crash", "pause", "error"]


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to a process at the ``at``-th request that it makes in a step, counted from 0.

    "crash": it dies before the request is made. "pause": the next ``steps`` steps of the history come first.
    "error": what it asks is unavailable. With ``only``, requests of that name are counted, and no others.
    """

    kind: Trouble
    at: int
    steps: int = 0
    only: str = ""


Kind = Literal["lost", "applied", "raced", "late", "late-race"]


@dataclass(frozen=True, slots=True)
class Answer:
    """How the catalog answers the ``at``-th swap of metadata that a process asks for in a step.

    "lost": not done, no answer. "applied": done, no answer. "late": done when a later step says so, unless
    the table changed first; no answer. "raced" and "late-race" are
    "applied" and "late", but the answer is that another one was faster.
    """

    kind: Kind
    at: int = 0


@dataclass(slots=True)
class Frame:
    """A process that is at work: its name, what will go wrong, and how far it is."""

    process: str
    fault: Fault | None
    answer: Answer | None
    edges: int = 0
    swaps: int = 0
    is_dead: bool = False


@dataclass(slots=True)
class Frames:
    """The processes at work, each paused by the one after it; ``edge`` is what every fake calls first."""

    run_next: Callable[[int], None]
    stack: list[Frame] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def edge(self, name: str, error: Callable[[], Exception] | None = None) -> None:
        """A process asks for something. Raises `Crash`, or the error, where the fault says so."""
        if not self.stack:
            return
        frame = self.stack[-1]
        if frame.is_dead:  # what cleans up on the way out of a process that is killed does not run
            raise Crash(name)
        fault = frame.fault
        if fault is None or (fault.only and fault.only != name):
            return
        here, frame.edges = frame.edges, frame.edges + 1
        if fault.at != here:
            return
        self.names.append(f"{fault.kind} before {name}")
        if fault.kind == "crash":
            frame.is_dead = True
            raise Crash(name)
        if fault.kind == "pause":
            self.run_next(fault.steps)
        elif error is not None:
            raise error()

    def next_answer(self) -> str:
        """How the swap that is asked for now is answered; "" as it should be."""
        if not self.stack:
            return ""
        frame = self.stack[-1]
        here, frame.swaps = frame.swaps, frame.swaps + 1
        return frame.answer.kind if frame.answer is not None and frame.answer.at == here else ""

    def die(self, process: str) -> None:
        """Where it is paused, it never goes on."""
        for frame in self.stack:
            frame.is_dead = frame.is_dead or frame.process == process

    def is_busy(self, process: str) -> bool:
        """Whether it is paused, or at work."""
        return any(frame.process == process for frame in self.stack)


def kind_of(error: ThermoclineError) -> str:
    """The error's code; of a log that was replaced, also what shows it."""
    return f"{error.code}: {error.kind}" if isinstance(error, LogReplaced) else error.code
