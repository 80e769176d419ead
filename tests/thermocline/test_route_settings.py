"""A route's settings: its directory and its tables as definitions, and what a directory makes of records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from thermocline.errors import ConfigInvalid
from thermocline.ingest.batch.read_task import RangesReader, ReadReport, ReadTask
from thermocline.ingest.batch.source import Together
from thermocline.kafka.facts import OffsetRange, RecordChunk
from thermocline.rules.decode import decoder_for
from thermocline.rules.decode.directory import DirectoryDecoder
from thermocline.rules.definition import LiveTable
from thermocline.rules.routes.directory import Directory
from thermocline.rules.routing import Condition, Source
from thermocline.settings import Settings, load_settings

CONFIG = """
[kafka]
bootstrap_servers = "broker:9092"
[catalog]
uri = "sqlite:///catalog.db"
warehouse = "warehouse"
{tables}
[routes.{name}]
topics = ["events", 'log\\.\\d+']
table = "app.events_{{}}"
key = ["id"]
buckets = 3
{more}
[routes.{name}.columns]
id = "int"
v = "string"
"""
BY = 'by = { field = "type" }'


def loaded(folder: Path, more: str = BY, tables: str = "", name: str = "events") -> Settings:
    file = folder / "thermocline.toml"
    file.write_text(CONFIG.format(more=more, tables=tables, name=name))
    return load_settings(file)


def problems_of(folder: Path, more: str = BY, tables: str = "", name: str = "events") -> tuple[str, ...]:
    with pytest.raises(ConfigInvalid) as refused:
        loaded(folder, more, tables, name)
    return tuple(refused.value.problems)


def a_table(name: str, identifier: str) -> str:
    return (
        f'[tables.{name}]\nidentifier = "{identifier}"\ntopics = ["t"]\nkey = ["id"]\n'
        f'[tables.{name}.columns]\nid = "int"\n'
    )


def test_a_table_of_a_value_has_the_routes_options_and_takes_that_value_alone(tmp_path: Path) -> None:
    settings = loaded(tmp_path).with_routed("events", ["order", "Größe"])
    assert list(settings.tables) == ["events", "events_order", "events_gr__e_aedc3f8098"]
    order = settings.table("events_order").definition("events_order")
    assert (order.identifier, order.topics, order.topic_patterns) == (
        "app.events_order",
        ("events",),
        (r"log\.\d+",),
    )
    assert (order.key, order.buckets, order.row_schema.names) == (("id",), 3, ["id", "v"])
    assert order.where == (Condition(Source(field=("type",)), ("order",)),)
    other = settings.table("events_gr__e_aedc3f8098").definition("other")
    assert other.where == (Condition(Source(field=("type",)), ("Größe",)),)
    assert list(settings.without_directories().tables) == ["events_order", "events_gr__e_aedc3f8098"]


def test_a_table_whose_value_is_denied_by_now_is_left_alone(tmp_path: Path) -> None:
    settings = loaded(tmp_path, f'{BY}\ndenied = ["x*"]').with_routed("events", ["x1", "y", "X"])
    assert list(settings.tables) == ["events", "events_y"]


def test_a_directory_is_stored_as_one_and_read_back(tmp_path: Path) -> None:
    directory = loaded(tmp_path, f'{BY}\nunrouted = "skip"').table("events").definition("events")
    assert (directory.identifier, directory.where) == ("app.events_directory", ())
    assert directory.values_at == Source(field=("type",))
    assert directory.on_error.declared == "skip"
    again = LiveTable.from_json(directory.to_json(), "events")
    assert again == directory
    assert (
        "values_at"
        not in loaded(tmp_path)
        .with_routed("events", ["a"])
        .table("events_a")
        .definition("events_a")
        .to_json()
    )


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ('by = { field = "type", header = "x" }', "routes.events: "),
        (f'{BY}\ndirectory = "x"', "routes.events: identifier is"),
        (f"{BY}\ntables_max = 0", "routes.events.tables_max: "),
        (f'{BY}\nunrouted = "count"', "routes.events.unrouted: "),
        (f'{BY}\nwhere = {{ field = "a", is = "b" }}', "routes.events.where: unknown name"),
        (f'{BY}\nidentifier = "a.b"', "routes.events.identifier: unknown name"),
    ],
)
def test_a_wrong_setting_is_a_problem_of_the_route(tmp_path: Path, more: str, problem: str) -> None:
    (found,) = problems_of(tmp_path, more)
    assert found.startswith(problem)


def test_a_table_needs_its_values_place_in_its_own_name(tmp_path: Path) -> None:
    file = tmp_path / "thermocline.toml"
    for table in ("app.events", "app_{}.events", "app.{}_{}"):
        file.write_text(CONFIG.format(more=BY, tables="", name="events").replace("app.events_{}", table))
        with pytest.raises(ConfigInvalid, match=r"needs \{\} once"):
            load_settings(file)


def test_no_table_may_have_a_name_that_the_route_may_give(tmp_path: Path) -> None:
    tables = a_table("events_x", "app.x")
    assert problems_of(tmp_path, tables=tables) == (
        "routes.events: tables.events_x may have the name of one of its tables: rename it",
    )
    assert problems_of(tmp_path, tables=a_table("other", "app.events_directory")) == (
        "routes.events: app.events_directory is the table of tables.other already",
    )
    long = "a" * 24
    assert problems_of(tmp_path, name=long) == (f"routes.{long}: a route's name has at most 23 characters",)


@pytest.mark.parametrize(
    ("identifier", "may_be"),
    [
        ("app.events_order", True),
        ("app.events_order_6be090825c", True),
        ("app.events_order_quarantine_6be090825c", True),
        ("app.events_Order", False),
        ("app.events_order_live", False),
        ("app.events_debug1", False),
        ("app.events_" + "a" * 41, False),
        ("app.events", False),
        ("lake.events_order", False),
    ],
)
def test_no_table_may_be_where_the_table_of_a_value_may_be(
    tmp_path: Path, identifier: str, may_be: bool
) -> None:
    tables, more = a_table("other", identifier), f'{BY}\ndenied = ["debug*"]'
    if not may_be:
        loaded(tmp_path, more, tables)
        return
    (problem,) = problems_of(tmp_path, more, tables)
    assert problem == (
        f"routes.events: {identifier}, which is that of tables.other, may be the table of a value: "
        "rename one, or deny the value"
    )


def test_nor_may_a_directory_be_there(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, f'{BY}\ndirectory = "app.events_known"')
    assert problem.startswith("routes.events: app.events_known, which is that of routes.events, may be the ")


def a_route(name: str, table: str) -> str:
    return (
        f'[routes.{name}]\ntable = "{table}"\ntopics = ["t"]\nkey = ["id"]\n{BY}\n'
        f'directory = "own.{name}"\n[routes.{name}.columns]\nid = "int"\n'
    )


@pytest.mark.parametrize(
    ("table", "may_meet"),
    [
        ("app.events_{}", True),
        ("app.{}", True),
        ("app.events_a_{}", True),
        ("app.{}_x", True),
        ("app.Events_{}", False),
        ("app.events{}", True),
        ("app.eve_{}", False),
        ("app.events_A{}", False),
        ("lake.events_{}", False),
    ],
)
def test_two_routes_may_not_give_the_same_table(tmp_path: Path, table: str, may_meet: bool) -> None:
    """`app.events_{}` is that of the other one."""
    tables = a_route("others", table)
    if not may_meet:
        loaded(tmp_path, tables=tables)
        return
    assert (
        f'routes.events: table = "app.events_{{}}" may give the same table as "{table}" of routes.others: '
        "rename one"
    ) in problems_of(tmp_path, tables=tables)


def test_nor_the_same_name(tmp_path: Path) -> None:
    tables = a_route("events_x", "lake.{}")
    assert problems_of(tmp_path, tables=tables) == (
        "routes.events: routes.events_x may have the name of one of its tables: rename it",
    )
    both = a_route("others", "lake.{}").replace("own.others", "app.events_directory")
    assert problems_of(tmp_path, tables=both) == (
        "routes.events: app.events_directory is the table of routes.others already",
    )


def test_a_directory_has_no_rows_and_says_of_each_record_what_becomes_of_it(tmp_path: Path) -> None:
    definition = loaded(tmp_path).table("events").definition("events")
    decoder = decoder_for(definition)
    assert isinstance(decoder, DirectoryDecoder)
    decoder.admission = Directory().with_table("a").admission(("debug*",), tables_max=3)
    values = [b'{"type":"a"}', b'{"type":"b"}', b'{"type":"debug1"}', b'{"v":1}', b'{"type":7}', None]
    values += [b'{"type":""}', b"nonsense", b'{"type":null}', b'{"type":"b","id":"wrong"}']
    decoded = decoder.decode([b'{"id":1}'] * len(values), values, topic="events")
    assert (decoded.good, decoded.tombstones, list(decoded.columns)) == ([], [], ["id", "v"])
    assert list(decoded.filtered) == [0, 1, 2, 4, 5, 9]
    assert [(one.index, one.reason) for one in decoded.bad if one.index != 7] == [
        (3, "it has no value at field type"),
        (6, "its value is empty"),
        (8, "it has no value at field type"),
    ]
    assert [one.index for one in decoded.bad] == [3, 6, 7, 8]
    assert decoder.came == {"b", "7"}
    assert decoder.outcomes == {"routed": 1, "new": 3, "denied": 1, "unusable": 1}


def test_a_full_directory_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    definition = loaded(tmp_path).table("events").definition("events")
    decoder = decoder_for(definition)
    assert isinstance(decoder, DirectoryDecoder)
    decoder.admission = Directory().with_table("a").admission((), tables_max=1)
    decoded = decoder.decode([None, None], [b'{"type":"a"}', b'{"type":"b"}'], topic="events")
    assert list(decoded.filtered) == [0]
    (bad,) = decoded.bad
    assert (bad.index, bad.reason) == (
        1,
        "its value has no table: the route has 1, which is tables_max",
    )
    assert not decoder.came


def test_values_without_an_end_are_noted_up_to_a_bound(tmp_path: Path) -> None:
    decoder = decoder_for(loaded(tmp_path).table("events").definition("events"))
    assert isinstance(decoder, DirectoryDecoder)
    decoder.admission = Directory().admission((), tables_max=5)
    values = [f'{{"type":"t{number}"}}'.encode() for number in range(100)]
    decoder.decode([None] * 100, values, topic="events")
    assert len(decoder.came) == 6  # one more than there is room for tells that there is none


def test_a_read_task_reports_the_values_that_came_and_filters_their_records(tmp_path: Path) -> None:
    definition = loaded(tmp_path).table("events").definition("events")
    admission = Directory().with_table("a").admission((), tables_max=3)
    nowhere: Any = None
    task = ReadTask(definition, {}, nowhere, nowhere, "", {"events": "id"}, admission=admission)
    reader = RangesReader(task, [OffsetRange("events", 0, 5, 8)], Together())
    report = ReadReport([])
    values: list[bytes | None] = [b'{"type":"b"}', b'{"type":"a"}', None]
    chunk = RecordChunk("events", 0, [b'{"id":1}'] * 3, values, [5, 6, 7], [10, 11, 12])
    assert reader.take(chunk, report).num_rows == 0
    reader.end(report)
    assert (report.new_values, report.outcomes) == (["b"], {"new": 1, "routed": 1})
    assert (report.records, report.filtered, report.bad) == (3, 3, {})
    assert report.covered == [("events", 0, 5, 8)]
