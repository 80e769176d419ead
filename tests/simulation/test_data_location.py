"""Where an owner's files go, on the simulation's catalog and store."""

from __future__ import annotations

from tests.simulation.owners import Process
from tests.simulation.records import IDENTIFIER, LOCATION
from tests.simulation.world import UPSERT, Surroundings, World

ELSEWHERE = "file:///elsewhere"


def test_an_owner_that_reads_its_table_again_writes_where_the_table_says_by_now() -> None:
    world = World(Surroundings())
    process = Process.of(world, "a")

    def new_files() -> set[str]:
        before = set(world.io.objects)
        world.produce(0, 0, UPSERT)
        process.ingest(None, None)
        return {path for path in world.table().paths() if path not in before}

    files = new_files()
    assert files
    assert all(path.startswith(f"{LOCATION}/data/") for path in files)

    metadata = world.table()
    world.catalog.tables[IDENTIFIER] = metadata.changed(
        properties={**metadata.properties, "write.data.path": ELSEWHERE}
    )
    assert process.owner is not None
    process.owner.must_reload = True
    files = new_files()
    assert len(files) == 2, "a data file, and deletes of the row before"
    assert all(path.startswith(f"{ELSEWHERE}/") for path in files)
