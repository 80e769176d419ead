"""Slots for the extracts that a server streams at once, over all its workers, and for those that wait.

A place is a file that is locked for as long as it is taken, so that a worker that dies leaves none taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import IO, TYPE_CHECKING, Final

from thermocline.errors import ServerBusy
from thermocline.serving.hot.disk import try_lock
from thermocline.serving.store import measures

if TYPE_CHECKING:
    from thermocline.settings import ServingSettings

# An extract takes seconds; of each worker one waiting caller looks, at a few files.
POLL_SECONDS: Final = 0.02


class ExtractSlots:
    """The places of one server, as one of its workers takes them."""

    def __init__(self, settings: ServingSettings) -> None:
        self._folder = settings.state_dir
        self.running_max = settings.extracts_max
        self.waiting_max = settings.extracts_waiting_max
        self._line = asyncio.Lock()

    @asynccontextmanager
    async def turn(self, table: str, is_gone: Callable[[], bool]) -> AsyncIterator[bool]:
        """Waits for a place and has it until the block ends; False where the caller has left meanwhile.

        Raises:
            ServerBusy: too many wait already.
        """
        began_at = asyncio.get_running_loop().time()
        # Those that wait here come first.
        place = None if self._line.locked() else self._taken("running", self.running_max)
        if place is None:
            place = await self._waited(table, is_gone)
        measures.EXTRACT_WAIT_SECONDS.observe(asyncio.get_running_loop().time() - began_at)
        if place is None:
            yield False
            return
        with place:
            yield True

    async def _waited(self, table: str, is_gone: Callable[[], bool]) -> IO[bytes] | None:
        waiting = self._taken("waiting", self.waiting_max)
        if waiting is None:  # safety: extracts-bounded
            measures.EXTRACTS.labels(table, "refused").inc()
            raise ServerBusy.of_extracts(table, self.running_max, self.waiting_max)
        with waiting:
            async with self._head_of_line(is_gone):
                while not is_gone():
                    place = self._taken("running", self.running_max)
                    if place is not None:
                        return place
                    await asyncio.sleep(POLL_SECONDS)
        return None

    @asynccontextmanager
    async def _head_of_line(self, is_gone: Callable[[], bool]) -> AsyncIterator[None]:
        """Waits for those that came before; not for a caller who has left."""
        acquiring = asyncio.ensure_future(self._line.acquire())
        try:
            while not (acquiring.done() or is_gone()):
                await asyncio.wait((acquiring,), timeout=POLL_SECONDS)
            yield
        finally:
            if acquiring.done():
                self._line.release()
            else:
                acquiring.cancel()

    def _taken(self, kind: str, count: int) -> IO[bytes] | None:
        for number in range(count):
            place = try_lock(self._folder / f"extract-{kind}-{number}.lock")
            if place is not None:
                return place
        return None
