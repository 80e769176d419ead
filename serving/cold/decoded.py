"""Row groups as they are decoded, shared by all who ask for them.

Decoding is most of what a lookup in a file costs, and a row group has the rows of many entities. Those that
are asked for together, by one batch or by many callers, mostly after a commit, are read by decoding it once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from thermocline.bounded import Bounded

if TYPE_CHECKING:
    import pyarrow as pa

# A row group of ours with five columns takes about 150 kB: some hundred of them, per worker and table.
DECODED_BYTES_MAX: Final = 16 * 1024 * 1024

Place = tuple[str | int, ...]


class DecodedGroups:
    """What was decoded last, up to a number of bytes; for any threads. Files don't change, nor do they."""

    def __init__(self, bytes_max: int = DECODED_BYTES_MAX) -> None:
        self._kept: Bounded[Place, pa.RecordBatch] = Bounded(bytes_max)
        self._running: dict[Place, Future[pa.RecordBatch]] = {}
        self._lock = threading.Lock()

    def get(self, place: Place, decode: Callable[[], pa.RecordBatch]) -> pa.RecordBatch:
        """The columns of a row group that ``place`` names.

        ``decode`` gives them where they are not known; who asks meanwhile waits for that, and raises what it
        raises.
        """
        with self._lock:
            kept = self._kept.get(place)
            if kept is not None:
                return kept
            mine: Future[pa.RecordBatch] = Future()
            running = self._running.setdefault(place, mine)
        if running is not mine:
            return running.result()
        try:
            batch = decode()
        except BaseException as error:
            self._end(place)
            mine.set_exception(error)
            raise
        self._kept.put(place, batch, batch.nbytes)
        self._end(place)
        mine.set_result(batch)
        return batch

    def _end(self, place: Place) -> None:
        with self._lock:
            del self._running[place]
