"""A small table whose owner commits batches and lets upkeep have its turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.ingest.small_ingest import Ingest
from tests.manual_clock import ManualClock
from thermocline.ingest.commit.commit import Landed
from thermocline.maintenance.run import OwnedTable
from thermocline.maintenance.upkeep import TableUpkeep
from thermocline.settings import MaintenanceSettings

T = TypeVar("T")
HOURS = 3_600.0
SETTINGS = MaintenanceSettings(lookups_per_second=10**9, target_file_bytes=1 << 20)


@dataclass
class Inline:
    """An engine that has run a task before it says so."""

    jvm: Any
    tasks: int = 1

    def run(self, *_: object) -> Any:
        raise AssertionError("a batch was run")

    def check(self) -> None:
        """It does not end."""

    def stop(self) -> None:
        pass

    def start(self, task: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(task())
        except Exception as error:  # noqa: BLE001  as an engine does
            future.set_exception(error)
        return future


def upkeep_of(clock: ManualClock) -> TableUpkeep:
    """One that also expires a few snapshots, so that few batches are enough."""
    return TableUpkeep(SETTINGS, clock, expired_min=1)


@dataclass
class Kept:
    """A table whose owner commits batches and lets upkeep have its turns."""

    ingest: Ingest
    upkeep: TableUpkeep
    site: OwnedTable
    clock: ManualClock

    def batch(self) -> None:
        self.ingest.held = self.upkeep.held()
        change, after = self.ingest.batch()
        assert isinstance(self.site.land(change), Landed)
        self.ingest.expected = after
        self.ingest.refresh()

    def batches(self, count: int) -> None:
        """That many, without a turn between them."""
        for _ in range(count):
            self.batch()

    def turn(self) -> None:
        """A turn, after what runs in a thread."""
        self.upkeep.turn(self.site)
        wait_for(lambda: self.upkeep.is_settled)
        self.ingest.refresh()

    def data_files(self) -> set[str]:
        return self.ingest.files_written()


@contextmanager
def kept_up(ingest: Ingest) -> Iterator[Kept]:
    """The table with its upkeep; upkeep ends and the table is released with the block."""
    clock = ManualClock(int(1000 * time.time()))
    upkeep = upkeep_of(clock)
    yield Kept(ingest, upkeep, OwnedTable.of(ingest.owned, Inline(ingest.jvm)), clock)
    upkeep.close()
    ingest.owned.release()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)
