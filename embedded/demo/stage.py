"""Where the demo is shown. The stage itself shows nothing: it keeps the steps for the document at the end.

`screen.Screen` shows it on a terminal, `lines.Lines` in a file or a pipe.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Self

from embedded.demo.scene import Scene
from thermocline.process.clock import Clock


@dataclass(slots=True)
class Task:
    """Something that takes a while: ``note`` says how far it is, then what came of it."""

    title: str
    began_at: float
    note: str = ""
    seconds: float | None = None
    is_good: bool = True


class Stage:
    """Tasks, scenes and words, one after the other; used as a context manager."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.tasks: list[Task] = []

    def begin(self, title: str) -> Task:
        """A task begins; several may run at once."""
        task = Task(title, self.clock.monotonic())
        self.tasks.append(task)
        return task

    def end(self, task: Task, note: str = "", is_good: bool = True) -> None:
        """A task is done, well or badly."""
        task.note = note or task.note
        task.seconds = self.clock.monotonic() - task.began_at
        task.is_good = is_good

    def drop(self) -> None:
        """Forgets the tasks that have not ended: something has interrupted them."""
        self.tasks = [task for task in self.tasks if task.seconds is not None]

    def show(self, scene: Scene) -> None:
        """The traffic as it is now."""

    def say(self, text: str, style: str = "") -> None:
        """Words for the person who watches."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass
