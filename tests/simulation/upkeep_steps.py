"""Steps of maintenance and of those who read the table meanwhile; and scenes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import TYPE_CHECKING, Final

from tests.simulation.faults import Answer, Fault, Kind, Trouble
from tests.simulation.log_steps import Advance
from tests.simulation.owners import Process
from tests.simulation.table_steps import Ingest

if TYPE_CHECKING:
    from tests.simulation.world import Step, World


@dataclass(frozen=True, slots=True)
class Turn:
    """The turn of an owner's maintenance, between two of its batches."""

    owner: int
    fault: Fault | None = None
    answer: Answer | None = None

    def run(self, world: World) -> None:
        """What is due begins, what is done is landed."""
        Process.of(world, f"owner {self.owner}").maintain(self.fault, self.answer)


@dataclass(frozen=True, slots=True)
class Work:
    """A rewrite of an owner's is done (``is_task``), or what its maintenance does in a thread."""

    owner: int
    is_task: bool
    fault: Fault | None = None

    def run(self, world: World) -> None:
        """The next one that waits."""
        Process.of(world, f"owner {self.owner}").work(self.is_task, self.fault)


@dataclass(frozen=True, slots=True)
class Open:
    """Somebody begins to read a snapshot, with a lease if it is for more than no time."""

    reader: int
    back: int
    lease_seconds: int = 0

    def run(self, world: World) -> None:
        """Who read before under that number is done."""
        if world.keeper is not None:
            world.keeper.open(self.reader, self.back, self.lease_seconds)


@dataclass(frozen=True, slots=True)
class Read:
    """Somebody reads on what they began to read."""

    reader: int

    def run(self, world: World) -> None:
        """All of it."""
        if world.keeper is not None:
            world.keeper.read(self.reader)


# A turn that commits makes some ten requests, and what is done in a thread up to thirty.
_EDGES: Final = 14
_THREAD_EDGES: Final = 30
_ONLY: Final = ("", "", "", "publish", "store delete", "store list", "store write", "store read")
_KINDS: Final[tuple[Kind, ...]] = ("lost", "applied", "raced", "late", "late", "late-race")
_READERS: Final = 3
_TROUBLES: Final[tuple[Trouble, ...]] = ("crash", "pause", "pause", "error")


def random_scene(choose: Random) -> list[Step]:
    """What maintenance and readers do between two steps of the others."""
    (scene,) = choose.choices([scene for _, scene in _SCENES], cum_weights=_EDGES_OF_WEIGHTS)
    return scene(choose)


def _rewrite(choose: Random) -> list[Step]:
    """Planned, begun, done and landed, with batches in between."""
    owner = _owner(choose)
    steps: list[Step] = [Advance(61), _turn(choose, owner), Work(owner, False), _turn(choose, owner)]
    steps += [Ingest(owner)] * choose.randrange(2)
    steps += [Work(owner, True, _fault(choose, _THREAD_EDGES))]
    return [*steps, *[Ingest(owner)] * choose.randrange(2), _turn(choose, owner)]


def _sweep(choose: Random) -> list[Step]:
    """Old snapshots expire, and later their files go."""
    owner = _owner(choose)
    steps: list[Step] = [
        Advance(choose.choice([700, 2000])),
        Ingest(owner),
        _turn(choose, owner),
        *_job(choose, owner),
    ]
    return [*steps, Advance(choose.choice([600, 1250, 1900])), _turn(choose, owner), *_job(choose, owner)]


def _orphans(choose: Random) -> list[Step]:
    """Files grow old, and are looked for on two days."""
    owner = _owner(choose)
    steps: list[Step] = [Advance(300_000), Ingest(owner), _turn(choose, owner), *_job(choose, owner)]
    steps += [Turn(owner), Ingest(choose.choice([owner, 1])), Advance(choose.choice([50_000, 90_000]))]
    return [*steps, Turn(owner), *_job(choose, owner), Turn(owner)]


def _read(choose: Random) -> list[Step]:
    return [
        Open(choose.randrange(_READERS), choose.choice([0, 0, 1, 2, 5]), choose.choice([0, 0, 600, 7_000]))
    ]


def _job(choose: Random, owner: int) -> list[Step]:
    return [Work(owner, False, _fault(choose, _THREAD_EDGES)) for _ in range(3)]


_SCENES: Final[tuple[tuple[float, Callable[[Random], list[Step]]], ...]] = (
    (2, _rewrite),
    (1, _sweep),
    (0.25, _orphans),
    (2, _read),
    (2, lambda choose: [Read(choose.randrange(_READERS))]),
    (1, lambda choose: [_turn(choose, _owner(choose))]),
    (1, lambda choose: [Work(_owner(choose), choose.random() < 0.5, _fault(choose, _THREAD_EDGES))]),
)
_EDGES_OF_WEIGHTS: Final = list(accumulate(weight for weight, _ in _SCENES))


def _owner(choose: Random) -> int:
    return choose.choice([0, 0, 0, 0, 1])


def _turn(choose: Random, owner: int) -> Turn:
    answer = None if choose.random() < 0.85 else Answer(choose.choice(_KINDS))
    return Turn(owner, _fault(choose, _EDGES), answer)


def _fault(choose: Random, edges: int) -> Fault | None:
    if choose.random() < 0.75:
        return None
    kind, only = choose.choice(_TROUBLES), choose.choice(_ONLY)
    at = choose.choice([0, 0, 1, 2, 4]) if only else choose.randrange(edges)
    return Fault(kind, at, choose.randrange(1, 8) if kind == "pause" else 0, only)
