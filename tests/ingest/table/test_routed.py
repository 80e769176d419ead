"""A table that is there already is taken for a value's only if it was made for it, and from early enough."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyiceberg.exceptions import ForbiddenError, NoSuchNamespaceError

from thermocline.errors import TableRestricted, TableTaken
from thermocline.iceberg.catalog import defined_by
from thermocline.ingest.commit.change import TableChange
from thermocline.ingest.table.routed import ROUTED_FROM_PROPERTY, Made, TableMaker
from thermocline.rules.routes.directory import Directory
from thermocline.rules.seam import Seam
from thermocline.settings import CatalogSettings, KafkaSettings, Settings

ROUTE = {
    "topics": ["events"],
    "by": {"field": "type"},
    "table": "app.events_{}",
    "denied": ["debug"],
    "key": ["id"],
    "columns": {"id": "int"},
}
SETTINGS = Settings.model_validate(
    {
        "kafka": KafkaSettings(bootstrap_servers="broker:9092"),
        "catalog": CatalogSettings(uri="sqlite:///none.db", warehouse="none"),
        "routes": {"events": ROUTE},
    }
).with_directories()
DIRECTORY = SETTINGS.table("events").definition("events")
ORDER = SETTINGS.with_routed("events", ["order"]).table("events_order").definition("events_order")
START = TableChange(Seam({("events", 0): 7}), "c", {"events": "t"}, watermark_ms=-1, drained_ms=0)


def made(properties: dict[str, str]) -> Made:
    """What is made of a table that the catalog has, by its properties."""
    table = SimpleNamespace(properties=properties)
    catalog = SimpleNamespace(load_table=lambda _: table)
    return TableMaker(SETTINGS, "events", cast("Any", catalog), None).make("order", DIRECTORY, START)


def began(offset: int, value: str = "order") -> dict[str, str]:
    seam = Seam({("events", 0): offset}).to_dict()
    return {ROUTED_FROM_PROPERTY: json.dumps({"value": value, "seam": seam})}


@pytest.mark.parametrize("offset", [0, 7])
def test_a_table_that_was_made_before_is_taken(offset: int) -> None:
    assert made({**defined_by(ORDER), **began(offset)}) == Made("events_order")


@pytest.mark.parametrize(
    ("properties", "detail"),
    [
        ({}, "it was not made by a route"),
        (defined_by(ORDER), "it was not made by a route"),
        ({**defined_by(ORDER), **began(7, "Order")}, 'it is the table of the value "Order"'),
        (
            {**defined_by(ORDER), **began(8)},
            "it began at events/0@8, later than records of its value may have come: events/0@7",
        ),
        (
            {**defined_by(replace(ORDER, buckets=2)), **began(7)},
            "it has another definition: buckets is 2, not 16",
        ),
    ],
)
def test_another_table_is_not(properties: dict[str, str], detail: str) -> None:
    with pytest.raises(TableTaken) as refused:
        made(properties)
    assert refused.value.detail.startswith(detail)


def test_nor_is_one_that_the_configuration_declares() -> None:
    declared = SETTINGS.model_copy(
        update={"tables": {**SETTINGS.tables, "mine": SETTINGS.routes["events"].table_settings("order")}}
    )
    with pytest.raises(TableTaken, match="it is that of mine"):
        TableMaker(declared, "events", cast("Any", None), None).make("order", DIRECTORY, START)


def test_tables_that_the_directory_does_not_know_are_found_by_what_they_were_made_for() -> None:
    stored: dict[str, Any] = {
        "app.events_order": began(7),
        "app.events_order_quarantine": None,  # of which there is one for each: none is loaded
        "app.events_order_6be090825c": began(7, "Order"),
        "app.events_known": None,
        "app.events_users": {},
        "app.events_moved": began(7, "other"),
        "app.events_debug": began(7, "debug"),
        "app.events_broken": {ROUTED_FROM_PROPERTY: "[]"},
        "app.events_secret": TableRestricted(table="x", identifier="x", detail="not yours"),
        "app.others": None,
    }

    def load_table(identifier: str) -> Any:
        properties = stored[identifier]
        assert properties is not None, f"{identifier} can't be one, and is loaded"
        if isinstance(properties, Exception):
            raise properties
        return SimpleNamespace(properties=properties)

    catalog = SimpleNamespace(
        properties={}, list_tables=lambda _: [tuple(one.split(".")) for one in stored], load_table=load_table
    )
    maker = TableMaker(SETTINGS, "events", cast("Any", catalog), None)
    assert maker.made_before(Directory().with_table("known")) == ("Order", "order")


@pytest.mark.parametrize("error", [NoSuchNamespaceError, ForbiddenError])
def test_nothing_is_found_in_a_namespace_that_is_missing_or_not_to_be_listed(error: type[Exception]) -> None:
    def missing(_: str) -> Any:
        raise error

    catalog = SimpleNamespace(properties={}, list_tables=missing)
    assert TableMaker(SETTINGS, "events", cast("Any", catalog), None).made_before(Directory()) == ()
