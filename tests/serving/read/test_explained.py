from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from thermocline.serving.hot.view import HotReader
from thermocline.serving.read.caller import WHOLE, Part
from thermocline.serving.read.entity import entity_of
from thermocline.serving.read.explained import Explained, explain, looked
from thermocline.serving.read.lookup import TableReader
from thermocline.serving.read.sight import Sight

AT = "2026-01-02T03:04:05Z"


def _world(new_world: Callable[..., Any]) -> Any:
    """Of u1: `kept` is cold, `updated` and `deleted` cold and hot, `added` hot, and `brief` came and went."""
    world = new_world()
    for key in ("kept", "updated", "deleted"):
        _produce(world, key, "cold")
    world.commit()
    world.publish()
    _produce(world, "updated", "hot")
    _produce(world, "deleted", None)
    _produce(world, "added", "hot")
    _produce(world, "brief", "hot")
    _produce(world, "brief", None)
    world.tail()
    return world


def _produce(world: Any, key: str, value: str | None) -> None:
    record = None if value is None else {"value": value, "updated_at": AT}
    world.produce({"app_id": 7, "user_id": "u1", "key": key}, record, partition=1)


def _reader(world: Any) -> TableReader:
    reader = TableReader(
        "profiles",
        world.published,
        lambda: HotReader.open(world.hot_folder, world.definition),
        world.clock,
        5.0,
        lambda: True,
    )
    reader.refresh()
    return reader


def _explained(world: Any, part: Part = WHOLE, user_id: str = "u1") -> Explained:
    reader = _reader(world)
    definition = reader.cold.index.definition
    entity = entity_of(definition, {"app_id": "7", "user_id": user_id})
    sight = Sight.of(definition, part)
    return explain(reader, looked(reader, entity, sight, world.clock), sight, world.clock)


def _told(explained: Explained) -> list[tuple[Any, ...]]:
    """Of each row: key and value, the record's place, the row group, key and value of what was replaced."""
    return [
        (
            _pair(one.row),
            one.hot and (one.hot.topic, one.hot.partition, one.hot.offset),
            one.cold and one.cold.row_group,
            _pair(one.replaced),
        )
        for one in explained.rows
    ]


def _pair(row: bytes | None) -> tuple[str, str | None] | None:
    found = None if row is None else msgspec.json.decode(row)
    return found and (found["key"], found.get("value"))


def test_each_row_is_told_with_the_record_or_the_file_it_came_from(new_world: Callable[..., Any]) -> None:
    world = _world(new_world)
    explained = _explained(world)
    assert _told(explained) == [
        (("added", "hot"), ("profiles", 1, 5), None, None),
        (None, None, 0, ("deleted", "cold")),
        (("kept", "cold"), None, 0, None),
        (("updated", "hot"), ("profiles", 1, 3), 0, ("updated", "cold")),
    ]
    files = {one.cold.file for one in explained.rows if one.cold}
    assert len(files) == 1
    assert files.pop().endswith(".parquet")
    assert explained.look.read_point.end[("profiles", 1)] == 8
    records = {_pair(one.row or one.replaced): one.cold.record for one in explained.rows if one.cold}
    assert {
        pair and pair[0]: record and (record.partition, record.offset) for pair, record in records.items()
    } == {
        "kept": (1, 0),
        "updated": (1, 1),
        "deleted": (1, 2),
    }
    at_ms = {record.offset: record.timestamp_ms for record in records.values() if record}
    assert at_ms == {offset: world.logs[1][offset][2] for offset in range(3)}


def test_the_file_of_a_row_is_the_one_that_has_it_now(new_world: Callable[..., Any]) -> None:
    world = new_world()
    _produce(world, "k", "first")
    world.commit()
    _produce(world, "k", "second")
    world.commit()
    world.publish()
    world.tail()
    assert _told(_explained(world)) == [(("k", "second"), None, 0, None)]


def test_a_row_that_the_snapshot_deleted_has_no_place(new_world: Callable[..., Any]) -> None:
    world = new_world()
    _produce(world, "kept", "cold")
    _produce(world, "gone", "cold")
    world.commit()
    _produce(world, "gone", None)
    world.commit()
    world.publish()
    world.tail()
    cold = _reader(world).cold
    places = cold.reader.places(cold.index, entity_of(world.definition, {"app_id": "7", "user_id": "u1"}))
    assert [b"kept" in key for key in places] == [True]


def test_an_entity_without_rows_has_none(new_world: Callable[..., Any]) -> None:
    assert _told(_explained(_world(new_world), user_id="u2")) == []


def test_who_sees_some_columns_is_told_neither_of_others_nor_of_files_nor_of_deletes(
    new_world: Callable[..., Any],
) -> None:
    assert _told(_explained(_world(new_world), Part(columns=()))) == [
        (("added", None), ("profiles", 1, 5), None, None),
        (("kept", None), None, None, None),
        (("updated", None), ("profiles", 1, 3), None, ("updated", None)),
    ]


def test_who_sees_some_rows_is_told_neither_of_others_nor_of_what_was_replaced_outside_of_them(
    new_world: Callable[..., Any],
) -> None:
    world = _world(new_world)
    assert _told(_explained(world, Part(scope=(("value", "hot"),)))) == [
        (("added", "hot"), ("profiles", 1, 5), None, None),
        (("updated", "hot"), ("profiles", 1, 3), None, None),
    ]
    assert _told(_explained(world, Part(scope=(("value", "cold"),)))) == [
        (("kept", "cold"), None, None, None)
    ]


def test_nothing_is_looked_at_of_an_entity_outside_the_scope(new_world: Callable[..., Any]) -> None:
    explained = _explained(_world(new_world), Part(scope=(("user_id", "u2"),)))
    assert explained.rows == ()
    assert explained.look.entities == ()
    assert explained.seconds.cold_rows == explained.seconds.places == 0.0
