"""The demo as plain lines: one for each event, and one for the traffic every few seconds."""

from __future__ import annotations

import sys
from typing import Final

from embedded.demo.commits import Commit
from embedded.demo.scene import Scene, ViewFigures
from embedded.demo.stage import Stage, Task
from embedded.demo.story import Step
from embedded.demo.timings import Summary
from thermocline.process.clock import Clock

PULSE_SECONDS: Final = 5.0


class Lines(Stage):
    """Prints on stdout, each line as soon as it is known."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._commits_shown = 0
        self._steps_shown = 0
        self._pulse_at = 0.0

    def end(self, task: Task, note: str = "", is_good: bool = True) -> None:
        """A line."""
        super().end(task, note, is_good)
        self.say(task_line(task))

    def show(self, scene: Scene) -> None:
        """What is new since the last scene, and a pulse when it is time."""
        for commit in scene.commits[self._commits_shown :]:
            self.say(commit_line(commit))
        for step in scene.story[self._steps_shown :]:
            self.say(step_line(step))
        self._commits_shown, self._steps_shown = len(scene.commits), len(scene.story)
        if scene.elapsed_seconds >= self._pulse_at + PULSE_SECONDS:
            self._pulse_at += PULSE_SECONDS
            self.say(pulse_line(scene))

    def say(self, text: str, style: str = "") -> None:  # noqa: ARG002 -- lines have none
        """A line, or several."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def task_line(task: Task) -> str:
    """What was done, how long it took and what came of it."""
    mark = "done" if task.is_good else "BAD "
    return f"{mark} {task.seconds or 0.0:6.1f} s  {task.title}{task.note and f': {task.note}'}"


def pulse_line(scene: Scene) -> str:
    """The traffic in one line."""
    rate = scene.messages_per_second[-1] if scene.messages_per_second else 0.0
    fresh, lookups, reading = scene.freshness, scene.lookups, scene.reading
    return (
        f"{scene.elapsed_seconds:4.0f} s  {rate:,.0f} messages/s, {scene.messages:,} so far"
        f" | fresh after {fresh.p50_ms:.0f} ms (p99 {fresh.p99_ms:.0f})"
        f" | {scene.lookups_per_second:,.0f} lookups/s in {lookups.p50_ms:.1f} ms (p99 {lookups.p99_ms:.1f})"
        f" | {reading.cold_rows:,} rows cold, {reading.uncommitted:,} records hot"
        f" | read point {reading.age_seconds:.2f} s old{_views_words(scene.views)}"
    )


def _views_words(views: ViewFigures | None) -> str:
    if views is None:
        return ""
    return f" | in Trino by key {_after(views.by_key)}, full view {_after(views.live)}"


def _after(summary: Summary) -> str:
    if not summary.count:
        return "…"
    return f"after {summary.p50_ms:.0f} ms (p99 {summary.p99_ms:.0f})"


def commit_line(commit: Commit) -> str:
    """A commit in one line."""
    counts = ", ".join(
        f"{commit.counts.get(name, 0):,} {name}"
        for name in ("read", "applied", "superseded", "unchanged", "quarantined")
    )
    took = "" if commit.seconds is None else f" in {commit.seconds:.1f} s"
    return f"commit  snapshot {commit.snapshot_id}, seam {seam_text(commit)}: {counts}{took}"


def step_line(step: Step) -> str:
    """A step of the story in one line."""
    view = "" if step.view_ms is None else f"; Trino says the same after {step.view_ms:.0f} ms"
    happened = f"{step.what}, {step.now} after {step.ms:.1f} ms; {step.why}"
    return f'story   app 7, user "ada", key "plan": {happened}{view}'


def seam_text(commit: Commit) -> str:
    """The next offset of each partition, in their order."""
    return " ".join(f"{offset:,}" for _, _, offset in commit.seam.items())
