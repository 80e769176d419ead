from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.serving import full_disk_of_rows
from tests.serving.conftest import ORDERED, PROFILES
from tests.tier import quick_or_full
from thermocline.process.metrics import REGISTRY
from thermocline.rules.definition import LiveTable
from thermocline.serving.cold import row_store
from thermocline.serving.cold.ahead import RowsAhead
from thermocline.serving.cold.folder import ColdFolder, latest
from thermocline.serving.cold.reader import Entity
from thermocline.serving.cold.ready import file_key, stored_key
from thermocline.serving.cold.row_store import GENERATIONS, RowStore
from thermocline.serving.hot.environment import open_environment
from thermocline.serving.hot.view import HotReader
from thermocline.serving.read.entity import entity_of
from thermocline.serving.read.lookup import TableReader

BYTES_MAX = 1 << 24
USERS = [f"u{number}" for number in range(12)]


def _value(text: str, second: int = 5) -> dict[str, Any]:
    return {"value": text, "updated_at": f"2026-01-02T03:04:{second:02}Z"}


def _produce(world: Any, user: str, key: str, text: str | None, second: int = 5) -> None:
    """Without a text, a record that deletes."""
    value = None if text is None else _value(text, second)
    if value is None and world.definition.sequence_by:
        value = _value("", second) | {"op": "D"}
    profile = {"app_id": 7, "user_id": user, "key": key}
    world.produce(profile, value, partition=USERS.index(user) % 3)


def _reader(world: Any, store: RowStore | None) -> TableReader:
    reader = TableReader(
        "profiles",
        ColdFolder(world.cold_folder, "profiles", lambda: world.io, store),
        lambda: HotReader.open(world.hot_folder, world.definition),
        world.clock,
        5.0,
        lambda: True,
    )
    reader.refresh()
    return reader


def _ahead(world: Any, store: RowStore) -> RowsAhead:
    snapshots = ColdFolder(world.cold_folder, "profiles", lambda: world.io, store)
    return RowsAhead("profiles", snapshots, store)


def _entity(reader: TableReader, user: str, **more: str) -> Entity:
    return entity_of(reader.cold.index.definition, {"app_id": "7", "user_id": user, **more})


def _rows(reader: TableReader, user: str, **more: str) -> bytes:
    _, (rows,) = reader.lookup((_entity(reader, user, **more),))
    return rows


def _counted(name: str) -> float:
    return REGISTRY.get_sample_value(f"thermocline_rows_{name}_total", {"table": "profiles"}) or 0.0


@pytest.fixture
def new_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., RowStore]]:
    monkeypatch.setattr(row_store, "GATHER_SECONDS", 0.0)
    stores: list[RowStore] = []

    def make(bytes_max: int = BYTES_MAX) -> RowStore:
        stores.append(RowStore(tmp_path / "rows", "profiles", bytes_max))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


@pytest.fixture
def no_decoding(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Once called, whoever reads a row group fails."""

    def read(*_: Any, **__: Any) -> Any:
        raise AssertionError("a row group is read")

    return lambda: monkeypatch.setattr(pq.ParquetFile, "read_row_group", read)


@pytest.mark.parametrize("definition", [PROFILES, ORDERED], ids=["plain", "ordered"])
def test_answers_are_the_same_to_the_byte_with_and_without_a_store(
    new_world: Callable[..., Any], new_store: Callable[..., RowStore], seed: int, definition: LiveTable
) -> None:
    """Goal: whatever is kept, evicted, deleted or committed, the store never shows in an answer.

    Method: random upserts and tombstones in a few buckets, commits behind the log, two stores on one folder
    that is too small for them; each worker is replaced now and then, so that its own memory is empty. Rows
    are made ready ahead now and then, which stays in force until something is evicted.
    """
    chance = random.Random(seed)
    world = new_world(replace(definition, buckets=2))
    world.commit()
    world.publish()
    world.tail()
    stores = [new_store(GENERATIONS * 65_536) for _ in range(2)]
    plain, workers = _reader(world, None), [_reader(world, store) for store in stores]
    found, evicted = _counted("found"), _counted("evicted_bytes")
    ahead = _ahead(world, stores[0])
    hits = 0
    for step in range(quick_or_full(25, 40)):
        for _ in range(25):
            text = None if chance.random() < 0.2 else f"{chance.random()}" * chance.randrange(12)
            _produce(world, chance.choice(USERS), f"k{chance.randrange(15)}", text, chance.randrange(60))
        world.tail()
        if chance.random() < 0.6:
            world.commit()
            world.publish()
        if chance.random() < 0.4:
            number = chance.randrange(2)
            workers[number] = _reader(world, stores[number])
        for reader in (plain, *workers):
            reader.refresh()
        if chance.random() < 0.3:
            ahead.work()
        for user in (*USERS, "nobody"):
            more = {"key": f"k{chance.randrange(15)}"} if chance.random() < 0.3 else {}
            expected = _rows(plain, user, **more)
            for reader in workers:
                known = reader.known(_entity(reader, user, **more))
                assert known is None or known[1] == expected, (seed, step, user)
                hits += known is not None
                assert _rows(reader, user, **more) == expected, (seed, step, user)
        stores[step % 2].flush()
    assert _counted("found") > found
    assert _counted("evicted_bytes") > evicted
    assert hits


def test_rows_that_fit_are_ready_before_anybody_asks_and_what_is_not_there_is_known_too(
    new_world: Callable[..., Any], new_store: Callable[..., RowStore], no_decoding: Callable[[], None]
) -> None:
    world = new_world(replace(PROFILES, buckets=1))
    for turn in range(3):
        for user in USERS[turn:]:
            _produce(world, user, "k", f"{turn}")
        _produce(world, USERS[turn], "k", None)
        world.commit()
        world.publish()
    world.tail()
    store = new_store()
    plain, ahead = _reader(world, None), _ahead(world, store)
    users = [*USERS, "nobody"]
    expected = [_rows(plain, user) for user in users]
    assert b"[]" in expected
    before = _counted("ahead")
    ahead.work()
    files = list(plain.cold.index.files)
    assert len(files) > 1
    assert _counted("ahead") == before + sum(file.data.rows for file in files)
    ahead.work()  # there is nothing left to do
    assert _counted("ahead") == before + sum(file.data.rows for file in files)
    store.flush()
    no_decoding()
    reader = _reader(world, store)
    assert [_rows(reader, user) for user in users] == expected
    known = [_reader(world, store).known(_entity(reader, user)) for user in users]
    assert [rows for _, rows in filter(None, known)] == expected


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_file_of_which_rows_are_missing_in_the_store_is_not_taken_for_whole(
    new_world: Callable[..., Any],
    new_store: Callable[..., RowStore],
    monkeypatch: pytest.MonkeyPatch,
    is_stopped: bool,
) -> None:
    """Goal: no row is said not to exist because the store doesn't have it.

    Method: an entity that is too large for the store, in a file whose other ones it takes; or one that is
    told to stop after the first entity.
    """
    monkeypatch.setattr("thermocline.serving.cold.ahead.BATCH_ENTRIES", 1)
    world = new_world(replace(PROFILES, buckets=1))
    noise = random.Random(7).randbytes(200_000).hex()  # it can't be packed into the 262,144 bytes of an entry
    for user in USERS:
        _produce(world, user, "k", noise + noise if user == "u3" and not is_stopped else "small")
    world.commit()
    world.publish()
    world.tail()
    store = new_store()
    expected = [_rows(_reader(world, None), user) for user in USERS]
    assert all(b'"user_id"' in rows for rows in expected)
    stops = iter([False, True])
    _ahead(world, store).work((lambda: next(stops, True)) if is_stopped else lambda: False)
    store.flush()
    assert [_rows(_reader(world, store), user) for user in USERS] == expected


def test_of_a_table_that_does_not_fit_nothing_is_made_ready_ahead(
    new_world: Callable[..., Any], new_store: Callable[..., RowStore]
) -> None:
    world = new_world(replace(PROFILES, buckets=4))
    for number in range(2_000):
        world.produce({"app_id": 7, "user_id": f"u{number}", "key": "k"}, _value(f"{number}" * 20))
    world.commit()
    world.publish()
    before = _counted("ahead")
    ahead = _ahead(world, new_store(GENERATIONS * 65_536))
    ahead.work()
    begun = _counted("ahead")
    assert before < begun < before + 1_000
    ahead.work()
    assert _counted("ahead") == begun


def test_a_commit_empties_nothing_and_what_was_asked_for_is_read_before_the_switch(
    new_world: Callable[..., Any], new_store: Callable[..., RowStore], no_decoding: Callable[[], None]
) -> None:
    world = new_world(replace(PROFILES, buckets=1))
    for user in USERS:
        _produce(world, user, "k", "old")
    world.commit()
    world.publish()
    world.tail()
    store = new_store()
    reader = _reader(world, store)
    before = [_rows(reader, user) for user in USERS]
    _produce(world, "u1", "k", "new")
    _produce(world, "u2", "k", None)
    world.tail()
    world.commit()
    world.publish()
    warmed = _counted("warmed")
    assert reader.refresh()
    assert _counted("warmed") == warmed + len(USERS)
    store.flush()
    no_decoding()
    for worker in (reader, _reader(world, store)):
        entities = [_entity(worker, user) for user in USERS]
        known = [worker.known(entity) for entity in entities]
        after = [rows for _, rows in filter(None, known)]
        assert [row for row in after if row not in before] == [before[1].replace(b"old", b"new"), b"[]"]
        assert after[3:] == before[3:]


def test_another_process_finds_what_one_has_read(
    new_world: Callable[..., Any], new_store: Callable[..., RowStore], tmp_path: Path
) -> None:
    world = new_world(replace(PROFILES, buckets=1))
    _produce(world, "u1", "k", "old")
    world.commit()
    world.publish()
    world.tail()
    store = new_store()
    reader = _reader(world, store)
    entity = _entity(reader, "u1")
    rows = _rows(reader, "u1")
    store.flush()
    (file,) = reader.cold.index.buckets[entity.bucket]
    key = stored_key(file_key(reader.cold.index, file), entity)
    script = (
        "import pathlib, sys; from thermocline.serving.cold.ready import unpacked; "
        "from thermocline.serving.cold.row_store import RowStore; folder, key = sys.argv[1:]; "
        f"store = RowStore(pathlib.Path(folder), 'profiles', {BYTES_MAX}); store.flush(); "
        "((_, _, row, _),) = unpacked(store.get([bytes.fromhex(key)])[0]); store.put(b'mine', row); "
        "store.flush(); sys.stdout.buffer.write(row); store.close()"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "rows"), key.hex()]
    row = subprocess.run(command, check=True, capture_output=True).stdout
    assert b"[%b]" % row == rows
    store.flush()
    assert store.get([b"mine", b"nobody's"]) == [row, None]


def test_rows_are_kept_by_all_that_they_depend_on(new_world: Callable[..., Any]) -> None:
    world = new_world()
    for user in USERS:
        _produce(world, user, "k", "old")
    world.commit()
    world.publish()
    index = latest(world.cold_folder, "profiles")
    assert index is not None
    entity, other = (Entity.of(world.definition, (7, user)) for user in ("u1", "u2"))
    file, another = list(index.files)[:2]
    altered = replace(index, definition_json=index.definition_json.replace('"int"', '"long"', 1))
    assert altered.definition_json != index.definition_json
    of_topics = {"topics": ["another"], "topic_patterns": ["a.?"], "version": 7}
    rotated = replace(index, definition_json=json.dumps(json.loads(index.definition_json) | of_topics))
    recreated = replace(index, table_uuid="another")
    committed = replace(index, snapshot_id=index.snapshot_id + 1)
    key = stored_key(file_key(index, file), entity)
    others = [
        stored_key(file_key(index, file), other),
        stored_key(file_key(index, another), entity),
        stored_key(file_key(altered, file), entity),
        stored_key(file_key(recreated, file), entity),
    ]
    assert len({key, *others}) == 5
    assert stored_key(file_key(committed, file), entity) == key
    assert stored_key(file_key(rotated, file), entity) == key


def test_what_another_boot_of_the_machine_left_is_deleted(
    new_store: Callable[..., RowStore], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = new_store()
    store.put(b"key", b"rows")
    store.flush()
    assert store.get([b"key"]) == [b"rows"]
    store.close()
    monkeypatch.setattr(row_store, "boot_id", lambda: "another")
    later = new_store()
    later.flush()
    assert later.get([b"key"]) == [None]
    assert [path.name for path in (tmp_path / "rows").iterdir()] == ["another"]


def test_a_store_that_fails_has_nothing_and_lookups_go_on(
    new_world: Callable[..., Any], new_store: Callable[..., RowStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = new_world()
    _produce(world, "u1", "k", "old")
    world.commit()
    world.publish()
    world.tail()

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(row_store, "open_environment", fail)
    store = new_store()
    assert _rows(_reader(world, store), "u1") == _rows(_reader(world, None), "u1")
    store.flush()
    assert _rows(_reader(world, store), "u1") == _rows(_reader(world, None), "u1")


def test_what_is_asked_for_outlives_what_is_not(new_store: Callable[..., RowStore]) -> None:
    store = new_store(GENERATIONS * 65_536)
    store.put(b"asked for", b"x")
    store.put(b"forgotten", b"x")
    for number in range(400):
        store.put(b"%d" % number, b"x" * 2_000)
        store.flush()
        assert store.get([b"asked for"]) == [b"x"]
    assert store.get([b"forgotten"]) == [None]


def test_on_a_disk_that_is_really_full_the_store_fails_by_name_and_goes_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    """Goal: its process is not killed (SIGBUS), which would be started again to the same end.

    Method: a tmpfs in a mount namespace of a process of its own; without the right to that, skipped.
    """
    command = [sys.executable, "-m", "tests.serving.full_disk_of_rows", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode == full_disk_of_rows.NOT_PERMITTED:
        pytest.skip("no mount namespace here")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "0 kB: OSError OSError" in ended.stdout


def test_the_table_of_readers_has_its_room_on_the_disk_before_anybody_reads(tmp_path: Path) -> None:
    open_environment(tmp_path / "rows", 1 << 20, is_writer=True, grows=True)
    found = (tmp_path / "rows-lock").stat()
    assert found.st_size == 65_664  # as LMDB makes it: no hole is left behind it
    assert found.st_blocks * 512 >= 65_664


def test_a_file_that_was_only_begun_is_begun_again(
    new_store: Callable[..., RowStore], tmp_path: Path
) -> None:
    store = new_store()
    store.write([(b"a", b"1")])
    (path,) = tmp_path.glob("rows/*/1")
    store.close()
    path.write_bytes(bytes(4_096))
    path.rename(path.with_name("2"))  # another file, as this one is still open here
    again = new_store()
    again.write([(b"b", b"2")])
    assert again.get([b"b"]) == [b"2"]
