"""Measures freshness: from Kafka's acknowledgement to the first answer that shows the value."""

from __future__ import annotations

import random
import threading
from itertools import count
from typing import Final

from embedded.demo.timings import Timings
from embedded.demo.witness import Witness

PROBE: Final = (7, "probe")
ROWS: Final = tuple((*PROBE, f"probe_{number:02d}") for number in range(16))
"""More than partitions, so that each of those is written to."""
# Some four a second: enough for a 99th percentile within a minute, and the server is left alone between them.
PAUSE_SECONDS: Final = (0.1, 0.3)


class Probe:
    """Changes rows of its own, one after the other, and times when each change is seen."""

    def __init__(self, witness: Witness, seed: int) -> None:
        self.timings = Timings()
        self._witness = witness
        self._random = random.Random(seed)  # pauses that fall into step with nothing

    def run(self, stop: threading.Event) -> None:
        """Until told to stop. Raises as `Witness.write`."""
        for number in count():
            if stop.wait(self._random.uniform(*PAUSE_SECONDS)):
                return
            sight = self._witness.write(ROWS[number % len(ROWS)], f"written as number {number}")
            self.timings.add(sight.seconds)
