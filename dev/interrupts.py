"""Ctrl-C, SIGTERM and a closed terminal end a command in order; while it cleans up, they are ignored."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def as_keyboard_interrupt() -> Iterator[None]:
    """Each of the signals raises KeyboardInterrupt, as Ctrl-C does."""
    with _handled(signal.default_int_handler):
        yield


@contextmanager
def undisturbed() -> Iterator[None]:
    """Each of the signals is ignored."""
    with _handled(signal.SIG_IGN):
        yield


@contextmanager
def _handled(handler: Any) -> Iterator[None]:
    before: Mapping[signal.Signals, Any] = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)
