"""Who may do what by the rules for Trino, judged here as Trino does: of the rules that fit, the first."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from thermocline.views.access import Names, rules

NAMES = Names(live="live")
RULES: dict[str, list[dict[str, Any]]] = json.loads(
    rules(NAMES, ["app.profiles", "app.profiles_at_home", "app.b"], ["profiles", "b"])
)
ANALYST = "ana"


def first(kind: str, **asked: str) -> dict[str, Any]:
    """The first rule of a kind that fits; what it says nothing of may be anything."""
    for rule in RULES[kind]:
        if all(re.fullmatch(rule.get(name, ".*"), value) for name, value in asked.items()):
            return rule
    return {}


def rights(user: str, catalog: str, schema: str, table: str) -> set[str]:
    """What a user may do with a table or view."""
    return set(first("tables", user=user, catalog=catalog, schema=schema, table=table).get("privileges", ()))


@pytest.mark.parametrize("view", ["profiles_live", "profiles_live_by_key", "profiles_cold", "b_at_x"])
def test_everybody_reads_the_views_and_the_publisher_owns_them(view: str) -> None:
    assert rights(ANALYST, "lake", "app", view) == {"SELECT"}
    assert rights(NAMES.publisher, "lake", "app", view) == {"SELECT", "OWNERSHIP", "GRANT_SELECT"}


@pytest.mark.parametrize(
    "table", ["profiles", "profiles$files", "profiles_quarantine", "c_live", "profiles_live2"]
)
def test_nobody_reads_what_is_below_them(table: str) -> None:
    """Whoever reads the table sees past a row filter of its views."""
    assert rights(ANALYST, "lake", "app", table) == set()


@pytest.mark.parametrize("table", ["profiles_at_home", "profiles_at_home$files"])
def test_a_table_that_is_named_like_a_view_is_none(table: str) -> None:
    assert rights(ANALYST, "lake", "app", table) == set()
    assert rights(NAMES.publisher, "lake", "app", table) == {"SELECT", "GRANT_SELECT"}
    for user in (ANALYST, NAMES.publisher):
        assert rights(user, "lake", "app", table.replace("home", "home_quarantine")) == set()


def test_only_the_publisher_reads_the_log_and_the_table_and_writes_to_neither() -> None:
    assert rights(ANALYST, "kafka", "default", "profiles") == set()
    assert first("catalogs", user=ANALYST, catalog="kafka")["allow"] == "none"
    for catalog, schema in (("kafka", "default"), ("lake", "app")):
        assert rights(NAMES.publisher, catalog, schema, "profiles") == {"SELECT", "GRANT_SELECT"}
    assert first("catalogs", user=ANALYST, catalog="lake")["allow"] == "read-only"


def test_nobody_sees_the_text_of_others_queries() -> None:
    assert first("queries", user=ANALYST)["allow"] == ["execute"]


@pytest.mark.parametrize("table", ["profiles", "profiles$files", "profiles@one-0123456789abcdef"])
def test_only_the_publisher_reads_live_tables(table: str) -> None:
    """They have all rows, past a row filter of the views over them."""
    assert rights(ANALYST, "live", "app", table) == set()
    assert first("catalogs", user=ANALYST, catalog="live")["allow"] == "none"
    assert rights(NAMES.publisher, "live", "app", table) == {"SELECT", "GRANT_SELECT"}
    assert rights(NAMES.publisher, "live", "app", "other") == set()
