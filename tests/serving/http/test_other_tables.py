"""Tables of format version 2, and tables without a key, as serving reads them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.serving.conftest import PROFILES, World
from thermocline.errors import BadParameter
from thermocline.rules.definition import PROVENANCE, LiveTable
from thermocline.rules.seam import Seam
from thermocline.serving.http.app import create_app
from thermocline.serving.http.openapi import described
from thermocline.serving.http.requests import entities_of, entity_of_query
from thermocline.serving.read.entity import entity_of
from thermocline.serving.read.tables import ServedTable, Tables
from thermocline.serving.read.wanted import Wanted
from thermocline.settings import ServingSettings

EVENTS = LiveTable.build(
    name="profiles",
    identifier="app.profiles",
    topics=["profiles"],
    key=[],
    key_from="value",
    columns={"user_id": "string", "amount": "decimal(10,2)", "at": "timestamptz"},
    buckets=4,
)


def extracted(table: ServedTable, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    extract = table.extract(Wanted(columns), table.reader.end())
    try:
        return [row for batch in extract.batches() for row in batch.to_pylist()]
    finally:
        extract.close()


def commit_a_part(world: World, table: ServedTable, chance: random.Random) -> None:
    seam = {p: chance.randint(world.seam[("profiles", p)], len(world.logs[p])) for p in range(3)}
    world.commit(Seam.of({"profiles": seam}))
    world.publish()
    table.refresh()


def test_rows_deleted_by_position_delete_files_are_gone_from_lookups_and_extracts(
    served: Callable[[LiveTable], tuple[World, ServedTable]], seed: int
) -> None:
    """Random updates and tombstones over several commits of a table of format version 2."""
    chance = random.Random(seed)
    world, table = served(replace(PROFILES, format_version=2))
    for step in range(4):
        for number in (chance.randrange(12) for _ in range(150)):
            value = None if chance.random() < 0.3 else {"value": f"{step} {chance.random()}"}
            key = {"app_id": 7, "user_id": f"u{number}", "key": f"k{chance.randrange(8)}"}
            world.produce(key, value, partition=number % 3)
        world.tail()
        commit_a_part(world, table, chance)
        found = {(row["app_id"], row["user_id"], row["key"]): row for row in extracted(table)}
        assert found == world.rows()
        entities = [entity_of(world.definition, {"app_id": "7", "user_id": f"u{n}"}) for n in range(12)]
        looked_up = [row for rows in table.reader.lookup(entities)[1] for row in json.loads(rows)]
        assert {(row["app_id"], row["user_id"], row["key"]): row for row in looked_up} == world.rows()
    formats = {file.deletes.format for file in world.snapshots[world.newest] if file.deletes}
    assert formats == {"parquet"}


def test_an_extract_of_a_table_without_a_key_has_a_row_for_every_record(
    served: Callable[[LiveTable], tuple[World, ServedTable]], seed: int
) -> None:
    """Equal values and record keys in all partitions, on both sides of the seam: none replaces another."""
    chance = random.Random(seed)
    world, table = served(EVENTS)
    for _ in range(4):
        for _ in range(200):
            value = {"user_id": f"u{chance.randrange(3)}", "amount": f"{chance.randrange(4)}.50"}
            world.produce({"any": "key"}, value, partition=chance.randrange(3))
        world.tail()
        commit_a_part(world, table, chance)
        expected = {
            (partition, offset): (record["user_id"], record["amount"])
            for partition, log in enumerate(world.logs)
            for offset, (_, raw, _) in enumerate(log)
            for record in [json.loads(raw or b"")]
        }
        rows = extracted(table, ["amount", "user_id", *PROVENANCE])
        assert len(rows) == len(expected)
        assert {
            (row["_kafka_partition"], row["_kafka_offset"]): (row["user_id"], str(row["amount"]))
            for row in rows
        } == expected
        assert {row["_kafka_topic"] for row in rows} == {"profiles"}
        declared = extracted(table)
        assert len(declared) == len(expected)
        assert set(declared[0]) == {"user_id", "amount", "at"}
    assert not any(file.deletes for file in world.snapshots[world.newest])


def test_lookups_in_a_table_without_a_key_are_refused_and_point_to_extracts() -> None:
    for ask in (
        lambda: entity_of(EVENTS, {"user_id": "u1"}),
        lambda: entity_of(EVENTS, {}),
        lambda: entity_of_query(EVENTS, b"_kafka_topic=profiles&_kafka_partition=0&_kafka_offset=1"),
        lambda: entities_of(EVENTS, []),
        lambda: entities_of(EVENTS, [{"user_id": "u1"}]),
    ):
        with pytest.raises(BadParameter) as raised:
            ask()
        assert raised.value.next == "thermocline extract profiles"


def test_the_openapi_document_offers_no_lookups_where_there_is_no_key() -> None:
    api = create_app(Tables([]), ServingSettings()).api
    paths = described(api, {"events": EVENTS, "profiles": PROFILES})["paths"]
    assert "/v1/tables/events/extract" in paths
    assert "/v1/tables/profiles/rows" in paths
    assert not [path for path in paths if path.startswith("/v1/tables/events/rows")]
