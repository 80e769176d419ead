"""The hot records laid over a snapshot as files: what these hold is what a plain replay of the log gives."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.failpoints.arming import TEXT_VARIABLE
from tests.failpoints.firing import arm_from
from tests.serving.conftest import ORDERED, PROFILES
from thermocline.iceberg.deletes import read_deletes
from thermocline.iceberg.rows import live_rows
from thermocline.rules.decode import json_row
from thermocline.rules.definition import LiveTable
from thermocline.rules.seam import Seam
from thermocline.serving.live.overlay import Overlay
from thermocline.serving.read.tables import ServedTable

VERSION_2 = replace(PROFILES, format_version=2)
PARTIAL = replace(PROFILES, partial_updates=True)


def rows_in(world: Any, overlay: Overlay) -> dict[tuple[Any, ...], Any]:
    """What a reader of the files finds, by key, as JSON shows it."""
    found: dict[tuple[Any, ...], Any] = {}
    names = [column.name for column in world.definition.columns]
    for file in (file for files in overlay.files.values() for file in files):
        deleted = read_deletes(world.io, file.deletes) if file.deletes is not None else None
        for rows in live_rows(world.io, world.definition, file.path, deleted):
            for row in rows.select(names).to_pylist():
                shown = msgspec.json.decode(json_row(row))
                key = tuple(shown[name] for name in world.definition.key)
                assert key not in found, f"{key} is there twice"
                found[key] = shown
    return found


def advanced(world: Any, table: ServedTable, overlay: Overlay) -> Overlay:
    with table.reader.hold().view as view:
        new = overlay.new_records(view)
    return overlay.advanced(new, world.io, f"file://{world.folder}/live")[0]


def produce_some(world: Any, chance: random.Random, partition_of: Callable[[int], int]) -> None:
    for _ in range(chance.choice([1, 5, 80])):
        number = chance.randrange(30)
        key = {"app_id": 7, "user_id": f"u{number}", "key": f"k{chance.randrange(15)}"}
        second = f"2026-01-02T03:04:{chance.randrange(60):02}Z"
        value: dict[str, Any] | None = {"value": f"{chance.random()}", "updated_at": second}
        if world.definition.partial_updates:
            value = dict(chance.sample(list((value or {}).items()), chance.randrange(3)))
        if chance.random() < 0.25:
            value = {"op": "D", **(value or {})} if world.definition.sequence_by else None
        world.produce(key, value, partition=partition_of(number))


@pytest.mark.parametrize(
    "definition",
    [PROFILES, VERSION_2, PARTIAL, ORDERED],
    ids=["version 3", "version 2", "partial", "ordered"],
)
def test_what_came_since_is_laid_over_what_was_laid_before(
    served: Callable[..., tuple[Any, ServedTable]], seed: int, definition: LiveTable
) -> None:
    """Random records, commits at random seams; each overlay goes on from the one before."""
    chance = random.Random(seed)
    world, table = served(definition)
    overlay = Overlay.of(table.reader.cold.index)
    for step in range(30):
        produce_some(world, chance, lambda number: number % 3)
        world.tail()
        if chance.random() < 0.15:
            seam = {p: chance.randint(world.seam[("profiles", p)], len(world.logs[p])) for p in range(3)}
            world.commit(Seam.of({"profiles": seam}))
            world.publish()
            table.refresh()
        if table.reader.cold.index.seam != overlay.seam:
            overlay = Overlay.of(table.reader.cold.index)
        overlay = advanced(world, table, overlay)
        assert overlay.end == world.end
        assert rows_in(world, overlay) == world.rows(), step


def test_files_of_ours_stay_few_and_none_of_the_snapshots_is_merged(
    served: Callable[..., tuple[Any, ServedTable]],
) -> None:
    world, table = served()
    world.produce({"app_id": 7, "user_id": "u1", "key": "cold"}, {"value": "cold"})
    world.commit()
    world.publish()
    world.tail()
    table.refresh()
    overlay = Overlay.of(table.reader.cold.index)
    for number in range(40):
        world.produce({"app_id": 7, "user_id": "u1", "key": f"k{number}"}, {"value": "hot"})
        world.tail()
        overlay = advanced(world, table, overlay)
        files = [file for some in overlay.files.values() for file in some]
        assert {file.path for file in files if file.path not in overlay.written} == set(overlay.below)
        assert len(overlay.written) <= 3
    assert len(rows_in(world, overlay)) == 41


def test_deletes_are_of_the_tables_version_though_its_snapshot_is_of_before_it_was_raised(
    served: Callable[..., tuple[Any, ServedTable]],
) -> None:
    world, table = served(VERSION_2)
    key = {"app_id": 7, "user_id": "u1", "key": "k"}
    world.produce(key, {"value": "cold"})
    world.commit()
    world.publish()
    world.produce(key, {"value": "hot"})
    world.tail()
    table.refresh()
    overlay = advanced(world, table, Overlay.of(table.reader.cold.index, format_version=3))
    assert [deletes.format for _, deletes in overlay.laid_over().deletes.values()] == ["puffin"]
    assert rows_in(world, overlay) == world.rows()


def test_nothing_is_written_where_nothing_came(served: Callable[..., tuple[Any, ServedTable]]) -> None:
    world, table = served()
    world.produce({"app_id": 7, "user_id": "u1", "key": "k"}, {"value": "hot"})
    world.tail()
    first = advanced(world, table, Overlay.of(table.reader.cold.index))
    with table.reader.hold().view as view:
        new = first.new_records(view)
    again, written = first.advanced(new, world.io, "file:///nowhere")
    assert again is first
    assert not written


@pytest.mark.parametrize("definition", [PROFILES, PARTIAL], ids=["whole", "partial"])
def test_a_key_in_several_partitions_is_decided_by_all_its_hot_records(
    served: Callable[..., tuple[Any, ServedTable]], definition: LiveTable
) -> None:
    world, table = served(definition)
    key = {"app_id": 7, "user_id": "u1", "key": "k"}
    written = {"value": "the latest of its partition", "updated_at": "2026-01-02T03:04:05Z"}
    world.produce(key, written, partition=2)
    world.tail()
    first = advanced(world, table, Overlay.of(table.reader.cold.index))
    # Its partition is farther in time than the other one, so it decides, though it came first.
    world.produce(key, {"value": "came last"}, partition=0, seconds_ago=60)
    world.produce({**key, "key": "other"}, {"value": "beside"}, partition=0, seconds_ago=60)
    world.tail()
    rows = rows_in(world, advanced(world, table, first))
    assert {key[2]: row["value"] for key, row in rows.items()} == {
        "k": "the latest of its partition",
        "other": "beside",
    }


def test_a_row_that_says_the_same_again_comes_from_its_last_record(
    served: Callable[..., tuple[Any, ServedTable]],
) -> None:
    world, table = served(replace(PROFILES, suppress_unchanged=True))
    key, value = {"app_id": 7, "user_id": "u1", "key": "k"}, {"value": "same"}
    world.produce(key, value)
    world.commit()
    world.publish()
    world.produce(key, value)
    world.tail()
    table.refresh()
    overlay = advanced(world, table, Overlay.of(table.reader.cold.index))
    ((path, _),) = overlay.written.items()
    (rows,) = live_rows(world.io, world.definition, path, None)
    assert rows.column("_kafka_offset").to_pylist() == [1]


def test_what_it_is_made_of_is_listed(served: Callable[..., tuple[Any, ServedTable]]) -> None:
    world, table = served()
    key = {"app_id": 7, "user_id": "u1", "key": "k"}
    world.produce(key, {"value": "cold"})
    world.commit()
    world.publish()
    world.produce(key, {"value": "hot"})
    world.tail()
    table.refresh()
    overlay = advanced(world, table, Overlay.of(table.reader.cold.index))
    over = overlay.laid_over()
    (added,), (cold,) = over.added, over.deletes
    assert cold in overlay.below
    assert sorted(overlay.paths()) == sorted([added.path, over.deletes[cold][1].path])
    assert all(Path(path.removeprefix("file://")).exists() for path in overlay.paths())


def test_a_late_record_finds_a_hot_delete_however_old_it_is(
    served: Callable[..., tuple[Any, ServedTable]],
) -> None:
    """Ours are merged among themselves, which in ingest forgets old deletes."""
    world, table = served(ORDERED)
    key = {"app_id": 7, "user_id": "u1", "key": "k"}
    late = {"value": "late", "updated_at": "2026-01-02T03:04:05Z"}
    year_seconds = 365 * 86_400
    world.produce(key, {"op": "D", "updated_at": "2026-01-02T03:04:09Z"}, seconds_ago=year_seconds)
    overlay = Overlay.of(table.reader.cold.index)
    for number in range(3):
        world.tail()
        overlay = advanced(world, table, overlay)
        world.produce(
            {**key, "key": f"other{number}"}, {"value": "now", "updated_at": "2026-01-02T03:04:05Z"}
        )
    world.produce(key, late)
    world.tail()
    rows = rows_in(world, advanced(world, table, overlay))
    assert {key[2] for key in rows} == {"other0", "other1", "other2"}


def test_where_a_bucket_fails_the_files_of_the_others_are_deleted(
    served: Callable[..., tuple[Any, ServedTable]],
) -> None:
    world, table = served()
    for number in range(30):
        world.produce({"app_id": 7, "user_id": f"u{number}", "key": "k"}, {"value": "hot"})
    world.tail()
    arm_from({TEXT_VARIABLE: "data-file.write=error@2"})
    try:
        with pytest.raises(OSError, match=r"data-file\.write"):
            advanced(world, table, Overlay.of(table.reader.cold.index))
    finally:
        arm_from({})
    assert not [path for path in Path(f"{world.folder}/live").rglob("*") if path.is_file()]
