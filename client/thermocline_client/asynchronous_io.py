"""The async client's own ways: it sleeps on the event loop, and blocking work runs in threads.

``blocking_io`` has the same names for the blocking client.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio
import anyio.from_thread
import anyio.to_thread
import httpx

Http = httpx.AsyncClient
Transport = httpx.AsyncBaseTransport
sleep = anyio.sleep
run_blocking = anyio.to_thread.run_sync


def chunk_reader(response: httpx.Response) -> Callable[[], bytes | None]:
    """Returns a function that reads the next chunk, None at the end. Call it in ``run_blocking`` alone."""
    chunks = response.aiter_bytes()

    async def next_chunk() -> bytes | None:
        return await anext(chunks, None)

    return lambda: anyio.from_thread.run(next_chunk)


async def close(response: httpx.Response) -> None:
    """Closes a response, also in a task that is being cancelled."""
    with anyio.CancelScope(shield=True):
        await response.aclose()
