"""The text of the views, without a Trino: what stands in it, and what never does."""

from __future__ import annotations

import dataclasses
import json
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.thermocline.poison import POISONED
from thermocline.rules.column_types import ColumnType, Kind
from thermocline.rules.definition import Column, LiveTable
from thermocline.rules.seam import Seam
from thermocline.settings import TableSettings
from thermocline.views import sql
from thermocline.views.groups import GROUPS_MAX, SCAN_COST_RECORDS
from thermocline.views.plan import modes_of
from thermocline.views.readable import unreadable_in_sql
from thermocline.views.render import Mode, ViewPlan, query
from thermocline.views.render_view import create_view, drop_view, view_comment, view_name, withdrawn_view
from thermocline.views.render_window import LogWindow
from thermocline.views.topics import SCHEMA, table_name

SNAPSHOT = 8_123_456_789
SEAM = Seam.of({"poisoned": {0: 100, 1: 120}})
END = Seam.of({"poisoned": {0: 150, 1: 120, 2: 7}})
EVENTS = LiveTable.build(
    name="events",
    identifier="app.events",
    topics=["events"],
    key=[],
    key_from="value",
    columns={"app_id": "int", "text": "string"},
)


def window(seam: Seam = SEAM, topics: tuple[str, ...] = ("poisoned",), **bounds: Any) -> LogWindow:
    return LogWindow("kafka", topics, seam, **bounds)


def plan(mode: Mode, of: LogWindow, definition: LiveTable = POISONED, **options: Any) -> ViewPlan:
    return ViewPlan(mode, definition, "lake", SNAPSHOT, of, **options)


def live(**bounds: Any) -> str:
    return query(plan(Mode.LIVE, window(**({"margin_ms": 2000} | bounds))))


def without_comments(text: str) -> str:
    return re.sub(r"^\s*--.*\n", "", text, flags=re.MULTILINE)


def test_a_record_that_is_too_large_is_left_out() -> None:
    of = dataclasses.replace(POISONED, record_bytes_max=77)
    assert "WHERE _key_length + _message_length <= 77" in query(plan(Mode.LIVE, window(margin_ms=2000), of))


EVERY = [
    plan(
        Mode.LIVE,
        window(margin_ms=2000),
        expires_at=datetime(2027, 1, 1, tzinfo=UTC),
        row_filter="app_id = 1",
    ),
    plan(Mode.LIVE, window(end=END)),
    plan(Mode.LIVE_BY_KEY, window()),
    plan(Mode.PINNED, window(end=END)),
    plan(Mode.COLD, window()),
    plan(Mode.LIVE, window(topics=("events",)), EVENTS),
]


@pytest.mark.parametrize("of", EVERY, ids=lambda of: f"{of.mode}-{of.definition.name}-{of.window.is_bounded}")
def test_names_are_complete_and_columns_listed(of: ViewPlan) -> None:
    text = without_comments(query(of))
    assert not re.search(r"SELECT\s+(\w+\.)?\*", text)
    parts = set(re.findall(r"^(_\w+) AS \($", text, flags=re.MULTILINE))
    sources = re.findall(r"(?<!BOTH '0' )(?:FROM|JOIN) ([\w\".$]+|\()", text)
    tables = {source for source in sources if source not in {"(", "UNNEST", *parts}}
    identifier = of.definition.identifier.split(".")[1]
    topic = table_name(of.window.topics[0])
    allowed = {f'"lake"."app"."{identifier}"', f'"kafka"."{SCHEMA}"."{topic}"'}
    assert f'"lake"."app"."{identifier}"' in tables
    assert tables <= allowed, tables
    assert f"FOR VERSION AS OF {SNAPSHOT}" in text or f"BIGINT '{SNAPSHOT}'" in text
    columns = ", ".join(f'"{column.name}"' for column in of.definition.columns)
    assert columns in text.splitlines()[-1] or columns in text
    assert "_kafka" not in text, "provenance stays hidden"


@pytest.mark.parametrize("of", EVERY, ids=lambda of: f"{of.mode}-{of.definition.name}-{of.window.is_bounded}")
def test_each_part_says_what_it_does(of: ViewPlan) -> None:
    lines = query(of).splitlines()
    for place, line in enumerate(lines):
        if re.match(r"_\w+ AS \($", line):
            assert lines[place - 1].startswith("-- ")
    assert any(line.strip().startswith("-- Cold") for line in lines)


def test_both_reads_of_the_log_are_the_same_part() -> None:
    """One text decides what a record of the window is and what a bad one is, for both."""
    text = live()
    assert text.count("_good AS (") == 1
    assert len(re.findall(r"FROM _good\b", text)) == 2
    assert text.count('FROM "kafka"') == 2, "known partitions, and those that may come"
    assert text.count("_timestamp < ") == 2


def test_a_view_that_reads_the_log_twice_needs_a_bound() -> None:
    for mode in (Mode.LIVE, Mode.PINNED):
        with pytest.raises(ValueError, match="reads the log twice"):
            plan(mode, window())
    with pytest.raises(ValueError, match="pinned view needs its end"):
        plan(Mode.PINNED, window(margin_ms=1))
    with pytest.raises(ValueError, match="nothing for a margin"):
        window(end=END, margin_ms=1)
    with pytest.raises(ValueError, match="no view by key"):
        plan(Mode.LIVE_BY_KEY, window(topics=("events",)), EVENTS)
    plan(Mode.LIVE, window(topics=("events",)), EVENTS)
    transactional = dataclasses.replace(POISONED, transactional=True)
    with pytest.raises(ValueError, match="transaction"):
        plan(Mode.LIVE, window(margin_ms=1), transactional)
    plan(Mode.LIVE, window(end=END), transactional)


def test_each_partition_is_read_from_its_own_offset_on() -> None:
    text = live()
    assert "_partition_id IN (0, 1)\n" in text
    assert "_partition_offset >= 100\n" in text
    assert "(_partition_id IN (0) AND _partition_offset >= 100" in text
    assert "OR _partition_id IN (1) AND _partition_offset >= 120)" in text
    assert "_partition_id >= 2\n" in text
    assert "_partition_offset >= 0\n" in text


def test_partitions_with_equal_offsets_need_no_exact_condition() -> None:
    text = live(seam=Seam.of({"poisoned": {0: 5, 1: 5, 3: 5, 2: 5}}))
    assert "_partition_id IN (0, 1, 2, 3)\n" in text
    assert " OR _partition_id" not in text


def test_a_partition_that_the_seam_left_out_is_read_from_its_beginning() -> None:
    text = live(seam=Seam.of({"poisoned": {2: SCAN_COST_RECORDS * 9}}))
    assert "_partition_id IN (0, 1)" in text
    assert "_partition_id IN (2)" in text
    assert "_partition_id >= 3" in text


def test_ends_are_literal_and_what_is_empty_is_left_out() -> None:
    """Partition 1 has nothing in between, partition 2 is new; none comes after a fixed end."""
    text = live(margin_ms=None, end=END)
    assert "_partition_id IN (0, 2)\n" in text
    assert "_partition_offset >= 0 AND _partition_offset < 150\n" in text
    assert "_partition_id IN (0) AND _partition_offset >= 100 AND _partition_offset < 150" in text
    assert "_partition_id IN (2) AND _partition_offset >= 0 AND _partition_offset < 7" in text
    assert "_partition_id >=" not in text
    assert "current_timestamp" not in text
    assert window(end=SEAM).records() is None
    assert "kafka" not in live(margin_ms=None, end=SEAM)


@given(st.dictionaries(st.integers(0, 60), st.integers(0, 10**12), min_size=1), st.integers(0, 10**12))
def test_the_scans_of_a_window_are_exactly_its_records(firsts: dict[int, int], probe: int) -> None:
    """Goal: no record of a partition before its seam, each beyond it once, whatever the groups.

    The conditions are evaluated here, as Python, on records around the offsets.
    """
    text = window(Seam({("poisoned", partition): first for partition, first in firsts.items()})).records()
    assert text is not None
    conditions = re.findall(r"WHERE (.*?)(?=\n *UNION|\n\)|\Z)", text, flags=re.DOTALL)
    assert len(conditions) <= GROUPS_MAX + 1
    python = [re.sub(r"IN \((\d+)\)", r"IN (\1,)", text) for text in conditions]
    compiled = [
        compile(
            " ".join(text.replace("AND", "and").replace("OR", "or").replace("IN", "in").split()), "", "eval"
        )
        for text in python
    ]
    for partition in range(max(firsts) + 3):
        first = firsts.get(partition, 0)
        for offset in (first - 1, first, first + 1, probe):
            names = {"_partition_id": partition, "_partition_offset": offset}
            found = sum(bool(eval(condition, {}, names)) for condition in compiled)
            assert found == (offset >= first), (partition, offset)


def test_a_margin_is_in_utc_and_the_same_for_all_scans() -> None:
    text = live(margin_ms=2500, seam=Seam.of({"poisoned": {0: 0, 1: SCAN_COST_RECORDS * 9}}))
    bound = (
        "_timestamp < CAST(current_timestamp AT TIME ZONE 'UTC' AS timestamp(3)) - INTERVAL '2.500' SECOND"
    )
    assert text.count(bound) == text.count('FROM "kafka"') == 3


def test_an_expiry_stands_where_every_query_evaluates_it() -> None:
    expires_at = datetime(2026, 11, 21, 12, 0, 0, 999_999, tzinfo=timezone(timedelta(hours=2)))
    text = query(plan(Mode.LIVE, window(margin_ms=1), expires_at=expires_at))
    assert text.count("FOR VERSION AS OF") == 1
    assert "if(current_timestamp < TIMESTAMP '2026-11-21 10:00:00.999 UTC', BIGINT '8123456789'" in text
    assert "CAST(fail('the view of app.poisoned expired at " in text


def test_a_row_filter_stays_within_its_parentheses_whatever_it_says() -> None:
    text = query(plan(Mode.COLD, window(), row_filter="app_id = 1 OR true -- all of it"))
    assert text.endswith("WHERE (app_id = 1 OR true -- all of it\n)")


def test_statements_name_the_view_beside_its_table_and_carry_the_read_point() -> None:
    text = create_view(EVERY[0])
    assert text.startswith('CREATE OR REPLACE VIEW "lake"."app"."poisoned_live"\nCOMMENT \'{"thermocline":')
    assert "\nSECURITY DEFINER AS\nWITH\n" in text
    comment = json.loads(view_comment(EVERY[0]))["thermocline"]
    assert comment == {
        "mode": "live",
        "snapshot_id": str(SNAPSHOT),
        "seam": SEAM.to_dict(),
        "margin_ms": 2000,
        "expires_at": "2027-01-01T00:00:00.000+00:00",
        "definition_version": 1,
        "time_travel": "Trino ignores FOR TIMESTAMP AS OF and FOR VERSION AS OF on views: "
        "for earlier rows, use a pinned view",
    }
    assert json.loads(view_comment(EVERY[3]))["thermocline"]["end"] == END.to_dict()
    assert view_name(POISONED, Mode.PINNED, "8123") == ("app", "poisoned_at_8123")
    assert view_name(POISONED, Mode.LIVE_BY_KEY) == ("app", "poisoned_live_by_key")
    assert drop_view(POISONED, "lake", Mode.COLD) == 'DROP VIEW IF EXISTS "lake"."app"."poisoned_cold"'


def test_a_withdrawn_view_has_the_columns_of_the_table_and_quotes_its_reason() -> None:
    text = withdrawn_view(POISONED, "lake", Mode.LIVE, "it's gone")
    assert "fail('it''s gone')" in text
    assert text.count("IF(random() < 2") == len(POISONED.columns)
    assert 'CAST(NULL AS timestamp(6) with time zone)) AS "at"' in text


def test_a_view_of_the_log_fails_at_a_record_with_its_schema_beside_it() -> None:
    """Of keys and values, where decoding takes such a schema off; not where a column has that name."""
    check = """IF(starts_with({}, '{{"schema"'),"""
    said = "records of app.poisoned in Kafka have their schema beside them"
    assert [check.format(text) in live() for text in ("_key", "_message")] == [True, True]
    assert live().count(f"fail('{said}") == 2
    declared = dataclasses.replace(
        EVENTS, columns=(*EVENTS.columns, Column("payload", ColumnType(Kind.INT), 9))
    )
    for definition, count in ((EVENTS, 1), (declared, 0)):
        text = query(plan(Mode.LIVE, window(topics=("events",)), definition))
        assert text.count(check.format("_message")) == count


def test_quotes_and_newlines_stay_where_they_are_put() -> None:
    assert sql.name('a"b') == '"a""b"'
    assert sql.literal("it's") == "'it''s'"
    assert sql.comment("one\ntwo") == "-- one\n-- two"
    assert sql.json_path("a.b") == "'$[\"a.b\"]'"
    with pytest.raises(AssertionError):
        sql.instant(datetime(2026, 1, 1))  # noqa: DTZ001  (what it refuses)


@pytest.mark.parametrize(
    ("choices", "says"),
    [
        ({"key_format": "int", "columns": {"id": "int", "text": "string"}}, 'key_format = "int"'),
        ({"key_format": "string", "columns": {"id": "int", "text": "string"}}, 'key_format = "string"'),
        ({"format": "string", "columns": {"id": "string", "text": "string"}}, 'format = "string"'),
        *(
            ({"format": format_, "columns": {"id": "string", "text": "string"}}, f'format = "{format_}"')
            for format_ in ("avro", "json_schema", "protobuf")
        ),
        (
            {"key_format": "protobuf", "key": ["id", "n"], "columns": {"id": "string", "n": "int"}},
            'keys in key_format = "protobuf" can\'t be read in SQL as string, int',
        ),
        ({"envelope": "maxwell", "columns": {"id": "string", "text": "string"}}, 'envelope = "maxwell"'),
        ({"columns": {"id": "string", "text": "json"}}, "the text of column text"),
        ({"columns": {"id": "string", "text": {"type": "string", "header": "h"}}}, "comes from a header"),
        ({"columns": {"id": "string", "text": "list<string>"}}, "the nested column text"),
        ({"columns": {"id": "int", "b": "binary"}, "binary_encoding": "hex"}, 'binary_encoding = "hex"'),
        ({"columns": {"id": "string", "text": "timestamp"}}, None),
        (
            {"columns": {"id": "string"}, "delete_when": {"header": "op", "values": ["D"]}},
            "delete_when",
        ),
        ({"columns": {"id": "string", "text": "string"}, "partial_updates": True}, "partial_updates"),
        ({"columns": {"id": "string", "at": "long"}, "sequence_by": ["at"]}, "sequence_by"),
        ({"topics": ["texts.?"], "columns": {"id": "string"}}, "its topics come and go"),
        ({"columns": {"id": "string"}, "where": {"topic": "(.*)", "is": "texts"}}, "what where says"),
        (
            {"columns": {"id": "string", "text": {"type": "string", "topic": "(.*)"}}},
            "comes from the topic's name",
        ),
        ({"key_format": "string", "columns": {"id": "string", "text": "string"}}, None),
        ({"columns": {"id": "int", "text": {"type": "string", "path": "a.b"}}}, None),
    ],
)
def test_only_the_cold_view_is_made_of_records_that_sql_can_not_read(
    choices: dict[str, Any], says: str | None
) -> None:
    settings = {"topics": ["texts"], "key": ["id"], "identifier": "app.texts"} | choices
    table = TableSettings(**settings)
    definition = table.definition("texts")
    found, modes = unreadable_in_sql(definition), list(modes_of(table, definition))
    if says is None:
        assert found is None
        assert Mode.LIVE in modes
        return
    assert found is not None
    assert says in found
    assert modes == [Mode.COLD]
