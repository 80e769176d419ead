"""Tables that are defined otherwise than the one of `test_every_read_path`, which has the usual definition.

Goal: no two options of a definition spoil each other. Method: six tables on one stack, chosen so that nearly
every two options meet in one of them; each is told the story of the cases through two commits, and what
lookups, extracts, Spark and PyIceberg say is compared with a plain replay of what the broker acknowledged.
"""

from __future__ import annotations

import io
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, Message, Producer
from pyspark.sql import SparkSession

from tests.behaviour.cases import CASES, Raw, Write
from tests.behaviour.live import APPEND_TIME
from tests.behaviour.topic import APP, UPDATED_AT
from tests.transactions import wait_for_markers
from thermocline.dev.stack import Stack, StackOptions
from thermocline.iceberg.catalog import current_state, load_table, open_catalog
from thermocline.iceberg.files import plan_files
from thermocline.ingest.owner.owner import Owner
from thermocline.ingest.table.create import create_table
from thermocline.kafka.log import Log
from thermocline.process.clock import SystemClock
from thermocline.rules.decode import Stage, decoder_for
from thermocline.rules.definition import LiveTable
from thermocline.serving.read import private
from thermocline.serving.read.encode import FORMATS
from thermocline.settings import load_settings

pytestmark = pytest.mark.full

CATALOG = "formats"  # a name of its own, since a Spark session keeps the first catalog that it met by a name
PARTITIONS = 2
MOMENTS = ["before a commit", "beyond the seam", "after the second commit"]
KEYED = 'key = ["app_id", "user_id", "key"]\nentity = ["app_id", "user_id"]'
IN_VALUE = f'{KEYED}\nkey_from = "value"'
APPEND = 'key = []\nkey_from = "value"'
MIXED = '{ key = "skip", contract = "skip" }'
SKIP, KEEP = '"skip"', '"quarantine"'

Row = tuple[str, str, str]  # user, attribute, value
Rows = Counter[Row]
Place = tuple[int, int]  # partition, offset


@dataclass(frozen=True)
class Variant:
    name: str
    shape: str
    format_version: int
    is_transactional: bool
    suppresses: bool
    on_error: str

    @property
    def section(self) -> str:
        return f"""
[tables.{self.name}]
identifier = "app.{self.name}"
topics = ["{self.name}"]
buckets = 2
format_version = {self.format_version}
transactional = {str(self.is_transactional).lower()}
suppress_unchanged = {str(self.suppresses).lower()}
on_error = {self.on_error}
{self.shape}

[tables.{self.name}.columns]
app_id = "int"
user_id = "string"
key = "string"
value = "string"
updated_at = "timestamptz"
"""


VARIANTS = [
    Variant("keyed", KEYED, 2, is_transactional=True, suppresses=True, on_error=MIXED),
    Variant("in_value", IN_VALUE, 2, is_transactional=False, suppresses=True, on_error=SKIP),
    Variant("in_value_kept", IN_VALUE, 3, is_transactional=True, suppresses=True, on_error=KEEP),
    Variant("in_value_plain", IN_VALUE, 3, is_transactional=False, suppresses=False, on_error=MIXED),
    Variant("appended", APPEND, 3, is_transactional=True, suppresses=False, on_error=SKIP),
    Variant("appended_kept", APPEND, 2, is_transactional=False, suppresses=False, on_error=KEEP),
]
WITH_KEYS = [variant for variant in VARIANTS if variant.shape != APPEND]
WITHOUT_KEYS = [variant for variant in VARIANTS if variant.shape == APPEND]
ASKED_WITHOUT_A_SERVER = [VARIANTS[0], VARIANTS[-1]]


def named(variants: Sequence[Variant]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("variant", variants, ids=lambda variant: variant.name)


@dataclass
class Told:
    """A table's topic, and what the broker acknowledged of it: ``log`` has each record with its case."""

    variant: Variant
    stack: Stack
    log: dict[Place, tuple[str, Write]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        config = {**self.stack.settings.kafka.client_config(), "linger.ms": 0, "log_level": 0}
        if self.variant.is_transactional:
            config["transactional.id"] = self.variant.name
        self.producer = Producer(config)
        if self.variant.is_transactional:
            self.producer.init_transactions(30)

    def write(self, entries: Sequence[tuple[str, Write]]) -> None:
        """Each case's records to one partition; in a transaction, with one around it that is given up."""
        if self.variant.is_transactional:
            self._give_up_a_transaction()
            self.producer.begin_transaction()
        for user, entry in entries:
            self.produce(user, entry, partial(self._acknowledge, user, entry))
        assert self.producer.flush(30) == 0
        if self.variant.is_transactional:
            self.producer.commit_transaction(30)
            self._give_up_a_transaction()
            wait_for_markers(Log(self.stack.settings.kafka), [self.variant.name])

    def _acknowledge(self, user: str, entry: Write, place: Place) -> None:
        self.log[place] = (user, entry)

    def rows(self) -> Rows:
        """A plain replay, partition by partition; an empty value is a tombstone where keys are keys."""
        by_key: dict[tuple[str, str], str] = {}
        every: Rows = Counter()
        for _, (user, entry) in sorted(self.log.items()):
            if isinstance(entry, Raw):
                continue
            attribute, value = entry
            if value is not None:
                by_key[user, attribute] = value
                every[user, attribute, value] += 1
            elif self.variant.shape == KEYED:
                by_key.pop((user, attribute), None)
        return (
            every if self.variant.shape == APPEND else Counter((*key, value) for key, value in by_key.items())
        )

    def read_after(self) -> str:
        last: dict[int, int] = {}
        for partition, offset in self.log:
            last[partition] = max(offset, last.get(partition, 0))
        return ",".join(f"{self.variant.name}/{partition}@{offset}" for partition, offset in last.items())

    def _give_up_a_transaction(self) -> None:
        self.producer.begin_transaction()
        for user in ("an insert", "the same value again", "nobody"):
            self.produce(user, ("plan", "given up"), lambda _: None)
        assert self.producer.flush(30) == 0
        self.producer.abort_transaction(30)

    def produce(self, user: str, entry: Write, seen: Callable[[Place], None]) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            partition, offset = message.partition(), message.offset()
            assert error is None
            assert partition is not None
            assert offset is not None
            seen((partition, offset))

        key, value = self.bytes_of(user, entry)
        partition = len(user) % PARTITIONS
        self.producer.produce(self.variant.name, value, key, partition=partition, on_delivery=delivered)

    def bytes_of(self, user: str, entry: Write) -> tuple[bytes | None, bytes | None]:
        if isinstance(entry, Raw):
            return entry.key, entry.value
        identity = {"app_id": APP, "user_id": user, "key": entry[0]}
        values = {"value": entry[1], "updated_at": UPDATED_AT}
        if self.variant.shape == KEYED:
            return json.dumps(identity).encode(), None if entry[1] is None else json.dumps(values).encode()
        return b"not looked at", None if entry[1] is None else json.dumps(identity | values).encode()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, jvm: Any) -> Iterator[Stack]:
    stack = Stack(tmp_path_factory.mktemp("formats"), StackOptions(catalog=CATALOG, engine="local"))
    base = stack.config_path.read_text().partition("[tables.")[0]
    stack.config_path.write_text(base + "".join(variant.section for variant in VARIANTS))
    stack.settings = load_settings(stack.config_path)
    stack.start_broker()
    for variant in VARIANTS:
        stack.kafka.create_topic(variant.name, PARTITIONS, APPEND_TIME)
        create_table(stack.settings, variant.name)
    yield stack
    stack.stop()


@pytest.fixture(scope="module")
def owners(stack: Stack) -> Iterator[dict[str, Owner]]:
    owners = {v.name: Owner.open(stack.settings, v.name, SystemClock()) for v in VARIANTS}
    yield owners
    for owner in owners.values():
        owner.close()


@pytest.fixture(scope="module")
def spark(stack: Stack, new_spark: Callable[[Stack], SparkSession]) -> SparkSession:
    return new_spark(stack)


@pytest.fixture(scope="module")
def told(stack: Stack) -> dict[str, Told]:
    return {variant.name: Told(variant, stack) for variant in VARIANTS}


@dataclass
class Said:
    """What was asked at one moment of one table, and what a replay gave then."""

    expected: Rows
    by_read_path: dict[str, Rows]


@pytest.fixture(scope="module")
def answers(stack: Stack, owners: dict[str, Owner], told: dict[str, Told]) -> dict[tuple[str, str], Said]:
    """The story, told once to all tables."""
    server = stack.serve()
    said: dict[tuple[str, str], Said] = {}

    def ask(moment: str) -> None:
        for name, one in told.items():
            read_paths = {"extract": by_extract(stack, one)}
            if one.variant in WITH_KEYS:
                read_paths["lookup"] = by_lookup(stack, one)
            if moment == "beyond the seam" and one.variant in ASKED_WITHOUT_A_SERVER:
                read_paths["extract without a server"] = by_extract_without_a_server(stack, one)
            said[name, moment] = Said(one.rows(), read_paths)

    write(told, [(case.name, entry) for case in CASES for entry in case.first])
    stack.wait_until_ready(server)
    ask("before a commit")
    commit(stack, owners)
    write(told, [(case.name, entry) for case in CASES for entry in case.second])
    ask("beyond the seam")
    commit(stack, owners)
    ask("after the second commit")
    return said


def write(told: dict[str, Told], entries: Sequence[tuple[str, Write]]) -> None:
    for one in told.values():
        one.write(entries)


def commit(stack: Stack, owners: dict[str, Owner]) -> None:
    for owner in owners.values():
        owner.catch_up(threading.Event())

    def is_served() -> bool:
        tables = stack.get("/status")[1].get("tables", {})
        return all(
            tables.get(name, {}).get("read_point", {}).get("snapshot_id") == str(owner.position.snapshot_id)
            for name, owner in owners.items()
        )

    stack.wait_for(is_served, "the server reads the new snapshots")


def by_lookup(stack: Stack, one: Told) -> Rows:
    entities = [{"app_id": APP, "user_id": user} for user in [*(case.name for case in CASES), "nobody"]]
    answer = post(stack, one, "rows:batch", {"entities": entities}, {}).raise_for_status().json()
    return counted([row for result in answer["results"] for row in result["rows"]])


def by_extract(stack: Stack, one: Told) -> Rows:
    answer = post(stack, one, "extract", {}, {"Accept": FORMATS["arrow"].media_type}).raise_for_status()
    return counted(pa.ipc.open_stream(answer.content).read_all().to_pylist())


def by_extract_without_a_server(stack: Stack, one: Told) -> Rows:
    sink = io.BytesIO()
    private.extract(stack.settings, one.variant.name, None, "arrow", sink, None, lambda _: None)
    return counted(pa.ipc.open_stream(sink.getvalue()).read_all().to_pylist())


def post(stack: Stack, one: Told, what: str, body: dict[str, Any], headers: dict[str, str]) -> httpx.Response:
    headers = {"Thermocline-Read-After": one.read_after(), **headers}
    return httpx.post(
        f"{stack.url}/v1/tables/{one.variant.name}/{what}", json=body, headers=headers, timeout=30
    )


def counted(rows: list[dict[str, Any]]) -> Rows:
    return Counter((row["user_id"], row["key"], row["value"]) for row in rows)


@named(VARIANTS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_every_read_path_gives_the_rows_as_of_now(
    answers: dict[tuple[str, str], Said], variant: Variant, moment: str
) -> None:
    said = answers[variant.name, moment]
    assert said.expected
    for read_path, rows in said.by_read_path.items():
        assert rows == said.expected, read_path


@named(VARIANTS)
def test_spark_and_pyiceberg_read_what_was_committed(
    answers: dict[tuple[str, str], Said], stack: Stack, spark: SparkSession, variant: Variant
) -> None:
    expected = answers[variant.name, MOMENTS[-1]].expected
    assert by_spark(spark, variant) == expected
    assert by_pyiceberg(stack, variant) == expected


def by_spark(spark: SparkSession, variant: Variant) -> Rows:
    query = f"SELECT user_id, key, value FROM {CATALOG}.app.{variant.name}"
    return counted([row.asDict() for row in spark.sql(query).collect()])


def by_pyiceberg(stack: Stack, variant: Variant) -> Rows:
    table = load_table(open_catalog(stack.settings.catalog), variant.name, f"app.{variant.name}")
    return counted(table.scan().to_arrow().to_pylist())


@named(VARIANTS)
def test_every_record_is_accounted_for_and_bad_ones_meet_their_stages_fate(
    answers: dict[tuple[str, str], Said], stack: Stack, told: dict[str, Told], variant: Variant
) -> None:
    definition = stack.settings.table(variant.name).definition(variant.name)
    fates = Counter(definition.on_error.of(stage) for stage in stages_of_bad(definition, told[variant.name]))
    catalog = open_catalog(stack.settings.catalog)
    total = dict(current_state(load_table(catalog, variant.name, definition.identifier), variant.name).totals)
    kept = catalog.load_table(f"{definition.identifier}_quarantine").scan().to_arrow()
    assert fates.total() > 0
    assert kept.num_rows == total["quarantined"] == fates["quarantine"]
    assert total["skipped"] == fates["skip"]
    assert total.pop("read") == len(told[variant.name].log) == sum(total.values())
    if variant.shape == APPEND:
        assert total["applied"] == sum(answers[variant.name, MOMENTS[-1]].expected.values())
        assert total["superseded"] == total["unchanged"] == 0


def stages_of_bad(definition: LiveTable, one: Told) -> list[Stage]:
    records = [one.bytes_of(user, entry) for user, entry in one.log.values()]
    decoded = decoder_for(definition).decode([key for key, _ in records], [value for _, value in records])
    return [bad.stage for bad in decoded.bad]


@named([variant for variant in WITH_KEYS if variant.suppresses])
def test_a_row_that_was_written_again_as_it_is_keeps_its_older_provenance(
    answers: dict[tuple[str, str], Said], stack: Stack, told: dict[str, Told], variant: Variant
) -> None:
    user = "the same value again"
    first, second = sorted(place for place, (who, _) in told[variant.name].log.items() if who == user)
    table = load_table(open_catalog(stack.settings.catalog), variant.name, f"app.{variant.name}")
    (row,) = table.scan(f"user_id = '{user}'").to_arrow().to_pylist()
    assert (row["_kafka_partition"], row["_kafka_offset"]) == first < second


@named(WITHOUT_KEYS)
def test_a_table_without_a_key_refuses_lookups_and_says_what_to_do(
    answers: dict[tuple[str, str], Said], stack: Stack, told: dict[str, Told], variant: Variant
) -> None:
    batch = post(stack, told[variant.name], "rows:batch", {"entities": [{"user_id": "an insert"}]}, {})
    status, single = stack.get(f"/v1/tables/{variant.name}/rows?user_id=x")
    assert (batch.status_code, batch.json()["code"]) == (status, single["code"]) == (422, "bad-parameter")
    assert single["next"] == f"thermocline extract {variant.name}"
    assert f"/v1/tables/{variant.name}/rows" not in stack.get("/openapi.json")[1]["paths"]


@named([variant for variant in WITH_KEYS if variant.format_version == 2])
def test_position_deletes_stay_right_when_spark_compacts_the_table(
    answers: dict[tuple[str, str], Said], stack: Stack, spark: SparkSession, variant: Variant
) -> None:
    """Compaction leaves position deletes of files that are gone: they must hit nothing, for any reader."""
    table = load_table(open_catalog(stack.settings.catalog), variant.name, f"app.{variant.name}")
    files = plan_files(table, current_state(table, variant.name).snapshot_id)
    assert {file.deletes.format for file in files if file.deletes} == {"parquet"}
    spark.sql(
        f"CALL {CATALOG}.system.rewrite_data_files(table => 'app.{variant.name}', "
        "options => map('rewrite-all', 'true'))"
    ).collect()
    table.refresh()
    compacted = table.current_snapshot()
    assert compacted is not None
    after = plan_files(table, compacted.snapshot_id)
    assert not {file.path for file in after} & {file.path for file in files}
    assert [file.deletes for file in after] == [None] * len(after)
    expected = answers[variant.name, MOMENTS[-1]].expected
    assert sum(file.rows for file in after) == sum(expected.values())
    assert by_spark(spark, variant) == expected
    assert by_pyiceberg(stack, variant) == expected
