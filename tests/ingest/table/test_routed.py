"""A table that is there already is taken for a value's only if it was made for it, and from early enough."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from thermocline.errors import TableTaken
from thermocline.iceberg.catalog import defined_by
from thermocline.ingest.commit.change import TableChange
from thermocline.ingest.table.routed import ROUTED_FROM_PROPERTY, Made, TableMaker
from thermocline.rules.seam import Seam
from thermocline.settings import CatalogSettings, KafkaSettings, Settings

ROUTE = {
    "topics": ["events"],
    "by": {"field": "type"},
    "table": "app.events_{}",
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
