"""Turns of upkeep come between batches, and never delay one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ingest.owner import TURN_SECONDS, Owner
from tests.manual_clock import ManualClock


class _Stop:
    """Never set; waiting for it moves the clock."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def wait(self, seconds: float) -> bool:
        self._clock.sleep(seconds)
        return False


@pytest.mark.parametrize("turn_seconds", [0.0, 0.3, 1.0])
def test_a_turn_that_takes_no_longer_than_it_may_delays_no_batch(turn_seconds: float) -> None:
    clock, due, turns = ManualClock(), 10.0, []

    def turn() -> None:
        turns.append(clock.monotonic())
        clock.sleep(turn_seconds)

    owner: Any = SimpleNamespace(
        clock=clock, lease=SimpleNamespace(check=lambda: None), must_reload=False, _maintain=turn
    )
    stop: Any = _Stop(clock)
    Owner._rest(owner, due, stop)
    assert clock.monotonic() == pytest.approx(due)
    assert len(turns) >= due / (TURN_SECONDS + turn_seconds) - 2
