"""An extract as a streamed answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from thermocline.process.logs import fields
from thermocline.serving.http.guard import ALLOWANCE
from thermocline.serving.http.noted import noted_in
from thermocline.serving.read.encode import FORMATS, Chunk, encoded
from thermocline.serving.store import measures
from thermocline.serving.tail.feed import Abandoned, IsAbandoned

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from thermocline.serving.hot.refused import RefusedRecords
    from thermocline.serving.http.guard import Allowance
    from thermocline.serving.http.worker import Worker
    from thermocline.serving.read.extract import Extract

READ_POINT: Final = "Thermocline-Read-Point"
AGE: Final = "Thermocline-Age-Seconds"
STALE: Final = "Thermocline-Stale"
REFUSED: Final = "Thermocline-Refused"
UNLISTED: Final = "Thermocline-Refused-Unlisted"
# A caller that takes no chunk for so long has stopped reading; a slow one takes a chunk in seconds.
SEND_SECONDS_MAX: Final = 60.0

log = logging.getLogger(__name__)


class ExtractResponse(Response):
    """Streams an extract: the next chunk is made while this one is sent, and none beyond that.

    Whatever ends it, the caller's going away included, the extract is closed. One that fails after it began
    is broken off, before the last part of a chunked answer: so a caller can tell it from a complete one.
    """

    def __init__(
        self,
        table: str,
        open_extract: Callable[[IsAbandoned], Extract],
        format_name: str,
        coding: str | None,
        worker: Worker,
        refused: RefusedRecords,
    ) -> None:
        """``open_extract`` is told how to ask whether the caller has left; it may then raise `Abandoned`."""
        super().__init__(media_type=FORMATS[format_name].media_type)
        del self.headers["content-length"]
        if coding is not None:
            self.headers["content-encoding"] = coding
        self._format_name, self._coding = format_name, coding
        if refused.listed:
            places = (f"{one.topic}/{one.partition}@{one.offset}" for one in refused.listed)
            self.headers[REFUSED] = ", ".join(places)
        if refused.unlisted:
            ranges = (
                f"{one.topic}/{one.partition}@{one.offset_first}-{one.offset_last}"
                for one in refused.unlisted
            )
            self.headers[UNLISTED] = ", ".join(ranges)
        self._table = table
        self._open_extract = open_extract
        self._stale_after_seconds = worker.stale_after_seconds
        self._slots = worker.extract_slots
        self._threads = worker.extract_threads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Waits for its turn, and streams. Raises `ServerBusy`."""
        self._noted = noted_in(scope)
        allowance: Allowance | None = scope.get(ALLOWANCE)
        # Before its turn: who waits counts, so that one client can't fill the line.
        with nullcontext() if allowance is None else allowance.extract():
            await self._in_turn(receive, send)

    async def _in_turn(self, receive: Receive, send: Send) -> None:
        gone = asyncio.create_task(_disconnected(receive))
        try:
            async with self._slots.turn(self._table, gone.done) as is_its_turn:
                if is_its_turn:
                    await self._stream(gone, send)
        finally:
            gone.cancel()

    async def _stream(self, gone: asyncio.Task[None], send: Send) -> None:
        loop = asyncio.get_running_loop()
        try:
            extract = await loop.run_in_executor(self._threads, self._open_extract, gone.done)
        except Abandoned:
            measures.EXTRACTS.labels(self._table, "broken off").inc()
            return
        chunks = encoded(extract, self._format_name, self._coding)
        take = partial(loop.run_in_executor, self._threads, next, chunks, None)
        upcoming = take()
        outcome = "broken off"
        try:
            chunk = await _made(upcoming, gone, extract)
            upcoming = take()
            # What fails with the first rows is an answer still; Arrow begins without any.
            await _made(upcoming, gone, extract)
            self._describe(extract)
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            while chunk is not None and not gone.done():
                if not await _is_taken(send, chunk):
                    extra = fields(table=extract.table)
                    log.warning("extract broken off: the caller stopped reading", extra=extra)
                    return  # without the last part, so the connection is broken off
                chunk = await _made(upcoming, gone, extract)
                upcoming = take()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            outcome = "broken off" if gone.done() else "complete"
        finally:
            measures.EXTRACTS.labels(extract.table, outcome).inc()
            self._noted.rows = extract.rows
            await asyncio.shield(self._close(upcoming, chunks, extract))

    def _describe(self, extract: Extract) -> None:
        self.headers[READ_POINT] = extract.read_point.to_header()
        self._noted.read_point = extract.read_point.to_header().encode()
        self.headers[AGE] = f"{extract.age_seconds:.3f}"
        self.headers[STALE] = str(extract.age_seconds > self._stale_after_seconds).lower()

    async def _close(
        self, upcoming: asyncio.Future[Chunk | None], chunks: Generator[Chunk], extract: Extract
    ) -> None:
        # A generator may only be closed when no thread is inside it.
        await asyncio.wait([upcoming])

        def close() -> None:
            chunks.close()
            extract.close()
            measures.EXTRACT_ROWS.labels(extract.table).inc(extract.rows)

        await asyncio.get_running_loop().run_in_executor(self._threads, close)


async def _made(
    upcoming: asyncio.Future[Chunk | None], gone: asyncio.Task[None], extract: Extract
) -> Chunk | None:
    """The next part; a caller who goes away while it is made ends the extract."""
    await asyncio.wait((upcoming, gone), return_when=asyncio.FIRST_COMPLETED)
    if gone.done():
        extract.abandon()
    return await upcoming


async def _is_taken(send: Send, chunk: Chunk) -> bool:
    """Sends a part of an answer; False when the caller does not take it in time."""
    try:
        part = {"type": "http.response.body", "body": chunk, "more_body": True}
        await asyncio.wait_for(send(part), SEND_SECONDS_MAX)
    except TimeoutError:
        return False
    return True


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
