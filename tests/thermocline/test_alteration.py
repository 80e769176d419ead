"""What an alteration may change, and why the rest may not."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from tests.thermocline.orders import COLUMNS, ORDERS, wanted
from thermocline.errors import AlterationRefused
from thermocline.rules.alteration import definition_by, plan_alteration
from thermocline.rules.definition import PROVENANCE, LiveTable
from thermocline.rules.definition.option import option_of
from thermocline.rules.definition.stored import apart_from_topics


def columns(**changes: Any) -> dict[str, Any]:
    return COLUMNS | changes


def reasons(**changes: Any) -> tuple[str, ...]:
    with pytest.raises(AlterationRefused) as refused:
        plan_alteration(ORDERS, wanted(**changes))
    return refused.value.problems


def test_nothing_differs() -> None:
    planned = plan_alteration(ORDERS, wanted())
    assert planned.changes == ()
    assert planned.definition == ORDERS


def test_new_columns_get_the_ids_after_all_others_wherever_the_file_has_them() -> None:
    file = {"score": "double", "id": "int", "slot": "string", "note": "string", **COLUMNS, "last": "date"}
    planned = plan_alteration(ORDERS, wanted(columns=file))
    last = ORDERS.provenance_id + len(PROVENANCE) - 1
    ids = {column.name: column.field_id for column in planned.definition.columns}
    assert [column.name for column in planned.definition.columns] == list(file)
    assert (ids["score"], ids["note"], ids["last"]) == (last + 1, last + 2, last + 3)
    assert {name: ids[name] for name in COLUMNS} == {c.name: c.field_id for c in ORDERS.columns}
    assert planned.definition.provenance_id == ORDERS.provenance_id
    assert planned.definition.version == ORDERS.version + 1
    assert [column.name for column in planned.added] == ["score", "note", "last"]


def test_new_columns_get_ids_that_the_table_never_gave() -> None:
    last = ORDERS.provenance_id + len(PROVENANCE) - 1
    file = wanted(columns=columns(score="double", note="string"))
    ids = {
        given: [c.field_id for c in plan_alteration(ORDERS, file, given).added]
        for given in (0, last, last + 7)
    }
    assert ids == {0: [last + 1, last + 2], last: [last + 1, last + 2], last + 7: [last + 8, last + 9]}


def test_the_fields_within_new_columns_have_ids_after_them_and_those_within_old_ones_keep_theirs() -> None:
    last = ORDERS.provenance_id + len(PROVENANCE) - 1
    more: dict[str, Any] = {"tags": "list<string>", "size": "struct<a: list<int>, b: map<string, int>>"}
    first = plan_alteration(ORDERS, wanted(columns=COLUMNS | more))
    assert [(c.field_id, c.nested_ids) for c in first.added] == [
        (last + 1, (last + 2,)),
        (last + 3, tuple(range(last + 4, last + 9))),
    ]
    second = plan_alteration(first.definition, wanted(columns={**COLUMNS, "n": "list<int>", **more}))
    assert [(c.field_id, c.nested_ids) for c in second.added] == [(last + 9, (last + 10,))]
    assert [c for c in second.definition.columns if c.name in more] == list(first.added)
    with pytest.raises(
        AlterationRefused, match="tags can't become list<long> from list<string>: only int to long"
    ):
        plan_alteration(first.definition, wanted(columns=COLUMNS | more | {"tags": "list<long>"}))


NESTED: dict[str, Any] = {
    "lines": "list<struct<sku: string, count: int>>",
    "by": "map<string, struct<name: string, paid: decimal(4,2)>>",
}
WITHIN: dict[str, Any] = {
    "lines": "list<struct<gift: struct<text: string, for: string>, sku: string, count: long>>",
    "new": "list<int>",
    "by": "map<string, struct<name: string, paid: decimal(9,2), at: date>>",
}


def test_fields_within_columns_are_added_and_widened_and_those_that_are_there_keep_their_ids() -> None:
    last = ORDERS.provenance_id + len(PROVENANCE) - 1
    current = plan_alteration(ORDERS, wanted(columns=COLUMNS | NESTED)).definition
    ids = {column.name: (column.field_id, *column.nested_ids) for column in current.columns}
    assert ids["lines"] == (last + 1, last + 2, last + 3, last + 4)
    assert ids["by"] == (last + 5, last + 6, last + 7, last + 8, last + 9)

    planned = plan_alteration(current, wanted(columns=COLUMNS | WITHIN))
    after = {column.name: (column.field_id, *column.nested_ids) for column in planned.definition.columns}
    # The element; gift, sku and count; then text and for.
    assert after["lines"] == (last + 1, last + 2, last + 10, last + 3, last + 4, last + 11, last + 12)
    assert after["new"] == (last + 13, last + 14)
    assert after["by"] == (last + 5, last + 6, last + 7, last + 8, last + 9, last + 15)
    there = "values that are there have null in it"
    assert planned.changes == (
        f"field lines.element.gift is added as struct<text: string, for: string>; {there}",
        "field lines.element.count is widened from int to long",
        "column new is added as list<int>; rows that are there have null",
        "field by.value.paid is widened from decimal(4,2) to decimal(9,2)",
        f"field by.value.at is added as date; {there}",
    )
    assert planned.definition.differences(wanted(columns=COLUMNS | WITHIN)) == ()
    assert LiveTable.from_json(planned.definition.to_json(), "orders") == planned.definition
    assert definition_by(planned.definition, current.iceberg_schema()).columns == current.columns


def renamed(**changes: Any) -> dict[str, Any]:
    """The columns, of which ``count`` is called ``items``."""
    file: dict[str, Any] = {name: kind for name, kind in COLUMNS.items() if name != "count"}
    return file | {"items": {"type": "int", "renamed_from": "count"}} | changes


def test_a_renamed_column_keeps_its_field_id_and_is_still_read_from_the_field_of_its_old_name() -> None:
    ids = {column.name: column.field_id for column in ORDERS.columns}
    planned = plan_alteration(ORDERS, wanted(columns=renamed()))
    (items,) = [column for column in planned.definition.columns if column.name == "items"]
    assert (items.field_id, items.path, items.renamed_from) == (ids["count"], ("count",), "")
    assert planned.added == ()
    assert planned.is_reread
    still = 'still read from ["count"]; queries, grants and views have to name it so'
    assert planned.changes == (
        f"column count is renamed to items, and {still}",
        "the columns are ordered id, slot, price, at, items; who takes them by place has to follow",
    )
    again = plan_alteration(planned.definition, wanted(columns=renamed()))
    assert again.changes == (), "the file may keep what it said"
    assert planned.definition.differences(wanted(columns=renamed())) == ()


def test_the_old_name_of_a_renamed_column_is_free_for_another_one_in_the_same_step_and_later() -> None:
    last = ORDERS.provenance_id + len(PROVENANCE) - 1
    ids = {column.name: column.field_id for column in ORDERS.columns}
    both = wanted(columns=renamed(count="string"))
    at_once = plan_alteration(ORDERS, both).definition
    later = plan_alteration(plan_alteration(ORDERS, wanted(columns=renamed())).definition, both).definition
    for definition in (at_once, later):
        found = {column.name: (column.field_id, str(column.type)) for column in definition.columns}
        assert found["items"] == (ids["count"], "int")
        assert found["count"] == (last + 1, "string")


def test_a_dropped_column_goes_and_its_name_comes_back_with_another_field_id() -> None:
    last = ORDERS.provenance_id + len(PROVENANCE) - 1
    without = wanted(columns={name: kind for name, kind in COLUMNS.items() if name != "count"})
    dropped = plan_alteration(ORDERS, without, last, drop=["count"])
    assert [column.name for column in dropped.definition.columns] == ["id", "slot", "price", "at"]
    assert dropped.is_reread
    (change,) = dropped.changes
    assert change.startswith("column count is dropped")
    again = plan_alteration(dropped.definition, wanted(), last)
    ids = {column.name: column.field_id for column in again.definition.columns}
    assert ids["count"] == last + 1


def test_a_dropped_field_goes_and_its_name_comes_back_with_another_field_id() -> None:
    current = wanted(columns=COLUMNS | {"a": "struct<x: int, y: list<int>>"})
    last = max(current.columns[-1].nested_ids)
    without = wanted(columns=COLUMNS | {"a": "struct<x: int>"})
    dropped = plan_alteration(current, without, last, drop=["a.y"]).definition
    assert dropped.columns[-1].nested_ids == current.columns[-1].nested_ids[:1]
    again = plan_alteration(dropped, wanted(columns=COLUMNS | {"a": "struct<y: list<int>, x: int>"}), last)
    x = current.columns[-1].nested_ids[0]
    assert again.definition.columns[-1].nested_ids == (last + 1, x, last + 2)


@pytest.mark.parametrize(
    ("changes", "drop", "says"),
    [
        ({}, ["count"], "count can't be dropped: the file still has it"),
        ({"columns": renamed()}, ["count"], "count can't be dropped: the file says that it is renamed"),
        (
            {"columns": renamed(more={"type": "int", "renamed_from": "count"})},
            [],
            "the column count can't be renamed to 2 names",
        ),
        ({}, ["nothing"], "nothing can't be dropped: the table has no such column or field"),
        (
            {"columns": {"items": {"type": "int", "renamed_from": "count"}, **COLUMNS}, "topics": ["more"]},
            ["count"],
            "the topic orders can't be left out",
        ),
        (
            {
                "columns": {"nr": {"type": "int", "renamed_from": "id"}, **COLUMNS},
                "key": ["nr", "slot"],
                "entity": ["nr"],
            },
            [],
            "the column id can't be renamed: it is part of the key",
        ),
        (
            {"columns": renamed(items={"type": "string", "renamed_from": "count"})},
            [],
            "items can't become string",
        ),
    ],
)
def test_what_cannot_be_renamed_or_dropped_says_why(
    changes: dict[str, Any], drop: list[str], says: str
) -> None:
    with pytest.raises(AlterationRefused) as refused:
        plan_alteration(ORDERS, wanted(**changes), drop=drop)
    assert says in "; ".join(refused.value.problems)


def test_a_column_is_read_from_elsewhere_from_the_seam_on_and_what_it_was_is_noted() -> None:
    ids = {column.name: column.field_id for column in ORDERS.columns}
    moved = wanted(columns=columns(count={"type": "int", "path": "sum.items"}))
    planned = plan_alteration(ORDERS, moved)
    (count,) = [column for column in planned.definition.columns if column.name == "count"]
    assert (count.field_id, count.path) == (ids["count"], ("sum", "items"))
    assert planned.is_reread
    (change,) = planned.changes
    assert change.startswith('column count is read from ["sum", "items"], from its name, count until now: of')
    assert change.endswith("rows that are there keep their values")
    back = plan_alteration(planned.definition, wanted(columns=columns(count={"type": "int", "header": "n"})))
    assert back.changes[0].startswith('column count is read from header "n", from ["sum", "items"] until now')
    both = renamed(items={"type": "int", "path": "sum", "renamed_from": "count"})
    changes = plan_alteration(ORDERS, wanted(columns=both)).changes
    assert changes[0] == "column count is renamed to items; queries, grants and views have to name it so"
    assert changes[1].startswith('column items is read from ["sum"], from its name, count until now')


def test_a_rename_says_where_a_column_of_a_header_is_read_from_and_moves_none_unsaid() -> None:
    current = wanted(columns=columns(count={"type": "int", "header": "n"}))
    with pytest.raises(AlterationRefused) as refused:
        plan_alteration(current, wanted(columns=renamed()))
    (problem,) = refused.value.problems
    assert problem.startswith('the column items was read from header "n": beside renamed_from, say where')
    said = renamed(items={"type": "int", "header": "n", "renamed_from": "count"})
    changes = plan_alteration(current, wanted(columns=said)).changes
    assert changes[0].startswith('column count is renamed to items, and still read from header "n"')
    assert len(changes) == 2, "and the order"


def test_comments_come_change_and_go_and_are_no_difference_that_stops_ingest() -> None:
    said = wanted(columns=columns(count={"type": "int", "comment": 'how "many"'}))
    planned = plan_alteration(ORDERS, said)
    assert planned.changes == ('column count has the comment "how \\"many\\""',)
    assert not planned.is_reread
    assert ORDERS.differences(said) == ()
    field = planned.definition.iceberg_schema().find_field("count")
    assert (field.doc, field.required) == ('how "many"', False)
    assert LiveTable.from_json(planned.definition.to_json(), "orders") == planned.definition
    decoded = {apart_from_topics(one.to_json()) for one in (ORDERS, planned.definition)}
    assert len(decoded) == 1, "records that were read by the one are those of the other"
    gone = plan_alteration(planned.definition, wanted())
    assert gone.changes == ("column count has no comment any more",)
    assert gone.definition.iceberg_schema().find_field("count").doc is None


def test_the_format_version_rises_and_never_falls() -> None:
    planned = plan_alteration(wanted(format_version=2), wanted())
    (change,) = planned.changes
    assert change.startswith("format_version becomes 3, from 2, for good: deletes are deletion vectors")
    assert (planned.definition.format_version, planned.definition.version) == (3, 2)
    assert not planned.is_reread
    (reason,) = reasons(format_version=2)
    assert reason.endswith("and Iceberg has no way back")


def test_columns_in_another_order_keep_their_ids() -> None:
    ids = {column.name: column.field_id for column in ORDERS.columns}
    planned = plan_alteration(ORDERS, wanted(columns={"slot": "string", **COLUMNS}))
    assert [(c.name, c.field_id) for c in planned.definition.columns] == [
        (name, ids[name]) for name in ("slot", "id", "count", "price", "at")
    ]
    assert not planned.is_reread


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (
            "list<struct<sku: string>>",
            "the field lines.element.count can't be left out or renamed: the table",
        ),
        (
            "list<struct<count: int, sku: string>>",
            "the fields of lines.element can't be reordered from sku, count",
        ),
        ("list<struct<sku: json, count: int>>", "the column lines can't become"),
        ("struct<sku: string, count: int>", "the column lines can't become"),
    ],
)
def test_what_cannot_change_within_a_column_says_why(lines: str, says: str) -> None:
    current = wanted(columns=COLUMNS | NESTED)
    with pytest.raises(AlterationRefused) as refused:
        plan_alteration(current, wanted(columns=COLUMNS | NESTED | {"lines": lines}))
    assert says in "; ".join(refused.value.problems)


def test_a_second_alteration_goes_on_where_the_first_one_ended() -> None:
    first = plan_alteration(ORDERS, wanted(columns=columns(score="double"))).definition
    second = plan_alteration(first, wanted(columns=columns(score="double", note="string")))
    (note,) = second.added
    assert note.field_id == 1 + max(column.field_id for column in first.columns)
    assert second.definition.version == 3
    assert LiveTable.from_json(second.definition.to_json(), "orders") == second.definition


def test_the_table_then_says_what_the_file_says() -> None:
    file = wanted(
        columns=columns(count="long", price="decimal(20,2)", score="double"),
        topics=["orders", "more"],
        on_error="fail",
        transactional=True,
        suppress_unchanged=True,
    )
    planned = plan_alteration(ORDERS, file)
    assert planned.definition.differences(file) == ()
    assert ORDERS.differences(file) != ()
    assert [(str(one.before), str(one.after)) for one in planned.widened] == [
        ("int", "long"),
        ("decimal(6,2)", "decimal(20,2)"),
    ]
    assert planned.topics == ("more",)
    assert len(planned.changes) == 7
    assert plan_alteration(planned.definition, file).changes == ()


def test_a_column_named_as_trinos_hidden_ones_is_not_added_but_stays_where_it_is() -> None:
    hidden = {"$path": "string"}
    (problem,) = reasons(columns=COLUMNS | hidden)
    assert '"$path" begins with "$"' in problem
    planned = plan_alteration(wanted(columns=COLUMNS | hidden), wanted(columns=columns(note="date") | hidden))
    assert [column.name for column in planned.added] == ["note"]


def test_topics_in_another_order_are_a_change_and_no_new_topics() -> None:
    current = wanted(topics=["orders", "more"])
    planned = plan_alteration(current, wanted(topics=["more", "orders"]))
    assert planned.topics == ()
    assert planned.changes == ("topics are listed as more, orders",)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"key": ["id", "slot", "count"]}, "key can't become id, slot, count from id, slot: every row"),
        ({"key_from": "value"}, "key_from can't become value from key: the same record"),
        (
            {"columns": columns(id={"type": "int", "path": "moved"})},
            """the column id can't come from ["moved"] instead of its name, id: it is part of the key""",
        ),
        ({"entity": ["id", "slot"]}, "entity can't become id, slot from id: rows are placed"),
        ({"buckets": 12}, "buckets can't become 12 from 16: whole buckets are split or joined"),
        ({"format_version": 2}, "format_version can't become 2 from 3: the deletes"),
        (
            {"identifier": "app.other"},
            "identifier can't become app.other from app.orders: it is the table's name",
        ),
        ({"topics": ["more"]}, "the topic orders can't be left out"),
        ({"columns": columns(id="long")}, "the column id can't become long from int: it is part of the key"),
        (
            {"columns": columns(count="string")},
            "the column count can't become string from int: only int to long",
        ),
        ({"columns": columns(count="double")}, "only int to long"),
        ({"columns": columns(count="list<int>")}, "only int to long"),
        ({"columns": columns(at="timestamp")}, "only int to long"),
        ({"columns": columns(price="decimal(5,2)")}, "can't become decimal(5,2) from decimal(6,2)"),
        ({"columns": columns(price="decimal(9,3)")}, "can't become decimal(9,3) from decimal(6,2)"),
        ({"columns": columns(price="long")}, "can't become long from decimal(6,2)"),
        (
            {"columns": columns(at={"type": "timestamptz", "epoch": "ms"})},
            "the column at can't become timestamptz",
        ),
        (
            {"columns": {name: kind for name, kind in COLUMNS.items() if name != "count"}},
            "the column count can't be left out: the table holds its values",
        ),
    ],
)
def test_what_cannot_change_says_why(changes: Any, says: str) -> None:
    (reason,) = reasons(**changes)
    assert says in reason


def test_a_narrower_type_is_refused() -> None:
    current = wanted(columns=columns(count="long"))
    with pytest.raises(AlterationRefused, match="count can't become int from long"):
        plan_alteration(current, wanted())


def test_every_reason_is_given_at_once() -> None:
    assert len(reasons(buckets=3, key_from="value", columns=columns(count="string", id="long"))) == 4


def test_what_is_neither_free_nor_fixed_has_a_rule_of_its_own_or_says_which_definition_it_is() -> None:
    of_topics = {"topics", "topic_patterns"}
    of_layout = {"buckets", "file_buckets", "format_version"}
    ruled = of_topics | of_layout | {"columns", "name", "provenance_id", "version"}
    found = {field.name: option_of(field) for field in fields(LiveTable)}
    assert {name for name, option in found.items() if not option.is_free and not option.fixed} == ruled
    assert not any(option.is_free and option.fixed for option in found.values())


def test_the_keys_format_stays() -> None:
    simple = {"key": ["id"], "entity": ["id"]}
    with pytest.raises(AlterationRefused) as refused:
        plan_alteration(wanted(**simple), wanted(**simple, key_format="string"))
    (problem,) = refused.value.problems
    assert problem.startswith("key_format can't become string from json: the same record must have the same")


def test_another_schema_file_is_refused_with_its_reason() -> None:
    """Also what evolves it: the log has records of the schema before, which do not say which one it was."""
    simple = {"key": ["id"], "entity": ["id"], "columns": {"id": "int"}, "format": "avro"}
    schema = '{"type":"record","name":"R","fields":[]}'
    evolved = '{"type":"record","name":"R","fields":[{"name":"a","type":["null","int"]}]}'
    current = wanted(**simple, value_schema=schema)
    with pytest.raises(AlterationRefused) as refused:
        plan_alteration(current, wanted(**simple, value_schema=evolved))
    (problem,) = refused.value.problems
    assert problem.startswith('value_schema can\'t become {"type":"record","name":"R","fields":[{"name"')
    assert problem.endswith("records do not name their schema, and the log has some that this one wrote")
    with pytest.raises(AlterationRefused):
        plan_alteration(current, wanted(**simple, value_schema=schema, schema_framed=True))


def test_a_table_that_columns_order_remembers_deletes_no_longer_and_has_no_more_buckets() -> None:
    ordered = wanted(sequence_by=["at"], tombstone_retention_hours=24)
    lower = wanted(sequence_by=["at"], tombstone_retention_hours=12)
    planned = plan_alteration(ordered, lower)
    assert planned.changes == ("tombstone_retention_hours becomes 12, from 24",)
    assert LiveTable.from_json(planned.definition.to_json(), "orders") == planned.definition
    with pytest.raises(AlterationRefused, match="can't be raised to 24 from 12: deletes that were forgotten"):
        plan_alteration(lower, ordered)
    raised = wanted(sequence_by=["at"], tombstone_retention_hours=12, buckets=32)
    assert plan_alteration(lower, raised).definition.buckets == 32
    with pytest.raises(AlterationRefused, match="buckets can't be raised to 32"):
        plan_alteration(lower, raised, files={16: 1})
    with pytest.raises(AlterationRefused, match="sequence_by can't become nothing from at"):
        plan_alteration(lower, wanted())
