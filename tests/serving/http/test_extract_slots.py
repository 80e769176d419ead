"""Places for extracts: who waits, and who has left."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from thermocline.errors import ServerBusy
from thermocline.serving.http.extract_slots import ExtractSlots
from thermocline.settings import ServingSettings


def test_a_caller_who_leaves_while_others_wait_before_it_gives_up_its_place(tmp_path: Path) -> None:
    settings = ServingSettings(state_dir=tmp_path, extracts_max=1, extracts_waiting_max=2)

    async def run() -> list[bool]:
        slots = ExtractSlots(settings)
        has_left, served = asyncio.Event(), []

        async def call(is_gone: bool = False) -> None:
            async with slots.turn("profiles", lambda: is_gone and has_left.is_set()) as is_its_turn:
                served.append(is_its_turn)

        async with slots.turn("profiles", lambda: False):
            first, second = asyncio.create_task(call()), asyncio.create_task(call(is_gone=True))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            with pytest.raises(ServerBusy):
                await call()
            has_left.set()
            await second
            third = asyncio.create_task(call())
            await asyncio.sleep(0)
            assert not first.done()
        await asyncio.gather(first, third)
        return served

    assert asyncio.run(run()) == [False, True, True]
