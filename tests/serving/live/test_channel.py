"""The way from an API worker to the process that makes snapshots: answers, errors, a bounded queue."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from thermocline.errors import InternalError, LoadTimeout, NotReady, ServerBusy, StorageFailed
from thermocline.serving.live.channel import WAITING_MAX, Asked, Listening, LiveChannel
from thermocline.serving.live.maker import Loaded

ASKED = Asked("profiles", {("profiles", 0): 7})
PATIENCE_SECONDS = 60.0


@contextmanager
def listening(
    path: Path, answer: Callable[[Asked], Loaded], seconds_max: float = PATIENCE_SECONDS
) -> Iterator[LiveChannel]:
    with Listening(path, answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield LiveChannel(path, seconds_max)
        server.shutdown()


def test_what_is_asked_for_is_answered(tmp_path: Path) -> None:
    with listening(tmp_path / "live", lambda asked: Loaded(f"{asked}", b"{}")) as channel:
        assert asyncio.run(channel.ask(ASKED)) == Loaded(f"{ASKED}", b"{}")


def test_an_error_comes_as_it_is_and_a_fault_as_one_of_ours(tmp_path: Path) -> None:
    def fail(asked: Asked) -> Loaded:
        raise StorageFailed(table="profiles", detail="full") if asked.load else ZeroDivisionError("a fault")

    with listening(tmp_path / "live", fail) as channel:
        with pytest.raises(StorageFailed, match="full"):
            asyncio.run(channel.ask(ASKED._replace(load="one-1")))
        with pytest.raises(InternalError, match="a bug in Thermocline ended making a snapshot of profiles"):
            asyncio.run(channel.ask(ASKED))


def test_where_nobody_listens_the_table_is_not_ready(tmp_path: Path) -> None:
    with pytest.raises(NotReady, match="being started again"):
        asyncio.run(LiveChannel(tmp_path / "live", PATIENCE_SECONDS).ask(ASKED))


def test_where_too_many_wait_for_a_table_the_next_is_told_and_other_tables_go_on(tmp_path: Path) -> None:
    go_on = threading.Event()

    def answer(asked: Asked) -> Loaded:
        if asked.table == "profiles":
            go_on.wait()
        return Loaded(asked.table, b"{}")

    async def ask_all(channel: LiveChannel) -> None:
        waiting = [asyncio.create_task(channel.ask(ASKED)) for _ in range(WAITING_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(ServerBusy, match="100 engines are already waiting"):
            await channel.ask(ASKED)
        assert (await channel.ask(Asked("other", {}))).tag == "other"
        go_on.set()
        assert {loaded.tag for loaded in await asyncio.gather(*waiting)} == {"profiles"}
        assert (await channel.ask(ASKED)).tag == "profiles"

    with listening(tmp_path / "live", answer) as channel:
        asyncio.run(ask_all(channel))


def test_a_load_that_is_not_answered_in_time_is_refused_and_goes_on_to_be_counted_until_it_is(
    tmp_path: Path,
) -> None:
    """Goal: however long a store stands still, it takes no more threads than `WAITING_MAX`."""
    go_on = threading.Event()
    at_last = threading.Timer(20.0, go_on.set)  # who waits for ever is answered then, which fails the test

    def answer(asked: Asked) -> Loaded:
        if asked.table == "profiles":
            go_on.wait()
        return Loaded(asked.table, b"{}")

    async def ask_all(channel: LiveChannel) -> None:
        asked = await asyncio.gather(
            *(channel.ask(ASKED) for _ in range(WAITING_MAX)), return_exceptions=True
        )
        assert {type(one) for one in asked} == {LoadTimeout}
        with pytest.raises(ServerBusy, match="100 engines are already waiting"):
            await channel.ask(ASKED)
        assert (await channel.ask(Asked("other", {}))).tag == "other"
        go_on.set()
        while True:
            try:
                assert (await channel.ask(ASKED)).tag == "profiles"
                break
            except ServerBusy:
                await asyncio.sleep(0.01)

    at_last.start()
    with listening(tmp_path / "live", answer, seconds_max=2.0) as channel:
        asyncio.run(ask_all(channel))
    at_last.cancel()
