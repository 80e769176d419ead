"""What a terminal shows of tasks and scenes: values in, something to draw out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from rich.box import ROUNDED
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from embedded.demo.commits import Commit
from embedded.demo.lines import seam_text
from embedded.demo.scene import Reading, Scene, ViewFigures
from embedded.demo.stage import Task
from embedded.demo.story import FROM_ICEBERG, Step
from embedded.demo.timings import Summary

HOT: Final = "dark_orange"
COLD: Final = "deep_sky_blue1"
GOOD: Final = "green"
BAD: Final = "bold red"
SOFT: Final = "bright_black"

WIDTH_MAX: Final = 132
"""Wider than this, the eye loses the line."""
BARS: Final = "▁▂▃▄▅▆▇█"
SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
SPINNER_TURNS_PER_SECOND: Final = 8
TITLE_WIDTH: Final = 26
# All that stands around the commits takes this many lines; they get what a terminal has left.
LINES_BESIDE_COMMITS: Final = 26
COMMITS_MIN: Final = 3
COMMITS_MAX: Final = 10
COUNTS: Final = ("read", "applied", "superseded", "unchanged", "quarantined")
COUNT_WIDTH: Final = len("999,999")
BORDER_WIDTH: Final = len("│ ") + len(" │")
STORY_STEPS: Final = ("written", "committed", "changed", "garbage", "deleted")


def done_line(task: Task) -> Text:
    """A tick or a cross, the seconds, and what came of it."""
    mark = (" ✓ ", GOOD) if task.is_good else (" ✗ ", BAD)
    note = (task.note, SOFT if task.is_good else BAD)
    return Text.assemble(
        mark, (f"{task.seconds or 0.0:5.1f} s  ", SOFT), f"{task.title:<{TITLE_WIDTH}} ", note
    )


def running_line(task: Task, now: float) -> Text:
    """A spinner, the seconds so far, and how far it is."""
    frame = SPINNER[int(now * SPINNER_TURNS_PER_SECOND) % len(SPINNER)]
    seconds = (f"{now - task.began_at:5.1f} s  ", SOFT)
    return Text.assemble((f" {frame} ", HOT), seconds, f"{task.title:<{TITLE_WIDTH}} ", (task.note, SOFT))


def scene_view(scene: Scene, width: int, height: int) -> RenderableType:
    """The whole screen; at least 100 columns and 30 lines do it justice."""
    width = min(width, WIDTH_MAX)
    lines_beside = LINES_BESIDE_COMMITS + (scene.views is not None)
    commits_shown = min(max(height - lines_beside, COMMITS_MIN), COMMITS_MAX)
    return Group(
        _headline(scene, width),
        _gauges(scene, width),
        _overlay_panel(scene.reading, scene.views, width),
        _commits_panel(scene, commits_shown, width),
        _story_panel(scene.story, width),
    )


def sparkline(values: Sequence[float], width: int) -> str:
    """The last values as bars, the greatest of them full; as wide as there are values, at most ``width``."""
    shown = values[-width:]
    top = max(shown, default=0.0)
    if top <= 0:
        return BARS[0] * len(shown)
    return "".join(BARS[min(int(value / top * len(BARS)), len(BARS) - 1)] for value in shown)


def size_text(count: float) -> str:
    """Bytes, as people read them."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def _headline(scene: Scene, width: int) -> Text:
    done = min(scene.elapsed_seconds / scene.total_seconds, 1.0)
    clock = f"{min(scene.elapsed_seconds, scene.total_seconds):.0f} of {scene.total_seconds:.0f} s"
    if scene.elapsed_seconds > scene.total_seconds:
        clock = "the story goes on" if len(scene.story) < len(STORY_STEPS) else "done"
    name = " Thermocline "
    room = width - len(name) - len(clock) - 4
    filled = round(room * done)
    bar = (("━" * filled, HOT), ("━" * (room - filled), SOFT))
    return Text.assemble((name, f"bold reverse {COLD}"), "  ", *bar, "  ", (clock, "bold"), no_wrap=True)


def _gauges(scene: Scene, width: int) -> Table:
    third = width // 3
    rate = scene.messages_per_second[-1] if scene.messages_per_second else 0.0
    refused = f", {scene.refused} refused" if scene.refused else ""
    asked = (f"{scene.lookups_per_second:,.0f}", "bold")
    row = (
        _gauge(
            "written to Kafka",
            Text.assemble((f"{rate:,.0f}", "bold"), " messages/s"),
            sparkline(scene.messages_per_second, third - 4),
            f"{scene.messages:,} so far",
        ),
        _gauge(
            "freshness",
            _percentiles(scene.freshness, 0),
            sparkline(scene.freshness.windows_ms, third - 4),
            f"Kafka's ack → lookup, {scene.freshness.count:,} ×",
        ),
        _gauge(
            "lookups",
            Text.assemble(asked, "/s  ", _percentiles(scene.lookups, 1)),
            sparkline(scene.lookups.windows_ms, third - 4),
            f"{scene.lookups.count:,} so far{refused}",
        ),
    )
    grid = Table.grid(expand=False)
    for place in range(3):
        grid.add_column(width=third if place < 2 else width - 2 * third)
    grid.add_row(*row)
    return grid


def _gauge(title: str, figures: Text, bars: str, foot: str) -> Panel:
    body = Text("\n", no_wrap=True, overflow="ellipsis").join([figures, Text(bars, HOT), Text(foot, SOFT)])
    return _panel(title, body)


def _percentiles(summary: Summary, digits: int) -> Text:
    if not summary.count:
        return Text("…", SOFT)
    return Text.assemble(
        ("p50 ", SOFT),
        (f"{summary.p50_ms:,.{digits}f}", "bold"),
        (" ms  p99 ", SOFT),
        (f"{summary.p99_ms:,.{digits}f}", "bold"),
        (" ms", SOFT),
    )


def _overlay_panel(reading: Reading, views: ViewFigures | None, width: int) -> Panel:
    """The log as a bar: what the snapshot holds, the seam, and what is laid over it; and Trino's view."""
    room = width - 4
    total = sum(offset for _, _, offset in reading.end.items())
    hot = math.ceil(room * reading.uncommitted / total) if total else 0
    bar = Text.assemble(("█" * (room - hot), COLD), ("▓" * hot, HOT), no_wrap=True)
    age = f"read point {reading.age_seconds:.2f} s old"
    legend = Table.grid(expand=True)
    legend.add_column()
    legend.add_column(justify="center")
    legend.add_column(justify="right")
    legend.add_row(
        Text.assemble(("in Iceberg ", COLD), (f"{reading.cold_rows:,}", "bold"), (" rows", SOFT)),
        Text(f"{age}, stale" if reading.is_stale else age, BAD if reading.is_stale else SOFT),
        Text.assemble(
            ("beyond the seam, in Kafka ", HOT),
            (f"{reading.uncommitted:,}", "bold"),
            (f" records, {size_text(reading.hot_bytes)}", SOFT),
        ),
    )
    in_trino = [_views_line(views)] if views else []
    return _panel("the table as of now", Group(bar, legend, *in_trino), width)


def _views_line(views: ViewFigures) -> Table:
    """How fresh each view is."""
    line = Table.grid(expand=True)
    line.add_column(no_wrap=True)
    line.add_column(no_wrap=True, justify="center")
    line.add_column(no_wrap=True, justify="right")
    count = views.by_key.count + views.live.count
    line.add_row(
        Text(f"ack → Trino, {count:,} ×", SOFT),
        Text.assemble(("by key ", COLD), _percentiles(views.by_key, 0)),
        Text.assemble(("full view ", COLD), _percentiles(views.live, 0)),
    )
    return line


def _commits_panel(scene: Scene, count: int, width: int) -> Panel:
    grid = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style=SOFT)
    widths = {heading: max(len(heading), COUNT_WIDTH) for heading in ("snapshot", *COUNTS, "took")}
    grid.add_column("snapshot", width=widths["snapshot"])
    # What the others leave; offsets of a million and more need more than 100 columns.
    seam_width = width - BORDER_WIDTH - sum(widths.values()) - len(widths)
    grid.add_column("seam, by partition", no_wrap=True, width=max(seam_width, 1), style=COLD)
    for heading in (*COUNTS, "took"):
        grid.add_column(heading, justify="right", no_wrap=True, width=widths[heading])
    shown = scene.commits[-count:]
    for commit in shown:
        grid.add_row(*_commit_cells(commit))
    for _ in range(count - len(shown)):
        grid.add_row("")
    title = f"commits to Iceberg: {len(scene.commits)}"
    if scene.garbage:
        title += f"   garbage: {scene.garbage} records written, {scene.quarantined} in quarantine"
    return _panel(title, grid, width)


def _commit_cells(commit: Commit) -> list[Text | str]:
    counts: list[Text | str] = [f"{commit.counts.get(name, 0):,}" for name in COUNTS]
    if commit.counts.get("quarantined", 0):
        counts[-1] = Text(str(counts[-1]), "bold yellow")
    took = "" if commit.seconds is None else f"{commit.seconds:.1f} s"
    return [f"…{commit.snapshot_id % 1_000_000:06d}", seam_text(commit), *counts, took]


def _story_panel(steps: Sequence[Step], width: int) -> Panel:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, min_width=max(map(len, STORY_STEPS)) + 2)
    grid.add_column(no_wrap=True, min_width=len('still "team"'))
    grid.add_column(no_wrap=True, min_width=len("1,000.0 ms"), justify="right")
    grid.add_column(no_wrap=True)
    if any(step.view_ms is not None for step in steps):
        grid.add_column(no_wrap=True, justify="right")
    for place, name in enumerate(STORY_STEPS):
        if place < len(steps):
            step = steps[place]
            colour = COLD if FROM_ICEBERG in step.why else HOT
            cells = (f"{step.ms:.1f} ms", "bold"), (step.why, colour)
            grid.add_row(
                Text.assemble(("✓ ", GOOD), step.what),
                step.now,
                *(Text(*cell) for cell in cells),
                *([] if step.view_ms is None else [Text(f"Trino {step.view_ms:,.0f} ms", SOFT)]),
            )
        else:
            grid.add_row(Text(f"· {name}", SOFT), Text("…", SOFT) if place == len(steps) else "")
    return _panel('one row\'s story: app 7, user "ada", key "plan"', grid, width)


def _panel(title: str, body: RenderableType, width: int | None = None) -> Panel:
    return Panel(
        body,
        box=ROUNDED,
        title=Text(f" {title} ", "bold"),
        title_align="left",
        border_style=SOFT,
        width=width,
    )
