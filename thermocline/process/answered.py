"""Questions to several sources at once, answered by a deadline however long one of them hangs."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

from thermocline.process.clock import SystemClock

__all__ = ["answered", "exit_now"]

THREADS_MAX: Final = 8  # each question waits for a network most of its time
_hanging: list[threading.Thread] = []

Name = TypeVar("Name")
Answer = TypeVar("Answer")


def answered(questions: Mapping[Name, Callable[[], Answer]], deadline: float) -> dict[Name, Answer]:
    """The answers by their questions' names, those that came before the deadline (monotonic seconds).

    Raises what a question raised. One that hangs goes on in a thread; see `exit_now`.
    """
    waiting: SimpleQueue[tuple[Name, Callable[[], Answer]]] = SimpleQueue()
    answers: dict[Name, Answer] = {}
    raised: list[Exception] = []
    for item in questions.items():
        waiting.put(item)

    def ask() -> None:
        with suppress(Empty):
            while True:
                name, question = waiting.get_nowait()
                try:
                    answers[name] = question()
                except Exception as error:  # noqa: BLE001  raised where it was asked from
                    raised.append(error)

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(min(len(questions), THREADS_MAX))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - SystemClock().monotonic()))
    _hanging.extend(thread for thread in threads if thread.is_alive())
    if raised:
        raise raised[0]
    return dict(answers)


def exit_now(code: int) -> None:
    """Ends the process at once where a question still hangs: its client would wait for the answer first."""
    if any(thread.is_alive() for thread in _hanging):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
