"""What a server takes that makes snapshots: its memory, and the time of lookups beside it."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import psutil

from benchmarks._load import ask_http
from thermocline.dev.stack import Command

T = TypeVar("T")

SECONDS: Final = 5.0
"""Of each run of lookups; they go on, run by run, until what they are beside of is over."""
LOOK_SECONDS: Final = 0.2


def with_lookups(
    url: str, paths: Sequence[str], server: Command, work: Callable[[], T]
) -> tuple[T, dict[str, Any]]:
    """What the work gives; lookups alone and beside it, and the most memory that making snapshots took."""
    address = url.removeprefix("http://")
    ask_http(address, paths, 1, SECONDS)  # so that the same entities are in the cache for all
    alone = ask_http(address, paths, 1, SECONDS)
    maker = maker_of(server)
    over = threading.Event()
    beside: list[dict[str, float]] = []
    memory: list[int] = []

    def look_up() -> None:
        while not over.is_set() or not beside:
            beside.append(ask_http(address, paths, 1, SECONDS))

    def watch() -> None:
        while not over.wait(LOOK_SECONDS):
            memory.append(maker.memory_full_info().uss)

    threads = [threading.Thread(target=one) for one in (look_up, watch)]
    for thread in threads:
        thread.start()
    try:
        done = work()
    finally:
        over.set()
        for thread in threads:
            thread.join()
    # The last run may have gone on after it.
    counted = beside[:-1] or beside
    return done, {
        "lookups_alone_ms": _times(alone),
        "lookups_beside_ms": {
            name: round(statistics.mean(_times(one)[name] for one in counted), 3) for name in ("p50", "p99")
        },
        "maker_mb_max": round(max(memory) / 1e6),
    }


def _times(figures: dict[str, float]) -> dict[str, float]:
    return {"p50": figures["p50_ms"], "p99": figures["p99_ms"]}


def maker_of(server: Command) -> psutil.Process:
    """The process that makes snapshots."""
    children = psutil.Process(server.process.pid).children(recursive=True)
    (found,) = (one for one in children if "thermocline: live" in " ".join(one.cmdline()))
    return found
