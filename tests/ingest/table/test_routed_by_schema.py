"""The table of a value with columns of its own: made of the first record's schemas, or taken as it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyiceberg.exceptions import NoSuchTableError

from tests.thermocline.registered import framed
from tests.thermocline.registry_server import RegistryServer
from thermocline.errors import RegistryUnreachable, SchemaUnusable, TableTaken
from thermocline.iceberg.catalog import defined_by
from thermocline.ingest.commit.change import TableChange
from thermocline.ingest.table import routed
from thermocline.ingest.table.routed import ROUTED_FROM_PROPERTY, Made, TableMaker
from thermocline.rules.definition import LiveTable
from thermocline.rules.routes.own_columns import FirstSchema, OwnColumns
from thermocline.rules.seam import Seam
from thermocline.settings import CatalogSettings, KafkaSettings, Settings
from thermocline.settings.model import RegistrySettings

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "type", "type": "string"}, {"name": "n", "type": "long", "doc": "how many"}],
}
KEY = {"type": "record", "name": "K", "fields": [{"name": "id", "type": "int"}]}
ROUTED_KEY = {"type": "record", "name": "K", "fields": [{"name": "type", "type": "string"}]}
START = TableChange(Seam({("events", 0): 7}), "c", {"events": "t"}, watermark_ms=-1, drained_ms=0)
FIRST = FirstSchema("events", 0, 9, framed(2, b""), framed(1, b""))
OWN = OwnColumns(("id",), {"id": "int", "type": "string", "n": {"type": "long", "comment": "how many"}})


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer().running() as server:
        server.add(1, KEY)
        server.add(2, ORDER)
        server.add(3, ROUTED_KEY)
        yield server


def settings_of(registry: RegistryServer, **more: Any) -> Settings:
    route = {
        "topics": ["events"],
        "by": {"field": "type"},
        "table": "app.events_{}",
        "format": "avro",
        "columns": "schema",
        **more,
    }
    return Settings.model_validate(
        {
            "kafka": KafkaSettings(bootstrap_servers="broker:9092"),
            "catalog": CatalogSettings(uri="sqlite:///none.db", warehouse="none"),
            "registry": RegistrySettings(url=registry.url),
            "routes": {"events": route},
        }
    ).with_directories()


class Nothing:
    """A catalog without tables."""

    def load_table(self, identifier: str) -> Any:
        raise NoSuchTableError(identifier)

    def create_namespace_if_not_exists(self, _: str) -> None: ...


def made(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    first: FirstSchema | None = FIRST,
    there: dict[str, str] | None = None,
) -> tuple[Made, list[LiveTable]]:
    """What is made, and the tables that Java would make."""
    created: list[LiveTable] = []
    monkeypatch.setattr(routed, "create_quarantine", lambda *_: None)
    monkeypatch.setattr(routed, "JavaCatalog", lambda *_: None)
    monkeypatch.setattr(routed, "create_java_table", lambda _, definition, __: created.append(definition))
    catalog: Any = Nothing()
    if there is not None:
        table = SimpleNamespace(properties=there)
        catalog = SimpleNamespace(load_table=lambda _: table)
    directory = settings.table("events").definition("events")
    maker = TableMaker(settings, "events", cast("Any", catalog), None)
    return maker.make("order", directory, START, first), created


def test_it_is_made_of_the_schemas_with_what_they_say_of_the_columns(
    registry: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(registry, key=["id"], contract="evolve", buckets=2)
    found, (definition,) = made(settings, monkeypatch)
    assert found == Made("events_order", OWN)
    assert (definition.row_schema.names, definition.key) == (["id", "type", "n"], ("id",))
    assert (definition.buckets, definition.columns_by_schema) == (2, True)
    assert definition.iceberg_schema().find_field("n").doc == "how many"
    assert [one.values for one in definition.where] == [("order",)]


@pytest.mark.parametrize("columns", [OWN.columns, {"id": "int", "other": "string"}])
def test_one_that_was_made_before_is_taken_with_the_columns_that_it_has(
    registry: RegistryServer, monkeypatch: pytest.MonkeyPatch, columns: dict[str, Any]
) -> None:
    settings, own = settings_of(registry, key=["id"]), OwnColumns(("id",), columns)
    before = settings.with_routed("events", ["order"], {"order": own}).table("events_order")
    seam = Seam({("events", 0): 7}).to_dict()
    properties = {
        **defined_by(before.definition("events_order")),
        ROUTED_FROM_PROPERTY: json.dumps({"value": "order", "seam": seam}),
    }
    registry.status = 500  # nor is the registry asked
    found, created = made(settings, monkeypatch, there=properties)
    assert found.own is not None
    assert (list(found.own.columns), created) == (list(columns), [])
    with pytest.raises(TableTaken, match="buckets is 16, not 2"):
        made(settings_of(registry, key=["id"], buckets=2), monkeypatch, there=properties)


def test_what_is_no_tables_schema_is_named(registry: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(registry)
    with pytest.raises(SchemaUnusable, match="none of its records names a schema that the registry knows"):
        made(settings, monkeypatch, first=None)
    registry.add(4, {**KEY, "fields": [{"name": "id", "type": "double"}]})
    double = FirstSchema("events", 0, 9, framed(2, b""), framed(4, b""))
    with pytest.raises(SchemaUnusable, match=r"the key's id is double .* \(its first record is events/0@9\)"):
        made(settings, monkeypatch, first=double)


def test_a_key_that_says_the_value_otherwise_than_the_directory_reads_it_is_refused(
    registry: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_key = FirstSchema("events", 0, 9, framed(2, b""), framed(3, b""))
    with pytest.raises(SchemaUnusable, match="the key of its records has the field type, by which the route"):
        made(settings_of(registry), monkeypatch, first=in_key)
    found, _ = made(settings_of(registry, key=["type"]), monkeypatch, first=in_key)
    assert found.own == OwnColumns(
        ("type",), {"type": "string", "n": {"type": "long", "comment": "how many"}}
    )


def test_a_registry_that_does_not_answer_says_nothing_of_the_value(
    registry: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.status = 500
    with pytest.raises(RegistryUnreachable):
        made(settings_of(registry), monkeypatch)
