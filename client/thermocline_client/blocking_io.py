"""The blocking client's own ways. ``asynchronous_io`` has the same names for the async client."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import httpx

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

Http = httpx.Client
Transport = httpx.BaseTransport
sleep = time.sleep


def run_blocking(work: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
    """Calls ``work``."""
    return work(*arguments)


def chunk_reader(response: httpx.Response) -> Callable[[], bytes | None]:
    """Returns a function that reads the next chunk, None at the end."""
    chunks = response.iter_bytes()
    return lambda: next(chunks, None)


def close(response: httpx.Response) -> None:
    """Closes a response."""
    response.close()
