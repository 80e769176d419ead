"""Reaching a failpoint: one look at a variable when nothing is armed, and else what is armed there."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Final

from thermocline.errors import ConfigInvalid
from thermocline.failpoints.arming import FILE_VARIABLE, TEXT_VARIABLE, Arm, is_first, note, parse, stamp_of
from thermocline.failpoints.point import Action
from thermocline.failpoints.points import POINTS
from thermocline.process.logs import fields

_BEFORE: Final = frozenset({Action.ERROR, Action.KILL, Action.SLEEP})
_AFTER: Final = frozenset({Action.APPLIED_THEN_ERROR})

_logger = logging.getLogger(__name__)


def failpoint(name: str) -> None:
    """A place between two steps. Nothing happens here, unless it is armed."""
    if _armed is None:
        return
    armed = _loaded()
    if armed is not None:
        armed.fire(name, _BEFORE)


def failstep(name: str) -> AbstractContextManager[None, None]:
    """Around a step: it may fail before it is done, or be done and fail nevertheless."""
    if _armed is None:
        return _NOTHING
    return _Step(name)


def skew_ms(name: str) -> int:
    """By how much a clock is wrong, in milliseconds; 0 unless it is armed."""
    if _armed is None:
        return 0
    armed = _loaded()
    return 0 if armed is None else armed.skew_ms(name)


def arm_from(environment: Mapping[str, str]) -> None:
    """Arm this process as variables say, and warn of it; with neither of them, everything is off.

    A process that never calls this is armed by its own environment, when it comes to a first failpoint.
    Raises `ConfigInvalid` where a variable names an unknown point or action.
    """
    global _armed  # noqa: PLW0603  one look at it is all that a failpoint costs
    _armed = _armed_by(environment)


class _Armed:
    """What is armed in this process."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        text = environment.get(TEXT_VARIABLE, "")
        file = environment.get(FILE_VARIABLE)
        self._by_variable = parse(text, TEXT_VARIABLE)
        self._path = Path(file) if file else None
        self._stamp: str | None = None
        self._by_file: tuple[Arm, ...] = ()
        self._came_by: dict[tuple[str | None, str], int] = {}  # by (stamp of the file, entry)
        self._lock = threading.Lock()
        _logger.warning(
            "failpoints can be armed: this process may fail on purpose", extra=fields(armed=text, file=file)
        )

    def fire(self, name: str, actions: frozenset[Action]) -> None:
        """Does what is armed at the point, of these actions."""
        for arm in self._due(name, actions):
            _logger.warning("failpoint", extra=fields(point=name, action=arm.text.partition("=")[2]))
            match arm.action:
                case Action.SLEEP:
                    time.sleep(arm.value)
                case Action.KILL:
                    os.kill(os.getpid(), signal.SIGKILL)
                case _:
                    raise POINTS[name].error(f"failpoint {name}: {arm.action.value}")

    def skew_ms(self, name: str) -> int:
        """The sum of what is armed."""
        with self._lock:
            self._look()
            return sum(int(arm.value) for arm in (*self._by_variable, *self._by_file) if arm.point == name)

    def _due(self, name: str, actions: frozenset[Action]) -> list[Arm]:
        with self._lock:
            self._look()
            return [
                arm
                for stamp, arms in ((None, self._by_variable), (self._stamp, self._by_file))
                for arm in arms
                if arm.point == name and arm.action in actions and self._is_due(stamp, arm)
            ]

    def _is_due(self, stamp: str | None, arm: Arm) -> bool:
        times = self._came_by[stamp, arm.text] = self._came_by.get((stamp, arm.text), 0) + 1
        if stamp is None or self._path is None:
            return arm.nth in (None, times)
        if arm.nth is not None:
            return times == arm.nth and is_first(self._path, stamp, arm.text)
        if times == 1:
            note(self._path, stamp, arm.text)
        return True

    def _look(self) -> None:
        """What the file says by now. Nothing of a file that can't be understood."""
        if self._path is None:
            return
        stamp = stamp_of(self._path)
        if stamp == self._stamp:
            return
        self._stamp, self._by_file = stamp, ()
        if stamp is None:
            return
        try:
            self._by_file = parse(self._path.read_text(), str(self._path))
        except (OSError, ConfigInvalid) as error:
            _logger.error("nothing is armed", extra=fields(file=str(self._path), detail=str(error)))  # noqa: TRY400


class _Nothing:
    """A step that is not armed."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


class _Unread:
    """Variables are set, and nobody has read them yet: they may be wrong, which must not break an import."""


class _Step:
    """A step that may be armed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        armed = _loaded()
        if armed is not None:
            armed.fire(self._name, _BEFORE)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        armed = _loaded() if kind is None else None
        if armed is not None:
            armed.fire(self._name, _AFTER)


def _loaded() -> _Armed | None:
    """What is armed; from the environment as it is by now, where nobody has read it yet."""
    global _armed  # noqa: PLW0603  as in `arm_from`
    armed = _armed
    if not isinstance(armed, _Unread):
        return armed
    with _loading:
        armed = _armed
        if isinstance(armed, _Unread):
            _armed = armed = _armed_by(os.environ)
    return armed


def _armed_by(environment: Mapping[str, str]) -> _Armed | None:
    return _Armed(environment) if _is_meant(environment) else None


def _is_meant(environment: Mapping[str, str]) -> bool:
    return any(environment.get(name) for name in (TEXT_VARIABLE, FILE_VARIABLE))


_NOTHING: Final = _Nothing()
_loading = threading.Lock()
_armed: _Armed | _Unread | None = _Unread() if _is_meant(os.environ) else None
