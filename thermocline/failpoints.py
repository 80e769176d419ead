"""Failpoints: named places where a test makes this software fail. Free when off.

    failpoint("owner.check")                     a place between two steps: nothing happens here
    with failstep("data-file.write"):            a step that may fail before or after it was done
        ...
    time_ms + skew_ms("clock")                   a clock that may go wrong

Nothing here fails by itself: a hook does, of the module that ``THERMOCLINE_FAILPOINTS`` names.
"""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from types import TracebackType
from typing import Final, Protocol

MODULE_VARIABLE: Final = "THERMOCLINE_FAILPOINTS"


class Hook(Protocol):
    """What happens at a failpoint. The module has it as what ``hook()`` gives, or None."""

    def fire(self, name: str, is_done: bool) -> None:
        """Before a place or a step, or after a step was done."""

    def skew_ms(self, name: str) -> int:
        """By how much a clock is wrong."""


def failpoint(name: str) -> None:
    """A place between two steps."""
    if _is_on and (hook := _loaded()):
        hook.fire(name, is_done=False)


def failstep(name: str) -> AbstractContextManager[None, None]:
    """Around a step: it may fail before it is done, or be done and fail nevertheless."""
    return _FailStep(name) if _is_on else _NOTHING


def skew_ms(name: str) -> int:
    """By how much a clock is wrong, in milliseconds."""
    return hook.skew_ms(name) if _is_on and (hook := _loaded()) else 0


def hook_in(hook: Hook | None) -> None:
    """From now on, this happens at the failpoints of this process."""
    global _hook, _is_on, _is_loaded
    _hook, _is_on, _is_loaded = hook, hook is not None, True


class _FailStep:
    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        failpoint(self._name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and (hook := _loaded()):
            hook.fire(self._name, is_done=True)


def _loaded() -> Hook | None:
    """The hook; on the first call the one that the module gives, which must not happen during an import."""
    with _loading:
        if not _is_loaded:
            hook_in(import_module(os.environ[MODULE_VARIABLE]).hook())
    return _hook


_NOTHING: Final = nullcontext()
_loading = threading.RLock()
_is_on = bool(os.environ.get(MODULE_VARIABLE))
_is_loaded = not _is_on
_hook: Hook | None = None
