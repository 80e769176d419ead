"""The seam of an owner's table, mirrored beside the batches to a consumer group that others look at."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from thermocline.ingest.owner import measures
from thermocline.ingest.owner.observers import Observer
from thermocline.kafka.mirror_group import MirrorGroup
from thermocline.process.repeated import Repeated

if TYPE_CHECKING:
    from thermocline.ingest.commit.change import TableChange
    from thermocline.ingest.commit.commit import Landed
    from thermocline.rules.seam import Seam
    from thermocline.settings import KafkaSettings

__all__ = ["SeamMirror", "writer_to"]

AGAIN_SECONDS: Final = 60.0
"""So soon it is tried again, and written again: brokers forget a group that is silent for days."""
LAST_SECONDS: Final = 4.0
"""So long an owner that ends waits for its last seam to be written; a broker that is well takes less."""


class SeamMirror(Observer):
    """Writes the newest seam that landed, and none that another has followed; a failure is counted, no more.

    An owner that hangs may write an older seam over that of the next one, until that one writes again.
    """

    def __init__(self, table: str, group: str, seam: Seam, write: Callable[[Seam], None]) -> None:
        """Begins at once, with the seam that the table has; ``write`` may take long, and may raise."""
        self._table, self._seam, self._write = table, seam, write
        self._lock, self._settled = threading.Lock(), threading.Event()
        measures.MIRROR_FAILURES.labels(table)  # from 0 on
        name = f'writing the seam of {table} to the consumer group "{group}"'
        self._repeated = Repeated(name, self._mirror, AGAIN_SECONDS, self._failed)
        self._repeated.start()

    def landed(self, landed: Landed, change: TableChange) -> None:  # noqa: ARG002  an observer's
        """Has that seam written, soon."""
        with self._lock:
            self._seam = landed.seam
            self._settled.clear()
        self._repeated.wake()

    def close(self) -> None:
        """Ends, once the last seam is written or was tried, within a bounded time."""
        self._settled.wait(LAST_SECONDS)  # safety: mirror-last-seam
        self._repeated.close()

    def _mirror(self) -> None:
        seam = self._seam
        try:
            self._write(seam)
        finally:
            with self._lock:
                if self._seam is seam:
                    self._settled.set()  # also where it failed: nobody waits for it to be tried again

    def _failed(self, _: Exception) -> None:
        measures.MIRROR_FAILURES.labels(self._table).inc()


def writer_to(kafka: KafkaSettings, group: str) -> Callable[[Seam], None]:
    """What writes seams to that group; its client is made with the first one."""
    made: list[MirrorGroup] = []

    def write(seam: Seam) -> None:
        if not made:
            made.append(MirrorGroup(kafka, group))
        made[0].write(seam)

    return write
