"""The end of what observes owners: nobody is held up by it, and it is waited for when the process ends."""

from __future__ import annotations

import threading

import pytest

from thermocline.ingest.owner.observers import Observer, Observers, wait_for

WAIT_SECONDS = 60.0


class Slow(Observer):
    """Ends when it may."""

    def __init__(self) -> None:
        self.may_end, self.has_ended = threading.Event(), threading.Event()

    def close(self) -> None:
        """Waits for that."""
        if self.may_end.wait(WAIT_SECONDS):
            self.has_ended.set()


def test_a_receiver_that_hangs_holds_up_neither_other_tables_nor_the_end_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("thermocline.ingest.owner.observers.END_SECONDS_MAX", 0.1)
    hanging, well = Slow(), Slow()
    well.may_end.set()
    tables = [Observers(hanging, well), Observers(hanging)]
    for table in tables:
        table.end()
    wait_for(tables)
    assert well.has_ended.is_set()
    assert [table.have_ended for table in tables] == [False, False]
    hanging.may_end.set()
    assert hanging.has_ended.wait(WAIT_SECONDS)


def test_what_an_observer_has_still_to_send_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thermocline.ingest.owner.observers.END_SECONDS_MAX", WAIT_SECONDS)
    slow = Slow()
    table = Observers(slow)
    assert not table.have_ended
    table.end()
    assert not slow.has_ended.is_set()
    going_on = threading.Timer(0.3, slow.may_end.set)
    going_on.start()
    wait_for([table])
    going_on.join()
    assert slow.has_ended.is_set()
    assert table.have_ended
