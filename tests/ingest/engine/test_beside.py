"""Functions that run in a process of their own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from thermocline.errors import EngineFailed
from thermocline.ingest.engine.beside import Beside


@pytest.fixture
def beside() -> Iterator[Beside]:
    made = Beside()
    yield made
    made.stop()


def _killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_it_gives_what_the_function_gives_raises_what_it_raises_and_outlives_its_end(beside: Beside) -> None:
    pid = beside.start(os.getpid).result()
    assert pid != os.getpid()
    with pytest.raises(ValueError, match="invalid literal"):
        beside.start(partial(int, "x")).result()
    assert beside.start(os.getpid).result() == pid

    with pytest.raises(EngineFailed):
        beside.start(_killed).result()
    assert beside.start(os.getpid).result() not in {pid, os.getpid()}


def _waits_in(folder: str) -> None:
    with TemporaryDirectory(prefix="running-", dir=folder):
        time.sleep(600)


def test_what_it_ends_removes_its_temporary_files(
    beside: Beside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thermocline.ingest.engine.beside._STOP_SECONDS", 60.0)  # it is of low priority
    future = beside.start(partial(_waits_in, str(tmp_path)))
    while not list(tmp_path.glob("running-*")):
        assert not future.done()
        time.sleep(0.01)
    beside.stop()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(EngineFailed):
        future.result()


def test_what_can_not_be_sent_is_an_error_of_its_own(beside: Beside) -> None:
    with pytest.raises((AttributeError, TypeError)):
        beside.start(lambda: 1).result()
    assert beside.start(partial(int, "1")).result() == 1
