from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from tests.serving.conftest import ORDERED
from tests.thermocline.profiles import PROFILES
from tests.tier import quick_or_full
from thermocline.errors import BadParameter
from thermocline.kafka.facts import TopicRecords
from thermocline.rules.definition import LiveTable
from thermocline.rules.read_point import ReadPoint
from thermocline.rules.seam import Seam
from thermocline.serving.cold.manifest import source_of
from thermocline.serving.hot.pinned import hold
from thermocline.serving.hot.tier import HotTier
from thermocline.serving.read.caller import Action, Caller, Grant, Part
from thermocline.serving.read.changes import CHANGE_TYPE, DELETE, UPSERT, Changes
from thermocline.serving.read.encode import FORMATS, encoded
from thermocline.serving.read.extract import Extract
from thermocline.serving.read.selection import Selection
from thermocline.serving.read.tables import ServedTable
from thermocline.serving.read.wanted import Wanted

PLAIN = replace(PROFILES, suppress_unchanged=True, buckets=4)
PARTIAL = replace(PROFILES, partial_updates=True, buckets=4)
MATCHING = "value < '5'"
Rows = dict[tuple[Any, ...], dict[str, Any]]
_numbers = count()


def _keyed(extract: Extract) -> Rows:
    with closing(extract):
        rows = [row for batch in extract.batches() for row in batch.to_pylist()]
    keyed = {(row["user_id"], row["key"]): row for row in rows}
    assert len(keyed) == len(rows), "a key came twice"
    return keyed


def _changes(world: Any, table: ServedTable, wanted: Wanted) -> Changes:
    """As of the snapshot that is served and the log's end, from a hot tier that begins at the read point."""
    assert wanted.since is not None
    cold, since = table.reader.cold, wanted.since.seam
    folder = world.folder / f"changes-{next(_numbers)}"
    source = source_of(world.table, world.state)
    tier = HotTier.open(folder, world.definition, since, world.clock, source=source)
    pin = hold(folder, "profiles", cold.index.snapshot_id, cold.index.seam, world.clock)
    chunks = [world.chunk(p, since[("profiles", p)], len(log)) for p, log in enumerate(world.logs)]
    batch = [(TopicRecords.of(one), world.decoder.decode(one.keys, one.values)) for one in chunks]
    tier.append(batch, world.end, {("profiles", p): 0.0 for p in range(3)})
    tier.seal()
    selection = Selection.of(world.definition, wanted)
    return Changes(cold, pin.open(1.0), selection, 0.0, folder / "spill", tier.close, since=wanted.since.seam)


def _commit(world: Any, up_to: Seam) -> None:
    """By the tasks of ingest, which merge small files and remember deletes."""
    parts = [
        world.records_in(world.chunk(p, world.seam[("profiles", p)], up_to[("profiles", p)]))
        for p in range(3)
    ]
    world.commit_as_ingest(pa.concat_tables(parts))
    world.seam = up_to
    world.publish()


def _value(chance: random.Random, definition: LiveTable) -> dict[str, Any] | None:
    value = {
        "value": f"{chance.randrange(10)}",
        "updated_at": f"2026-01-02T03:04:{chance.randrange(60):02}Z",
    }
    is_delete = chance.random() < 0.3
    if definition.sequence_by:
        return value | ({"op": "D"} if is_delete else {})
    if definition.partial_updates and chance.random() < 0.5:
        del value[chance.choice(list(value))]
    return None if is_delete else value


def _applied(before: Rows, changes: Rows) -> Rows:
    after = dict(before)
    for key, row in changes.items():
        change = row.pop(CHANGE_TYPE)
        assert change in {UPSERT, DELETE}
        if change == UPSERT:
            after[key] = row
        else:
            assert (row["app_id"], row["value"], row["updated_at"]) == (7, None, None)
            after.pop(key, None)
    return after


@pytest.mark.parametrize("definition", [PLAIN, PARTIAL, ORDERED], ids=["plain", "partial", "ordered"])
def test_changes_make_the_later_extract_of_the_earlier_one(
    served: Callable[..., tuple[Any, ServedTable]], seed: int, definition: LiveTable
) -> None:
    """Goal: whatever lies between two read points, the changes are exactly what tells their extracts apart.

    Method: random records of few keys, some late, unchanged or partial; commits at random seams by the tasks
    of ingest, which merge files; changes since any earlier read point, with and without a condition.
    """
    chance = random.Random(seed)
    world, table = served(definition)
    known: list[tuple[ReadPoint, dict[str | None, Rows]]] = []
    for _ in range(quick_or_full(6, 8)):
        recent = set()
        for _ in range(chance.randrange(25)):
            user = chance.randrange(6)
            key = {"app_id": 7, "user_id": f"u{user}", "key": f"k{chance.randrange(6)}"}
            world.produce(key, _value(chance, definition), user % 3)
            recent.add((key["user_id"], key["key"]))
        world.tail()
        if chance.random() < 0.6:
            seam = {p: chance.randint(world.seam[("profiles", p)], len(world.logs[p])) for p in range(3)}
            _commit(world, Seam.of({"profiles": seam}))
            table.refresh()
        now = {
            where: _keyed(table.extract(Wanted(where=where), table.reader.end()))
            for where in (None, MATCHING)
        }
        for point, before in chance.sample(known, min(2, len(known))):
            for where, rows in before.items():
                changes = _keyed(_changes(world, table, Wanted(where=where, since=point)))
                assert _applied(rows, changes) == now[where]
        point = table.reader.look(()).read_point
        if point.seam == point.end:
            assert _keyed(_changes(world, table, Wanted(since=point))) == {}
        known.append((point, now))


def test_changes_in_a_scope_tell_of_no_other_key(served: Callable[..., tuple[Any, ServedTable]]) -> None:
    world, table = served(PLAIN)
    point = table.reader.look(()).read_point
    for user in (f"u{number}" for number in range(40)):  # some of them in the bucket of u1
        world.produce({"app_id": 7, "user_id": user, "key": "new"}, {"value": "x"})
        world.produce({"app_id": 7, "user_id": user, "key": "gone"}, None)
    world.tail()
    grant = Grant(frozenset({Action.CHANGES}), Part(scope=(("user_id", "u1"),)))
    wanted = Wanted(since=point, caller=Caller("some", {"profiles": grant}))
    found = {key: row[CHANGE_TYPE] for key, row in _keyed(_changes(world, table, wanted)).items()}
    assert found == {("u1", "new"): UPSERT, ("u1", "gone"): DELETE}


def test_every_format_has_changes(served: Callable[..., tuple[Any, ServedTable]]) -> None:
    world, table = served(PLAIN)
    point = table.reader.look(()).read_point
    world.produce({"app_id": 7, "user_id": "u1", "key": "k"}, {"value": "x"})
    world.produce({"app_id": 7, "user_id": "u2", "key": "k"}, None)
    found = {}
    for name in FORMATS:
        wanted = Wanted(["key", "user_id", "app_id", "value"], since=point)
        with closing(_changes(world, table, wanted)) as extract:
            found[name] = b"".join(encoded(extract, name))
    assert sorted(found["jsonl"].splitlines()) == [
        b'{"key":"k","user_id":"u1","app_id":7,"value":"x","_change_type":"upsert"}',
        b'{"key":"k","user_id":"u2","app_id":7,"value":null,"_change_type":"delete"}',
    ]
    assert sorted(found["csv"].splitlines()) == [
        b'"k","u1",7,"x","upsert"',
        b'"k","u2",7,,"delete"',
        b'"key","user_id","app_id","value","_change_type"',
    ]
    arrow = pa.ipc.open_stream(found["arrow"]).read_all()
    parquet = pa.parquet.read_table(pa.BufferReader(found["parquet"]))
    assert arrow.sort_by("user_id").to_pylist() == parquet.sort_by("user_id").to_pylist()
    assert arrow.column(CHANGE_TYPE).to_pylist().count(DELETE) == 1


@pytest.mark.parametrize(
    ("wanted", "problem"), [({"limit": 3}, "limit"), ({"columns": ["key", "app_id", "value"]}, "user_id")]
)
def test_changes_are_whole_and_each_has_its_key(wanted: dict[str, Any], problem: str) -> None:
    point = ReadPoint(1, Seam(), Seam())
    with pytest.raises(BadParameter, match=problem):
        Selection.of(PLAIN, Wanted(**wanted, since=point))
