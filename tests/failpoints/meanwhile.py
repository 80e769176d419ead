"""What somebody else does while this process is at a failpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from thermocline.failpoints import hook_in


class _Meanwhile:
    def __init__(self, name: str, act: Callable[[], object], times: int | None) -> None:
        self._name = name
        self._act = act
        self._times = times
        self._is_acting = False

    def fire(self, name: str, is_done: bool) -> None:
        if name != self._name or is_done or self._is_acting or self._times == 0:
            return
        if self._times is not None:
            self._times -= 1
        self._is_acting = True
        try:
            self._act()
        finally:
            self._is_acting = False

    def skew_ms(self, name: str) -> int:
        return 0


@contextmanager
def meanwhile(name: str, act: Callable[[], object], times: int | None = None) -> Iterator[None]:
    """Acts each time that this process comes to a failpoint, at most so often; not within the act itself."""
    hook_in(_Meanwhile(name, act, times))
    try:
        yield
    finally:
        hook_in(None)
