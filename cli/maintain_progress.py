"""The progress of ``thermocline maintain run`` on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from thermocline.maintenance.upkeep import TableUpkeep

__all__ = ["shown_progress"]


@contextmanager
def shown_progress() -> Iterator[Callable[[TableUpkeep], None]]:
    """A bar of the rewrites that are done, of those that were worth it at the beginning or became so."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        line = bar.add_task("measure", total=None)

        def progress(upkeep: TableUpkeep) -> None:
            if upkeep.plan is None:
                return
            done = upkeep.done.rewrites
            task = upkeep.now_at
            words = "clean up" if task is None else f"rewrite bucket {task.bucket}"
            bar.update(line, description=words, completed=done, total=done + upkeep.waiting)

        yield progress
