"""What happens to serving in a history, as steps of plain values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import TYPE_CHECKING, Final

from tests.simulation.faults import Fault
from tests.simulation.records import KEYS
from tests.simulation.tailer_process import FOLLOWER, HOT_BYTES_MAX, TAILER
from tests.simulation.workers import USERS

if TYPE_CHECKING:
    from tests.simulation.workers import HeldExtract, Worker
    from tests.simulation.world import Step, World

# A round of the tailer or a refresh passes some ten edges.
_EDGES: Final = 12


@dataclass(frozen=True, slots=True)
class Follow:
    """The follower looks at the catalog."""

    fault: Fault | None = None

    def run(self, world: World) -> None:
        """Once."""
        world.serving.follow(self.fault)


@dataclass(frozen=True, slots=True)
class Tail:
    """The tailer's loop turns; its process is started where it is dead."""

    rounds: int
    fault: Fault | None = None

    def run(self, world: World) -> None:
        """So many times."""
        world.serving.tail(self.rounds, self.fault)


@dataclass(frozen=True, slots=True)
class StopTailer:
    """The tailer is told to stop, or killed; the next step of it starts it again."""

    kills: bool

    def run(self, world: World) -> None:
        """Where it is running and idle."""
        serving = world.serving
        if serving.tailer is None or serving.is_busy(TAILER, FOLLOWER):
            return
        if not self.kills:
            serving.tailer.stop(None)
        serving.kill_tailer()


@dataclass(frozen=True, slots=True)
class Refresh:
    """A worker moves to what was published."""

    worker: int
    fault: Fault | None = None

    def run(self, world: World) -> None:
        """Once."""
        worker = _awake(world, self.worker)
        if worker is not None and worker.refresh(self.fault):
            world.serving.kill_worker(self.worker)


@dataclass(frozen=True, slots=True)
class Lookup:
    """A worker is asked for entities (bits of ``users``) and for a row."""

    worker: int
    users: int
    key: int
    refreshes: bool = False
    fault: Fault | None = None

    def run(self, world: World) -> None:
        """Once."""
        worker = _awake(world, self.worker)
        users = [user for number, user in enumerate(USERS) if self.users >> number & 1]
        key = KEYS[self.key % len(KEYS)]
        if worker is not None and worker.lookup(users, [key], self.refreshes, self.fault):
            world.serving.kill_worker(self.worker)


@dataclass(frozen=True, slots=True)
class KillWorker:
    """A worker dies."""

    worker: int

    def run(self, world: World) -> None:
        """Where it is idle."""
        world.serving.kill_worker(self.worker)


@dataclass(frozen=True, slots=True)
class Freeze:
    """A worker stops, as with SIGSTOP, or goes on: its leases may have timed out."""

    worker: int
    is_frozen: bool

    def run(self, world: World) -> None:
        """Its extracts are frozen with it."""
        world.serving.worker(self.worker).is_frozen = self.is_frozen


@dataclass(frozen=True, slots=True)
class Extract:
    """A worker begins an extract."""

    worker: int
    fault: Fault | None = None

    def run(self, world: World) -> None:
        """Waits for a seal."""
        worker = _awake(world, self.worker)
        if worker is not None and worker.pin(self.fault):
            world.serving.kill_worker(self.worker)


@dataclass(frozen=True, slots=True)
class ReadExtract:
    """A bucket of an extract is read, maybe for the second time."""

    extract: int
    bucket: int
    scans: bool = False

    def run(self, world: World) -> None:
        """Where there is an extract."""
        held = _held(world, self.extract)
        if held is not None:
            held[0].read(held[1], self.bucket, self.scans)


@dataclass(frozen=True, slots=True)
class EndExtract:
    """An extract is over."""

    extract: int

    def run(self, world: World) -> None:
        """Where there is an extract."""
        held = _held(world, self.extract)
        if held is not None:
            held[0].end(held[1])


@dataclass(frozen=True, slots=True)
class Pass:
    """Time passes."""

    seconds: float

    def run(self, world: World) -> None:
        """For everybody; who is alive says so."""
        world.advance(self.seconds)
        world.serving.beat()


@dataclass(frozen=True, slots=True)
class SetBudget:
    """The hot tier may take so much, and the disk has so much left."""

    hot_bytes_max: int
    free_bytes: int

    def run(self, world: World) -> None:
        """From now on, or until the process starts again."""
        world.serving.running_tailer().settings.hot_bytes_max = self.hot_bytes_max
        world.serving.disk.free_bytes = self.free_bytes


@dataclass(frozen=True, slots=True)
class LoseDisk:
    """Folders of the state folder are removed below a running server."""

    folders: tuple[str, ...]

    def run(self, world: World) -> None:
        """Where everybody is idle."""
        world.serving.lose_disk(self.folders)


@dataclass(frozen=True, slots=True)
class Reboot:
    """The machine starts again, and some of what was not synced is lost."""

    damage: int

    def run(self, world: World) -> None:
        """Where everybody is idle."""
        world.serving.reboot(Random(self.damage))


STEPS: Final[tuple[type, ...]] = (
    Follow,
    Tail,
    StopTailer,
    Refresh,
    Lookup,
    KillWorker,
    Freeze,
    Extract,
    ReadExtract,
    EndExtract,
    Pass,
    SetBudget,
    LoseDisk,
    Reboot,
)


def random_scene(choose: Random) -> list[Step]:
    """What happens to serving at once: mostly one step."""
    (_, scene), *_ = choose.choices(_SCENES, cum_weights=_EDGES_OF_SCENES)
    return scene(choose)


def _fault(choose: Random) -> Fault | None:
    if choose.random() < 0.7:
        return None
    kind, at = choose.choice(["crash", "pause", "pause", "error"]), choose.randrange(_EDGES)
    if kind == "pause":
        return Fault("pause", at, choose.randrange(1, 6))
    return Fault("crash", at) if kind == "crash" else Fault("error", at)


def _budget(choose: Random) -> SetBudget:
    return SetBudget(choose.choice([1, HOT_BYTES_MAX, HOT_BYTES_MAX]), choose.choice([0, 1 << 40, 1 << 40]))


def _lookup(choose: Random) -> Lookup:
    users, key = choose.randrange(16), choose.randrange(12)
    return Lookup(choose.randrange(2), users, key, choose.random() < 0.2, _fault(choose))


def _tail(choose: Random) -> Tail:
    return Tail(choose.choice([1, 1, 2, 3]), _fault(choose))


def _switch(choose: Random) -> list[Step]:
    """A snapshot comes to a worker, and hot records that it contains may go."""
    worker = choose.randrange(2)
    steps: list[Step] = [Follow(_fault(choose)), _tail(choose), Refresh(worker, _fault(choose))]
    return [*steps, Pass(1.1), _tail(choose), _lookup(choose)]


def _slow_extract(choose: Random) -> list[Step]:
    """An extract is read while others go on."""
    number, scans = choose.randrange(3), choose.random() < 0.1
    steps: list[Step] = [Extract(choose.randrange(2), _fault(choose)), ReadExtract(number, 0, scans)]
    return [*steps, Pass(choose.choice([1.1, 31])), _tail(choose), ReadExtract(number, 1, scans)]


_SCENES: Final[list[tuple[float, Callable[[Random], list[Step]]]]] = [
    (2, lambda c: [Follow(_fault(c))]),
    (6, lambda c: [_tail(c)]),
    (0.4, lambda c: [StopTailer(c.random() < 0.7)]),
    (2, lambda c: [Refresh(c.randrange(2), _fault(c))]),
    (2, lambda c: [_lookup(c)]),
    (0.4, lambda c: [KillWorker(c.randrange(2))]),
    (0.3, lambda c: [Freeze(c.randrange(2), c.random() < 0.4)]),
    (1, lambda c: [ReadExtract(c.randrange(3), c.randrange(2))]),
    (0.7, lambda c: [EndExtract(c.randrange(3))]),
    (2, lambda c: [Pass(c.choice([0.02, 1.1, 3, 12, 31, 40]))]),
    (1.5, _switch),
    (0.7, _slow_extract),
    (0.2, lambda c: [_budget(c)]),
    (0.2, lambda c: [LoseDisk(c.choice([("hot",), ("hot", "cold"), ("cold",)]))]),
    (0.2, lambda c: [Reboot(c.randrange(99)), _tail(c)]),
]
_EDGES_OF_SCENES: Final = list(accumulate(weight for weight, _ in _SCENES))


def _awake(world: World, number: int) -> Worker | None:
    world.serving.beat()
    worker: Worker = world.serving.worker(number)
    return None if worker.is_frozen or world.frames.is_busy(worker.name) else worker


def _held(world: World, number: int) -> tuple[Worker, HeldExtract] | None:
    held = [
        (worker, one)
        for worker in world.serving.workers
        if worker is not None and not worker.is_frozen and not world.frames.is_busy(worker.name)
        for one in worker.extracts
    ]
    return held[number % len(held)] if held else None
