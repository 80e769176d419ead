from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.failpoints.meanwhile import meanwhile
from tests.serving.conftest import PROFILES, rows_of
from thermocline.iceberg.files import open_input
from thermocline.serving.cold.folder import latest
from thermocline.serving.cold.reader import ColdReader, Entity


def _profile(user: str, key: str) -> dict[str, Any]:
    return {"app_id": 7, "user_id": user, "key": key}


def _value(text: str) -> dict[str, Any]:
    return {"value": text, "updated_at": "2026-01-02T03:04:05Z"}


def _read(world: Any, *values: Any) -> list[tuple[Any, ...]]:
    index = latest(world.cold_folder, "profiles")
    assert index is not None
    return sorted(rows_of(ColdReader(world.io), index, Entity.of(world.definition, values)))


def test_an_entity_over_several_row_groups_and_files_is_read_whole(new_world: Callable[..., Any]) -> None:
    world = new_world()
    for number in range(40):
        world.produce(_profile("u1", f"k{number:02}"), _value("old"))
        world.produce(_profile("u0", f"k{number:02}"), _value("other"))
        world.produce(_profile("u11", f"k{number:02}"), _value("other"))
    world.commit()
    for number in range(30, 60):
        world.produce(_profile("u1", f"k{number:02}"), _value("new"))
    world.commit()
    world.publish()
    rows = _read(world, 7, "u1")
    assert [(row[2], row[3]) for row in rows] == [(f"k{n:02}", "old" if n < 30 else "new") for n in range(60)]
    assert [row[3] for row in _read(world, 7, "u1", "k45")] == ["new"]
    assert _read(world, 7, "u") == []
    assert _read(world, 8, "u1") == []


def test_young_files_without_the_entity_are_not_opened(
    new_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight commits, each with every eighth user: by the sparse index, any file may have any of them."""
    world = new_world(replace(PROFILES, buckets=1))
    for commit in range(8):
        for number in range(commit, 400, 8):
            world.produce(_profile(f"u{number:03}", "k"), _value(str(number)))
        world.commit()
    world.publish()
    index = latest(world.cold_folder, "profiles")
    assert index is not None
    read: list[None] = []
    with meanwhile("cold.read", lambda: read.append(None)):
        for number in range(400):
            ((*_, value, _),) = rows_of(
                ColdReader(world.io), index, Entity.of(world.definition, (7, f"u{number:03}"))
            )
            assert value == str(number)
    assert len([*index.files]) == 8
    assert 400 <= len(read) < 500  # a filter lets one of 256 pass that it need not


def test_a_committed_tombstone_hides_the_row_that_is_still_in_its_file(new_world: Callable[..., Any]) -> None:
    world = new_world()
    for key in ("a", "b", "c"):
        world.produce(_profile("u1", key), _value(key))
    world.commit()
    world.produce(_profile("u1", "b"), None)
    world.commit()
    world.publish()
    assert [row[2] for row in _read(world, 7, "u1")] == ["a", "c"]


def test_every_entity_is_read_as_a_dict_has_it(new_world: Callable[..., Any], seed: int) -> None:
    """Random inserts, updates and deletes over several commits, then each entity from the cold side alone."""
    chance = random.Random(seed)
    world = new_world()
    for _ in range(5):
        for _ in range(150):
            number = chance.randrange(12)
            value = None if chance.random() < 0.2 else _value(str(chance.random()))
            world.produce(_profile(f"u{number}", f"k{chance.randrange(20)}"), value, partition=number % 3)
        world.commit()
    world.publish()
    expected = world.rows()
    for number in range(13):
        user = f"u{number}"
        found = {row[:3]: row[3] for row in _read(world, 7, user)}
        assert found == {key: row["value"] for key, row in expected.items() if key[1] == user}


def test_threads_that_read_the_same_files_at_once_get_their_own_rows(new_world: Callable[..., Any]) -> None:
    world = new_world()
    for number in range(400):
        world.produce(_profile(f"u{number % 40}", f"k{number:03}"), _value(str(number)))
    world.commit()
    world.publish()
    index = latest(world.cold_folder, "profiles")
    assert index is not None
    reader = ColdReader(world.io)

    def values(number: int) -> list[int]:
        found = rows_of(reader, index, Entity.of(world.definition, (7, f"u{number % 40}")))
        return sorted(int(row[3]) for row in found)

    with ThreadPoolExecutor(4) as threads:
        for number, found in enumerate(threads.map(values, range(800))):
            assert found == list(range(number % 40, 400, 40))


def test_entities_of_one_row_group_are_read_by_decoding_it_once(
    new_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = new_world(replace(PROFILES, buckets=1))
    users = [f"u{number}" for number in range(4)]
    for user in users:
        world.produce(_profile(user, "k"), _value(user))
    world.commit()
    world.publish()
    index = latest(world.cold_folder, "profiles")
    assert index is not None
    reader, decodings = ColdReader(world.io), Counter[int]()

    class Counting(pq.ParquetFile):  # type: ignore[misc]
        def read_row_group(self, group: int, **options: Any) -> Any:
            decodings[group] += 1
            return super().read_row_group(group, **options)

    monkeypatch.setattr(pq, "ParquetFile", Counting)
    for user in users:
        (row,) = rows_of(reader, index, Entity.of(world.definition, (7, user)))
        assert row[3] == user
    assert decodings == {0: 1}


def test_what_only_older_snapshots_have_is_let_go_of_and_is_read_again_where_it_is_asked_for(
    new_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each commit replaces deletes, and a rewrite files: what was loaded of them must not add up for ever."""
    users = [f"u{number}" for number in range(5)]
    world = new_world(replace(PROFILES, buckets=1))
    indexes = []
    for user in users:
        world.produce(_profile(user, "k"), _value("old"))
    for user in users:
        world.produce(_profile(user, "k"), _value("new"))
        world.commit()
        world.publish()
        index = latest(world.cold_folder, "profiles")
        assert index is not None
        indexes.append(index)
    reader, entity = ColdReader(world.io), Entity.of(world.definition, (7, "u0"))
    opened: list[str] = []

    def noted(io: Any, path: str) -> Any:
        opened.append(path)
        return open_input(io, path)

    def loaded(files: Iterable[Any]) -> tuple[int, int]:
        """How many files are opened, and deletes read, for these to be warm."""
        opened.clear()
        deletes: list[None] = []
        with meanwhile("cold.deletes", lambda: deletes.append(None)):
            reader.warm([*files])
        return len(opened), len(deletes)

    monkeypatch.setattr("thermocline.serving.cold.reader.open_input", noted)
    for index in indexes:
        loaded(index.files)
    older, newest = [*indexes[-2].files], [*indexes[-1].files]
    assert loaded(older) == loaded(newest) == (0, 0)
    reader.keep_only(newest)
    assert loaded(newest) == (0, 0)
    assert loaded(older)[1] > 0
    reader.keep_only(newest[:1])
    assert loaded(newest)[0] == len(newest) - 1
    for index in indexes:
        assert [row[3] for row in rows_of(reader, index, entity)] == ["new"]
