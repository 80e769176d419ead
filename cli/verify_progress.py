"""The progress of ``thermocline verify``: a bar on a terminal, else a line now and then, always on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from thermocline.cli.output import say

if TYPE_CHECKING:
    from rich.progress import TaskID

    from thermocline.process.clock import Clock
    from thermocline.verify.log_pass import Progress as Progressing

__all__ = ["LINE_SECONDS", "ProgressLines", "shown_progress"]

LINE_SECONDS: Final = 10.0
"""How often a line is written where nobody sees a bar: often enough to tell slow from stuck in a CI log."""


@contextmanager
def shown_progress(clock: Clock) -> Iterator[Progressing]:
    """Shows how much was read and compared."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield ProgressLines(clock, say)
        return
    columns = (TextColumn("{task.description:<11}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def progress(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total or None)
            bar.update(tasks[what], completed=done, total=total or None)

        yield progress


@dataclass(slots=True)
class ProgressLines:
    """A line each `LINE_SECONDS` at most; a short verification says nothing."""

    clock: Clock
    write: Callable[[str], None]
    _said_at: float = field(init=False)

    def __post_init__(self) -> None:
        """The time of the first line is counted from here."""
        self._said_at = self.clock.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        """``total`` is 0 where nobody knows it."""
        now = self.clock.monotonic()
        if now - self._said_at < LINE_SECONDS:
            return
        self._said_at = now
        self.write(f"verify: {what} {done:,}" + (f" of {total:,}" if total else ""))
