"""Shows the demo: on a terminal tasks and a screen of the traffic, else one line for each event.

With ``--json`` it shows nothing, and keeps the tasks for the document at the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self

from rich.box import ROUNDED
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from embedded.demo.figures import COUNTS, Commit, Scene, Served, Step, Summary
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
BARS: Final = "▁▂▃▄▅▆▇█"
SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
TITLE_WIDTH: Final = 26
COMMITS_SHOWN: Final = 4
STORY: Final = ("written", "committed", "changed", "garbage", "deleted")


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
        """A console that is quiet shows nothing; one that is no terminal gets lines."""
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
        """Forgets the tasks that have not ended: something has interrupted them."""
        self.tasks = [task for task in self.tasks if task.seconds is not None]

    def say(self, text: str, style: str = "") -> None:
        """Words for the person who watches."""
        self._print(Text(text, style))

    def show(self, scene: Scene) -> None:
        """The traffic as it is now: a frame of the screen, or lines of what is new."""
        if self._console.is_terminal:
            self._scene = scene
            return
        commits, steps = self._told
        self._told = (len(scene.commits), len(scene.story))
        lines = [*map(commit_line, scene.commits[commits:]), *map(step_line, scene.story[steps:])]
        if scene.elapsed_seconds >= self._pulse_at:
            self._pulse_at += PULSE_SECONDS
            lines.append(pulse_line(scene))
        for line in lines:
            self.say(line)

    def leave(self) -> None:
        """The traffic is over: its last frame stays."""
        if self._scene is not None:
            self._console.print(scene_view(self._scene, self._console.width))
        self._scene = None

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._console.quiet:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def _print(self, text: Text) -> None:
        # The terminal may break a line: a command that we broke could not be pasted.
        self._console.print(text, soft_wrap=True)

    def _frame(self) -> RenderableType:
        now = self._clock.monotonic()
        tasks = [task_line(task, now - task.began_at) for task in self.tasks if task.seconds is None]
        if self._scene is None:
            return Group(*tasks)
        return scene_view(self._scene, self._console.width)


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
    records = ", ".join(f"{commit.records[name]:,} {name}" for name in COUNTS)
    return f"commit  snapshot {commit.snapshot_id}, seam {_seam(commit)}: {records} in {commit.seconds:.1f} s"


def step_line(step: Step) -> str:
    """A step of the story in one line."""
    view = "" if step.view_ms is None else f"; Trino says the same after {step.view_ms:.0f} ms"
    happened = f"{step.what}, {step.now} after {step.ms:.1f} ms; {step.why}"
    return f'story   app 7, user "ada", key "plan": {happened}{view}'


def pulse_line(scene: Scene) -> str:
    """The traffic in one line."""
    served = scene.served
    freshness = scene.views.freshness_ms.items() if scene.views else ()
    in_trino = "".join(f" | in {view} {_after(summary)}" for view, summary in freshness)
    return (
        f"{scene.elapsed_seconds:4.0f} s  {_last(scene.windows[0]):,.0f} messages/s,"
        f" {scene.messages:,} so far | fresh {_after(scene.freshness)}"
        f" | {scene.lookups_per_second:,.0f} lookups/s {_after(scene.lookups, 1)}"
        f" | {served.rows:,} rows cold, {served.uncommitted:,} records hot"
        f" | read point {served.age_seconds:.2f} s old{in_trino}"
    )


def scene_view(scene: Scene, width: int) -> RenderableType:
    """The whole screen; 100 columns and 30 lines do it justice."""
    width = min(width, WIDTH_MAX)
    title = f"commits to Iceberg: {len(scene.commits)}"
    if scene.garbage:
        title += f"   garbage: {scene.garbage} records written, {scene.quarantined} in quarantine"
    return Group(
        _headline(scene, width),
        _panel("the traffic", _gauges(scene), width),
        _panel("the table as of now", _overlay(scene.served, width - len("│  │")), width),
        _panel(title, _commits(scene.commits), width),
        _panel('one row\'s story: app 7, user "ada", key "plan"', _story(scene.story), width),
    )


def sparkline(values: Sequence[float], width: int = 24) -> str:
    """The last values as bars, the greatest of them full; as wide as there are values, at most ``width``."""
    shown = values[-width:]
    top = max(shown, default=0.0) or 1.0
    return "".join(BARS[min(int(value / top * len(BARS)), len(BARS) - 1)] for value in shown)


def _headline(scene: Scene, width: int) -> Text:
    elapsed, total = scene.elapsed_seconds, scene.total_seconds
    clock = f"{min(elapsed, total):.0f} of {total:.0f} s"
    if elapsed > total:
        clock = "the story goes on" if len(scene.story) < len(STORY) else "done"
    name = " Thermocline "
    room = width - len(name) - len(clock) - 4
    filled = round(room * min(elapsed / total, 1.0))
    bar = (("━" * filled, HOT), ("━" * (room - filled), SOFT))
    return Text.assemble((name, f"bold reverse {COLD}"), "  ", *bar, "  ", (clock, "bold"), no_wrap=True)


def _gauges(scene: Scene) -> Table:
    messages, freshness, lookups = map(sparkline, scene.windows)
    rate = f"{_last(scene.windows[0]):,.0f} messages/s"
    asked = f"{scene.lookups_per_second:,.0f}/s {_after(scene.lookups, 1)}"
    refused = f", {scene.refused} refused" if scene.refused else ""
    seen = f"{scene.freshness.count:,} × from Kafka's ack to a lookup"
    rows = [
        ("written to Kafka", rate, messages, f"{scene.messages:,} so far"),
        ("fresh", _after(scene.freshness), freshness, seen),
        ("lookups", asked, lookups, f"{scene.lookups.count:,} so far{refused}"),
    ]
    if scene.views:
        rows += [
            (f"Trino, {view}", _after(summary), "", f"{summary.count:,} × from Kafka's ack to the view")
            for view, summary in scene.views.freshness_ms.items()
        ]
    return _grid(rows, ("", "bold", HOT, SOFT))


def _overlay(served: Served, room: int) -> RenderableType:
    """The log as a bar: what the snapshot holds, the seam, and what is laid over it."""
    total = sum(offset for _, _, offset in served.end.items())
    hot = math.ceil(room * served.uncommitted / total) if total else 0
    bar = Text.assemble(("█" * (room - hot), COLD), ("▓" * hot, HOT), no_wrap=True)
    cells = (
        f"in Iceberg {served.rows:,} rows",
        f"beyond the seam, in Kafka {served.uncommitted:,} records, {served.hot_bytes / 1e6:.1f} MB",
        f"read point {served.age_seconds:.2f} s old",
    )
    return Group(bar, _grid([cells], (COLD, HOT, SOFT)))


def _commits(commits: Sequence[Commit]) -> Table:
    grid = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style=SOFT)
    grid.add_column("snapshot")
    grid.add_column("seam, by partition", style=COLD, no_wrap=True)
    for heading in (*COUNTS, "took"):
        grid.add_column(heading, justify="right", no_wrap=True)
    shown = commits[-COMMITS_SHOWN:]
    for commit in shown:
        records = (f"{commit.records[name]:,}" for name in COUNTS)
        grid.add_row(f"…{commit.snapshot_id[-4:]}", _seam(commit), *records, f"{commit.seconds:.1f} s")
    for _ in range(COMMITS_SHOWN - len(shown)):
        grid.add_row("")
    return grid


def _story(steps: Sequence[Step]) -> Table:
    grid = _grid([], (GOOD, "", "bold", "", SOFT))
    for step in steps:
        why = Text(step.why, COLD if FROM_ICEBERG in step.why else HOT)
        in_trino = "" if step.view_ms is None else f"Trino {step.view_ms:,.0f} ms"
        grid.add_row(f"✓ {step.what}", step.now, f"{step.ms:.1f} ms", why, in_trino)
    for name in STORY[len(steps) :]:
        grid.add_row(Text(f"· {name}", SOFT))
    return grid


def _grid(rows: Iterable[Sequence[str]], styles: Sequence[str]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    for style in styles:
        grid.add_column(style=style, no_wrap=True)
    for row in rows:
        grid.add_row(*row)
    return grid


def _panel(title: str, body: RenderableType, width: int) -> Panel:
    heading = Text(f" {title} ", "bold")
    return Panel(body, box=ROUNDED, title=heading, title_align="left", border_style=SOFT, width=width)


def _after(summary: Summary, digits: int = 0) -> str:
    return f"after {summary.p50:,.{digits}f} ms (p99 {summary.p99:,.{digits}f})" if summary.count else "…"


def _seam(commit: Commit) -> str:
    return " ".join(f"{offset:,}" for topic in commit.seam.values() for offset in topic.values())


def _last(values: Sequence[float]) -> float:
    return values[-1] if values else 0.0
