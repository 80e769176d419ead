"""SIGTERM and Ctrl-C as an event that long-running commands look at."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from thermocline.cli.output import say

if TYPE_CHECKING:
    from types import FrameType

_SIGNALLED: Final = 128  # what shells add to the number of the signal that ended a command


@contextmanager
def orderly_end() -> Iterator[None]:
    """Within the block, SIGTERM ends the command as Ctrl-C does: temporary folders go with it."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(_SIGNALLED + number)

    previous = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def stop_event() -> Iterator[threading.Event]:
    """An event that the first SIGTERM or SIGINT sets; a second one acts as it would without us."""
    stop = threading.Event()
    previous = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def set_event(number: int, _frame: FrameType | None) -> None:
        stop.set()
        signal.signal(number, previous[signal.Signals(number)])
        say(f"{signal.Signals(number).name}: stopping after what is under way; once more to stop at once")

    for number in previous:
        signal.signal(number, set_event)
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
