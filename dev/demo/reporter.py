"""Shows the demo: a line for each task, commit and step of the story, and the traffic's figures.

On a terminal the figures are redrawn below the lines; in a file or a pipe they are a line every few seconds.
With ``--json`` nothing is shown, and the tasks are kept for the document at the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from rich.box import ROUNDED
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from thermocline.dev.demo.figures import COUNTS, Commit, Scene, Served, StoryStep, Summary
from thermocline.process.clock import Clock

HOT: Final = "dark_orange"
COLD: Final = "deep_sky_blue1"
GOOD: Final = "green"
BAD: Final = "bold red"
SOFT: Final = "bright_black"
FROM_ICEBERG: Final = "from Iceberg"
FROM_KAFKA: Final = "from Kafka"

FRAMES_PER_SECOND: Final = 4
"""Drawing takes time from the threads that measure."""
PULSE_SECONDS: Final = 5.0
WIDTH_MAX: Final = 132
"""Wider than this, the eye loses the line."""
TEXTS_WIDTH: Final = 84
"""What the texts on both sides of a sparkline take."""
BARS: Final = "▁▂▃▄▅▆▇█"
SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
TITLE_WIDTH: Final = 26


@dataclass(slots=True)
class Task:
    """Something that takes a while: ``note`` says how far it is, then what came of it."""

    title: str
    began_at: float
    note: str = ""
    seconds: float | None = None
    is_good: bool = True


class Reporter:
    """Tasks, scenes and words, one after the other; used as a context manager."""

    def __init__(self, clock: Clock, console: Console) -> None:
        """A console that is quiet shows nothing."""
        self.tasks: list[Task] = []
        self._clock = clock
        self._console = console
        self._scene: Scene | None = None
        self._told = (0, 0)
        self._pulse_at = PULSE_SECONDS
        self._live = Live(
            console=console,
            get_renderable=self._frame,
            refresh_per_second=FRAMES_PER_SECOND,
            transient=True,
        )

    def begin(self, title: str) -> Task:
        """A task begins; several may run at once."""
        task = Task(title, self._clock.monotonic())
        self.tasks.append(task)
        return task

    def end(self, task: Task, note: str = "", is_good: bool = True) -> None:
        """A task is done, well or badly."""
        task.note, task.is_good = note or task.note, is_good
        task.seconds = round(self._clock.monotonic() - task.began_at, 3)
        self._print(task_line(task, task.seconds))

    def drop(self) -> None:
        """Forgets the tasks that have not ended, and the scene: something may have interrupted them."""
        self.tasks = [task for task in self.tasks if task.seconds is not None]
        self._scene = None

    def say(self, text: str, style: str = "") -> None:
        """Words for the person who watches."""
        self._print(Text(text, style))

    def show(self, scene: Scene, is_last: bool = False) -> None:
        """The traffic as it is now, and what is new since the scene before; the last one stays."""
        commits, steps = self._told
        self._told = (len(scene.commits), len(scene.story))
        for commit in scene.commits[commits:]:
            self.say(commit_line(commit))
        for step in scene.story[steps:]:
            self.say(step_line(step), COLD if FROM_ICEBERG in step.why else HOT)
        self._scene = None if is_last else scene
        if self._console.is_terminal:
            if is_last:
                self._console.print(scene_view(scene, self._console.width))
        elif is_last or scene.elapsed_seconds >= self._pulse_at:
            self._pulse_at += PULSE_SECONDS
            self.say(pulse_line(scene))

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._console.quiet:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def _print(self, text: Text) -> None:
        if self._live.is_started:
            self._live.refresh()  # without what has ended by now
        # The terminal may break a line: a command that we broke could not be pasted.
        self._console.print(text, soft_wrap=True)

    def _frame(self) -> RenderableType:
        now = self._clock.monotonic()
        tasks = [task_line(task, now - task.began_at) for task in self.tasks if task.seconds is None]
        scene = [scene_view(self._scene, self._console.width)] if self._scene else []
        return Group(*tasks, *scene)


def task_line(task: Task, seconds: float) -> Text:
    """A tick, a cross or a spinner, the seconds, and what came of it."""
    mark, style = ("✓", GOOD) if task.is_good else ("✗", BAD)
    if task.seconds is None:
        mark, style = SPINNER[int(seconds * 2 * FRAMES_PER_SECOND) % len(SPINNER)], HOT
    note = (task.note, SOFT if task.is_good else BAD)
    return Text.assemble(
        (f" {mark} ", style), (f"{seconds:5.1f} s  ", SOFT), f"{task.title:<{TITLE_WIDTH}} ", note
    )


def commit_line(commit: Commit) -> str:
    """A commit in one line."""
    seam = " ".join(f"{offset:,}" for topic in commit.seam.values() for offset in topic.values())
    records = ", ".join(f"{commit.records[name]:,} {name}" for name in COUNTS)
    return f"commit  snapshot {commit.snapshot_id}, seam {seam}: {records} in {commit.seconds:.1f} s"


def step_line(step: StoryStep) -> str:
    """A step of the story in one line."""
    view = "" if step.view_ms is None else f"; Trino says the same after {step.view_ms:.0f} ms"
    happened = f"{step.what}, {step.now} after {step.ms:.1f} ms; {step.why}"
    return f'story   app 7, user "ada", key "plan": {happened}{view}'


def pulse_line(scene: Scene) -> str:
    """The traffic in one line."""
    figures = " | ".join(gauge.figure for gauge in gauges(scene))
    return f"{scene.elapsed_seconds:4.0f} s  {figures}"


def scene_view(scene: Scene, width: int) -> RenderableType:
    """The traffic's figures; 100 columns and 13 lines do it justice."""
    width = min(width, WIDTH_MAX)
    room = width - len("│  │")
    grid = Table.grid(padding=(0, 2, 0, 0))
    for style in ("bold", HOT, SOFT):
        grid.add_column(style=style, no_wrap=True)
    for gauge in gauges(scene):
        grid.add_row(gauge.figure, sparkline(gauge.windows, room - TEXTS_WIDTH), gauge.more)
    share = min(scene.elapsed_seconds / scene.total_seconds, 1.0)
    clock = f" Thermocline  {scene.elapsed_seconds:.0f} of {scene.total_seconds:.0f} s "
    body = Group(_bar(room, share, "━", HOT, "━", SOFT), grid, _log_bar(scene.served, room))
    return Panel(
        body, box=ROUNDED, title=Text(clock, "bold"), title_align="left", border_style=SOFT, width=width
    )


class Gauge(NamedTuple):
    """A figure, its last seconds, and what more there is to say."""

    figure: str
    windows: Sequence[float]
    more: str


def gauges(scene: Scene) -> list[Gauge]:
    """All figures of the traffic; those of Trino where there is one."""
    served, windows = scene.served, scene.windows
    rate = windows[0][-1] if windows[0] else 0.0
    refused = f", {scene.refused} refused" if scene.refused else ""
    garbage = f"; {scene.garbage} bad, {scene.quarantined} quarantined" if scene.garbage else ""
    views = scene.views.freshness_ms.items() if scene.views else ()
    return [
        Gauge(f"{rate:,.0f} messages/s", windows[0], f"{scene.messages:,} so far{garbage}"),
        Gauge(
            f"fresh {_after(scene.freshness)}",
            windows[1],
            f"{scene.freshness.count:,} × Kafka's ack → lookup",
        ),
        Gauge(
            f"{scene.lookups_per_second:,.0f} lookups/s {_after(scene.lookups, 1)}",
            windows[2],
            f"{scene.lookups.count:,} so far{refused}",
        ),
        *(Gauge(f"{view} {_after(fresh)}", (), f"{fresh.count:,} × ack → Trino") for view, fresh in views),
        Gauge(
            f"{served.rows:,} rows cold, {served.uncommitted:,} records hot",
            (),
            f"{served.hot_bytes / 1e6:.1f} MB hot",
        ),
        Gauge(f"read point {served.age_seconds:.2f} s old", (), f"{len(scene.commits)} commits"),
    ]


def sparkline(values: Sequence[float], width: int) -> str:
    """The last values as bars, the greatest of them full; as wide as there are values, at most ``width``."""
    shown = values[-width:]
    top = max(shown, default=0.0) or 1.0
    return "".join(BARS[min(int(value / top * len(BARS)), len(BARS) - 1)] for value in shown)


def _log_bar(served: Served, room: int) -> Text:
    """What the snapshot holds of the log, and what is laid over it from the seam on."""
    total = sum(offset for _, _, offset in served.end.items())
    hot = served.uncommitted / total if total else 0.0
    return _bar(room, 1 - hot, "█", COLD, "▓", HOT)


def _bar(room: int, share: float, left: str, left_style: str, right: str, right_style: str) -> Text:
    filled = math.floor(room * share)
    return Text.assemble((left * filled, left_style), (right * (room - filled), right_style), no_wrap=True)


def _after(summary: Summary, digits: int = 0) -> str:
    return f"after {summary.p50:,.{digits}f} ms (p99 {summary.p99:,.{digits}f})" if summary.count else "…"
