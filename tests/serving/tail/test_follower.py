from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.behaviour.armed import armed_by
from tests.failpoints.arming import arm
from thermocline.errors import ForeignSchema, ForeignSnapshot, StorageFailed
from thermocline.iceberg.catalog import SnapshotState
from thermocline.serving.cold.folder import ColdPublisher
from thermocline.serving.tail import follower as follower_module
from thermocline.serving.tail.follower import Follower


@pytest.fixture
def followed(new_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Two followers, one after the other, of a world whose catalog shows the snapshot in ``shown``."""
    world = new_world()
    shown = SimpleNamespace(snapshot_id=0, seams={})

    def state(*_: object) -> SnapshotState:
        number = shown.snapshot_id
        return SnapshotState(number, shown.seams[number], 1, "batch", "cluster", {}, 1, 0, 0)

    def commit() -> None:
        world.produce({"app_id": 7, "user_id": "u", "key": "k"}, {"value": "v"})
        world.commit()
        shown.snapshot_id = world.newest
        shown.seams[world.newest] = world.seam

    monkeypatch.setattr(follower_module, "current_state", state)
    monkeypatch.setattr(follower_module, "definition_of", lambda *_: world.definition)
    catalog: Any = SimpleNamespace(load=lambda: world.table, reconnect=lambda: None)
    follower = Follower("profiles", catalog, ColdPublisher(world.cold_folder))
    again = Follower("profiles", catalog, ColdPublisher(world.cold_folder))
    return SimpleNamespace(world=world, shown=shown, commit=commit, follower=follower, again=again)


def test_a_restored_catalog_does_not_take_back_what_is_served(followed: SimpleNamespace) -> None:
    """Goal: an older snapshot than the one that is served changes nothing, and is said."""
    followed.commit()
    followed.commit()
    followed.follower.look()
    served = followed.follower.newest
    followed.shown.snapshot_id = 1
    with pytest.raises(ForeignSnapshot, match="older than snapshot 2"):
        followed.follower.look()
    assert followed.follower.newest is served
    with pytest.raises(ForeignSnapshot):
        followed.again.look()
    assert followed.again.newest is None
    followed.commit()
    followed.follower.look()
    assert followed.follower.newest.state.snapshot_id == 3


def test_columns_that_another_program_changed_are_said_and_what_is_served_stays(
    followed: SimpleNamespace,
) -> None:
    followed.commit()
    followed.follower.look()
    served = followed.follower.newest
    followed.commit()
    followed.world.fields_left = -1
    with pytest.raises(ForeignSchema, match="was dropped"):
        followed.follower.look()
    assert followed.follower.newest is served


def test_a_snapshot_that_an_earlier_process_indexed_is_followed(followed: SimpleNamespace) -> None:
    followed.commit()
    followed.follower.look()
    followed.again.look()
    assert followed.again.newest.state.snapshot_id == 1


def test_a_snapshot_is_published_before_anything_is_noted_for_the_status(followed: SimpleNamespace) -> None:
    world = followed.world
    noted: list[int | None] = []

    def note(_: object) -> None:
        noted.append(follower.newest.state.snapshot_id if follower.newest is not None else None)

    catalog: Any = SimpleNamespace(load=lambda: world.table, reconnect=lambda: None)
    follower = Follower("profiles", catalog, ColdPublisher(world.cold_folder), note=note)
    for number in (1, 2):
        followed.commit()
        follower.look()
        assert noted.pop() == number
    followed.shown.snapshot_id = 1
    with pytest.raises(ForeignSnapshot):
        follower.look()
    assert noted == [2], "also where the snapshot is not served"


def test_a_full_disk_is_named_and_the_snapshot_is_published_when_there_is_room(
    followed: SimpleNamespace, tmp_path: Path
) -> None:
    followed.commit()
    with armed_by(tmp_path / "armed") as file:
        arm(file, "cold.publish=error@1")
        followed.follower.step()
        assert (followed.follower.problem.code, followed.follower.newest) == (StorageFailed.code, None)
        followed.follower.step()
    assert followed.follower.problem is None
    assert followed.follower.newest.state.snapshot_id == 1
