"""Who wants to know of commits hears of each that landed, once it stands in the table."""

from __future__ import annotations

from tests.simulation.owners import Process
from tests.simulation.world import Surroundings, World


def test_each_commit_is_told_once_it_landed_and_an_idle_step_is_not() -> None:
    world = World(Surroundings())
    process = Process.of(world, "owner")
    process.ingest(None, None)
    owner, heard = process.owner, []
    assert owner is not None
    owner.on_commit = lambda: heard.append(world.committed_seam())
    for _ in range(2):
        world.produce(0, 1, 1)
        process.ingest(None, None)
        process.ingest(None, None)
    assert len(heard) == 2
    assert heard[-1] == world.committed_seam() != heard[0]
