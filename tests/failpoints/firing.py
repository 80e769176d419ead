"""What happens at failpoints: what the variables `TEXT_VARIABLE` and `FILE_VARIABLE` arm.

A process fails by it that has ``environment(...)`` in its environment.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.failpoints.arming import FILE_VARIABLE, TEXT_VARIABLE, Arm, is_first, note, parse, stamp_of
from tests.failpoints.point import Action
from tests.failpoints.points import POINTS
from thermocline.failpoints import MODULE_VARIABLE, Hook, hook_in
from thermocline.process.logs import fields

_BEFORE: Final = frozenset({Action.ERROR, Action.KILL, Action.SLEEP})
_AFTER: Final = frozenset({Action.APPLIED_THEN_ERROR})

_logger = logging.getLogger(__name__)


def environment(text: str = "", file: Path | None = None) -> dict[str, str]:
    """For a process that is to be armed."""
    armed = {TEXT_VARIABLE: text, FILE_VARIABLE: str(file or "")}
    return {MODULE_VARIABLE: __name__, **{name: value for name, value in armed.items() if value}}


def hook() -> Hook | None:
    """What arms a process by its own environment. Raises ValueError on an unknown point or action."""
    return _armed_by(os.environ)


def arm_from(environment: Mapping[str, str]) -> None:
    """Arm this process as variables say; with neither of them, everything is off. Raises as `hook`."""
    hook_in(_armed_by(environment))


def _armed_by(environment: Mapping[str, str]) -> Hook | None:
    is_meant = environment.get(TEXT_VARIABLE) or environment.get(FILE_VARIABLE)
    return _Armed(environment) if is_meant else None


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

    def fire(self, name: str, is_done: bool) -> None:
        """Does what is armed at the point, before or after."""
        for arm in self._due(name, _AFTER if is_done else _BEFORE):
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
        except (OSError, ValueError) as error:
            _logger.error("nothing is armed", extra=fields(file=str(self._path), detail=str(error)))  # noqa: TRY400
