"""What the rendered views answer in a real Trino, beside a replay of the log into a ``dict``."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from pyiceberg.table import Table
from trino.exceptions import TrinoUserError

from tests.newest import newest
from tests.partition_spec import partition_spec_of
from tests.views.trino.conftest import ADMIN, TrinoSite
from thermocline.rules.decode import decoder_for
from thermocline.rules.definition import LiveTable
from thermocline.rules.seam import Seam
from thermocline.views.groups import SCAN_COST_RECORDS
from thermocline.views.render import Mode, ViewPlan, query
from thermocline.views.render_view import create_view, drop_view, view_name, withdrawn_view
from thermocline.views.render_window import LogWindow

pytestmark = [pytest.mark.trino, pytest.mark.full]

FAR = 2 * SCAN_COST_RECORDS  # offsets that are too far from others to share a scan
TIMEOUT_SECONDS = 30.0
LIFE_SECONDS = 10  # of views that end in a test: longer than it takes to make them
COLUMNS: dict[str, str] = {
    "app_id": "int",
    "user_id": "string",
    "id": "uuid",
    "amount": "decimal(12,3)",
    "seen_at": "timestamptz",
    "raw": "binary",
    "opens": "time",
}
IDS = [f"{number:08x}-0000-4000-8000-{number * 7:012x}" for number in range(4)]
"""A few, so that keys meet again."""

PUSHED = re.compile(r"name=(\w+), [^}]*}=\[ SortedRangeSet\[type=[^,]+, ranges=\d+, {(.*?)}\] ]")
"""In a Kafka table's handle, as EXPLAIN prints it: what was handed over, by column."""

Key = tuple[int, str, str]
Row = tuple[Any, ...]


def accounts(name: str, topics: Iterable[str] = (), **options: Any) -> LiveTable:
    settings: dict[str, Any] = {"key": ["app_id", "user_id", "id"], "entity": ["app_id", "user_id"]} | options
    return LiveTable.build(
        name=name,
        identifier=f"app.{name}",
        topics=list(topics) or [name],
        columns=COLUMNS,
        buckets=4,
        format_version=2,
        **settings,
    )


@dataclass(frozen=True, slots=True)
class Sent:
    """One record as the broker has it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None

    @property
    def partition_time_ms(self) -> int:
        """Its own time, which is the broker's where it decides."""
        return self.timestamp_ms


@dataclass
class World:
    """A live table with its topics: what was sent, and what was committed of it, up to which seam."""

    site: TrinoSite
    definition: LiveTable
    table: Table
    catalog: str
    has_append_times: bool = True
    sent: list[Sent] = field(default_factory=list)

    def send(self, records: Iterable[tuple[str, int, bytes | None, bytes | None]]) -> None:
        """Produces records given as (topic, partition, key, value), and notes where they landed."""
        producer = Producer({"bootstrap.servers": self.site.kafka.bootstrap_servers, "linger.ms": 5})

        def landed(error: object, message: Any) -> None:
            assert error is None, error
            place = (message.topic(), message.partition(), message.offset(), message.timestamp()[1])
            self.sent.append(Sent(*place, message.key(), message.value()))

        for topic, partition, key, value in records:
            producer.produce(topic, key=key, value=value, partition=partition, on_delivery=landed)
            producer.poll(0)
        producer.flush()

    @property
    def ends(self) -> Seam:
        ends: dict[tuple[str, int], int] = {}
        for record in self.sent:
            place = (record.topic, record.partition)
            ends[place] = max(ends.get(place, 0), record.offset + 1)
        return Seam(ends)

    def before(self, seam: Seam) -> list[Sent]:
        return [sent for sent in self.sent if seam.covers(sent.topic, sent.partition, sent.offset)]

    def rows(self, records: list[Sent], cold: dict[Key, Row] | None = None) -> dict[Key, Row]:
        """The records, replayed one by one over the rows that there were."""
        decoded = decoder_for(self.definition).decode(
            [record.key for record in records], [record.value for record in records]
        )
        names = [column.name for column in self.definition.columns]
        hits: dict[Key, list[Sent]] = {}
        found: dict[Sent, Row | None] = {}
        for place, index in enumerate(decoded.good):
            row = tuple(decoded.columns[name][place] for name in names)
            hits.setdefault(row[:3], []).append(records[index])
            found[records[index]] = None if decoded.tombstones[place] else row
        rows = dict(cold or {})
        for key, of_key in hits.items():
            rows.pop(key, None)
            winner = found[newest(of_key)]
            if winner is not None:
                rows[key] = winner
        return rows

    def overlaid(self, seam: Seam, end: Seam) -> dict[Key, Row]:
        """The rows of the snapshot with that seam, under the records from there to the end."""
        hot = [sent for sent in self.before(end) if not seam.covers(sent.topic, sent.partition, sent.offset)]
        return self.rows(hot, self.rows(self.before(seam)))

    def commit(self, seam: Seam) -> int:
        """Makes the table what the log up to the seam says, and gives the snapshot."""
        rows = list(self.rows(self.before(seam)).values())
        schema = self.definition.table_schema
        columns = {
            column.name: values
            for column, values in zip(self.definition.columns, zip(*rows, strict=True), strict=False)
        }
        ids = columns.get("id")
        arrays = [
            pa.array(
                [value.bytes for value in ids]
                if name == "id" and ids
                else columns.get(name, [None] * len(rows)),
                schema.field(name).type,
            )
            for name in schema.names
        ]
        if self.table.scan().count():
            self.table.delete()
        self.table.append(pa.Table.from_arrays(arrays, schema=schema))
        snapshot = self.table.current_snapshot()
        assert snapshot is not None
        return snapshot.snapshot_id

    def window(self, seam: Seam, **bounds: Any) -> LogWindow:
        return LogWindow(self.catalog, self.definition.topics, seam, **bounds)

    def plan(self, mode: Mode, snapshot_id: int, window: LogWindow, **options: Any) -> ViewPlan:
        options = {"has_append_times": self.has_append_times, **options}
        return ViewPlan(mode, self.definition, "lake", snapshot_id, window, **options)

    def answer(self, plan: ViewPlan, where: str = "true") -> list[Row]:
        """The rows of the published view."""
        self.publish(plan)
        return self.ask(plan, where)

    def publish(self, plan: ViewPlan) -> None:
        self.site.query(create_view(plan, pinned="p"), user=ADMIN)

    def ask(self, plan: ViewPlan, where: str = "true") -> list[Row]:
        schema, name = view_name(self.definition, plan.mode, "p")
        columns = ", ".join(f'"{column.name}"' for column in self.definition.columns)
        return self.site.query(f"SELECT {columns} FROM lake.{schema}.{name} WHERE {where}", user=ADMIN)


@pytest.fixture(scope="module")
def new_world(site: TrinoSite) -> Any:
    def make(definition: LiveTable, partitions: int, timestamps: str = "LogAppendTime") -> World:
        for topic in definition.topics:
            site.kafka.create_topic(topic, partitions, {"message.timestamp.type": timestamps})
        table = site.catalog.create_table(
            definition.identifier,
            definition.iceberg_schema(),
            partition_spec=partition_spec_of(definition),
            properties={"format-version": "2"},
        )
        catalog = f"kafka_{definition.name}"
        site.kafka_catalog(catalog, definition.topics)
        return World(site, definition, table, catalog, timestamps == "LogAppendTime")

    return make


def key_of(user: int, number: int) -> bytes:
    return json.dumps({"app_id": user % 3, "user_id": f"u{user}", "id": IDS[number]}).encode()


def random_records(
    random: Random, count: int, topics: tuple[str, ...], partitions: int, wandering: float = 0.1
) -> Iterator[tuple[str, int, bytes | None, bytes | None]]:
    """Updates, inserts, tombstones and poison of all kinds; some keys change their partition."""
    for _ in range(count):
        user, number = random.randrange(40), random.randrange(len(IDS))
        place = random.randrange(1 << 20) if random.random() < wandering else user
        topic, partition = topics[place % len(topics)], place // len(topics) % partitions
        key: bytes | None = key_of(user, number)
        value: bytes | None = json.dumps(
            {
                "amount": random.randrange(10**9) / 1000,
                "seen_at": "2026-11-21T09:33:00.123456+05:30",
                "raw": "AAE=",
                "opens": f"{random.randrange(24):02}:30:00.000001",
            }
        ).encode()
        chance = random.random()
        if chance < 0.25:
            value = random.choice([None, b""])
        elif chance < 0.35:
            value = random.choice(
                [
                    b"\xff",
                    b"{",
                    b"[]",
                    b'{"amount":"x"}',
                    b'{"amount":0.1234}',
                    b'{"seen_at":5}',
                    b'{"opens":"24:00:00"}',
                ]
            )
        elif chance < 0.4:
            key = random.choice([None, b"", b"garbage", b'{"app_id":1}', b'{"app_id":"1","user_id":"u1"}'])
        yield topic, partition, key, value


def assert_equal(found: list[Row], expected: dict[Key, Row]) -> None:
    rows = {row[:3]: row for row in found}
    assert len(rows) == len(found), "a key stands in two rows"
    assert rows == expected


def seams_of(random: Random, ends: Seam) -> Seam:
    """A seam somewhere in the log, the partitions far apart in how much they have committed."""
    return Seam({(topic, partition): random.randint(0, end) for topic, partition, end in ends.items()})


@pytest.mark.parametrize("timestamps", ["LogAppendTime", "CreateTime"])
def test_every_view_equals_a_replay_of_the_log(site: TrinoSite, new_world: Any, timestamps: str) -> None:
    """Goal: at any seam, current or stale, each view is what a replay of the whole log gives.

    Three partitions and random records, of which some keys wander between partitions where the broker gives
    the times; snapshots at two seams,
    one of them at the end of the log; all modes, and the one that reads the log twice with the bound that a
    topic of those timestamps has.
    """
    seed = Random().randrange(1 << 32)
    print(f"seed {seed}")
    random = Random(seed)
    definition = accounts(f"model_{timestamps.lower()}")
    world: World = new_world(definition, 3, timestamps)
    wandering = 0.1 if timestamps == "LogAppendTime" else 0.0
    world.send(random_records(random, 1500, definition.topics, 3, wandering))
    committed = [seams_of(random, world.ends), world.ends]
    snapshots = [(seam, world.commit(seam)) for seam in committed]
    world.send(random_records(random, 300, definition.topics, 3, wandering))
    for seam, snapshot_id in snapshots:
        expected, until = world.overlaid(seam, world.ends), seams_of(random, world.ends).merged_max(seam)
        bound: dict[str, Any] = {"margin_ms": 0} if timestamps == "LogAppendTime" else {"end": world.ends}
        assert_equal(world.answer(world.plan(Mode.LIVE_BY_KEY, snapshot_id, world.window(seam))), expected)
        live = world.plan(Mode.LIVE, snapshot_id, world.window(seam, **bound))
        assert_equal(world.answer(live), expected)
        pinned = world.plan(Mode.PINNED, snapshot_id, world.window(seam, end=until))
        assert_equal(world.answer(pinned), world.overlaid(seam, until))
    seam, snapshot_id = snapshots[0]
    expected, window = world.overlaid(seam, world.ends), world.window(seam, end=world.ends)
    assert_equal(world.answer(world.plan(Mode.COLD, snapshot_id, window)), world.rows(world.before(seam)))
    for mode in (Mode.LIVE, Mode.LIVE_BY_KEY):
        plan = world.plan(mode, snapshot_id, window)
        world.publish(plan)
        of_user = {key: row for key, row in expected.items() if key[:2] == (0, "u3")}
        assert_equal(world.ask(plan, "app_id = 0 AND user_id = 'u3'"), of_user)
        large = {key: row for key, row in expected.items() if row[3] is not None and row[3] > 500_000}
        assert_equal(world.ask(plan, "amount > 500000"), large)


def test_what_was_appended_within_the_margin_is_left_out(new_world: Any) -> None:
    world: World = new_world(accounts("margin"), 2)
    world.send(random_records(Random(2), 100, ("margin",), 2))
    seam = world.ends
    snapshot_id = world.commit(seam)
    world.send(random_records(Random(3), 100, ("margin",), 2))
    hour = world.window(seam, margin_ms=3_600_000)
    assert_equal(world.answer(world.plan(Mode.LIVE, snapshot_id, hour)), world.rows(world.before(seam)))
    nothing = world.window(seam, margin_ms=0)
    assert_equal(world.answer(world.plan(Mode.LIVE, snapshot_id, nothing)), world.overlaid(seam, world.ends))


def test_with_producers_times_a_view_refuses_only_keys_that_have_new_records_in_several_partitions(
    new_world: Any,
) -> None:
    """Offsets decide within a partition, whatever the times say; between partitions, not those of records."""
    world: World = new_world(accounts("clocks"), 2, "CreateTime")
    producer = Producer({"bootstrap.servers": world.site.kafka.bootstrap_servers})
    records = [
        (0, key_of(1, 0), 1, 9_000), (0, key_of(1, 0), 2, 1_000),
        (0, key_of(2, 0), 3, 9_000), (0, key_of(2, 0), 4, 1_000), (1, key_of(2, 0), 5, 2_000),
        (0, key_of(3, 0), 6, 5_000), (1, key_of(3, 0), None, 5_000),
    ]  # fmt: skip
    for partition, key, amount, timestamp in records:
        value = None if amount is None else json.dumps({"amount": amount}).encode()
        producer.produce("clocks", key=key, value=value, partition=partition, timestamp=timestamp)
        producer.flush()
    snapshot_id = world.commit(Seam())
    end = Seam({("clocks", 0): 5, ("clocks", 1): 2})
    plans = [
        world.plan(Mode.LIVE, snapshot_id, world.window(Seam(), end=end)),
        world.plan(Mode.LIVE_BY_KEY, snapshot_id, world.window(Seam())),
    ]
    for plan in plans:
        assert [int(row[3]) for row in world.answer(plan, "user_id = 'u1'")] == [2]
        for contested in ("user_id = 'u2'", "user_id = 'u3'", "true"):
            with pytest.raises(TrinoUserError, match="has new records in several partitions"):
                world.ask(plan, contested)


def test_topics_partitions_and_groups_that_come_later_are_all_read(site: TrinoSite, new_world: Any) -> None:
    """Two topics, one of which grows by partitions after the view was made; offsets far apart."""
    definition = accounts("grown", ["grown_a", "grown_b"])
    world: World = new_world(definition, 2)
    filler = [("grown_a", 1, None, b"{}")] * (FAR + 10)
    world.send(filler)
    world.send(random_records(Random(3), 300, definition.topics, 2))
    seam = Seam({(topic, p): end for topic, p, end in world.ends.items() if (topic, p) != ("grown_b", 1)})
    snapshot_id = world.commit(seam)
    window = world.window(seam, margin_ms=0)
    plan = world.plan(Mode.LIVE, snapshot_id, window)
    by_key = world.plan(Mode.LIVE_BY_KEY, snapshot_id, world.window(seam))
    records = window.records()
    assert records is not None
    assert records.count(f'FROM "{world.catalog}"') == 2 + 1 + 2, "two groups and one, and what may come"
    world.answer(plan)  # with the partitions that there are
    world.publish(by_key)
    admin = AdminClient({"bootstrap.servers": site.kafka.bootstrap_servers})
    admin.create_partitions([NewPartitions("grown_b", 4)])["grown_b"].result(TIMEOUT_SECONDS)
    world.send(random_records(Random(4), 200, ("grown_b",), 4, wandering=0))
    world.send(random_records(Random(5), 200, definition.topics, 2))
    assert {sent.partition for sent in world.sent} == {0, 1, 2, 3}
    expected = world.overlaid(seam, world.ends)
    assert_equal(world.ask(plan), expected)
    assert_equal(world.ask(by_key), expected)


def test_an_empty_window_shows_the_snapshot(new_world: Any) -> None:
    world: World = new_world(accounts("idle"), 2)
    world.send(random_records(Random(6), 100, ("idle",), 2))
    seam = world.ends
    snapshot_id = world.commit(seam)
    cold = world.rows(world.sent)
    nothing = world.window(seam, end=seam)
    assert nothing.records() is None
    for window in (nothing, world.window(seam, margin_ms=0)):
        assert_equal(world.answer(world.plan(Mode.LIVE, snapshot_id, window)), cold)
    assert_equal(world.answer(world.plan(Mode.PINNED, snapshot_id, nothing)), cold)
    assert_equal(world.answer(world.plan(Mode.LIVE_BY_KEY, snapshot_id, world.window(seam))), cold)


def test_without_a_key_every_good_record_is_a_row(new_world: Any) -> None:
    definition = accounts("events", key=[], entity=[], key_from="value")
    world: World = new_world(definition, 2)
    sent = [b'{"app_id":1,"amount":1.5}', b"{}", None, b"[]", b'{"amount":"x"}', b'{"app_id":1,"amount":1.5}']
    world.send(("events", place % 2, b"any", value) for place, value in enumerate(sent))
    snapshot_id = world.commit(Seam())
    for window in (world.window(Seam()), world.window(Seam(), end=world.ends)):
        rows = world.answer(world.plan(Mode.LIVE, snapshot_id, window))
        assert sorted((row[0] or 0, row[3] or 0) for row in rows) == [(0, 0), (1, 1.5), (1, 1.5)]


@pytest.fixture(scope="module")
def small(new_world: Any) -> tuple[World, Seam, int]:
    """A table with cold and hot rows, for what is not about them."""
    world: World = new_world(accounts("small"), 3)
    world.send(random_records(Random(7), 200, ("small",), 3))
    seam = world.ends
    snapshot_id = world.commit(seam)
    world.send(random_records(Random(8), 100, ("small",), 3))
    return world, seam, snapshot_id


@pytest.mark.parametrize("mode", [Mode.LIVE, Mode.LIVE_BY_KEY])
def test_offsets_reach_kafka_and_the_entity_reaches_iceberg(
    small: tuple[World, Seam, int], mode: Mode
) -> None:
    world, seam, snapshot_id = small
    plan = world.plan(mode, snapshot_id, world.window(seam, margin_ms=0))
    world.publish(plan)
    schema, name = view_name(world.definition, mode)
    question = f"SELECT * FROM lake.{schema}.{name} WHERE app_id = 1 AND user_id = 'u4'"
    explained = "\n".join(row[0] for row in world.site.query(f"EXPLAIN {question}", user=ADMIN))
    scans = [line for line in explained.splitlines() if "KafkaTableHandle" in line]
    assert len(scans) == 2 * (2 if mode is Mode.LIVE else 1), "known partitions and new ones, in each read"
    pushed = [dict(PUSHED.findall(line)) for line in scans]
    least = min(offset for _, _, offset in seam.items())
    assert sorted(scan["_partition_offset"] for scan in pushed) == sorted(
        ["[0,<max>)", f"[{least},<max>)"] * (len(scans) // 2)
    )
    assert sorted(scan["_partition_id"] for scan in pushed) == sorted(
        ["[0], [1], [2]", "[3,<max>)"] * (len(scans) // 2)
    )
    assert all(scan["_timestamp"].startswith("(<min>,") for scan in pushed)
    iceberg = [line for line in explained.splitlines() if f"lake:app.small$data@{snapshot_id}" in line]
    assert len(iceberg) == 1
    assert re.search(r"filterPredicate = .*app_id\w* = integer '1'.*user_id\w* = varchar 'u4'", iceberg[0])
    fragments = [one.splitlines() for one in explained.split("\nFragment ") if "KafkaTableHandle" in one]
    assert sum("KafkaTableHandle" in line for one in fragments for line in one) == len(scans)
    for lines in fragments:  # each node above what it works on; of its own, the condition before the columns
        conditions = [place for place, line in enumerate(lines) if "= varchar 'u4'" in line]
        (parsing,) = (place for place, line in enumerate(lines) if re.search(":= .*json_parse.message", line))
        projection = max(place for place, line in enumerate(lines[:parsing]) if "Project[" in line)
        assert projection <= min(conditions), "values of other keys are parsed"


@pytest.fixture(scope="module")
def ended(small: tuple[World, Seam, int]) -> dict[Mode, ViewPlan]:
    """Views that were made while they were valid, and whose end Trino's clock has passed."""
    world, seam, snapshot_id = small
    window, expires_at = world.window(seam, margin_ms=0), datetime.now(UTC) + timedelta(seconds=LIFE_SECONDS)
    modes = (Mode.LIVE, Mode.LIVE_BY_KEY)
    plans = {mode: world.plan(mode, snapshot_id, window, expires_at=expires_at) for mode in modes}
    for plan in plans.values():
        world.publish(plan)
    while world.site.query("SELECT current_timestamp", user=ADMIN)[0][0] <= expires_at:
        time.sleep(0.1)
    return plans


@pytest.mark.parametrize("mode", [Mode.LIVE, Mode.LIVE_BY_KEY])
@pytest.mark.parametrize("where", ["true", "app_id = 99", "false", "amount > 1e9", "user_id IS NULL"])
def test_an_expired_view_fails_whatever_is_asked(
    small: tuple[World, Seam, int], ended: dict[Mode, ViewPlan], mode: Mode, where: str
) -> None:
    """Also where no row would be found: an empty answer would hide what the log lost."""
    world, *_ = small
    with pytest.raises(TrinoUserError, match=r"expired at .* thermocline views publish small"):
        world.ask(ended[mode], where)


@pytest.mark.parametrize(
    "question",
    [
        "SELECT * FROM {view}",
        "SELECT count(*) FROM {view}",
        "SELECT 1 FROM {view} LIMIT 1",
        "SELECT * FROM {view} WHERE app_id = 99 AND user_id IS NOT NULL",
        "SELECT * FROM {view} WHERE raw IS NULL",
        "SELECT * FROM {table} t LEFT JOIN {view} v ON t.app_id = v.app_id AND t.app_id = 99",
        "SELECT * FROM {table} WHERE app_id IN (SELECT app_id FROM {view})",
    ],
)
def test_a_withdrawn_view_fails_with_its_reason(small: tuple[World, Seam, int], question: str) -> None:
    world, *_ = small
    reason = "the log was cut beyond what this view needs: run 'thermocline ingest accept-gap small'"
    world.site.query(withdrawn_view(world.definition, "lake", Mode.LIVE, reason), user=ADMIN)
    with pytest.raises(TrinoUserError, match="accept-gap small"):
        world.site.query(question.format(view="lake.app.small_live", table="lake.app.small"), user=ADMIN)


def test_a_row_filter_holds_in_every_view(small: tuple[World, Seam, int]) -> None:
    world, seam, snapshot_id = small
    expected = {key: row for key, row in world.overlaid(seam, world.ends).items() if key[0] == 1}
    cold = {key: row for key, row in world.rows(world.before(seam)).items() if key[0] == 1}
    row_filter = "app_id = 1 -- an operator's own words"
    for mode, window, rows in (
        (Mode.LIVE, world.window(seam, margin_ms=0), expected),
        (Mode.LIVE_BY_KEY, world.window(seam), expected),
        (Mode.PINNED, world.window(seam, end=world.ends), expected),
        (Mode.COLD, world.window(seam), cold),
    ):
        assert_equal(world.answer(world.plan(mode, snapshot_id, window, row_filter=row_filter)), rows)
        assert world.ask(world.plan(mode, snapshot_id, window), "app_id <> 1") == []


def test_a_view_keeps_its_types_and_carries_its_read_point(small: tuple[World, Seam, int]) -> None:
    world, seam, snapshot_id = small
    plan = world.plan(Mode.LIVE, snapshot_id, world.window(seam, margin_ms=500))
    world.publish(plan)
    found = world.site.query("DESCRIBE lake.app.small_live", user=ADMIN)
    assert [(row[0], row[1]) for row in found] == [
        ("app_id", "integer"),
        ("user_id", "varchar"),
        ("id", "uuid"),
        ("amount", "decimal(12,3)"),
        ("seen_at", "timestamp(6) with time zone"),
        ("raw", "varbinary"),
        ("opens", "time(6)"),
    ]
    question = (
        "SELECT comment FROM system.metadata.table_comments WHERE catalog_name = 'lake' "
        "AND schema_name = 'app' AND table_name = 'small_live'"
    )
    comment = json.loads(world.site.query(question, user=ADMIN)[0][0])["thermocline"]
    assert (comment["snapshot_id"], Seam.from_dict(comment["seam"])) == (str(snapshot_id), seam)
    world.site.query(drop_view(world.definition, "lake", Mode.LIVE), user=ADMIN)
    world.site.query(drop_view(world.definition, "lake", Mode.LIVE), user=ADMIN)


def test_a_query_of_every_mode_is_understood_with_its_comments(small: tuple[World, Seam, int]) -> None:
    """``views render`` prints the text with its comments: it must be what Trino takes."""
    world, seam, snapshot_id = small
    for mode in Mode:
        plan = world.plan(mode, snapshot_id, world.window(seam, end=world.ends))
        world.site.query(f"EXPLAIN {query(plan)}", user=ADMIN)
