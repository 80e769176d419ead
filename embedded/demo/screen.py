"""The demo on a terminal: tasks ticked one by one, and a screen of the traffic while it runs."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from embedded.demo.scene import Scene
from embedded.demo.stage import Stage, Task
from embedded.demo.views import done_line, running_line, scene_view
from thermocline.process.clock import Clock

SPINNER_FRAMES_PER_SECOND: Final = 8


class Screen(Stage):
    """Prints what is done, and keeps what is under way below it."""

    def __init__(self, clock: Clock, console: Console) -> None:
        super().__init__(clock)
        self._console = console
        self._scene: Scene | None = None
        self._live = self._of_tasks()

    def begin(self, title: str) -> Task:
        """A line with a spinner, until it ends."""
        self._leave_scene()
        return super().begin(title)

    def end(self, task: Task, note: str = "", is_good: bool = True) -> None:
        """A line that stays."""
        super().end(task, note, is_good)
        self._console.print(done_line(task))

    def show(self, scene: Scene) -> None:
        """The screen; each scene is a frame."""
        if self._scene is None:
            self._live.stop()
            self._live = self._of_scenes()
            self._live.start()
        self._scene = scene
        self._live.refresh()

    def say(self, text: str, style: str = "") -> None:
        """Lines that stay."""
        self._leave_scene()
        # The terminal may break a line: a command that we broke could not be pasted.
        self._console.print(Text(text, style=style), soft_wrap=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def _leave_scene(self) -> None:
        """Its last frame stays where it is."""
        if self._scene is not None:
            self._live.stop()
            self._scene = None
            self._live = self._of_tasks()
            self._live.start()

    def _of_tasks(self) -> Live:
        """Draws itself, so that the spinners turn while nothing is said."""
        return Live(
            console=self._console,
            get_renderable=self._tasks_view,
            refresh_per_second=SPINNER_FRAMES_PER_SECOND,
            transient=True,
        )

    def _of_scenes(self) -> Live:
        """Drawn when there is something new: drawing takes time from the threads that measure."""
        return Live(console=self._console, get_renderable=self._current_scene_view, auto_refresh=False)

    def _tasks_view(self) -> RenderableType:
        now = self.clock.monotonic()
        return Group(*(running_line(task, now) for task in self.tasks if task.seconds is None))

    def _current_scene_view(self) -> RenderableType:
        if self._scene is None:
            return Text()
        return scene_view(self._scene, self._console.width, self._console.height)
