"""Work beside what matters: done at once, again when woken, and soft where it fails."""

from __future__ import annotations

import logging
import threading

import pytest

from thermocline.process.repeated import Repeated

WAIT_SECONDS = 30.0


def test_work_is_done_at_once_and_again_when_it_is_woken() -> None:
    done = [threading.Event(), threading.Event()]
    times = iter(done)
    repeated = Repeated("work", lambda: next(times).set(), seconds=3600)
    repeated.start()
    assert done[0].wait(WAIT_SECONDS)
    repeated.wake()
    assert done[1].wait(WAIT_SECONDS)
    repeated.close()
    assert repeated.is_closed


def test_an_error_is_said_once_until_the_work_succeeds_or_fails_otherwise(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "thermocline.process.repeated")
    outcomes = iter([ValueError("a"), ValueError("b"), None, ValueError("c"), OSError("d")])
    failed: list[str] = []

    def work() -> None:
        if (outcome := next(outcomes)) is not None:
            raise outcome

    repeated = Repeated("work", work, 3600, lambda error: failed.append(str(error)))
    for _ in range(5):
        repeated.step()
    assert failed == ["a", "b", "c", "d"]
    assert [vars(record)["fields"]["detail"] for record in caplog.records] == ["a", "c", "d"]
