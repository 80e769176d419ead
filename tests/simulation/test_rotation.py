"""Topics that come and go under a pattern: an owner of the product on a fake cluster, told step by step."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.simulation import world as world_module
from tests.simulation.edges import simulated
from tests.simulation.kafka import FakeLog
from tests.simulation.log_steps import Produce
from tests.simulation.owners import Process
from tests.simulation.records import IDENTIFIER, KEYS, NAME, key_bytes, value_bytes
from tests.simulation.serving import Serving
from tests.simulation.world import UPSERT, Surroundings, World
from tests.tier import quick_or_full
from thermocline.errors import ReadPointGone, TopicDeleted
from thermocline.iceberg.catalog import SnapshotState, current_state, definition_of, load_table
from thermocline.ingest.commit import rotation
from thermocline.ingest.commit.rotation import LOOK_SECONDS
from thermocline.ingest.owner.topic_watch import FAULTY_MAX
from thermocline.kafka.facts import TopicConfig
from thermocline.process.metrics import REGISTRY
from thermocline.rules.definition import LiveTable
from thermocline.rules.read_point import ReadPoint
from thermocline.rules.seam import Seam
from thermocline.serving.hot.manifest import read_manifest
from thermocline.serving.read.since import state_since

AROUND = Surroundings(is_rotating=True, wanders=True)
LATER = LOOK_SECONDS + 1
DAYS = quick_or_full(50, 365)


@pytest.fixture(autouse=True)
def _in_simulation() -> Iterator[None]:
    with simulated():
        yield


def table(world: World) -> Any:
    return load_table(cast(Any, world.catalog), NAME, IDENTIFIER)


def definition(world: World) -> LiveTable:
    return definition_of(table(world), NAME)


def state(world: World) -> SnapshotState:
    return current_state(table(world), NAME)


def summary(world: World) -> dict[str, str]:
    found: dict[str, str] = world.table().current.summary.additional_properties
    return found


def write(world: World, topic: str, count: int = 1) -> None:
    place = world.places.index((topic, 0))
    Produce(((place, place, UPSERT),) * count).run(world)


def delete(world: World, topic: str) -> None:
    world.delete_topic(topic)
    world.counts["DeleteTopic"] += 1


def said(world: World, field: str) -> list[str]:
    """What the snapshots have in a field of their summaries, of those that have it."""
    found = [one.summary.additional_properties for one in world.table().snapshots.values()]
    return [one[field] for one in found if field in one]


def ingest(world: World, name: str = "owner", after: float = LATER) -> Process:
    """A step of that owner, some time later; an owner of another name takes the table over."""
    world.advance(after)
    process = Process.of(world, name)
    process.ingest(None, None)
    return process


def stopped(process: Process) -> TopicDeleted:
    assert isinstance(process.stop, TopicDeleted), process.stop
    return process.stop


def resumed(process: Process) -> None:
    process.resume("", None, None)
    assert process.stop is None


def with_topics(*topics: str) -> World:
    """A table that has these topics by its pattern, and a record of each."""
    world = World(AROUND)
    for topic in topics:
        world.create_topic(topic, 1)
    ingest(world)
    for topic in topics:
        write(world, topic)
    assert ingest(world).stop is None
    assert definition(world).topics == ("a", "b", *topics)
    return world


def test_topics_that_come_feed_the_table_from_their_first_record_by_one_commit() -> None:
    world = World(AROUND)
    ingest(world)
    version, landed = definition(world).version, world.counts["landed"]
    for topic in ("c2", "c1", "other"):
        world.create_topic(topic, 2)
        write(world, topic, 3)
    ingest(world)
    assert definition(world).topics == ("a", "b", "c1", "c2")
    assert definition(world).version == version + 1
    assert world.counts["landed"] == landed + 2  # what names them, and the batch that reads them
    assert state(world).seam == Seam(
        {("a", 0): 0, ("b", 0): 0, ("c1", 0): 3, ("c1", 1): 0, ("c2", 0): 3, ("c2", 1): 0}
    )
    assert state(world).topic_ids["c1"] == world.cluster.topics["c1"].topic_id
    named = [one.summary.additional_properties for one in world.table().snapshots.values()]
    assert [one["thermocline.topics-added"] for one in named if "thermocline.topics-added" in one] == [
        "c1, c2"
    ]


def test_a_look_is_taken_every_ten_seconds() -> None:
    world = World(AROUND)
    ingest(world)
    world.create_topic("c1", 1)
    ingest(world, after=LOOK_SECONDS - 1)
    assert definition(world).topics == ("a", "b")
    ingest(world, after=1)
    assert definition(world).topics == ("a", "b", "c1")


def test_a_table_counts_as_drained_before_the_topics_that_were_found_late() -> None:
    """What came since the look before may have records that are as old."""
    world = World(AROUND)
    ingest(world)
    write(world, "a")
    ingest(world)
    drained_ms = state(world).drained_ms
    world.create_topic("c1", 1)
    ingest(world)
    assert state(world).drained_ms == drained_ms - 1000 * LOOK_SECONDS


def test_a_topic_whose_first_records_are_gone_when_it_is_found_stops_ingest() -> None:
    world = World(AROUND)
    ingest(world)
    world.create_topic("c1", 1)
    write(world, "c1", 3)
    world.cluster.trim("c1", 0, 2)
    world.counts["Trim"] += 1
    stop = ingest(world).stop
    assert stop is not None
    assert stop.code == "offsets-gone"
    assert stop.gaps == ("c1/0@0-2",)  # type: ignore[attr-defined]


def test_a_topic_of_another_cluster_is_not_taken_into_the_table() -> None:
    world = World(AROUND)
    ingest(world)
    world.cluster.replace()
    world.create_topic("c1", 1)
    world.counts["ReplaceCluster"] += 1
    before = world.table().current_id
    process = ingest(world)
    assert process.stop is not None
    assert process.stop.code == "log-replaced"
    assert world.table().current_id == before


def test_a_topic_that_must_not_be_read_is_passed_over_and_the_others_are_read() -> None:
    world = World(Surroundings(is_rotating=True, wanders=True, is_partial=True))
    ingest(world)
    for topic, is_compacted in (("c1", True), ("c2", False)):
        config = TopicConfig(is_compacted, 86_400_000, is_log_append_time=False)
        world.cluster.create_topic(topic, 1, config)
        world.places.append((topic, 0))
    write(world, "c2")
    assert ingest(world).stop is None
    assert definition(world).topics == ("a", "b", "c2")
    assert state(world).seam[("c2", 0)] == 1
    assert REGISTRY.get_sample_value("thermocline_ingest_topics_passed_over", {"table": NAME}) == 1


def test_a_drained_topic_that_was_deleted_leaves_seam_and_definition_in_a_commit_that_names_it() -> None:
    world = with_topics("c1", "c2")
    version = definition(world).version
    delete(world, "c1")
    ingest(world, after=1000 * 3600)  # an owner that saw the ends needs no clock
    assert definition(world).topics == ("a", "b", "c2")
    assert definition(world).version == version + 1
    assert said(world, "thermocline.topics-left") == ["c1"]
    assert state(world).seam == Seam({("a", 0): 0, ("b", 0): 0, ("c2", 0): 1})
    assert list(state(world).topic_ids) == ["a", "b", "c2"]
    times = state(world).partition_times
    assert times is not None
    assert times.get(("c1", 0)) == -1
    assert len(world.rows_of(world.table().current)) == 2


def test_a_topic_deleted_with_records_that_the_owner_saw_stops_it_and_the_next_one_too() -> None:
    world = with_topics("c1")
    owner = Process.of(world, "owner").owner
    assert owner is not None
    owner.topics.saw(Seam({("c1", 0): 3}))
    delete(world, "c1")
    process = ingest(world)
    assert stopped(process).unread == ("c1/0@1-3",)
    assert definition(world).topics == ("a", "b", "c1")
    # The table has been drained a moment ago, by what the next owner can know.
    assert stopped(ingest(world, "another", after=1)).unread == ("c1/0@1-3",)
    resumed(process)
    assert definition(world).topics == ("a", "b")
    assert json.loads(summary(world)["thermocline.accepted"])["code"] == "topic-deleted"
    assert ingest(world).stop is None


@pytest.mark.parametrize(("seconds", "stops"), [(3_500, False), (3_700, True)])
def test_an_owner_that_saw_no_ends_goes_by_when_the_table_last_had_all(seconds: int, stops: bool) -> None:
    world = with_topics("c1")
    delete(world, "c1")
    process = ingest(world, "another", after=seconds)
    if not stops:
        assert process.stop is None
        assert definition(world).topics == ("a", "b")
        return
    assert stopped(process).unread == ("c1/0@1-?",)
    assert stopped(process).resume == "thermocline ingest accept-gap t --fact deleted:c1/0@1"
    resumed(process)
    assert definition(world).topics == ("a", "b")


def test_records_behind_an_open_transaction_are_not_taken_for_read() -> None:
    world = with_topics("c1")
    open_one = world.cluster.transaction()
    open_one.produce("c1", 0, b"k", b"v", world.now_ms)
    write(world, "c1", 2)  # committed, and nobody can read it yet
    assert ingest(world).stop is None
    delete(world, "c1")
    assert stopped(ingest(world)).unread == ("c1/0@1-4",)


def test_nor_by_an_owner_that_saw_no_ends() -> None:
    world = with_topics("c1")
    open_one = world.cluster.transaction()
    open_one.produce("c1", 0, b"k", b"v", world.now_ms)
    write(world, "c1", 2)
    write(world, "a")
    ingest(world)  # by the ends that can be read, the table has all
    write(world, "a")
    ingest(world)
    delete(world, "c1")
    assert stopped(ingest(world, "another", after=1)).unread == ("c1/0@1-?",)


def test_once_the_transaction_has_ended_and_all_is_read_the_topic_may_leave() -> None:
    world = with_topics("c1")
    open_one = world.cluster.transaction()
    open_one.produce("c1", 0, b"k", b"v", world.now_ms)
    write(world, "a")
    ingest(world)
    open_one.abort()
    write(world, "a")
    ingest(world)
    delete(world, "c1")
    assert ingest(world, "another", after=1).stop is None
    assert definition(world).topics == ("a", "b")


def test_nor_where_the_transaction_has_ended_and_not_all_was_read_since() -> None:
    """The table last had all that could be read when records waited behind the transaction."""
    world = World(replace(AROUND, records_max=2))
    world.create_topic("c1", 1)
    ingest(world)
    open_one = world.cluster.transaction()
    open_one.produce("c1", 0, b"k", b"v", world.now_ms)
    # By a clock that is fast, so that it is not read before the others.
    world.cluster.produce("c1", 0, key_bytes(KEYS[0]), value_bytes(1), world.now_ms + 3_600_000)
    write(world, "a")
    ingest(world)
    open_one.abort()
    write(world, "a", 6)
    ingest(world)
    assert state(world).seam.get(("c1", 0)) == 1  # behind what was aborted
    delete(world, "c1")
    assert stopped(ingest(world, "another", after=1)).unread == ("c1/0@1-?",)


def test_nor_after_going_back_to_a_snapshot() -> None:
    world = with_topics("c1")
    kept = world.table().current_id
    write(world, "a")
    ingest(world)
    after = world.table()
    assert world.catalog.swap(IDENTIFIER, after, after.changed(current_id=kept), "foreign")
    world.counts["Rollback"] += 1
    process = ingest(world, "another", after=1)
    assert process.stop is not None
    resumed(process)
    delete(world, "c1")
    assert stopped(ingest(world, "another", after=1)).unread == ("c1/0@1-?",)


def test_a_topic_that_was_only_hidden_is_read_on_from_where_the_table_was() -> None:
    world = with_topics("c1")
    hidden = world.cluster.topics.pop("c1")
    ingest(world)
    assert definition(world).topics == ("a", "b")
    world.cluster.topics["c1"] = hidden
    write(world, "c1")
    ingest(world)
    assert definition(world).topics == ("a", "b", "c1")
    assert state(world).seam[("c1", 0)] == 2
    assert state(world).counts["read"] == 1


def test_a_topic_made_again_after_it_left_is_read_from_its_first_record() -> None:
    world = with_topics("c1")
    delete(world, "c1")
    ingest(world)
    world.create_topic("c1", 1)
    write(world, "c1", 5)
    ingest(world)
    assert state(world).seam[("c1", 0)] == 5
    assert state(world).counts["read"] == 5


def test_a_topic_made_again_before_it_left_stops_ingest() -> None:
    world = with_topics("c1")
    delete(world, "c1")
    world.create_topic("c1", 1)
    process = ingest(world)
    assert process.stop is not None
    assert process.stop.code == "log-replaced"


def test_a_topic_that_is_deleted_while_a_batch_is_planned_is_looked_for_at_once() -> None:
    world = with_topics("c1")
    write(world, "a")
    asked: list[str] = []

    def before(what: str) -> None:
        asked.append(what)
        if what == "configs" or asked.count("describe") == 2:
            world.cluster.topics.pop("c1", None)

    world.cluster.before = before
    assert ingest(world, after=1).stop is None
    world.cluster.before = None
    assert ingest(world, after=0).stop is None
    assert definition(world).topics == ("a", "b")
    assert state(world).seam == Seam({("a", 0): 1, ("b", 0): 0})


def test_changes_are_told_over_the_commits_by_which_topics_come_and_leave() -> None:
    world = with_topics("c1", "c2")
    at = state(world)
    since = ReadPoint(at.snapshot_id, at.seam, at.seam)
    delete(world, "c1")
    ingest(world)
    world.create_topic("c3", 1)
    write(world, "c3")
    ingest(world)
    assert definition(world).topics == ("a", "b", "c2", "c3")
    found = state_since(table(world), definition(world), since)
    assert found.definition_version == definition(world).version - 2

    write(world, "c2")
    ingest(world)
    delete(world, "c2")
    ingest(world)
    assert definition(world).topics == ("a", "b", "c3")
    with pytest.raises(ReadPointGone, match="c2 left the table since"):
        state_since(table(world), definition(world), since)


def test_going_back_to_a_snapshot_brings_back_what_left_since_and_what_is_lost_with_it() -> None:
    """The records of the topic that were read since are given up, and can't be read again."""
    world = with_topics("c1")
    kept = world.table().current_id
    write(world, "c1", 2)
    ingest(world)
    delete(world, "c1")
    ingest(world)
    assert definition(world).topics == ("a", "b")
    after = world.table()
    back = after.changed(current_id=kept)
    assert world.catalog.swap(IDENTIFIER, after, back, "foreign")
    world.counts["Rollback"] += 1
    process = ingest(world, "another")
    assert process.stop is not None
    assert process.stop.code == "foreign-snapshot"
    resumed(process)
    assert definition(world).topics == ("a", "b", "c1")
    assert stopped(ingest(world, "another")).unread == ("c1/0@1-3",)


def test_what_is_kept_of_topics_that_left_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "LEFT_TOPICS_MAX", 3)
    world = World(AROUND)
    for day in range(6):
        world.create_topic(f"c{day}", 1)
        ingest(world)
        write(world, f"c{day}")
        ingest(world)
        delete(world, f"c{day}")
        ingest(world)
    left = json.loads(table(world).properties["thermocline.topics-left"])
    assert list(left) == ["c3", "c4", "c5"]
    assert left["c5"]["seam"] == {"0": 1}
    assert definition(world).topics == ("a", "b")
    assert state(world).seam.topics == ("a", "b")


def test_daily_topics_grow_neither_the_table_nor_the_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Method: each day a topic comes, is written, read and served, and the one of the day before leaves."""
    monkeypatch.setattr(rotation, "LEFT_TOPICS_MAX", 5)
    world = World(replace(AROUND, is_served=True))
    world.serving = serving = Serving(world)
    tiers = set()
    sizes = []
    for day in range(100, 100 + DAYS):
        world.create_topic(f"c{day}", 1)
        ingest(world)
        write(world, f"c{day}")
        served(serving)
        assert ingest(world).stop is None
        if day > 100:
            delete(world, f"c{day - 1}")
        process = ingest(world)
        served(serving)
        assert definition(world).topics == ("a", "b", f"c{day}")
        tiers.add(serving.running_tailer().tier)
        sizes.append(sizes_of(world, process))
    assert len(tiers) == 1, "the tier is kept"
    assert sizes[-1].keys() == sizes[30].keys()
    # Numbers have some digits more.
    assert all(size <= sizes[30][what] + 8 for what, size in sizes[-1].items()), (sizes[30], sizes[-1])
    serving.settle()


def served(serving: Serving) -> None:
    """What the server does in the meantime."""
    serving.follow(None)
    serving.tail(3, None)
    for place in range(2):
        serving.worker(place).refresh(None)


def sizes_of(world: World, process: Process) -> dict[str, int]:
    """What there is of it: bytes of the table's texts, and topics that somebody knows."""
    assert world.serving is not None
    owner, tier = process.owner, world.serving.running_tailer().tier
    assert owner is not None
    assert tier is not None
    at = owner.position
    numbers = read_manifest(tier.folder)
    assert numbers is not None
    return {
        "seam": len(state(world).seam),
        "summary": len(json.dumps(summary(world))),
        **{name: len(text) for name, text in table(world).properties.items()},
        "ends that the owner knows": len(owner.topics.ends),
        "topics that the owner knows": len({*owner.topics.passed_over, *(owner.topics.held or ())}),
        "properties that the owner knows": sum(map(len, owner.topics.properties.values())),
        "tombstones": len(at.tombstones_since_ms),
        "topics of the tier": len(tier.topics),
        "numbers of the tier": len(numbers.topics),
        "generations": tier.generations,
    }


def test_nothing_is_asked_of_the_cluster_for_a_table_without_patterns() -> None:
    world = World(Surroundings())
    asked: list[str] = []
    world.cluster.before = asked.append
    ingest(world)
    assert "names" not in asked
    assert asked.count("cluster_id") == 2  # as it is opened, and before the batch


def test_a_table_without_any_topic_left_waits_for_the_next_one_and_its_server_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(world_module, "ROTATING", r"[abc]\d*")
    world = World(replace(AROUND, is_served=True))
    ingest(world)
    write(world, "a")
    ingest(world)
    world.serving = serving = Serving(world)
    for topic in ("a", "b"):
        delete(world, topic)
    for _ in range(2):
        assert ingest(world).stop is None
    assert definition(world).topics == ()
    assert state(world).seam == Seam()
    assert len(world.rows_of(world.table().current)) == 1
    serving.follow(None)
    serving.tail(3, None)
    assert ingest(world, "another").stop is None
    world.create_topic("c1", 1)
    write(world, "c1")
    ingest(world, "another")
    assert definition(world).topics == ("c1",)
    assert state(world).seam == Seam({("c1", 0): 1})
    serving.settle()
    assert world.counts["serves at the end"] == 1
    # A server that begins while there is no topic begins with none, and goes on with the next one.
    delete(world, "c1")
    ingest(world, "another")
    serving.kill_tailer()
    serving.follow(None)
    serving.tail(3, None)
    assert serving.tailer is not None
    assert serving.tailer.problem is not None
    assert serving.tailer.problem.code == "topics-unmatched"
    world.create_topic("c2", 1)
    write(world, "c2")
    ingest(world, "another")
    serving.settle()
    assert world.counts["serves at the end"] == 2


@pytest.mark.parametrize(("count", "read"), [(FAULTY_MAX - 1, ("c1",)), (FAULTY_MAX, ())])
def test_topics_that_are_listed_and_not_there_are_waited_for_until_the_next_look(
    count: int, read: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(AROUND)
    ingest(world)
    world.create_topic("c1", 1)
    late = [f"c{number}" for number in range(10, 10 + count)]
    with monkeypatch.context() as patched:
        patched.setattr(FakeLog, "names", lambda _: frozenset([*world.cluster.topics, *late]))
        assert ingest(world).stop is None
    assert definition(world).topics == ("a", "b", *read)
    for topic in late:
        world.create_topic(topic, 1)
    assert ingest(world).stop is None
    assert set(definition(world).topics) == {"a", "b", "c1", *late}


@pytest.mark.parametrize(("is_made_again", "code"), [(True, "log-replaced"), (False, "topic-deleted")])
def test_a_topic_that_was_found_after_the_snapshot_and_is_gone_is_not_taken_for_another(
    is_made_again: bool, code: str
) -> None:
    """Method: the table goes back to before the topic was found; what was read of it is given up."""
    world = World(AROUND)
    ingest(world)
    kept = world.table().current_id
    world.create_topic("c1", 1)
    ingest(world)
    write(world, "c1")
    ingest(world)
    after = world.table()
    assert world.catalog.swap(IDENTIFIER, after, after.changed(current_id=kept), "foreign")
    world.counts["Rollback"] += 1
    delete(world, "c1")
    if is_made_again:
        world.create_topic("c1", 1)
        write(world, "c1")
    process = ingest(world, "another")
    assert process.stop is not None
    resumed(process)
    stop = ingest(world, "another").stop
    assert stop is not None
    assert stop.code == code
