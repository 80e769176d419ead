"""Tables that routes make while a server runs: it serves them as soon as it can, and takes no other edit."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from tests.manual_clock import ManualClock
from tests.serving.small_lake import create_table, lake_settings, table_settings
from thermocline.iceberg.catalog import ROUTED_PROPERTY, open_catalog
from thermocline.rules.routes.directory import Directory
from thermocline.serving.process.processes import Served, look_for_routed
from thermocline.serving.process.server import load_definitions, reloaded, with_routed
from thermocline.settings import Settings
from thermocline.settings.route import RouteSettings

DIRECTORY = "app.events_directory"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A table, and a route whose directory names no value yet."""
    settings = lake_settings(tmp_path, "other")
    create_table(settings, "other")
    open_catalog(settings.catalog).create_table(DIRECTORY, Schema(NestedField(1, "x", LongType())))
    route = RouteSettings.model_validate(
        {
            "topics": ["events"],
            "by": {"field": "type"},
            "table": "app.events_{}",
            "key": ["id"],
            "columns": {"id": "int", "note": "string"},
        }
    )
    return settings.model_copy(update={"routes": {"events": route}})


def name_values(settings: Settings, *values: str) -> None:
    """The directory names these values, and no others."""
    directory = Directory({value: value for value in values}).to_json()
    with open_catalog(settings.catalog).load_table(DIRECTORY).transaction() as change:
        change.set_properties({ROUTED_PROPERTY: directory})


def make_table(settings: Settings, value: str) -> None:
    create_table(settings.with_routed("events", [value]), f"events_{value}")


def test_tables_of_routes_are_told_of_until_they_are_served_and_more_and_more_rarely(
    settings: Settings,
) -> None:
    waited: list[float] = []
    told: list[int] = []

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        if len(waited) == 2:
            name_values(settings, "order")
        if len(waited) == 7:
            name_values(settings)
        return len(waited) == 9

    look_for_routed(settings, lambda: told.append(len(waited)), wait)
    assert told == [2, 3, 4, 5, 6]
    assert waited == [5, 5, 10, 20, 40, 60, 60, 5, 5]


def test_a_table_of_a_route_that_could_not_be_read_is_taken_up_by_the_next_try(settings: Settings) -> None:
    served, clock = Served(settings, load_definitions(settings), "since its start"), ManualClock()
    assert with_routed(served, clock) is None
    name_values(settings, "order")
    assert with_routed(served, clock) is None
    make_table(settings, "order")
    after = with_routed(served, clock)
    assert after is not None
    assert list(after.settings.tables) == ["other", "events_order"]
    assert [definition.name for definition in after.definitions.values()] == ["other", "events_order"]
    assert (settings.serving.state_dir / "events_order").is_dir()
    assert with_routed(after, clock) is None

    name_values(settings, "another", "order")  # a directory names them by their values
    make_table(settings, "another")
    last = with_routed(after, clock)
    assert last is not None
    assert list(last.settings.tables) == ["other", "events_order", "events_another"]


def test_edits_of_the_file_are_taken_when_it_is_read_again_and_those_of_routes_are_among_them(
    settings: Settings,
) -> None:
    """Method: the file gains a table and denies a value, which has a table that the server was serving."""
    name_values(settings, "order")
    make_table(settings, "order")
    clock = ManualClock()
    served = with_routed(Served(settings, load_definitions(settings), "since its start"), clock)
    assert served is not None
    denying = settings.routes["events"].model_copy(update={"denied": ("order",)})
    edited = settings.model_copy(
        update={
            "tables": {**settings.tables, "more": table_settings("more")},
            "routes": {"events": denying},
        }
    )
    create_table(edited, "more")
    assert with_routed(served, clock) is None
    after = reloaded(served, lambda: edited, clock)
    assert after is not None
    assert list(after.settings.tables) == ["other", "more"]
    assert with_routed(after, clock) is None
    assert reloaded(after, lambda: edited, clock) is None
