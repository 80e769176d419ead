"""Histories: run, and shrunk when they fail.

A history is what it happens in and a list of steps. Both are plain values, whose repr is Python that makes
them again: what a failure prints can be replayed as it stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tests.simulation import column_steps, log_steps, serving_steps, table_steps, upkeep_steps
from tests.simulation.faults import Answer, Fault, Violation
from tests.simulation.owners import Process
from tests.simulation.serving import Serving
from tests.simulation.world import Step, Surroundings, World
from thermocline.rules.seam import Seam

# After a history: enough for a stop of each kind, its command, and the batches behind it.
_ROUNDS_MAX = 20


@dataclass(frozen=True, slots=True)
class History:
    """Steps, and what they happen in."""

    around: Surroundings
    steps: tuple[Step, ...]

    def run(self) -> Counter[str]:
        """Run it to its end, and then until the table holds all of the log; what happened.

        Raises `Violation`, also for whatever else a process should not have raised.
        """
        world = World(self.around, self.steps)
        try:
            if self.around.is_served:
                world.serving = Serving(world)
            world.run()
            settle(world)
            if world.serving is not None:
                world.serving.settle()
            if world.keeper is not None:
                world.keeper.settle()
        except Violation:
            raise
        except Exception as error:
            if world.violation is not None:
                raise world.violation from error
            raise Violation("unexpected-error", f"{type(error).__name__}: {error}") from error
        if world.violation is not None:
            raise world.violation
        for name in world.frames.names:
            world.counts[name] += 1
        return world.counts

    def __str__(self) -> str:
        lines = "".join(f"    {step!r},\n" for step in self.steps)
        return f"History({self.around!r}, (\n{lines}))"


def settle(world: World) -> None:
    """With nothing in the way any more, a new owner brings the table to the end of the log."""
    world.cluster.is_up = True
    for transaction in world.transactions.values():
        transaction.commit()
    world.transactions.clear()
    # What a fast clock committed keeps others from it until they have come to its time (Iceberg's rule).
    world.advance(120 + world.around.skew_ms_max / 1000)
    world.counts["Advance"] += 1
    process = Process.of(world, "last owner")
    process.records_max, process.may_pass_over = 1000, False
    for _ in range(_ROUNDS_MAX):
        process.ingest(None, None)
        if process.stop is not None and not world.committed_seam():
            world.counts["no snapshot of ours is left"] += 1
            return
        if process.stop is not None:
            process.resume("earliest", None, None)
            process.stop = None
        elif Seam(_ends(world)) == Seam(dict.fromkeys(_ends(world), 0) | world.committed_seam()):
            _check_end(world)
            return
    raise Violation("no-progress", f"the table is at {world.committed_seam()}, the log at {_ends(world)}")


def _ends(world: World) -> dict[tuple[str, int], int]:
    return {log.place: log.stable_end for one in world.cluster.topics.values() for log in one.partitions}


def _check_end(world: World) -> None:
    """Where nothing was lost and no key has two partitions, the table is simply what all records come to.

    Not where columns change: then it matters when a record was read.
    """
    counts = world.counts
    # An acceptance whose answer was lost may have landed later.
    is_whole = not world.oracle.log_generation and not world.oracle.has_accepted
    hides = world.around.is_compacted and counts["bad record"]  # which makes the cleaner take a good one
    decodes_once = not world.around.is_changing
    if is_whole and decodes_once and not world.around.wanders and not hides:
        ids = {topic: one.topic_id for topic, one in world.cluster.topics.items()}
        rows, wanted = world.rows_of(world.table().current), world.oracle.replay(ids)
        if rows != wanted:
            raise Violation("end-differs", f"{rows} is not {wanted}")
        counts["compared with all records"] += 1


def shrunk(history: History, kind: str, tries_max: int = 2000) -> History:
    """A shorter history that breaks the same promise: parts are left out, then faults, as long as it does."""
    tries = 0

    def fails(steps: Sequence[Step]) -> bool:
        nonlocal tries
        tries += 1
        if tries > tries_max:
            return False
        try:
            History(history.around, tuple(steps)).run()
        except Violation as violation:
            return violation.kind == kind
        return False

    steps = list(history.steps)
    size = len(steps)
    while size:
        at = 0
        while at < len(steps):
            left = steps[:at] + steps[at + size :]
            if fails(left):
                steps = left
            else:
                at += size
        size //= 2
    return History(history.around, tuple(steps))


def from_text(text: str) -> History:
    """The history that a failure printed."""
    modules = (log_steps, table_steps, column_steps, serving_steps, upkeep_steps)
    names = {name: value for module in modules for name, value in vars(module).items()}
    known = {"History": History, "Surroundings": Surroundings, "Fault": Fault, "Answer": Answer}
    found = eval(text, {**names, **known})
    assert isinstance(found, History)
    return found
