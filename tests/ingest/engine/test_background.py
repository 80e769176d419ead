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
from thermocline.ingest.engine.background import BackgroundProcess


@pytest.fixture
def background() -> Iterator[BackgroundProcess]:
    made = BackgroundProcess()
    yield made
    made.stop()


def _killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_it_returns_and_raises_as_the_function_does_and_is_started_again(
    background: BackgroundProcess,
) -> None:
    pid = background.start(os.getpid).result()
    assert pid != os.getpid()
    with pytest.raises(ValueError, match="invalid literal"):
        background.start(partial(int, "x")).result()
    assert background.start(os.getpid).result() == pid

    with pytest.raises(EngineFailed):
        background.start(_killed).result()
    assert background.start(os.getpid).result() not in {pid, os.getpid()}


def _waits_in(folder: str) -> None:
    with TemporaryDirectory(prefix="running-", dir=folder):
        time.sleep(600)


def test_what_it_ends_removes_its_temporary_files(
    background: BackgroundProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thermocline.ingest.engine.background.STOP_SECONDS", 60.0)  # it is of low priority
    future = background.start(partial(_waits_in, str(tmp_path)))
    while not list(tmp_path.glob("running-*")):
        assert not future.done()
        time.sleep(0.01)
    background.stop()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(EngineFailed):
        future.result()


def test_what_can_not_be_sent_is_an_error_of_its_own(background: BackgroundProcess) -> None:
    with pytest.raises((AttributeError, TypeError)):
        background.start(lambda: 1).result()
    assert background.start(partial(int, "1")).result() == 1
