"""Routes: what conditions say, whose records are whose in every format, and parts of a topic's name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.thermocline.registered import Registered, framed
from tests.thermocline.test_avro import written
from thermocline.errors import AlterationRefused, ConfigInvalid
from thermocline.rules.alteration import plan_alteration
from thermocline.rules.decode import Decoded, decoder_for, text_reader_for
from thermocline.rules.decode.steps import steps_of
from thermocline.rules.definition import LiveTable
from thermocline.rules.definition_diff import differences_of
from thermocline.rules.headers import HeadersUnreadable
from thermocline.rules.protobuf_schema import message_at, packed_schema
from thermocline.rules.routing import Condition, Source
from thermocline.rules.stage import Stage
from thermocline.schemas.protobuf_compiler import compiled
from thermocline.settings import settings_in

BASE: dict[str, Any] = {
    "name": "t",
    "identifier": "app.t",
    "topics": ["t"],
    "key": ["id"],
    "columns": {"id": "int", "v": "string"},
}
ORDERS = {"field": "type", "in": ["order", "order_line"]}


def live_table(**options: Any) -> LiveTable:
    return LiveTable.build(**(BASE | options))


def of_json(*values: Any) -> list[bytes | None]:
    return [None if value is None else json.dumps(value).encode() for value in values]


def decoded(
    table: LiveTable, values: Sequence[bytes | None], keys: Sequence[bytes | None] = (), topic: str = "t"
) -> Decoded:
    keys = keys or of_json(*({"id": number} for number in range(len(values))))
    return decoder_for(table).decode(keys, values, topic=topic)


def problems_of(**options: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigInvalid) as raised:
        live_table(**options)
    return raised.value.problems


@pytest.mark.parametrize(
    ("condition", "taken", "others"),
    [
        ({"field": "a", "is": "x"}, ["x"], ["X", "xx", "", None]),
        ({"field": "a", "is": ""}, [""], ["x", None]),
        ({"field": "a", "is": 5}, ["5"], ["5.0", None]),
        ({"field": "a", "is": True}, ["true"], ["True", "1", None]),
        ({"field": "a", "in": ["x", "y"]}, ["x", "y"], ["z", None]),
        ({"field": "a", "matches": "ab?"}, ["a", "ab"], ["xa", "abb", None]),
        ({"field": "a", "matches": ".*"}, ["", "a\nb"], [None]),
        ({"field": "a", "is": "x", "not": True}, ["y", None], ["x"]),
        ({"header": "h", "matches": "a.*", "not": True}, ["b", None], ["a", "ab"]),
    ],
)
def test_a_condition_takes_what_it_says(
    condition: Mapping[str, Any], taken: list[str | None], others: list[str | None]
) -> None:
    read = Condition.parse(condition)
    assert [read.takes(text) for text in (*taken, *others)] == [True] * len(taken) + [False] * len(others)
    assert Condition.parse(read.declared) == read


def test_conditions_are_equal_however_they_are_written() -> None:
    one = live_table(where=[{"field": ["type"], "in": ["b", "a", "b"]}, {"header": "h", "is": "x"}])
    other = live_table(
        where=[{"header": "h", "in": ["x"], "not": False}, {"field": "type", "in": ["a", "b"]}]
    )
    assert one == other
    assert one.to_json() == other.to_json()


@pytest.mark.parametrize(
    "condition",
    [
        {"field": "type"},
        {"is": "x"},
        {"field": "type", "header": "h", "is": "x"},
        {"field": "type", "is": "x", "in": ["y"]},
        {"field": "type", "in": []},
        {"field": "type", "in": "order"},
        {"field": "type", "is": 1.5},
        {"field": "type", "matches": "("},
        {"field": "type", "matches": ""},
        {"field": "", "is": "x"},
        {"field": "a..b", "is": "x"},
        {"topic": "log", "is": "x"},
        {"topic": "(a)(b)", "is": "x"},
        {"field": "type", "is": "x", "nott": True},
        {"field": "type", "is": "x", "not": "yes"},
    ],
)
def test_a_condition_that_says_nothing_clear_is_a_problem_of_the_definition(condition: Any) -> None:
    (problem,) = problems_of(where=condition)
    assert problem.startswith("where: ")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"format": "string", "where": ORDERS}, 'format = "string" has no fields'),
        ({"key_format": "int", "where": {"field": "id", "is": 1}}, 'key_format = "int" has no fields'),
        ({"envelope": "debezium", "where": ORDERS}, "have no row: look at the event"),
        ({"where": {"event": "op", "is": "c"}}, 'needs envelope = "debezium" or "maxwell"'),
        (
            {"envelope": "debezium", "where": {"event": "after.type", "is": "c"}},
            "not each event has a row there",
        ),
        ({"delete_unmatched": True}, "needs where"),
        ({"delete_unmatched": True, "where": ORDERS, "key_from": "value"}, 'needs key_from = "key"'),
        ({"columns": {"id": "int", "v": {"type": "json", "topic": "(.)"}}}, "can only fill"),
        ({"columns": {"id": {"type": "int", "topic": "(.)"}, "v": "string"}}, "needs a column of the record"),
        ({"columns": {"id": "int", "v": {"type": "int", "topic": "x"}}}, "has 0 groups"),
        ({"columns": {"id": "int", "v": {"type": "int", "topic": "(.)", "path": "v"}}}, "elsewhere, too"),
    ],
)
def test_what_no_record_could_tell_exactly_is_refused_by_name(options: Any, problem: str) -> None:
    assert any(problem in one for one in problems_of(**options))


def test_a_table_takes_its_records_and_filters_the_others_whatever_they_hold() -> None:
    table = live_table(where=ORDERS)
    values = of_json(
        {"type": "order", "v": "a"},
        {"type": "other", "v": 5},
        None,
        {"v": "no type"},
        {"type": "order", "v": 5},
        {"type": None, "v": "x"},
        {"type": {"order": 1}, "v": "x"},
        {"type": "order_line", "v": "b"},
    )
    found = decoded(table, [*values, b"{", b"\xff"])
    assert found.good == [0, 2, 7]
    assert found.columns == {"id": [0, 2, 7], "v": ["a", None, "b"]}
    assert found.tombstones == [False, True, False]
    assert list(found.filtered) == [1, 3, 5, 6]
    assert [(one.index, one.stage, one.key) for one in found.bad] == [
        (4, Stage.CONTRACT, (4,)),
        (8, Stage.DECODE, (8,)),
        (9, Stage.DECODE, (9,)),
    ]


def test_a_route_that_cannot_be_read_makes_a_bad_record_although_its_row_could_be_read() -> None:
    table = live_table(where={"field": "a.b", "is": "x"})
    found = decoded(table, of_json({"a": {"b": "x"}, "v": "1"}, {"a": 5, "v": "2"}, {"a": None, "v": "3"}))
    assert (found.good, list(found.filtered)) == ([0], [2])
    (bad,) = found.bad
    assert (bad.index, bad.stage, bad.key) == (1, Stage.CONTRACT, (1,))
    assert bad.reason.startswith("where (field a.b): ")


def test_a_record_that_is_too_large_to_be_read_is_bad_and_not_another_tables() -> None:
    table = live_table(where=ORDERS, record_bytes_max=40)
    found = decoded(table, of_json({"type": "other"}, {"type": "other", "v": "x" * 40}))
    assert list(found.filtered) == [0]
    assert [one.index for one in found.bad] == [1]


def test_numbers_and_booleans_are_compared_as_json_has_them() -> None:
    table = live_table(where={"field": "n", "in": [1, True, "2.50"]})
    values = [
        b'{"n":1}',
        b'{"n":1.0}',
        b'{"n":"1"}',
        b'{"n":true}',
        b'{"n":2.50}',
        b'{"n":2.5}',
        b'{"n":"tru\\u0065"}',
    ]
    assert decoded(table, values).good == [0, 2, 3, 4, 6]


def test_a_tombstone_is_told_by_what_its_key_has_and_else_deletes_in_every_table() -> None:
    keys = of_json({"id": 1, "type": "order"}, {"id": 2, "type": "other"}, {"id": 3}, {"id": 4, "type": None})
    nothing: list[bytes | None] = [None] * 4
    found = decoded(live_table(where=ORDERS), nothing, keys)
    assert (found.good, list(found.filtered)) == ([0, 2, 3], [1])
    # A key column is read from the key, of all records, whatever the value has there.
    by_key = live_table(where={"field": "id", "is": 2})
    values = of_json({"v": "a", "id": 2}, {"v": "b"}, {"id": 2}, None)
    found = decoded(by_key, values, keys)
    assert (found.good, found.columns["v"], list(found.filtered)) == ([1], ["b"], [0, 2, 3])


def test_a_record_whose_key_cannot_be_read_is_bad_also_where_the_key_tells_whose_it_is() -> None:
    found = decoded(live_table(where={"field": "id", "is": 2}), of_json({"v": "a"}, {"v": "b"}), [b"{", None])
    assert [(one.index, one.stage) for one in found.bad] == [(0, Stage.KEY), (1, Stage.KEY)]


def test_with_delete_unmatched_a_record_that_is_another_tables_deletes_the_row_of_its_key() -> None:
    table = live_table(where=ORDERS, delete_unmatched=True)
    keys = of_json({"id": 1}, {"id": 2}, {"other": 3}, {"id": 4})
    values = of_json(
        {"type": "other", "v": 5}, {"type": "order", "v": "a"}, {"type": "other"}, {"type": "order", "v": 5}
    )
    found = decoded(table, values, keys)
    assert (found.good, found.tombstones, found.columns["v"]) == ([0, 1], [True, False], [None, "a"])
    assert list(found.filtered) == [2]
    assert [one.index for one in found.bad] == [3]


def test_headers_and_topics_tell_of_tombstones_too() -> None:
    headers: list[Any] = [[("h", b"x"), ("h", b"ours")], [("h", b"theirs")], [("h", b"\xff")], [], None]

    def headers_of(index: int) -> Any:
        if headers[index] is None:
            raise HeadersUnreadable
        return headers[index]

    decoder = decoder_for(live_table(where={"header": "h", "is": "ours"}))
    found = decoder.decode(of_json(*({"id": one} for one in range(5))), [None] * 5, headers_of, "t")
    assert (found.good, list(found.filtered)) == ([0], [1, 3])
    assert [(one.index, one.stage) for one in found.bad] == [(2, Stage.CONTRACT), (4, Stage.DECODE)]
    by_topic = live_table(where={"topic": r"(\w+)\..*", "is": "eu"})
    assert decoded(by_topic, [None, b"{}"], topic="eu.orders").good == [0, 1]
    assert list(decoded(by_topic, [None, b"{}"], topic="us.orders").filtered) == [0, 1]
    assert list(decoded(by_topic, [None], topic="orders").filtered) == [0]


def test_change_events_are_routed_by_what_each_of_them_has_deletes_included() -> None:
    table = live_table(envelope="debezium", where={"event": "source.table", "is": "a"})
    row, a, b = {"v": "x"}, {"table": "a"}, {"table": "b"}
    values = of_json(
        {"op": "c", "after": row, "source": a},
        {"op": "c", "after": row, "source": b},
        {"op": "d", "after": None, "source": a},
        {"op": "d", "after": None, "source": b},
        None,
        {"payload": {"op": "c", "after": row, "source": b}, "schema": None},
        {"op": "t", "source": b},
        {"op": "t", "source": a},
    )
    found = decoded(table, values)
    assert (found.good, found.tombstones) == ([0, 2, 4], [False, True, True])
    assert list(found.filtered) == [1, 3, 5, 6]
    assert [one.index for one in found.bad] == [7]
    maxwell = live_table(envelope="maxwell", where={"event": "table", "is": "a"})
    values = of_json(
        {"type": "insert", "table": "a", "data": row},
        {"type": "delete", "table": "b", "data": row},
        {"type": "delete", "table": "a", "data": row},
    )
    found = decoded(maxwell, values)
    assert (found.good, found.tombstones, list(found.filtered)) == ([0, 2], [False, True], [1])


EVENT: dict[str, Any] = {
    "type": "record",
    "name": "E",
    "fields": [
        {"name": "op", "type": "string"},
        {
            "name": "after",
            "type": ["null", {"type": "record", "name": "R", "fields": [{"name": "v", "type": "string"}]}],
        },
        {
            "name": "source",
            "type": {"type": "record", "name": "S", "fields": [{"name": "table", "type": "string"}]},
        },
    ],
}


def avro(schema: Any, *values: Any) -> list[bytes | None]:
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    return [None if value is None else written(parsed, value) for value in values]


def test_avro_is_routed_by_the_schemas_of_its_writers() -> None:
    kinds = {"type": "enum", "name": "K", "symbols": ["order", "other"]}
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "type", "type": ["null", kinds]}, {"name": "v", "type": ["int", "string"]}],
    }
    table = live_table(where=ORDERS, format="avro", value_schema=json.dumps(schema), key_format="json")
    rows = [
        {"type": "order", "v": "a"},
        {"type": "other", "v": 1},
        {"type": None, "v": "b"},
        {"type": "order", "v": 1},
    ]
    found = decoded(table, [*avro(schema, *rows), None, b"\xff"])
    assert (found.good, list(found.filtered)) == ([0, 4], [1, 2])
    assert [one.index for one in found.bad] == [3, 5]
    events = live_table(
        envelope="debezium",
        format="avro",
        value_schema=json.dumps(EVENT),
        key_format="json",
        where={"event": "source.table", "is": "a"},
    )
    a, b = {"table": "a"}, {"table": "b"}
    values = avro(
        EVENT,
        {"op": "c", "after": {"v": "x"}, "source": a},
        {"op": "d", "after": None, "source": b},
        {"op": "d", "after": None, "source": a},
        None,
    )
    found = decoded(events, values)
    assert (found.good, found.tombstones, list(found.filtered)) == ([0, 2, 3], [False, True, True], [1])


def test_protobuf_is_routed_by_names_of_enums_and_by_defaults() -> None:
    text = """
    syntax = "proto3";
    enum Kind { none = 0; order = 1; }
    message M { Kind type = 1; string v = 2; }
    """
    descriptors = compiled({"m.proto": text}, "m.proto")
    message = message_at(descriptors, (0,))()
    values = []
    for kind in (1, 0, 7):
        message.type, message.v = kind, "x"
        values.append(message.SerializeToString())
    table = live_table(
        where=ORDERS, format="protobuf", value_schema=packed_schema(descriptors), key_format="json"
    )
    found = decoded(table, [*values, None])
    assert (found.good, list(found.filtered), [one.index for one in found.bad]) == ([0, 3], [1], [2])
    unset = live_table(
        where={"field": "type", "is": "none"},
        format="protobuf",
        value_schema=packed_schema(descriptors),
        key_format="json",
    )
    assert decoded(unset, [*values, b""]).good == [1, 3]


def test_what_names_a_json_schema_is_no_part_of_what_tells_whose_a_record_is() -> None:
    table = live_table(where=ORDERS, format="json_schema", key_format="json")
    bodies = [b'{"type":"order","v":"a"}', b'{"type":"other"}', b""]
    decoder = decoder_for(table, Registered({7: {"type": "object"}}, "JSON"))
    keys = of_json(*({"id": one} for one in range(4)))
    found = decoder.decode(keys, [*(framed(7, body) for body in bodies), framed(8, b"{}")])
    assert (found.good, list(found.filtered), [one.index for one in found.bad]) == ([0], [1], [2, 3])


def test_partial_updates_leave_what_they_leave_also_where_others_are_filtered() -> None:
    columns = {"id": "int", "v": "string", "w": "int"}
    table = live_table(where=ORDERS, partial_updates=True, columns=columns)
    values = of_json(
        {"type": "other"}, {"type": "order", "v": "a"}, {"type": "order", "w": 1}, {"type": "order", "w": "x"}
    )
    found = decoded(table, values)
    assert (found.good, found.absent, list(found.filtered)) == ([1, 2], [("w",), ("v",)], [0])
    unreadable = live_table(where={"field": "a.b", "is": "x"}, partial_updates=True, columns=columns)
    found = decoded(unreadable, of_json({"a": 5, "v": "a"}, {"a": {"b": "x"}, "w": 1}))
    assert (found.good, found.absent, [one.index for one in found.bad]) == ([1], [("v",)], [0])


def test_whatever_a_rule_calls_a_delete_is_routed_by_its_value() -> None:
    table = live_table(where=ORDERS, delete_when={"path": "op", "values": ["D"]})
    values = of_json({"op": "D", "type": "order"}, {"op": "D", "type": "other"}, {"op": "D"})
    found = decoded(table, values)
    assert (found.good, found.tombstones, list(found.filtered)) == ([0], [True], [1, 2])


def test_earlier_tables_take_their_records_before_this_one_does() -> None:
    table = live_table(
        unless=[[{"field": "a", "is": "x"}, {"field": "b", "is": "y"}], [{"field": "c", "is": "z"}]]
    )
    values = of_json(
        {"a": "x", "b": "y", "v": "1"},
        {"a": "x", "v": "2"},
        {"c": "z", "v": "3"},
        {"v": "4"},
        None,
    )
    found = decoded(table, values)
    assert (found.good, list(found.filtered)) == ([1, 3, 4], [0, 2])


def test_the_texts_of_a_chunk_are_read_without_a_condition() -> None:
    sources = [Source.parse(one) for one in ({"field": "table"}, {"header": "h"}, {"topic": "t\\.(.*)"})]
    reader = text_reader_for(live_table(), sources)
    found = reader.read([b"{}"] * 3, [b'{"table":"a"}', None, b"{"], lambda _: [("h", b"x")], "t.x")
    assert [list(found.of[one].values) for one in sources] == [["a", None, None], ["x"] * 3, ["x"] * 3]
    assert [sorted(found.of[one].untold) for one in sources] == [[1, 2], [], []]
    assert list(found.bad) == [2]


def test_where_cannot_be_altered_since_records_would_change_their_table() -> None:
    with pytest.raises(AlterationRefused) as raised:
        plan_alteration(live_table(where=ORDERS), live_table())
    (problem,) = raised.value.problems
    assert problem.startswith("where can't become nothing from field type in ")


def test_a_step_of_try_says_whose_record_it_is() -> None:
    table = live_table(where=ORDERS)
    ours, others = (
        steps_of(table, None, b'{"id": 1}', value, lambda _: [], "t")
        for value in of_json({"type": "order", "v": "x"}, {"type": "other"})
    )
    assert [step.name for step in ours] == ["envelope", "route", "fields", "key", "bucket"]
    assert dict(ours[1].after) == {"field type": "order", "is the table's": True}
    assert [step.name for step in others] == ["envelope", "route"]
    assert dict(others[1].after) == {"field type": "other", "is the table's": False}
    deleting = live_table(where=ORDERS, delete_unmatched=True)
    (value,) = of_json({"type": "other"})
    *_, fields, key, _ = steps_of(deleting, None, b'{"id": 1}', value, lambda _: [], "t")
    assert fields.after["becomes"] == "a delete, as it is not the table's"
    assert key.name == "key"


DAILY = {"id": "int", "v": "string", "day": {"type": "date", "topic": r"log\.(.*)"}}


@pytest.mark.parametrize("topic", ["log.20240229", "log.2024-02-29"])
def test_a_column_is_read_from_the_topics_name(topic: str) -> None:
    found = decoded(live_table(columns=DAILY), of_json({"v": "a"}, None), topic=topic)
    assert found.columns == {"id": [0, 1], "v": ["a", None], "day": [date(2024, 2, 29), None]}
    in_key = decoded(live_table(columns=DAILY, key=["day", "id"]), of_json({"v": "a"}, None), topic=topic)
    assert in_key.columns["day"] == [date(2024, 2, 29)] * 2
    assert in_key.tombstones == [False, True]


@pytest.mark.parametrize(
    ("topic", "why"),
    [
        ("log.20240230", "20240230 in the name of topic log.20240230: not a date of the calendar"),
        ("other", "the name of topic other has no such part"),
    ],
)
def test_records_are_bad_where_the_topics_name_has_no_value_that_they_need(topic: str, why: str) -> None:
    found = decoded(live_table(columns=DAILY), of_json({"v": "a"}, None), topic=topic)
    assert found.good == [1]
    assert [(one.stage, one.reason) for one in found.bad] == [
        (Stage.CONTRACT, f'day (date from the topic\'s "log\\\\.(.*)"): {why}')
    ]
    in_key = decoded(live_table(columns=DAILY, key=["day", "id"]), of_json({"v": "a"}, None), topic=topic)
    assert [one.stage for one in in_key.bad] == [Stage.KEY] * 2


def test_numbers_and_text_are_read_from_a_topics_name_as_from_a_header() -> None:
    columns = {
        "id": "int",
        "n": {"type": "int", "topic": r"(\d+)-.*"},
        "s": {"type": "string", "topic": r".*-(.*)"},
    }
    found = decoded(live_table(columns=columns), [b"{}"], topic="7-eu")
    assert (found.columns["n"], found.columns["s"]) == ([7], ["eu"])


def test_a_topic_that_counts_must_be_given() -> None:
    for table in (live_table(columns=DAILY), live_table(where={"topic": "(.*)", "is": "t"})):
        with pytest.raises(ValueError, match="is told by their topic"):
            decoder_for(table).decode([b'{"id":1}'], [b"{}"])


TYPES = ("a", "b", "c", "1", "true")
SCALARS = st.one_of(st.sampled_from(TYPES), st.integers(0, 2), st.booleans(), st.none(), st.just({"x": 1}))
RECORDS = st.lists(
    st.fixed_dictionaries({"v": st.just("x")}, optional={"p": SCALARS, "q": SCALARS}), min_size=1, max_size=12
)
TESTS = st.one_of(
    st.fixed_dictionaries({"in": st.lists(st.sampled_from(TYPES), min_size=1, max_size=3)}),
    st.fixed_dictionaries({"matches": st.sampled_from(["[ab]", "1|t.*", ".*"])}),
)
CONDITIONS = st.builds(
    lambda field, test, negated: {"field": field, **test, **({"not": True} if negated else {})},
    st.sampled_from(["p", "q"]),
    TESTS,
    st.booleans(),
)


def holds(condition: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
    """As a person would say it of one record."""
    value = record.get(condition["field"])
    text = value if isinstance(value, str) else None if isinstance(value, dict | None) else json.dumps(value)
    if "in" in condition:
        found = text in condition["in"]
    else:
        found = text is not None and re.fullmatch(condition["matches"], text) is not None
    return found is not condition.get("not", False)


@given(RECORDS, st.lists(st.lists(CONDITIONS, min_size=1, max_size=2), min_size=1, max_size=3))
def test_each_record_is_in_the_first_table_whose_conditions_it_fulfils(
    records: list[dict[str, Any]], tables: list[list[dict[str, Any]]]
) -> None:
    taken: list[list[int]] = []
    for place, conditions in enumerate(tables):
        found = decoded(live_table(where=conditions, unless=tables[:place]), of_json(*records))
        assert sorted([*found.good, *found.filtered]) == list(range(len(records)))
        taken.append(found.good)
    expected: list[list[int]] = [[] for _ in tables]
    for index, record in enumerate(records):
        for place, conditions in enumerate(tables):
            if all(holds(one, record) for one in conditions):
                expected[place].append(index)
                break
    assert taken == expected


FILE = """
[kafka]
bootstrap_servers = "127.0.0.1:9092"
[catalog]
uri = "sqlite:///catalog.db"
warehouse = "warehouse"
[tables.a]
identifier = "app.a"
topics = ["shop"]
key = ["id"]
where = { field = "type", is = "a" }
columns = { id = "int", v = "string" }
[tables.b]
identifier = "app.b"
topics = ["shop"]
key = ["id"]
where = [{ field = "kind", matches = "x.*" }]
unless = ["a"]
columns = { id = "int", v = "string" }
[tables.rest]
identifier = "app.rest"
topics = ["shop"]
key = ["id"]
unless = ["b"]
columns = { id = "int", v = "string" }
"""


def test_of_tables_that_go_before_others_the_first_takes_a_record(tmp_path: Path) -> None:
    settings = settings_in(FILE, tmp_path / "thermocline.toml")
    values = of_json(
        {"type": "a", "kind": "x", "v": ""},
        {"kind": "xy", "v": ""},
        {"type": "c", "kind": "y", "v": ""},
        None,
        {"v": ""},
    )
    taken = {name: decoded(settings.table(name).definition(name), values).good for name in ("a", "b", "rest")}
    assert taken == {"a": [0, 3], "b": [1, 3], "rest": [2, 3, 4]}


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ('unless = ["a"]', 'unless = ["aa"]', 'tables.b: unless: "aa" is no table of this file'),
        ('unless = ["b"]', 'unless = ["rest"]', "tables.rest: unless: rest would go before itself"),
        ('unless = ["a"]', 'unless = ["rest"]', "tables.b: unless: rest has no where"),
        ('is = "a" }', 'is = "a" }\nunless = ["b"]', "tables.a: unless: a would go before itself"),
        ('unless = ["b"]', "unless = 5", "tables.rest.unless: must be"),
        ('{ field = "type", is = "a" }', "5", "tables.a.where: must be"),
    ],
)
def test_tables_that_cannot_go_before_another_are_problems_of_the_file(
    tmp_path: Path, before: str, after: str, problem: str
) -> None:
    with pytest.raises(ConfigInvalid) as raised:
        settings_in(FILE.replace(before, after), tmp_path / "thermocline.toml")
    assert any(problem in one for one in raised.value.problems), raised.value.problems


def test_a_diff_of_conditions_says_what_the_file_must_have() -> None:
    table = live_table(where=ORDERS)
    (found,) = differences_of(table, live_table())
    assert (found.setting, found.in_file, found.in_table) == (
        "where",
        "none",
        'field type in "order", "order_line"',
    )
    assert found.value == [{"field": ["type"], "in": ["order", "order_line"]}]
    (refusal,) = found.refusals
    assert refusal.endswith("the same record must be the table's, or not, whenever it is read")
