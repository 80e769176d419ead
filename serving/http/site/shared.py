"""Shares pages, and statuses as JSON, between the workers: each is made once for all who look at the same.

A page that is made lies in the folder that the processes of a running server share, and nobody else can
enter. While one worker makes it, the others wait for it; so what many viewers cost is the same whatever the
number of workers. Where the folder fails, each worker makes its own.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import uuid4

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["SharedPages"]

PAGES_MAX: Final = 64
"""Pages that are kept, by which tables their callers operate."""
WAIT_SECONDS: Final = 2.0
"""For another worker that makes the page: of a hundred tables it takes a tenth of that."""
LOOK_SECONDS: Final = 0.05
_LOCK_CHARACTERS: Final = 2
"""Of a page's name: so there are at most 256 locks."""
_PAGE, _LOCK = ".page", ".lock"


class _Made(NamedTuple):
    at: float
    content: str


@dataclass(slots=True)
class _Kept:
    """A page in this worker, and what lets one request make it."""

    making: asyncio.Lock
    made: _Made | None = None


class SharedPages:
    """The pages of one worker, and those that others leave in the folder. For one event loop."""

    def __init__(self, folder: Path | None, now: Callable[[], float] = time.monotonic) -> None:
        """``folder`` is that of all workers; None: there is no other. ``now`` is the same in all of them."""
        self._folder = folder
        self._now = now
        self._kept: dict[str, _Kept] = {}

    async def get(self, key: object, seconds: float, make: Callable[[], Awaitable[str]]) -> str:
        """The page of that key, which is at most so old; made where there is none."""
        name = sha256(repr(key).encode()).hexdigest()  # safety: pages-shared-by-key
        if name not in self._kept and len(self._kept) >= PAGES_MAX:
            self._kept.clear()
        kept = self._kept.setdefault(name, _Kept(asyncio.Lock()))
        async with kept.making:
            if kept.made is None or not self._is_young(kept.made, seconds):
                kept.made = await self._found_or_made(name, seconds, make)
            return kept.made.content

    async def _found_or_made(self, name: str, seconds: float, make: Callable[[], Awaitable[str]]) -> _Made:
        folder, until = self._folder, self._now() + WAIT_SECONDS
        while folder is not None:
            with _alone(folder, name) as is_alone:
                found = await asyncio.to_thread(_read, folder / f"{name}{_PAGE}")
                if found is not None and self._is_young(found, seconds):
                    return found
                if is_alone or self._now() > until:
                    return await self._make(name, make)
            await asyncio.sleep(LOOK_SECONDS)
        return await self._make(name, make)

    async def _make(self, name: str, make: Callable[[], Awaitable[str]]) -> _Made:
        at = self._now()
        made = _Made(at, await make())
        if self._folder is not None:
            await asyncio.to_thread(_write, self._folder, name, made)
        return made

    def _is_young(self, made: _Made, seconds: float) -> bool:
        return 0 <= self._now() - made.at < seconds


@contextmanager
def _alone(folder: Path, name: str) -> Iterator[bool]:
    """Whether no other worker makes that page meanwhile; True where there can be no lock."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(folder / f"{name[:_LOCK_CHARACTERS]}{_LOCK}", os.O_CREAT | os.O_RDWR, 0o600)
    except OSError:
        yield True
        return
    try:
        yield _is_locked(lock)
    finally:
        os.close(lock)  # which unlocks it, as the end of a worker does


def _is_locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _read(path: Path) -> _Made | None:
    with suppress(OSError, ValueError):
        at, _, content = path.read_text("utf-8").partition("\n")
        return _Made(float(at), content)
    return None


def _write(folder: Path, name: str, made: _Made) -> None:
    """Leave it for the others; where that fails, each of them makes its own."""
    path = folder / f"{name}{_PAGE}"
    # Two may write the same page where one waited for too long.
    unfinished = path.with_suffix(f".{uuid4().hex}")
    with suppress(OSError):
        unfinished.write_text(f"{made.at}\n{made.content}", "utf-8", newline="\n")
        unfinished.replace(path)
        pages = list(folder.glob(f"*{_PAGE}"))
        if len(pages) > PAGES_MAX:
            for other in pages:
                if other != path:
                    other.unlink(missing_ok=True)
