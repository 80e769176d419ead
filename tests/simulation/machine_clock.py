"""The clock of a process on the machine that serves: its monotonic side begins again with the machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.serving_edges import Machine
    from tests.simulation.world import SimClock


class MachineClock:
    """``asleep`` is what happens on the machine while the process sleeps."""

    def __init__(self, clock: SimClock, machine: Machine, asleep: Callable[[float], None]) -> None:
        self._clock = clock
        self._machine = machine
        self._asleep = asleep

    def monotonic(self) -> float:
        """Seconds since the machine started."""
        return self._clock.monotonic() - self._machine.booted_at

    def now_ms(self) -> int:
        """What the process takes for the time."""
        return self._clock.now_ms()

    def sleep(self, seconds: float) -> None:
        """Others run."""
        self._asleep(seconds)
