"""Live views that read a server's live tables: their text, and what Trino is given for them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.views.test_check import SETTINGS as OF_CHECK
from tests.views.test_config import SETTINGS, properties
from tests.views.test_lifetime import APPENDED, KEPT, NOW, facts
from tests.views.test_render import EVENTS, plan, window, without_comments
from tests.views.test_row_filter import FILTER
from thermocline.rules.definition import LiveTable
from thermocline.settings import ViewsSettings
from thermocline.views.check import check_topics
from thermocline.views.config import trino_files
from thermocline.views.plan import PlannedView, live_views, modes_of
from thermocline.views.published import PublishedView
from thermocline.views.render import Mode, query
from thermocline.views.view_status import standing_views

NARROW = LiveTable.build(
    name="profiles",
    identifier="app.profiles",
    topics=["profiles"],
    key=["id"],
    columns={"id": "long", "At": "timestamptz", "price": "decimal(9, 2)", "where": "struct<x: int>"},
)
LIVE = """\
SELECT CAST("id" AS bigint) AS "id", "At", CAST("price" AS decimal(9, 2)) AS "price", "where"
FROM "live"."app"."profiles\""""


def of_live_table(mode: Mode, definition: LiveTable = NARROW, **options: Any) -> str:
    return query(plan(mode, window(), definition, live="live", **options))


def test_a_view_of_a_live_table_lists_the_declared_columns() -> None:
    """Those that may be widened with their type: a server may still have the narrower one for a moment."""
    for mode in (Mode.LIVE, Mode.LIVE_BY_KEY):
        assert without_comments(of_live_table(mode)) == LIVE
    assert without_comments(of_live_table(Mode.LIVE, EVENTS)).count("FROM") == 1


@pytest.mark.parametrize("mode", [Mode.LIVE, Mode.LIVE_BY_KEY])
def test_the_row_filter_is_the_last_thing_that_a_view_of_a_live_table_does(mode: Mode) -> None:
    assert of_live_table(mode, row_filter=FILTER).endswith(f"\n)\nWHERE ({FILTER}\n)")


@pytest.mark.parametrize(
    "of",
    [
        {"envelope": "debezium"},
        {"partial_updates": True},
        {"sequence_by": ("At",)},
        {"format": "avro"},
    ],
)
def test_tables_that_sql_can_not_read_have_live_views_where_a_server_has_their_rows(
    of: dict[str, Any],
) -> None:
    table, definition = SETTINGS.table("profiles"), replace(NARROW, **of)
    assert list(modes_of(table, definition)) == [Mode.COLD]
    assert set(modes_of(table, definition, "server")) == {Mode.LIVE, Mode.LIVE_BY_KEY, Mode.COLD}


def test_trino_gets_the_catalog_where_the_server_has_a_configuration_of_its_own() -> None:
    views = ViewsSettings(hot="server", live_uri="https://server/iceberg")
    files = trino_files(SETTINGS.model_copy(update={"views": views})).files
    catalog = properties(files["catalog/live.properties"])
    assert catalog["iceberg.rest-catalog.uri"] == "https://server/iceberg"
    rules = json.loads(files["access-control.json"])
    assert {rule["user"] for rule in rules["tables"] if rule.get("catalog") == "live"} == {"thermocline"}


def test_what_only_a_view_of_the_log_needs_is_not_asked_of_a_topic() -> None:
    served = OF_CHECK.model_copy(update={"views": ViewsSettings(hot="server")})
    found = list(check_topics(served, facts(APPENDED, replace(KEPT, is_limited_by_size=True))))
    assert [one.found for one in found if not one.is_good] == ["limited"]


def test_the_status_of_a_view_of_a_live_table_hangs_on_the_definition_alone() -> None:
    served = OF_CHECK.model_copy(update={"views": ViewsSettings(hot="server")})
    of = facts(APPENDED, KEPT)
    planned = live_views(served, of)[Mode.LIVE]
    assert isinstance(planned, PlannedView)
    assert planned.until_ms is None

    def problem(definition: LiveTable, hot: str = "server") -> str:
        found = {planned.schema_and_name[1]: PublishedView.parse(planned.comment)}
        standing = standing_views(served.table("t"), definition, 1, found, NOW, hot)
        (one,) = (one for one in standing if one.view == ".".join(planned.schema_and_name))
        return one.problem

    assert problem(of.definition) == ""
    assert problem(replace(of.definition, version=2)).startswith("older")
    assert "elsewhere" in problem(of.definition, "kafka")
