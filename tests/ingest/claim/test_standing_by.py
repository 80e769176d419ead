"""The trace of a standby on real files: who is shown, for how long, and what a store does that fails."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from tests.manual_clock import ManualClock
from thermocline.iceberg.holder import Holder, standby_of
from thermocline.ingest.claim.standing_by import StandbyTrace

IO = PyArrowFileIO()


@pytest.fixture
def location(tmp_path: Path) -> str:
    (tmp_path / "thermocline").mkdir()
    return str(tmp_path)


@pytest.fixture
def path(location: str) -> Path:
    return Path(location) / "thermocline" / "standby.json"


def left(trace: StandbyTrace, location: str, io: Any = IO) -> None:
    trace.leave(io, location)
    trace.wait(30)


def elsewhere(clock: ManualClock, renewed: str) -> Holder:
    us = Holder.this_process(120.0)
    return replace(us, owner="other", host="elsewhere", boot_id="another", since=renewed, renewed=renewed)


def test_a_standby_is_shown_until_it_takes_the_table_or_ends(location: str, path: Path) -> None:
    clock = ManualClock()
    trace = StandbyTrace("orders", clock)
    assert standby_of(IO, location) is None
    left(trace, location)
    found = standby_of(IO, location)
    assert found is not None
    assert (found.pid, found.epoch) == (Holder.this_process(1).pid, 0)
    assert not found.is_gone(clock.now_ms())
    trace.remove()
    trace.wait(30)
    assert not path.exists()
    left(trace, location)  # it lost the table again
    assert path.exists()


def test_a_trace_is_written_seldom(location: str) -> None:
    clock = ManualClock()
    trace = StandbyTrace("orders", clock)
    for _ in range(600):  # ten minutes
        left(trace, location)
        clock.advance(1)
    found = standby_of(IO, location)
    assert found is not None
    assert found.renewals == 5


def test_a_standby_of_another_machine_that_is_silent_counts_as_gone(location: str, path: Path) -> None:
    clock = ManualClock()
    path.write_text(json.dumps(asdict(elsewhere(clock, "2026-01-01T00:00:00+00:00"))))
    found = standby_of(IO, location)
    assert found is not None
    at_ms = 1_767_225_600_000
    assert not found.is_gone(at_ms + 240_000)
    assert found.is_gone(at_ms + 240_001)


def test_of_two_standbys_the_first_is_shown_while_it_lives(location: str, path: Path) -> None:
    clock = ManualClock()
    first, second = StandbyTrace("orders", clock), StandbyTrace("orders", clock)
    left(first, location)
    shown = path.read_bytes()
    left(second, location)
    assert path.read_bytes() == shown
    second.remove()
    second.wait(30)
    assert path.read_bytes() == shown, "the trace of another is left"
    path.write_text(json.dumps(asdict(elsewhere(clock, "2020-01-01T00:00:00+00:00"))))
    clock.advance(120)
    left(second, location)
    found = standby_of(IO, location)
    assert found is not None
    assert found.owner != "other"


def test_a_store_that_fails_or_hangs_keeps_nobody_from_standing_by(location: str) -> None:
    clock = ManualClock()
    answered = threading.Event()

    class Store:
        asked = 0

        def new_input(self, path: str) -> Any:
            self.asked += 1
            answered.wait(30)
            raise OSError(f"{path}: no answer")

    store: Any = Store()
    trace = StandbyTrace("orders", clock)
    for _ in range(3):
        trace.leave(store, location)
        clock.advance(121)
    assert store.asked <= 1, "what hangs is not asked again"
    trace.remove()
    answered.set()
    trace.wait(30)
    assert standby_of(IO, location) is None


def test_what_is_damaged_is_no_standby(location: str, path: Path) -> None:

    for text in ("", "{}", "[1]", '{"pid": 1}'):
        path.write_text(text)
        assert standby_of(IO, location) is None
