"""The progress of ``thermocline ingest run`` on a terminal: a line with a bar, below its log."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from thermocline.ingest.activity import Activity

__all__ = ["shown_progress"]


@contextmanager
def shown_progress(is_for_people: bool, configure_logs: Callable[[], None]) -> Iterator[None]:
    """Shows it where stderr is a terminal, and a person reads there.

    A JVM's own words then go into a file. ``configure_logs`` is called within, so that lines of the log stand
    above the bar, and at the end once more.
    """
    console = Console(stderr=True)
    if not is_for_people or not console.is_terminal:
        configure_logs()
        yield
        return
    from thermocline.ingest.activity import Watcher, watched

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(24))
    file, name = tempfile.mkstemp(prefix=f"thermocline-ingest-{os.getpid()}-", suffix=".log")
    os.close(file)
    path = Path(name)
    try:
        with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
            configure_logs()
            line = bar.add_task("starting", total=None)
            shown = ""

            def show(activity: Activity) -> None:
                nonlocal shown
                if activity.what != shown:
                    bar.reset(line, total=activity.total or None)
                    shown = activity.what
                bar.update(
                    line,
                    description=described(activity),
                    completed=activity.done,
                    total=activity.total or None,
                )

            with watched(Watcher(show, path)):
                yield
    finally:
        configure_logs()
        if path.exists() and not path.stat().st_size:
            path.unlink()


def described(activity: Activity) -> str:
    """``profiles: batch of 1,995,002 records: read 120,000 of 1,995,002``."""
    if not activity.total:
        return activity.what
    return f"{activity.what} {activity.done:,} of {activity.total:,}"
