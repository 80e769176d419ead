"""News of ingest for whoever watches it at a terminal; nobody else is told anything."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_POLL_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Activity:
    """What is being done, and how far it is; ``total`` is 0 where nobody knows it."""

    what: str
    done: int = 0
    total: int = 0


@dataclass(slots=True)
class Watcher:
    """``show`` is called from any thread, and must not fail; ``jvm_log`` is where a JVM's own words go."""

    show: Callable[[Activity], None]
    jvm_log: Path
    batch: str = ""
    now: Activity = Activity("")


_watchers: Final[list[Watcher]] = []
"""The one of this process, if there is one."""


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Within the block, the watcher is told what this process does."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.clear()


def jvm_log() -> Path | None:
    """Where a JVM that is started writes; None where it writes to this process's stderr."""
    return next((watcher.jvm_log for watcher in _watchers), None)


def doing(what: str) -> None:
    """Something that is no batch."""
    _tell(Activity(what))


def batch(table: str, records: int) -> None:
    """A batch begins."""
    for watcher in _watchers:
        watcher.batch = f"{table}: batch of {records:,} records"


def step(name: str, total: int = 0) -> None:
    """A step of the batch begins."""
    for watcher in _watchers:
        _tell(Activity(f"{watcher.batch}: {name}", total=total))


def advance(count: int) -> None:
    """So much more of the step is done."""
    for watcher in _watchers if count else ():
        now = watcher.now
        _tell(Activity(now.what, now.done + count, now.total))


@contextmanager
def asked(ask: Callable[[], tuple[str, int, int] | None]) -> Iterator[None]:
    """Within the block, ``ask`` is asked again and again for the step of the batch, and how far it is."""
    if not _watchers:
        yield
        return
    is_over = threading.Event()

    def poll() -> None:
        while not is_over.wait(_POLL_SECONDS):
            found = ask()
            if found is not None and not is_over.is_set():
                name, done, total = found
                step(name, total)
                advance(done)

    thread = threading.Thread(target=poll, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _tell(activity: Activity) -> None:
    for watcher in _watchers:
        watcher.now = activity
        watcher.show(activity)
