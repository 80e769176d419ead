"""Analysts at work: one query after the other on the live views; the answers are kept, to be compared."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from itertools import count
from typing import Final

from embedded.demo.lookups import Entity
from embedded.demo.view_door import View, ViewDoor

# Each query reads the hot window from Kafka: a few in a second leave a small machine to ingest and serving.
PAUSE_SECONDS: Final = (0.3, 0.9)
FULL_EVERY: Final = 5
"""Of so many queries one goes to the full view: it costs more, and people ask it less often."""
KEYS_MAX: Final = 5
"""Users in a query on the full view that does not count."""


class Analysts:
    """Asks for random users by key, and now and then the full view for some, or for the number of rows."""

    def __init__(self, door: ViewDoor, entities: Sequence[Entity], seed: int) -> None:
        self._door = door
        self._entities = entities
        self._random = random.Random(seed)

    def run(self, stop: threading.Event) -> None:
        """Until told to stop. A query that Trino refuses is counted, and another one asked."""
        for number in count(1):
            if stop.wait(self._door.rest_seconds(self._random.uniform(*PAUSE_SECONDS))):
                return
            if number % FULL_EVERY:
                self._door.rows_of(View.BY_KEY, [self._random.choice(self._entities)])
            elif number % (2 * FULL_EVERY):
                self._door.count(View.LIVE)
            else:
                users = min(KEYS_MAX, len(self._entities))
                self._door.rows_of(View.LIVE, self._random.sample(self._entities, users))
