"""A route's directory over batches that land, are rejected, or end their process: no record is missed.

Method: the log is a list of values, one partition. A table is the offset that it begins with; making one may
fail. What landed is all that a next owner begins with. The oracle counts each record once.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal, cast

from hypothesis import given
from hypothesis import strategies as st

from tests.manual_clock import ManualClock
from thermocline.errors import StorageFailed
from thermocline.iceberg.catalog import DELETED_PROPERTY, HELD_PROPERTY, LEFT_PROPERTY, ROUTED_PROPERTY
from thermocline.ingest.batch.batch import BatchResult
from thermocline.ingest.batch.read_task import ReadReport, ReadTask
from thermocline.ingest.commit.change import TableChange
from thermocline.ingest.commit.commit import Landed
from thermocline.ingest.owner.routing import RETRY_SECONDS, Routing
from thermocline.ingest.table.routed import Made, TableMaker
from thermocline.rules.definition import LiveTable
from thermocline.rules.partition_time import PartitionTimes
from thermocline.rules.routes.directory import Admission, Directory
from thermocline.rules.seam import Seam
from thermocline.settings.route import RouteSettings

TABLES_MAX = 4
PLACE = ("events", 0)
ROUTE = RouteSettings.model_validate(
    {
        "topics": ["events"],
        "by": {"field": "type"},
        "table": "app.events_{}",
        "denied": ["debug*"],
        "tables_max": TABLES_MAX,
        "key": ["id"],
        "columns": {"id": "int"},
    }
)
End = Literal["lands", "is rejected", "dies"]


@dataclass
class Site:
    """What outlives a process: the log, the tables, and the directory as it was last committed."""

    log: list[str]
    fails: list[bool]
    seam: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    tables: dict[str, int] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    refused_before: dict[str, int] = field(default_factory=dict)
    clock: ManualClock = field(default_factory=ManualClock)
    made: list[str] = field(default_factory=list)
    topic_ids: dict[str, str] = field(default_factory=lambda: {"events": "id"})
    cluster_id: str = "c"
    patterns: tuple[str, ...] = ()
    others: dict[tuple[str, int], int] = field(default_factory=dict)
    starts: dict[str, tuple[LiveTable, TableChange]] = field(default_factory=dict)

    def made_before(self, known: Directory) -> tuple[str, ...]:
        return tuple(value for value in self.tables if value not in known)

    def make(self, value: str, reads: LiveTable, start: TableChange, first: object) -> Made:
        assert first is None
        if self.fails and self.fails.pop():
            raise StorageFailed(table=value, detail="full")
        self.starts[value] = reads, start
        self.tables.setdefault(value, start.seam.get(PLACE))
        assert self.tables[value] <= start.seam.get(PLACE), "a table that began too late is taken"
        return Made(f"events_{value}")

    def owner(self) -> tuple[Routing, Any]:
        routing = Routing("events", ROUTE, cast("TableMaker", self), Directory())
        routing.on_made = self.made.extend
        routing.reload(cast("Any", SimpleNamespace(properties=self.properties)))
        owner = SimpleNamespace(
            clock=self.clock,
            lease=SimpleNamespace(check=lambda: None),
            table=SimpleNamespace(properties=self.properties),
            topics=SimpleNamespace(properties={}),
            land=self.land,
        )
        self.place(owner)
        return routing, owner

    def place(self, owner: Any) -> None:
        owner.definition = LiveTable.build(
            name="events",
            identifier="app.events_directory",
            topics=list(self.topic_ids),
            topic_patterns=list(self.patterns),
            key=["id"],
            columns={"id": "int"},
        )
        owner.position = SimpleNamespace(
            seam=Seam({PLACE: self.seam, **self.others}),
            cluster_id=self.cluster_id,
            topic_ids=dict(self.topic_ids),
            watermark_ms=0,
            drained_ms=0,
            partition_times=PartitionTimes(),
        )

    def land(self, change: TableChange) -> Landed:
        self.properties |= change.properties
        return Landed(1, change.seam)

    def batch(self, routing: Routing, owner: Any, size: int, end: End) -> bool:
        """A batch as an owner runs it; whether its process lives on."""
        routing.look(owner)
        values = self.log[self.seam : self.seam + size]
        result, beyond = self.read(routing, values)
        if not routing.has_room(result):
            result, beyond = self.read(routing, values)
        properties = routing.to_commit(owner, result)
        if end == "lands":
            self.properties |= properties
            self.refused += beyond
            for offset, value in enumerate(values, self.seam):
                if beyond[value]:
                    self.refused_before[value] = offset + 1
            self.seam += len(values)
            routing.landed()
            self.place(owner)
        return end != "dies"

    def read(self, routing: Routing, values: list[str]) -> tuple[BatchResult, Counter[str]]:
        task = routing.reading(ReadTask(cast("Any", None), {}, cast("Any", None), cast("Any", None), "", {}))
        found = {value: task.admission.of(value) for value in values}
        assert isinstance(task.admission, Admission)
        report = ReadReport([], new_values=sorted(value for value in found if found[value] == "new"))
        return BatchResult((report,), ()), Counter(value for value in values if found[value] == "beyond")

    def check(self) -> None:
        """Each record before the seam is its table's, was refused and counted, is denied, or waits."""
        known = Directory.from_json(self.properties.get(ROUTED_PROPERTY))
        assert len(known) <= TABLES_MAX
        assert set(known.names) <= set(self.tables)
        for offset, value in enumerate(self.log[: self.seam]):
            if value.startswith("debug"):
                assert value not in known
            elif value in known.names:
                assert self.tables[value] <= offset or offset < self.refused_before.get(value, 0)
            elif value in known.failed:
                assert known.failed[value].since.seam.get(PLACE) <= offset
            else:
                assert self.refused[value], f"{value} at {offset} is lost"


VALUES = st.sampled_from(["a", "b", "c", "d", "e", "f", "debug1"])
ENDS: st.SearchStrategy[End] = st.sampled_from(["lands", "lands", "lands", "is rejected", "dies"])


@given(
    st.lists(VALUES, max_size=40),
    st.lists(st.tuples(st.integers(1, 8), ENDS, st.booleans()), max_size=25),
    st.lists(st.booleans(), max_size=12),
)
def test_no_record_of_a_value_is_missed_whatever_becomes_of_batches_and_tables(
    log: list[str], batches: list[tuple[int, End, bool]], fails: list[bool]
) -> None:
    site = Site(log, fails)
    routing, owner = site.owner()
    for size, end, is_late in batches:
        site.clock.sleep(RETRY_SECONDS if is_late else 1.0)
        if not site.batch(routing, owner, size, end):
            routing, owner = site.owner()
        site.check()
    site.fails.clear()
    for _ in range(len(log) + 1):  # and in the end, every value that is known has its table
        site.clock.sleep(RETRY_SECONDS)
        site.batch(routing, owner, 3, "lands")
        site.check()
    known = Directory.from_json(site.properties.get(ROUTED_PROPERTY))
    assert not known.failed
    assert site.seam == len(log)
    assert set(site.tables) == set(known.names), "a table is left that nobody ingests"


def test_tables_are_told_of_once_the_directory_has_them() -> None:
    site = Site(["a", "b", "a", "c"], fails=[])
    routing, owner = site.owner()
    site.batch(routing, owner, 2, "is rejected")
    assert (site.made, set(site.tables)) == ([], {"a", "b"})
    site.batch(routing, owner, 3, "lands")
    assert site.made == ["a", "b"]
    site.batch(routing, owner, 3, "lands")
    assert (site.made, site.tables) == (["a", "b", "c"], {"a": 0, "b": 0, "c": 3})


def test_a_value_that_fails_begins_where_it_first_came_and_keeps_no_other_from_its_table() -> None:
    site = Site(["a", "b", "c", "a"], fails=[True, False, True])
    routing, owner = site.owner()
    site.batch(routing, owner, 2, "lands")
    assert site.made == ["b"]
    site.batch(routing, owner, 2, "lands")
    assert site.made == ["b", "c"]
    site.clock.sleep(RETRY_SECONDS)
    site.batch(routing, owner, 1, "lands")
    assert (site.made, site.tables["a"]) == (["b", "c", "a"], 0)


def test_tables_of_a_batch_of_which_nobody_knew_that_it_landed_are_told_of_when_it_is_read() -> None:
    site = Site(["a", "b"], fails=[])
    routing, owner = site.owner()
    report = ReadReport([], new_values=["a", "b"])
    site.properties |= routing.to_commit(
        owner, BatchResult((report,), ())
    )  # it lands, and nobody hears of it
    assert site.made == []
    routing.reload(cast("Any", SimpleNamespace(properties=site.properties)))
    assert site.made == ["a", "b"]


def test_a_table_that_a_batch_left_is_taken_before_others_are_made() -> None:
    """Goal: of the last place, two attempts make two tables, and the first would have no owner."""
    site = Site(["a", "b", "c", "z", "y"], fails=[])
    routing, owner = site.owner()
    site.batch(routing, owner, 3, "lands")
    site.batch(routing, owner, 2, "dies")
    assert set(site.tables) == {"a", "b", "c", "y"}
    routing, owner = site.owner()
    site.batch(routing, owner, 1, "lands")
    assert (set(site.tables), site.made[3:]) == ({"a", "b", "c", "y"}, ["a", "b", "c", "y"])
    assert site.refused == {"z": 1}


def test_the_table_of_a_value_that_waited_is_made_as_of_the_topics_and_the_cluster_of_then() -> None:
    """Goal: `log-replaced` stops it. Method: both are recreated, and the directory goes on with the new."""
    site = Site(["a"] * 9, fails=[True])
    routing, owner = site.owner()
    site.batch(routing, owner, 4, "lands")
    site.topic_ids, site.cluster_id, site.seam = {"events": "recreated"}, "d", 2
    routing, owner = site.owner()
    site.clock.sleep(RETRY_SECONDS)
    site.batch(routing, owner, 4, "lands")
    _, start = site.starts["a"]
    assert (start.seam, start.cluster_id, start.topic_ids) == (Seam({PLACE: 0}), "c", {"events": "id"})


def test_topics_that_came_and_were_deleted_while_a_value_waited_are_part_of_its_table() -> None:
    """Goal: `topic-deleted` stops it. Method: its topic and one that came later are deleted, all read."""
    site = Site(["a"] * 9, fails=[True, True], patterns=("log.*", "events"))
    routing, owner = site.owner()
    site.batch(routing, owner, 4, "lands")
    site.topic_ids, site.others = {"events": "id", "log1": "x"}, {("log1", 0): 0}
    site.place(owner)
    site.batch(routing, owner, 2, "lands")
    assert "a" not in site.starts
    left = {"events": {"id": "id", "seam": {"0": 6}}, "log1": {"id": "x", "seam": {"0": 3}}}
    site.properties[LEFT_PROPERTY] = json.dumps(left)
    site.topic_ids, site.others = {"log2": "y"}, {("log2", 0): 0}
    routing, owner = site.owner()
    owner.position.seam = Seam({("log2", 0): 0})
    site.clock.sleep(RETRY_SECONDS)
    routing.look(owner)
    reads, start = site.starts["a"]
    assert reads.topics == ("log2", "events", "log1")
    assert start.topic_ids == {"events": "id", "log1": "x", "log2": "y"}
    assert start.seam == Seam({PLACE: 0, ("log1", 0): 0, ("log2", 0): 0})
    assert Seam.from_json(start.properties[DELETED_PROPERTY]) == Seam(
        {PLACE: 6, ("log1", 0): 3, ("log2", 0): 0}
    )
    assert json.loads(start.properties[HELD_PROPERTY]) == ["events", "log1", "log2"]
