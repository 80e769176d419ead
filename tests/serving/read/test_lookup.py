from __future__ import annotations

import math
import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from thermocline.errors import BadParameter, NotReady
from thermocline.iceberg.read_counts import RECENT_MS, ReadCounts, read_rates, write_counts
from thermocline.rules.seam import Seam
from thermocline.serving.hot.view import HotReader
from thermocline.serving.read.entity import entity_of
from thermocline.serving.read.lookup import TableReader
from thermocline.serving.read.tables import COUNTED_MS, CountsThread, ServedTable

STALE_AFTER_SECONDS = 5.0


def _profile(user: str, key: str) -> dict[str, Any]:
    return {"app_id": 7, "user_id": user, "key": key}


def _value(text: str) -> dict[str, Any]:
    return {"value": text, "updated_at": "2026-01-02T03:04:05Z"}


def _reader(world: Any, is_filled: Callable[[], bool] = lambda: True) -> TableReader:
    reader = TableReader(
        "profiles",
        world.published,
        lambda: HotReader.open(world.hot_folder, world.definition),
        world.clock,
        STALE_AFTER_SECONDS,
        is_filled,
    )
    reader.refresh()
    return reader


def _rows(reader: TableReader, **parameters: str) -> list[dict[str, Any]]:
    entity = entity_of(reader.cold.index.definition, {"app_id": "7", **parameters})
    _, (rows,) = reader.lookup((entity,))
    found: list[dict[str, Any]] = msgspec.json.decode(rows)
    return found


def _values(reader: TableReader, **parameters: str) -> dict[str, str]:
    return {row["key"]: row["value"] for row in _rows(reader, **parameters)}


def test_hot_records_are_laid_over_cold_rows_and_tombstones_hide_them(new_world: Callable[..., Any]) -> None:
    world = new_world()
    for key in ("kept", "updated", "deleted", "reborn"):
        world.produce(_profile("u1", key), _value("cold"))
    world.commit()
    world.publish()
    world.produce(_profile("u1", "updated"), _value("hot"))
    world.produce(_profile("u1", "deleted"), None)
    world.produce(_profile("u1", "reborn"), None)
    world.produce(_profile("u1", "reborn"), _value("hot"))
    world.produce(_profile("u1", "added"), _value("hot"))
    world.produce(_profile("u1", "brief"), _value("hot"))
    world.produce(_profile("u1", "brief"), None)
    world.tail()
    reader = _reader(world)
    assert _values(reader, user_id="u1") == {
        "added": "hot",
        "kept": "cold",
        "reborn": "hot",
        "updated": "hot",
    }
    assert _values(reader, user_id="u1", key="updated") == {"updated": "hot"}
    assert _values(reader, user_id="u1", key="deleted") == {}
    assert _values(reader, user_id="u2") == {}


def test_a_hot_record_below_the_seam_of_the_snapshot_is_not_used(new_world: Callable[..., Any]) -> None:
    """The tailer has seen only an old value of what was committed since, so the table alone is right."""
    world = new_world()
    world.produce(_profile("u1", "k"), _value("old"))
    world.tail()
    world.produce(_profile("u1", "k"), _value("new"))
    world.produce(_profile("u1", "gone"), _value("x"))
    world.produce(_profile("u1", "gone"), None)
    world.commit()
    world.publish()
    look = _reader(world).look(())
    assert _values(_reader(world), user_id="u1") == {"k": "new"}
    assert look.read_point.end == world.seam


def test_every_lookup_equals_a_plain_replay_at_any_seam(new_world: Callable[..., Any], seed: int) -> None:
    """Goal: at every moment each entity and each key reads as a dict replay of the log has it.

    Method: random upserts and tombstones; commits at random seams behind the log, so that hot records on both
    sides of the seam exist; one reader all the time, which must follow the snapshots.
    """
    chance = random.Random(seed)
    world = new_world()
    world.commit()
    world.publish()
    world.tail()
    reader = _reader(world)
    for step in range(25):
        for _ in range(40):
            number = chance.randrange(10)
            value = None if chance.random() < 0.25 else _value(f"{step} {chance.random()}")
            world.produce(_profile(f"u{number}", f"k{chance.randrange(15)}"), value, partition=number % 3)
        world.tail()
        if chance.random() < 0.3:
            world.tier.seal()
        if chance.random() < 0.4:
            seam = {p: chance.randint(world.seam[("profiles", p)], len(world.logs[p])) for p in range(3)}
            world.commit(Seam.of({"profiles": seam}))
            world.publish()
        if chance.random() < 0.7:
            reader.refresh()
            world.tier.evict(reader.cold.index.seam)
        expected = world.rows()
        for number in range(11):
            of_user = {key: row for key, row in expected.items() if key[1] == f"u{number}"}
            found = _rows(reader, user_id=f"u{number}")
            assert found == [of_user[key] for key in sorted(of_user)]
            key = f"k{chance.randrange(15)}"
            row = expected.get((7, f"u{number}", key))
            assert _rows(reader, user_id=f"u{number}", key=key) == ([row] if row else [])
        assert reader.look(()).read_point.end == world.end


def test_the_age_grows_while_the_log_is_not_read_and_marks_answers_stale(
    new_world: Callable[..., Any],
) -> None:
    world = new_world()
    world.commit()
    world.publish()
    world.tail()
    reader = _reader(world)
    world.clock.advance(STALE_AFTER_SECONDS - 1)
    look = reader.look(())
    assert look.age_seconds == pytest.approx(4.0)
    assert not look.is_stale
    world.clock.advance(2)
    assert reader.look(()).is_stale


def test_a_reader_is_not_ready_before_the_hot_tier_has_come_to_the_end(new_world: Callable[..., Any]) -> None:
    world = new_world()
    world.commit()
    world.publish()
    world.tail()
    filled = False
    reader = _reader(world, is_filled=lambda: filled)
    with pytest.raises(NotReady, match="still reading"):
        reader.check_ready()
    filled = True
    reader.check_ready()


def test_a_hot_tier_that_begins_beyond_the_seam_is_refused(new_world: Callable[..., Any]) -> None:
    world = new_world()
    world.commit()
    world.publish()
    world.produce(_profile("u1", "k"), _value("lost"))
    world.tailed = world.end
    world.tail()
    with pytest.raises(NotReady, match="beyond the snapshot"):
        _reader(world).check_ready()


def test_answers_do_not_go_back_when_the_hot_tier_is_read_again(new_world: Callable[..., Any]) -> None:
    world = new_world()
    first = world.seam
    world.produce(_profile("u1", "k"), _value("old"))
    world.commit()
    world.publish()
    world.tailed = world.end
    world.produce(_profile("u1", "k"), _value("seen"))
    world.tail()
    reader = _reader(world)
    assert _values(reader, user_id="u1") == {"k": "seen"}
    world.restart_tailer(first)
    with pytest.raises(NotReady, match="behind earlier answers"):
        reader.check_ready()
    world.tail()
    assert _values(reader, user_id="u1") == {"k": "seen"}


def test_an_older_snapshot_is_not_gone_back_to(new_world: Callable[..., Any]) -> None:
    world = new_world()
    world.commit()
    world.publish()
    world.produce(_profile("u1", "k"), _value("v"))
    world.tail()
    world.commit()
    world.publish()
    assert not world.publish(snapshot_id=1)
    assert _reader(world).cold.index.snapshot_id == 2


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"app_id": "7"}, BadParameter, "user_id"),
        ({"user_id": "u"}, BadParameter, "app_id"),
        ({"app_id": "7.5", "user_id": "u"}, BadParameter, "not an integer"),
        ({"app_id": "2147483648", "user_id": "u"}, BadParameter, "out of range"),
        (
            {"app_id": "7", "user_id": "u", "value": "x"},
            BadParameter,
            "not a key column; .* app_id, user_id, key",
        ),
        ({"app_id": "7", "user_id": "u", "_kafka_offset": "1"}, BadParameter, "not a key column"),
        ({"app_id": "7", "user_id": "u", "nope": "x"}, BadParameter, "nope"),
    ],
)
def test_parameters_that_name_no_entity_are_refused(
    new_world: Callable[..., Any], parameters: dict[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        entity_of(new_world().definition, parameters)


def test_an_answer_is_stale_while_a_partition_of_the_seam_is_not_read(new_world: Callable[..., Any]) -> None:
    """Ingest took up a partition that the tailer does not know: nobody knows what lies behind its seam."""
    world = new_world()
    world.commit()
    world.publish()
    world.tail()
    reader = _reader(world)
    assert not reader.look(()).is_stale
    grown = Seam.of({"profiles": {0: 0, 1: 0, 2: 0, 3: 5}})
    world.seam = grown
    world.snapshots[2] = world.snapshots[1]
    world.publish()
    reader.refresh()
    look = reader.look(())
    assert look.is_stale
    assert math.isinf(look.age_seconds)
    world.tier.extend(Seam.of({"profiles": {3: 5}}))
    world.tier.append([], grown, {("profiles", p): world.clock.monotonic() for p in range(4)})
    assert not reader.look(()).is_stale


def test_a_reader_moves_to_a_tier_that_was_begun_where_the_one_before_was_removed(
    new_world: Callable[..., Any],
) -> None:
    """Goal: a worker does not go on for ever with files that are no longer there, and no longer grow.

    Method: the hot folder is removed below a reader; the tailer begins another tier in it.
    """
    world = new_world()
    world.commit()
    world.publish()
    world.produce(_profile("u1", "k"), _value("before"))
    world.tail()
    reader = _reader(world)
    assert _values(reader, user_id="u1") == {"k": "before"}
    world.tier.close()
    for path in world.hot_folder.rglob("*"):
        if path.is_file():
            path.unlink()
    reader.refresh()
    assert _values(reader, user_id="u1") == {"k": "before"}
    world.tailed = world.seam
    world.tier = world.open_tier()
    world.produce(_profile("u1", "k"), _value("after"))
    world.tail()
    reader.refresh()
    assert _values(reader, user_id="u1") == {"k": "after"}


def test_lookups_are_counted_by_bucket_and_left_where_maintenance_finds_them(
    new_world: Callable[..., Any], tmp_path: Path
) -> None:
    world = new_world()
    for user in ("u1", "u2"):
        world.produce(_profile(user, "k"), _value("x"))
    world.commit()
    world.publish()
    world.tail()
    io, location = PyArrowFileIO(), f"{tmp_path / 'table'}"

    def leave(_: str, counts: ReadCounts, now_ms: int) -> bool:
        write_counts(io, location, "one", counts, now_ms)
        return True

    table = ServedTable(
        world.definition, world.folder, world.published, world.clock, STALE_AFTER_SECONDS, leave
    )
    (world.folder / "tailer.json").write_bytes(b'{"caught_up_to_start_ends": true}')
    table.refresh()
    entities = [
        entity_of(world.definition, {"app_id": "7", "user_id": user}) for user in ("u1", "u2", "u1", "u1")
    ]
    table.reader.lookup(entities)
    assert read_rates(io, location, world.clock.now_ms()) is None
    world.clock.advance(COUNTED_MS / 1000)
    table.refresh()
    rates = read_rates(io, location, world.clock.now_ms())
    assert rates is not None
    expected: Counter[int] = Counter()
    for entity in entities:
        expected[entity.bucket] += 6  # ten minutes are a sixth of an hour
    assert rates.lookups == expected
    world.clock.advance(RECENT_MS / 1000 + 1)
    assert read_rates(io, location, world.clock.now_ms()) is None, "they say nothing of now"
    table.close()


def test_counts_that_a_catalog_does_not_take_hold_up_no_table(new_world: Callable[..., Any]) -> None:
    has_begun, may_end, thread = threading.Event(), threading.Event(), CountsThread()
    left: SimpleQueue[str] = SimpleQueue()

    def hang() -> None:
        has_begun.set()
        may_end.wait()

    def hanging(_location: str, _counts: ReadCounts, _now_ms: int) -> bool:
        return thread.begin("first", hang)

    def leaving(location: str, _counts: ReadCounts, _now_ms: int) -> bool:
        return thread.begin("second", lambda: left.put(location))

    worlds, leaves = [new_world() for _ in range(2)], [hanging, leaving]
    tables = []
    for world, leave in zip(worlds, leaves, strict=True):
        world.commit()
        world.publish()
        world.tail()
        table = ServedTable(
            world.definition, world.folder, world.published, world.clock, STALE_AFTER_SECONDS, leave
        )
        table.refresh()
        world.clock.advance(COUNTED_MS / 1000)
        tables.append(table)
    for table in tables:
        table.refresh()
    assert has_begun.wait(30.0)
    for world, table in zip(worlds, tables, strict=True):
        world.commit()
        world.publish()
        table.refresh()
        assert table.reader.cold.index.snapshot_id == world.newest
    assert left.empty(), "one at a time"
    may_end.set()
    while left.empty():
        tables[1].refresh()
    assert left.get() == worlds[1].table.location()
    for table in tables:
        table.close()
