"""A directory whose tables have columns of their own: what is kept of a value until a schema is known.

Method: one owner, whose maker says of each schema what becomes of the table; batches are reports by hand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.manual_clock import ManualClock
from thermocline.errors import RegistryUnreachable, SchemaUnusable
from thermocline.iceberg.catalog import ROUTED_PROPERTY
from thermocline.ingest.batch.batch import BatchResult
from thermocline.ingest.batch.read_task import ReadReport
from thermocline.ingest.commit.change import TableChange
from thermocline.ingest.commit.commit import Landed
from thermocline.ingest.owner.routing import RETRY_SECONDS, Routing
from thermocline.ingest.table.routed import Made, TableMaker
from thermocline.rules.partition_time import PartitionTimes
from thermocline.rules.routes.directory import Directory
from thermocline.rules.routes.own_columns import FirstSchema, OwnColumns
from thermocline.rules.seam import Seam
from thermocline.settings.route import RouteSettings

PLACE = ("events", 0)
ROUTE = RouteSettings.model_validate(
    {
        "topics": ["events"],
        "by": {"header": "type"},
        "table": "app.events_{}",
        "format": "avro",
        "columns": "schema",
    }
)
GOOD, BAD = b"\x00\x00\x00\x00\x01", b"\x00\x00\x00\x00\x02"
OWN = OwnColumns(("id",), {"id": "long"})


@dataclass
class Site:
    """The tables that were made, from where on and by which record; the directory as it was committed."""

    is_registry_there: bool = True
    made: dict[str, tuple[int, FirstSchema]] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    clock: ManualClock = field(default_factory=ManualClock)
    taken_up: list[str] = field(default_factory=list)
    seam: int = 0

    def make(self, value: str, _: object, start: TableChange, first: FirstSchema | None) -> Made:
        if first is not None and not self.is_registry_there:
            raise RegistryUnreachable(url="http://registry", detail="away")
        if first is None or first.value_head == BAD:
            raise SchemaUnusable(table=value, detail="none" if first is None else "bad", remedy="r")
        self.made[value] = start.seam.get(PLACE), first
        return Made(f"events_{value}", OWN)

    def made_before(self, _: Directory) -> tuple[str, ...]:
        return ()

    def routing(self) -> Routing:
        routing = Routing("events", ROUTE, cast("TableMaker", self), Directory())
        routing.reload(cast("Any", SimpleNamespace(properties=self.properties)))
        routing.on_made = self.taken_up.extend
        return routing

    def owner(self) -> Any:
        position = SimpleNamespace(
            seam=Seam({PLACE: self.seam}),
            cluster_id="c",
            topic_ids={"events": "t"},
            watermark_ms=0,
            drained_ms=0,
            partition_times=PartitionTimes(),
        )
        return SimpleNamespace(
            clock=self.clock,
            lease=SimpleNamespace(check=lambda: None),
            definition=SimpleNamespace(topics=("events",), topic_patterns=()),
            table=SimpleNamespace(properties={}),
            topics=SimpleNamespace(properties={}),
            position=position,
            land=self.land,
        )

    def land(self, change: TableChange) -> Landed:
        self.properties |= change.properties
        return Landed(1, change.seam)

    def batch(self, routing: Routing, new: list[str], **firsts: bytes) -> None:
        """A batch of ten records with these new values, and what the first record of some names."""
        named = {value: FirstSchema("events", 0, self.seam + 1, head) for value, head in firsts.items()}
        result = BatchResult((ReadReport([], new_values=new, first_schemas=named),), ())
        assert routing.has_room(result)
        self.properties |= routing.to_commit(self.owner(), result)
        self.seam += 10
        routing.landed()

    def known(self) -> Directory:
        return Directory.from_json(self.properties.get(ROUTED_PROPERTY))


def test_a_table_gets_its_own_columns_and_the_directory_has_them() -> None:
    site = Site()
    routing = site.routing()
    site.batch(routing, ["a"], a=GOOD)
    assert site.known() == Directory({"a": "a"}, columns={"a": OWN})
    assert (routing.directory.columns, site.taken_up) == ({"a": OWN}, ["a"])


def test_the_first_of_all_tasks_counts() -> None:
    site = Site()
    named = [FirstSchema("events", 0, offset, GOOD) for offset in (5, 3, 8)]
    reports = tuple(ReadReport([], new_values=["a"], first_schemas={"a": one}) for one in named)
    site.routing().to_commit(site.owner(), BatchResult(reports, ()))
    assert site.made["a"] == (0, named[1])


def test_a_schema_that_is_no_tables_is_the_reason_why_records_wait_and_stays_the_first() -> None:
    site = Site()
    routing = site.routing()
    site.batch(routing, ["a", "b"], a=BAD, b=GOOD)
    failed = site.known().failed["a"]
    assert failed.reason == "no table a can be made of its records' schema: bad."
    assert (failed.since.seam.get(PLACE), failed.first) == (0, FirstSchema("events", 0, 1, BAD))
    site.batch(routing, [], a=GOOD)  # nor is it asked for: it has its first schema
    assert set(site.made) == {"b"}


def test_a_value_of_which_nothing_named_a_schema_gets_its_table_with_the_record_that_does() -> None:
    site = Site()
    routing = site.routing()
    site.batch(routing, ["a"])
    assert site.known().failed["a"].reason == "no table a can be made of its records' schema: none."
    site.batch(routing, ["b"], b=GOOD)
    assert set(site.made) == {"b"}
    again = site.routing()  # as after a restart
    site.batch(again, [], a=GOOD)
    assert site.made["a"] == (0, FirstSchema("events", 0, 21, GOOD)), "from where the value came first"
    assert site.known().failed == {}
    assert site.taken_up == ["b", "a"]


def test_a_value_that_is_denied_by_now_gets_no_table_when_its_schema_comes() -> None:
    site = Site()
    site.batch(site.routing(), ["a"])
    routing = site.routing()
    routing.route = ROUTE.model_copy(update={"denied": ("a",)})
    site.batch(routing, [], a=GOOD)
    assert site.made == {}
    assert set(site.known().failed) == {"a"}


def test_a_registry_that_does_not_answer_is_no_reason_and_nothing_is_committed() -> None:
    site = Site(is_registry_there=False)
    routing = site.routing()
    with pytest.raises(RegistryUnreachable) as error:
        site.batch(routing, ["a"], a=GOOD)
    assert error.value.retryable
    assert site.known() == Directory()
    site.is_registry_there = True
    site.batch(routing, ["a"], a=GOOD)
    assert site.made["a"][0] == 0


def test_waiting_values_are_left_as_they_are_while_the_registry_does_not_answer() -> None:
    site = Site()
    routing = site.routing()
    site.batch(routing, ["a"], a=BAD)
    before = site.known()
    site.is_registry_there = False
    site.clock.sleep(RETRY_SECONDS)
    routing.look(site.owner())
    assert site.known() == routing.directory == before
    site.batch(routing, [])  # the batches of others go on
    assert site.seam == 20
