"""The tailer's process: the product's follower and tailer on the machine of the simulation."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.cold import FakePublished
from tests.simulation.consumer import SharedTails
from tests.simulation.records import IDENTIFIER, NAME
from thermocline.errors import ThermoclineError
from thermocline.iceberg.catalog import load_table
from thermocline.serving.hot.tier import HotTier
from thermocline.serving.store.layout import COLD
from thermocline.serving.tail.follower import Follower
from thermocline.serving.tail.tailer import Tailer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.simulation.disk import MemoryPath
    from tests.simulation.faults import Fault
    from tests.simulation.machine_clock import MachineClock
    from tests.simulation.world import World
    from thermocline.kafka.facts import TopicFacts
    from thermocline.rules.seam import Seam

TAILER: Final = "tailer"
FOLLOWER: Final = "follower"
HOT_BYTES_MAX: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Goal:
    """What a hot tier has to be read up to before it answers who has not answered yet."""

    source: str
    ends: dict[tuple[str, int], int]


class TailerProcess:
    """One run of the process, from its start to its death."""

    def __init__(self, world: World, folder: MemoryPath, clock: MachineClock) -> None:
        self.world = world
        self._clock = clock
        self.settings: Any = SimpleNamespace(hot_bytes_max=HOT_BYTES_MAX)
        self.goal: Goal | None = None
        self._ends: dict[tuple[str, int], int] = {}
        self._filling: HotTier | None = None
        # Every second process tails another table beside it, which has the same topics.
        is_shared = world.counts["tailers started"] % 2 == 0
        self._shared = SharedTails(world.cluster, clock, world.counts) if is_shared else None
        published = FakePublished(folder / COLD, world.io)
        loader: Any = SimpleNamespace(
            load=lambda: load_table(world.catalog, NAME, IDENTIFIER),  # type: ignore[arg-type]
            reconnect=lambda: None,
        )
        self.follower = Follower(NAME, loader, published)
        source: Any = SimpleNamespace(log=self._log, tail=self._tail)
        self.tailer = Tailer(self.settings, NAME, folder, self.follower, source, clock, self._wait)  # type: ignore[arg-type]

    @property
    def tier(self) -> HotTier | None:
        """The hot tier, once it is open."""
        return self.tailer._tier

    @property
    def problem(self) -> ThermoclineError | None:
        """Why it does not read the log."""
        return self.tailer._problem

    def follow(self, fault: Fault | None) -> bool:
        """One look at the catalog, in its own thread; whether the process died in it."""
        return self.world.process(FOLLOWER, fault, self.follower.step)

    def tail(self, rounds: int, fault: Fault | None) -> bool:
        """Turns of its loop; whether the process died in one."""

        def run() -> None:
            for _ in range(rounds):
                self.tailer.step()
            self._count()

        return self.world.process(TAILER, fault, run)

    def stop(self, fault: Fault | None) -> bool:
        """Told to stop; whether it died instead."""
        return self.world.process(TAILER, fault, self.tailer.close)

    def _log(self) -> Any:
        logs = (log for one in self.world.cluster.topics.values() for log in one.partitions)
        self._ends = {log.place: log.stable_end for log in logs}
        return self.world.cluster.log()

    def _tail(self, start: Seam, facts: Mapping[str, TopicFacts]) -> Any:
        newest = self.follower.newest
        if newest is not None and self.tier is not self._filling:
            self._filling = self.tier
            ends = {place: end for place, end in self._ends.items() if place[0] in newest.definition.topics}
            self.goal = Goal(newest.source, ends)
        if self._shared is None:
            return self.world.cluster.tail(start, NAME, self._clock)
        return self._shared.tail(start, facts, NAME)

    def _wait(self, seconds: float) -> None:
        self.world.advance(seconds)

    def _count(self) -> None:
        counts, tier = self.world.counts, self.tier
        if tier is None:
            return
        if self.problem is not None:
            counts[f"tailer {self.problem.code}"] += 1
        if self.tailer._is_paused:
            counts["tailer paused"] += 1
