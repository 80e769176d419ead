"""Waits for several conditions at once, each with a task that shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from embedded.demo.stage import Stage, Task
from embedded.stack import READY_TIMEOUT_SECONDS, Stack
from thermocline.errors import EngineFailed

POLL_SECONDS: Final = 0.2

Condition = Callable[[Task], bool]
"""Whether a task is done; notes in it how far it is."""
Pending = Mapping[str, tuple[Task, Condition]]
"""What is waited for, by the task's title."""


def await_all(stack: Stack, stage: Stage, pending: Pending) -> None:
    """Returns when all conditions are met.

    Raises:
        EngineFailed: not in time, or a process ended.
    """
    deadline = stage.clock.monotonic() + READY_TIMEOUT_SECONDS
    while pending:
        stack.check()
        for task, is_met in pending.values():
            if is_met(task):
                stage.end(task)
        pending = {title: waiting for title, waiting in pending.items() if waiting[0].seconds is None}
        if pending and stage.clock.monotonic() > deadline:
            detail = f"not ready within {READY_TIMEOUT_SECONDS:.0f} s; its log is in {stack.folder}"
            raise EngineFailed(engine=f"`{' and '.join(pending)}`", detail=detail)
        stage.clock.sleep(POLL_SECONDS)
