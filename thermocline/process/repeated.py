"""Work that a thread repeats beside what matters: it is woken, never waited for, and fails softly."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from thermocline.errors import ThermoclineError
from thermocline.process.logs import fields

__all__ = ["Repeated"]

# A thread that hangs is a daemon: the process does not wait for it longer than this.
CLOSE_SECONDS: Final = 2.0

_logger = logging.getLogger(__name__)


class Repeated:
    """Does something every so many seconds, and soon after it is woken.

    An error is logged once, until the work succeeds again or fails otherwise; ``failed`` hears of each.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], None],
        seconds: float,
        failed: Callable[[Exception], None] = lambda _: None,
    ) -> None:
        self._name, self._work, self._seconds, self._failed = name, work, seconds, failed
        self._woken, self._stop = threading.Event(), threading.Event()
        self._said = ""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begins, with a first time at once."""
        self._thread.start()

    def wake(self) -> None:
        """Has the work done again; of several calls before it begins, once."""
        self._woken.set()

    def close(self) -> None:
        """Ends, within a bounded time."""
        self._stop.set()
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)

    @property
    def is_closed(self) -> bool:
        """Whether nobody wants any more what is still being done."""
        return self._stop.is_set()

    def step(self) -> None:
        """Does the work once. Raises nothing."""
        try:
            self._work()
        except Exception as error:  # noqa: BLE001  whatever it is, it must not end what runs beside it
            self._failed(error)
            self._say(error)
        else:
            self._said = ""

    def _run(self) -> None:
        while not self._stop.is_set():
            self._woken.clear()  # before the work: what happens during it is worked on next
            if self._stop.is_set():
                return  # its end may have woken it just before
            self.step()
            self._woken.wait(self._seconds)

    def _say(self, error: Exception) -> None:
        code = error.code if isinstance(error, ThermoclineError) else type(error).__name__
        if code != self._said:
            _logger.warning("%s failed; trying again", self._name, extra=fields(code=code, detail=str(error)))
        self._said = code
