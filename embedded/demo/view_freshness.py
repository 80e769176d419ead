"""Measures freshness by view: from Kafka's acknowledgement to the first answer of Trino that has the row."""

from __future__ import annotations

import random
import threading
from itertools import count
from typing import Final

from embedded.demo.timings import Timings
from embedded.demo.view_door import View, ViewDoor
from embedded.demo.writer import Writer, Written
from embedded.oracle import Row, RowKey
from thermocline.errors import ReadAfterTimeout
from thermocline.process.clock import Clock

VIEW_PROBE: Final = (7, "view_probe")
ROWS: Final = tuple((*VIEW_PROBE, f"probe_{number:02d}") for number in range(16))
"""More than partitions, so that each of those is written to."""
PAUSE_SECONDS: Final = (0.2, 0.6)
LIVE_EVERY: Final = 3
"""Of so many changes one is awaited in the full view, too: its margin takes as long as some by key."""
# Far beyond any freshness worth showing: with ten times the work that a machine can do, a query took 40 s.
SEEN_SECONDS_MAX: Final = 180.0


class ViewProbe:
    """Changes rows of its own, one after the other, and times when each change is seen through Trino."""

    def __init__(
        self, writer: Writer, door: ViewDoor, margin_seconds: float, seed: int, clock: Clock
    ) -> None:
        self.timings = {view: Timings() for view in View}
        self._writer = writer
        self._door = door
        self._margin_seconds = margin_seconds
        self._random = random.Random(seed)  # pauses that fall into step with nothing
        self._clock = clock

    def run(self, stop: threading.Event) -> None:
        """Until told to stop.

        Raises:
            ReadAfterTimeout: no answer had it in time.
            KafkaUnreachable: the broker did not acknowledge it.
        """
        for number in count():
            if stop.wait(self._door.rest_seconds(self._random.uniform(*PAUSE_SECONDS))):
                return
            row, value = ROWS[number % len(ROWS)], f"written as number {number}"
            written = self._writer.write(row, value)
            self._await(View.BY_KEY, row, value, written)
            if number % LIVE_EVERY == 0:
                # The view leaves out the last moments before a query: to ask earlier would only cost.
                passed = self._clock.monotonic() - written.acknowledged_at
                self._clock.sleep(max(self._margin_seconds - passed, 0.0))
                self._await(View.LIVE, row, value, written)

    def _await(self, view: View, row: RowKey, value: str, written: Written) -> None:
        while value_in(self._door.rows_of(view, [row[:2]]), row) != value:
            if self._clock.monotonic() > written.acknowledged_at + SEEN_SECONDS_MAX:
                wanted = f"{written.place[0]}/{written.place[1]}@{written.offset}"
                table = f"{written.place[0]}_{view}"
                raise ReadAfterTimeout(table=table, wanted=wanted, waited_seconds=SEEN_SECONDS_MAX)
        self.timings[view].add(self._clock.monotonic() - written.acknowledged_at)


def value_in(rows: tuple[Row, ...] | None, row: RowKey) -> str | None:
    """The row's value in an answer for its entity; None where it has no such row."""
    values: list[str] = [found["value"] for found in rows or () if found["key"] == row[2]]
    return values[0] if values else None
