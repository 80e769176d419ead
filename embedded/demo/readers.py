"""Steady lookups of random users; the answers are kept, to be compared with the oracle afterwards."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from embedded.demo.lookups import Entity, Lookups
from embedded.demo.timings import Timings
from thermocline.errors import NotReady, ServerUnreachable
from thermocline.process.clock import Clock

# A tenth of what one core answers: the two cores of a small machine are for ingest and serving.
LOOKUPS_PER_SECOND: Final = 200
# The last ones, where the demo runs for longer than two minutes: 1 to 2 kB each.
KEPT_MAX: Final = 30_000
RETRY_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Kept:
    """An answer as it came."""

    entity: Entity
    content: bytes


class Readers:
    """Looks up one user after the other, at a steady rate, over one connection."""

    def __init__(self, lookups: Lookups, entities: Sequence[Entity], seed: int, clock: Clock) -> None:
        self.timings = Timings()
        self.kept: deque[Kept] = deque(maxlen=KEPT_MAX)
        self.refused = 0
        self._lookups = lookups
        self._entities = entities
        self._random = random.Random(seed)
        self._clock = clock

    def run(self, stop: threading.Event) -> None:
        """Until told to stop. A server that does not answer is counted and asked again."""
        due_at = self._clock.monotonic()
        while not stop.is_set():
            self._look_up()
            # What was missed is not caught up with: a slow server is not to be asked all the more.
            due_at = max(due_at + 1 / LOOKUPS_PER_SECOND, self._clock.monotonic())
            stop.wait(due_at - self._clock.monotonic())

    def _look_up(self) -> None:
        entity = self._random.choice(self._entities)
        try:
            content, seconds = self._lookups.entity_bytes(entity)
        except (NotReady, ServerUnreachable):
            self.refused += 1
            self._clock.sleep(RETRY_SECONDS)
            return
        self.timings.add(seconds)
        self.kept.append(Kept(entity, content))
