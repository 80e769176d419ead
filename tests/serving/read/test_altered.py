"""A table that is altered or dropped while it is served: older files, the switch, and what is never mixed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from thermocline.errors import NotReady, ReadPointGone, TableMissing, TableRestricted
from thermocline.process import metrics
from thermocline.process.clock import SystemClock
from thermocline.process.metrics import REGISTRY
from thermocline.rules.alteration import plan_alteration
from thermocline.rules.decode import json_row
from thermocline.rules.definition import LiveTable
from thermocline.rules.seam import Seam
from thermocline.serving.cold.manifest import source_of
from thermocline.serving.read import lookup
from thermocline.serving.read.caller import EVERYONE, Action, Caller, Grant, Part
from thermocline.serving.read.entity import entity_of
from thermocline.serving.read.tables import ServedTable
from thermocline.serving.read.wanted import Wanted

USERS = 6


def definition_of(version: int = 1, **columns: Any) -> LiveTable:
    return LiveTable.build(
        name="profiles",
        identifier="app.profiles",
        topics=["profiles"],
        key=["user", "slot"],
        entity=["user"],
        columns={"user": "string", "slot": "int", **columns},
        buckets=2,
        version=version,
    )


BEFORE = definition_of(count="int", price="decimal(6,2)")
WANTED = definition_of(score="double", count="long", price="decimal(12,2)", seen="timestamptz")
AFTER = plan_alteration(BEFORE, WANTED).definition


@pytest.fixture
def served(new_world: Callable[..., Any]) -> Iterator[tuple[Any, ServedTable]]:
    """A world and the table as a server has it, at the snapshot and the tier of the moment."""
    world = new_world(BEFORE)
    world.clock = SystemClock()
    world.commit()
    world.publish()
    world.tail()
    (world.folder / "tailer.json").write_bytes(b'{"caught_up_to_start_ends": true}')
    table = ServedTable(world.definition, world.folder, world.published, world.clock, 5.0)
    table.refresh()
    yield world, table
    table.close()


def produce(world: Any, chance: random.Random, **values: Any) -> None:
    number = chance.randrange(USERS)
    key = {"user": f"u{number}", "slot": chance.randrange(8)}
    value = None if chance.random() < 0.2 else {"score": 0.5, "seen": "2026-01-02T03:04:05Z", **values}
    world.produce(key, value, partition=number % 3)


def looked_up(table: ServedTable) -> dict[tuple[Any, ...], Any]:
    entities = [entity_of(table.definition, {"user": f"u{number}"}) for number in range(USERS)]
    _, results = table.reader.lookup(entities)
    rows = [row for rows in results for row in msgspec.json.decode(rows)]
    return {(row["user"], row["slot"]): row for row in rows}


def extracted(world: Any, table: ServedTable, monkeypatch: pytest.MonkeyPatch) -> dict[tuple[Any, ...], Any]:
    # The seal is made while it is waited for, by the thread that waits.
    monkeypatch.setattr(type(world.clock), "sleep", lambda *_: world.tier.seal())
    extract = table.extract(Wanted(), table.reader.end())
    rows = [row for batch in extract.batches() for row in batch.to_pylist()]
    extract.close()
    assert len({(row["user"], row["slot"]) for row in rows}) == len(rows)
    assert extract.schema.names == [column.name for column in table.definition.columns]
    return {(row["user"], row["slot"]): msgspec.json.decode(json_row(row)) for row in rows}


def follow(world: Any, table: ServedTable) -> None:
    """What the tailer does when it sees the altered definition."""
    world.restart_tailer(world.seam)
    world.tail()
    table.refresh()


def test_files_and_hot_records_of_both_sides_of_an_alteration_are_read_as_the_replay_has_them(
    served: tuple[Any, ServedTable], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: old files lack the new columns and hold narrower types, and every read path reads them right.

    Method: random records; a commit before the alteration, hot records on both sides of it, a commit after it
    with values that only the wider types hold. Lookups, extracts and the replay agree at each moment.
    """
    chance = random.Random(seed)
    world, table = served

    def check() -> None:
        assert looked_up(table) == world.rows()
        assert extracted(world, table, monkeypatch) == world.rows()

    for _ in range(60):
        produce(world, chance, count=chance.randrange(100), price=f"{chance.randrange(10_000)}.25")
    world.commit()
    for _ in range(20):
        produce(world, chance, count=-1, price="0.50")
    world.publish()
    world.tail()
    table.refresh()
    check()
    world.alter(AFTER)
    world.publish()
    follow(world, table)
    check()
    for _ in range(40):
        produce(world, chance, count=1 << 40, price="1234567890.25")
    world.tail()
    check()
    world.commit()
    world.publish()
    table.refresh()
    check()
    assert any(row["count"] == 1 << 40 for row in world.rows().values())
    assert {row["score"] for row in world.rows().values()} == {None, 0.5}


def test_a_file_that_is_loaded_is_read_on_by_a_columns_new_name(served: tuple[Any, ServedTable]) -> None:
    world, table = served
    world.produce({"user": "u0", "slot": 1}, {"count": 7, "price": "1.00"})
    world.commit()
    world.publish()
    table.refresh()
    assert looked_up(table) == {("u0", 1): {"user": "u0", "slot": 1, "count": 7, "price": "1.00"}}
    wanted = definition_of(items={"type": "int", "renamed_from": "count"}, price="decimal(6,2)")
    world.alter(plan_alteration(BEFORE, wanted).definition)
    world.publish()
    follow(world, table)
    assert looked_up(table) == {("u0", 1): {"user": "u0", "slot": 1, "items": 7, "price": "1.00"}}


def with_another_topic(
    world: Any, table: ServedTable, topics: tuple[str, ...] = ("profiles", "more"), is_looking: bool = True
) -> Callable[[], int]:
    """The last topic came, which the tailer has not read to its end; what tells the version served."""
    world.produce({"user": "u0", "slot": 1}, {"count": 1, "price": "1.00"})
    world.tail()
    world.alter(replace(BEFORE, version=len(topics), topics=topics))
    world.publish()
    if is_looking:
        table.refresh()
    world.tier.follow(world.definition, source_of(world.table, world.state))
    world.tier.extend(Seam({(topics[-1], 0): 0}))
    assert world.tier.records == 1

    def served_version() -> int:
        table.refresh()
        assert looked_up(table) == world.rows()
        return table.reader.look(()).cold.index.definition.version

    return served_version


def test_a_server_stays_at_its_snapshot_until_a_topic_that_came_is_read_to_its_end(
    served: tuple[Any, ServedTable],
) -> None:
    world, table = served
    served_version = with_another_topic(world, table)
    assert served_version() == 1
    assert not table.reader.look(()).is_stale
    world.tier.append([], Seam({("more", 0): 0}), {("more", 0): world.clock.monotonic()})
    assert served_version() == 2
    assert not table.reader.look(()).is_stale
    assert table.reader.end().topics == ("more", "profiles")


def test_but_not_for_long_where_it_is_not_read(
    served: tuple[Any, ServedTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    served_version = with_another_topic(*served)
    monkeypatch.setattr(lookup, "UNREAD_SECONDS_MAX", 0.0)
    assert served_version() == 2
    assert served[1].reader.look(()).is_stale


def test_each_topic_that_comes_is_waited_for_also_after_one_that_was_not_read_in_time(
    new_world: Callable[..., Any],
) -> None:
    world = new_world(BEFORE)
    world.commit()
    world.publish()
    world.tail()
    (world.folder / "tailer.json").write_bytes(b'{"caught_up_to_start_ends": true}')
    table = ServedTable(world.definition, world.folder, world.published, world.clock, 5.0)
    table.refresh()
    served_version = with_another_topic(world, table)
    assert served_version() == 1
    world.clock.advance(lookup.UNREAD_SECONDS_MAX)
    assert served_version() == 2
    world.tier.append([], Seam({("more", 0): 0}), {("more", 0): world.clock.monotonic()})
    # The tailer knows it before this worker looks.
    served_version = with_another_topic(world, table, ("profiles", "more", "third"), is_looking=False)
    assert served_version() == 2
    world.clock.advance(lookup.UNREAD_SECONDS_MAX)
    assert served_version() == 3
    table.close()


def test_until_the_hot_tier_follows_answers_stay_whole_under_the_definition_before(
    served: tuple[Any, ServedTable],
) -> None:
    world, table = served
    world.produce({"user": "u0", "slot": 1}, {"count": 1, "price": "1.00", "score": 2.5})
    world.tail()
    world.alter(AFTER)
    world.publish()
    table.refresh()
    before = {"user": "u0", "slot": 1, "count": 1, "price": "1.00"}
    assert looked_up(table) == {("u0", 1): before}

    world.restart_tailer(world.seam)
    with pytest.raises(NotReady, match="another definition"):
        looked_up(table)
    table.refresh()
    with pytest.raises(NotReady, match="behind earlier answers"):
        looked_up(table)
    world.tail()
    assert looked_up(table) == {("u0", 1): {**before, "score": 2.5, "seen": None}}
    assert table.definition == world.definition


def test_records_decoded_by_another_definition_of_the_same_version_are_not_laid_over(
    served: tuple[Any, ServedTable],
) -> None:
    """A table that was dropped and created again begins with version 1, too."""
    world, table = served
    world.table_uuid = uuid4()
    world.alter(definition_of(1, count="string"))
    world.publish()
    table.refresh()
    assert table.definition == BEFORE
    world.restart_tailer(world.seam)
    with pytest.raises(NotReady, match="another definition"):
        table.reader.look(())
    table.refresh()
    world.tail()
    assert looked_up(table) == {}


def test_records_of_a_log_before_a_new_start_was_accepted_are_not_laid_over(
    served: tuple[Any, ServedTable],
) -> None:
    """Goal: after a rebase the same offsets mean other records, and answers may end before earlier ones.

    Method: the table holds 8 records, and 2 more are hot; then it is fed from a log of 2, from its start.
    """
    world, table = served

    def write(slots: range, count: int) -> None:
        for slot in slots:
            world.produce({"user": "u0", "slot": slot}, {"count": count, "price": "1.00"})

    def counts() -> list[int]:
        return [row["count"] for row in looked_up(table).values()]

    write(range(8), 1)
    world.commit()
    world.publish()
    write(range(8, 10), 2)
    world.tail()
    table.refresh()
    assert counts() == [1] * 8 + [2] * 2
    world.properties["thermocline.accepted"] = '[{"code":"topic-replaced"}]'
    world.logs[0].clear()
    write(range(2), 3)
    world.alter(world.definition)
    world.seam = Seam.of({"profiles": {0: 0, 1: 0, 2: 0}})
    assert world.publish()
    table.refresh()
    assert counts() == [1] * 8 + [2] * 2, "what is held answers until the tier is begun again"
    (world.folder / "tailer.json").write_bytes(b'{"caught_up_to_start_ends": false}')
    world.restart_tailer(world.seam)
    with pytest.raises(NotReady, match="another log"):
        looked_up(table)
    table.refresh()
    with pytest.raises(NotReady, match="up to its end"):
        looked_up(table)
    world.tail()
    (world.folder / "tailer.json").write_bytes(b'{"caught_up_to_start_ends": true}')
    assert counts() == [3] * 2 + [1] * 6


def test_a_worker_that_was_idle_waits_until_a_tier_that_was_begun_again_has_been_filled(
    served: tuple[Any, ServedTable],
) -> None:
    """Goal: what other workers answered from the tier before, this one does not take back."""
    world, table = served
    assert looked_up(table) == {}
    world.produce({"user": "u0", "slot": 1}, {"count": 1, "price": "1.00"})
    world.tail()  # and other workers answer it
    (world.folder / "tailer.json").write_bytes(b'{"caught_up_to_start_ends": false}')
    world.restart_tailer(world.seam, may_continue=False)
    table.refresh()
    with pytest.raises(NotReady, match="up to its end"):
        looked_up(table)
    world.tail()
    (world.folder / "tailer.json").write_bytes(b'{"caught_up_to_start_ends": true}')
    assert looked_up(table).keys() == {("u0", 1)}


def test_files_of_a_narrower_type_are_extracted_beside_wider_ones(
    served: tuple[Any, ServedTable], monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB takes the first file of several for all of them: its int would be too narrow for the others."""
    world, table = served
    for slot in range(5):
        for user in range(USERS):
            world.produce({"user": f"u{user}", "slot": slot}, {"count": slot, "price": "1.00"})
        world.commit()
    world.alter(definition_of(2, count="long", price="decimal(12,2)"))
    for user in range(USERS):
        world.produce({"user": f"u{user}", "slot": 9}, {"count": 1 << 40, "price": "1234567890.25"})
    world.commit()
    world.publish()
    follow(world, table)
    assert extracted(world, table, monkeypatch) == looked_up(table) == world.rows()


def test_added_columns_named_as_duckdbs_own_change_no_row(
    served: tuple[Any, ServedTable], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: files with such a column, and files without it, lose their deleted rows and no others."""
    chance = random.Random(seed)
    world, table = served
    for count in range(4):
        if count == 2:
            more = {"file_row_number": "long", "FILE_INDEX": "int", "count": "int", "price": "decimal(6,2)"}
            world.alter(plan_alteration(BEFORE, definition_of(version=1, **more)).definition)
        for _ in range(60):
            produce(world, chance, count=count, file_row_number=chance.randrange(4), FILE_INDEX=0)
        world.commit()
    world.publish()
    follow(world, table)
    assert extracted(world, table, monkeypatch) == looked_up(table) == world.rows()
    assert sum(file.data.deletes is not None for file in table.reader.cold.index.files) > 4


def test_a_dropped_table_is_refused_by_name_and_served_again_when_it_is_back(
    served: tuple[Any, ServedTable],
) -> None:
    world, table = served
    status = world.folder / "tailer.json"
    status.write_bytes(b'{"catalog_problem": {"code": "table-missing"}}')
    table.refresh()
    with pytest.raises(TableMissing, match=r"app\.profiles"):
        _ = table.reader
    assert table.status()["ready"] is False
    unknowing = (
        b"{}",
        *(
            b'{"catalog_problem": {"code": "%s"}}' % code
            for code in (b"catalog-unreachable", b"internal-error")
        ),
        b'{"table": "half',
    )
    for said in unknowing:
        status.write_bytes(said)
        table.refresh()
        with pytest.raises(TableMissing):
            _ = table.reader
    status.write_bytes(b'{"catalog_problem": null, "caught_up_to_start_ends": true}')
    table.refresh()
    assert looked_up(table) == {}


def test_a_table_of_which_the_catalog_hides_a_part_is_refused(served: tuple[Any, ServedTable]) -> None:
    world, table = served
    status = world.folder / "tailer.json"
    for said in (b'{"catalog_problem": {"code": "table-restricted"}}', b"{}"):
        status.write_bytes(said)
        table.refresh()
        with pytest.raises(TableRestricted, match="read restrictions"):
            _ = table.reader
        assert table.status()["ready"] is False
    status.write_bytes(b'{"catalog_problem": null, "caught_up_to_start_ends": true}')
    table.refresh()
    assert looked_up(table) == {}


def test_changes_that_are_gone_are_said_without_words_about_others(
    served: tuple[Any, ServedTable],
) -> None:
    world, before = served
    detail = "events/0@5 can't be read now (name: somebody's)"

    def gone(*_: object) -> Any:
        raise ReadPointGone(table=before.name, detail=detail, which="since")

    table = ServedTable(world.definition, world.folder, world.published, world.clock, 5.0, open_changes=gone)
    table.refresh()
    point = table.reader.look(()).read_point
    part = Grant(frozenset({Action.CHANGES}), Part(columns=()))
    for caller, is_told in ((EVERYONE, True), (Caller("some", {table.name: part}), False)):
        with pytest.raises(ReadPointGone) as raised:
            table.extract(Wanted(since=point, caller=caller), table.reader.end())
        assert (raised.value.detail == detail) is is_told


def test_metrics_show_whether_the_tailer_follows_the_catalog_and_what_it_may_hold(
    served: tuple[Any, ServedTable],
) -> None:
    world, table = served
    status = world.folder / "tailer.json"
    for problem, measured in (('{"code": "catalog-unreachable", "what": "away"}', 1), ("null", 0)):
        status.write_bytes(b'{"catalog_problem": %s, "hot_bytes_max": 7}' % problem.encode())
        table.measure()
        of_table = {"table": table.name}
        assert REGISTRY.get_sample_value("thermocline_catalog_problem", of_table) == measured
        assert REGISTRY.get_sample_value("thermocline_hot_bytes_max", of_table) == 7


def test_metrics_of_offsets_are_those_of_the_topics_of_the_table(served: tuple[Any, ServedTable]) -> None:
    world, table = served
    world.produce({"user": "u0", "slot": 1}, {"count": 1, "price": "1.00"})
    world.tail()
    metrics.END_OFFSET.set(table.name, Seam({("left", 0): 9}))
    table.measure()
    of_table = {"table": table.name, "partition": "0"}
    assert REGISTRY.get_sample_value("thermocline_end_offset", {**of_table, "topic": "profiles"}) == 1
    assert REGISTRY.get_sample_value("thermocline_end_offset", {**of_table, "topic": "left"}) is None
    assert REGISTRY.get_sample_value("thermocline_seam_offset", {**of_table, "topic": "profiles"}) == 0


def test_a_table_that_is_created_again_is_refused_until_nothing_is_held_of_the_one_before(
    served: tuple[Any, ServedTable],
) -> None:
    world, table = served
    world.produce({"user": "u0", "slot": 1}, {"count": 1, "price": "1.00"})
    world.commit()
    world.publish()
    world.tail()
    table.refresh()
    assert len(looked_up(table)) == 1
    status = world.folder / "tailer.json"
    status.write_bytes(b'{"catalog_problem": {"code": "table-missing"}}')
    table.refresh()
    world.table_uuid = uuid4()
    world.alter(AFTER)
    world.snapshots[world.newest] = ()
    world.publish()
    status.write_bytes(b'{"catalog_problem": null, "caught_up_to_start_ends": true}')
    table.refresh()
    with pytest.raises(TableMissing):
        _ = table.reader
    world.restart_tailer(world.seam)
    world.tail()
    table.refresh()
    assert looked_up(table) == {}


def test_an_entity_of_another_number_of_buckets_is_not_looked_for(served: tuple[Any, ServedTable]) -> None:
    """As of a request that was read before the number changed, and is answered after that."""
    world, table = served
    world.produce({"user": "u1", "slot": 1}, {"count": 1})
    world.tail()
    table.refresh()
    before = replace(table.definition, buckets=2 * table.definition.buckets)
    with pytest.raises(NotReady, match="number of buckets"):
        table.reader.lookup([entity_of(before, {"user": f"u{number}"}) for number in range(USERS)])
    assert [row["count"] for row in looked_up(table).values()] == [1]
