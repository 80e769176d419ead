from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from thermocline.serving.cold.threads import ReadingThreads


@pytest.fixture
def threads() -> Iterator[ReadingThreads]:
    made = ReadingThreads(2)
    yield made
    made.close()
    for thread in _threads():
        thread.join(10)
        assert not thread.is_alive()


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("cold ")]


def _fail() -> int:
    raise KeyError("lost")


def test_each_caller_gets_its_own_result_or_error(threads: ReadingThreads) -> None:
    async def ask(number: int) -> int:
        return await threads.run(lambda: number * number)

    async def all_at_once() -> list[int | BaseException]:
        return await asyncio.gather(
            *(ask(number) for number in range(1000)), threads.run(_fail), return_exceptions=True
        )

    *squares, error = asyncio.run(all_at_once())
    assert squares == [number * number for number in range(1000)]
    assert isinstance(error, KeyError)


def test_the_work_is_not_done_on_the_event_loop(threads: ReadingThreads) -> None:
    async def ask() -> threading.Thread:
        return await threads.run(threading.current_thread)

    assert asyncio.run(ask()) in _threads()


def test_a_caller_that_gave_up_does_not_disturb_the_next(threads: ReadingThreads) -> None:
    async def ask() -> int:
        release = threading.Event()
        given_up = threads.run(release.wait)
        given_up.cancel()
        release.set()
        return await threads.run(lambda: 1)

    assert [asyncio.run(ask()) for _ in range(20)] == [1] * 20
