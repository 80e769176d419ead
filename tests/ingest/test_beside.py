"""Functions that run in a process of their own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial

import pytest

from ingest.beside import Beside
from thermocline.errors import EngineFailed


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


def test_what_can_not_be_sent_is_an_error_of_its_own(beside: Beside) -> None:
    with pytest.raises((AttributeError, TypeError)):
        beside.start(lambda: 1).result()
    assert beside.start(partial(int, "1")).result() == 1
