"""Turns at making snapshots: nobody waits for ever, and who waited for a failure is told of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.manual_clock import ManualClock
from thermocline.errors import LoadTimeout, StorageFailed
from thermocline.serving.live.turns import Turns

SECONDS_MAX = 60.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@contextmanager
def another_turn(
    turns: Turns, asked_at: float, end: Callable[[], object] = lambda: None
) -> Iterator[Callable[[], None]]:
    """Another thread has its turn until it is told to leave, or the block ends, and then does that."""
    begun, leave = threading.Event(), threading.Event()

    def have() -> None:
        try:
            with turns.turn(asked_at):
                begun.set()
                leave.wait()
                end()
        except StorageFailed:
            pass

    thread = threading.Thread(target=have)
    thread.start()
    begun.wait()
    try:
        yield leave.set
    finally:
        leave.set()
        thread.join()


def fail() -> None:
    raise StorageFailed(table="profiles", detail="full")


def test_nobody_waits_for_a_turn_that_takes_too_long_already(clock: ManualClock) -> None:
    """Method: the turn ends a moment later, so that whoever waits for it would get the next one."""
    turns, asked = Turns("profiles", clock, SECONDS_MAX), threading.Event()
    with another_turn(turns, clock.monotonic(), lambda: asked.wait(1.0)) as leave:
        clock.advance(SECONDS_MAX + 1)
        leave()
        with pytest.raises(LoadTimeout, match="profiles was not loaded within 60 s"):
            turns.turn(clock.monotonic()).__enter__()
        asked.set()
    with turns.turn(clock.monotonic()):
        pass  # once it has ended, the next one comes


def test_who_waits_for_a_turn_leaves_in_time(clock: ManualClock) -> None:
    turns = Turns("profiles", clock, 0.05)
    with another_turn(turns, clock.monotonic()), pytest.raises(LoadTimeout):
        turns.turn(clock.monotonic()).__enter__()


def test_who_waited_for_what_failed_is_told_the_same_and_who_comes_later_tries_again(
    clock: ManualClock,
) -> None:
    turns = Turns("profiles", clock, SECONDS_MAX)
    asked_at = clock.monotonic()
    with another_turn(turns, asked_at, fail):
        clock.advance(1)
    for _ in range(2):
        with pytest.raises(StorageFailed, match="full"):
            turns.turn(asked_at).__enter__()
    clock.advance(1)
    with turns.turn(clock.monotonic()):
        pass
