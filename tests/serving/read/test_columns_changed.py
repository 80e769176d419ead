"""Commands that read many rows, and SQL, across columns that were renamed, dropped, and came back."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tests.serving.read import test_private
from tests.serving.read.test_private import commit, key_of, value_of
from thermocline.errors import BadParameter, ReadPointGone, SqlRefused
from thermocline.iceberg import catalog as catalogs
from thermocline.iceberg.earlier_columns import with_earlier_columns
from thermocline.iceberg.foreign_schema import schema_differences
from thermocline.rules.alteration import plan_alteration
from thermocline.rules.decode import decoder_for
from thermocline.rules.definition import LiveTable
from thermocline.rules.read_point import ReadPoint
from thermocline.serving.read import private
from thermocline.serving.read.sql import answered
from thermocline.serving.read.wanted import Wanted

private_world = test_private.private_world

COLD = {"app_id": "int", "user_id": "string", "key": "string"}
RENAMED: dict[str, Any] = {
    **COLD,
    "text": {"type": "string", "renamed_from": "value"},
    "updated_at": "timestamptz",
}
DROPPED = {**COLD, "updated_at": "timestamptz"}
AGAIN = {**DROPPED, "value": "string"}


def alter(private_world: SimpleNamespace, columns: dict[str, Any], *drop: str) -> None:
    """As ``table alter`` does: schema, definition, and a snapshot that says so."""
    world, table, before = private_world.world, private_world.table, private_world.world.definition
    wanted = LiveTable.build(
        name=before.name,
        identifier=before.identifier,
        topics=before.topics,
        key=before.key,
        entity=before.entity,
        columns=columns,
        buckets=before.buckets,
    )
    planned = plan_alteration(before, wanted, table.metadata.last_column_id, drop=drop)
    after, schema = planned.definition, planned.definition.iceberg_schema()
    with table.update_schema(allow_incompatible_changes=True) as update:
        for name in drop:
            update.delete_column(name)
        for column in before.columns:
            if column.field_id in schema.field_ids:
                name = schema.find_field(column.field_id).name
                if name != column.name:
                    update.rename_column(column.name, name)
    with table.update_schema() as update:
        for column in planned.added:
            update.add_column(column.name, schema.find_field(column.name).field_type)
    assert schema_differences(after, table.schema()) == ()
    properties = with_earlier_columns(table.properties, before) if planned.is_reread else {}
    with table.transaction() as transaction:
        transaction.set_properties({catalogs.DEFINITION_PROPERTY: after.to_json(), **properties})
    world.definition, world.decoder = after, decoder_for(after)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    ours = {name: said for name, said in snapshot.summary.additional_properties.items() if "." in name}
    ours[catalogs.SUMMARY_DEFINITION_VERSION] = str(after.version)
    table.append(after.table_schema.empty_table(), snapshot_properties=ours)


def committed(private_world: SimpleNamespace) -> None:
    """What is hot, of keys that are new."""
    version = str(private_world.world.definition.version)
    commit(private_world.table, private_world.world, **{catalogs.SUMMARY_DEFINITION_VERSION: version})


def rows(
    private_world: SimpleNamespace,
    where: str | None = None,
    since: ReadPoint | None = None,
    at: ReadPoint | None = None,
) -> list[dict[str, Any]]:
    """The rows of an extract without what is alike in all of them, sorted."""
    sink, wanted = io.BytesIO(), Wanted(where=where, since=since)
    private.extract(private_world.settings, "profiles", wanted, "arrow", sink, at, lambda _: None)
    found = pa.ipc.open_stream(sink.getvalue()).read_all().to_pylist()
    for row in found:
        del row["app_id"], row["key"], row["updated_at"]
    return sorted(found, key=lambda row: str(row["user_id"]))


def point(private_world: SimpleNamespace) -> ReadPoint:
    with private.opened(private_world.settings, "profiles") as opened:
        return opened.read_point


def sql(private_world: SimpleNamespace, text: str) -> list[dict[str, Any]]:
    with answered(private_world.settings, text) as answer:
        return [row for batch in answer.batches() for row in batch.to_pylist()]


def looked_up(private_world: SimpleNamespace, user: str) -> dict[str, Any]:
    entity = {"app_id": "7", "user_id": user}
    (row,) = private.lookup(private_world.settings, "profiles", entity)["rows"]
    (explained,) = private.explained(private_world.settings, "profiles", entity)["rows"]
    assert explained["row"] == row
    found: dict[str, Any] = row
    return found


def produce(private_world: SimpleNamespace, user: int, text: str) -> None:
    private_world.world.produce(key_of(f"u{user}"), value_of(text), partition=user % 3)


def test_a_renamed_column_has_its_values_under_the_new_name_alone(private_world: SimpleNamespace) -> None:
    produce(private_world, 0, "hot")
    alter(private_world, RENAMED)
    produce(private_world, 1, "later")
    expected = [
        {"user_id": "u0", "text": "hot"},
        {"user_id": "u1", "text": "later"},
        {"user_id": "u2", "text": "cold"},
    ]
    assert rows(private_world) == expected
    assert rows(private_world, "text = 'cold'") == expected[2:]
    assert sql(private_world, "SELECT user_id, text FROM profiles ORDER BY user_id") == expected
    assert sql(private_world, "SELECT count(*) AS n FROM profiles WHERE text IN ('cold', 'hot')") == [
        {"n": 2}
    ]
    assert [looked_up(private_world, f"u{user}")["text"] for user in range(3)] == ["hot", "later", "cold"]
    with pytest.raises(BadParameter, match="value"):
        rows(private_world, "value = 'cold'")
    with pytest.raises(SqlRefused, match="value"):
        sql(private_world, "SELECT value FROM profiles")


def test_a_column_that_came_back_shows_nothing_of_the_one_that_was_dropped(
    private_world: SimpleNamespace,
) -> None:
    """Goal: nothing is found by the statistics of files from before, either."""
    alter(private_world, DROPPED, "value")
    produce(private_world, 3, "while it was gone")
    users = [{"user_id": f"u{user}"} for user in range(4)]
    assert rows(private_world) == users
    assert sql(private_world, "SELECT user_id FROM profiles ORDER BY user_id") == users
    with pytest.raises(SqlRefused, match="value"):
        sql(private_world, "SELECT value FROM profiles")
    committed(private_world)

    alter(private_world, AGAIN)
    assert rows(private_world) == [{**row, "value": None} for row in users]
    produce(private_world, 4, "new")
    for _ in ("hot", "committed"):
        expected = [*({**row, "value": None} for row in users), {"user_id": "u4", "value": "new"}]
        assert rows(private_world) == expected
        assert rows(private_world, "value = 'cold'") == []
        assert rows(private_world, "value = 'new'") == expected[4:]
        assert rows(private_world, "value IS NULL") == expected[:4]
        assert sql(private_world, "SELECT user_id, value FROM profiles ORDER BY user_id") == expected
        assert sql(private_world, "SELECT count(value) AS n FROM profiles WHERE value >= ''") == [{"n": 1}]
        assert sql(private_world, "SELECT user_id FROM profiles WHERE value = 'cold'") == []
        assert [looked_up(private_world, f"u{user}")["value"] for user in (0, 3, 4)] == [None, None, "new"]
        committed(private_world)
    produce(private_world, 1, "cold")
    assert rows(private_world, "value = 'cold'") == [{"user_id": "u1", "value": "cold"}]
    assert sql(private_world, "SELECT user_id FROM profiles WHERE value = 'cold'") == [{"user_id": "u1"}]


ALTERED: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "renamed": (RENAMED, ()),
    "dropped": (DROPPED, ("value",)),
    "added": ({**COLD, "value": "string", "updated_at": "timestamptz", "n": "int"}, ()),
}


@pytest.mark.parametrize("how", ALTERED)
def test_changes_and_reads_as_of_before_an_alteration_are_refused_and_go_on_behind_it(
    private_world: SimpleNamespace, how: str
) -> None:
    """A copy has other columns, and null where the table has another column of the name by now."""
    before = point(private_world)
    produce(private_world, 0, "hot")
    columns, drop = ALTERED[how]
    alter(private_world, columns, *drop)
    with pytest.raises(ReadPointGone, match="definition was altered since"):
        rows(private_world, since=before)
    with pytest.raises(ReadPointGone, match="definition was altered since"):
        rows(private_world, at=before)
    after = point(private_world)
    produce(private_world, 1, "later")
    hot, later = rows(private_world, since=after)
    assert [(one["user_id"], one["_change_type"]) for one in (hot, later)] == [
        *(("u0", "upsert"), ("u1", "upsert"))
    ]
    name = {"renamed": "text", "added": "value"}.get(how)
    assert name is None or (hot[name], later[name]) == ("hot", "later")


def test_changes_from_before_a_column_was_dropped_and_came_back_are_refused(
    private_world: SimpleNamespace,
) -> None:
    """The columns are called as before, and the copy has values that the table lacks."""
    before = point(private_world)
    alter(private_world, DROPPED, "value")
    alter(private_world, {**COLD, "value": "string", "updated_at": "timestamptz"})
    with pytest.raises(ReadPointGone, match="definition was altered since"):
        rows(private_world, since=before)
