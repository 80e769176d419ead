"""The examples of docs/formats on real parts: from `table create` to lookups, before and after commits.

On Spark, its workers read the records, and ask the registry themselves.
"""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import Any

import httpx
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.brokers import Brokers
from tests.docs.examples import EXAMPLES, Example
from tests.thermocline.registry_server import RegistryServer
from tests.tier import is_full
from thermocline.cli import entry
from thermocline.dev.stack import Stack, StackOptions
from thermocline.iceberg.catalog import current_state, load_table, open_catalog
from thermocline.ingest.engine.engine import start_engine
from thermocline.ingest.owner.owner import Owner
from thermocline.process.clock import SystemClock
from thermocline.rules.decode import json_row
from thermocline.serving.read import private
from thermocline.settings import load_settings

# Change events in Avro, and two tables on one topic; with --full, all of the pages.
SHOWN = [one for one in EXAMPLES if is_full() or one.name in ("clients", "shop_orders", "shop_lines")]
TOPICS = {one.settings.topics[0]: one for one in SHOWN}
"""By topic, an example that has its records."""
Rows = dict[bytes, dict[str, Any]]


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    with RegistryServer().running() as registry:
        for example in SHOWN:
            for id_, (kind, text) in example.registered.items():
                registry.add(id_, text, schemaType=kind)
        yield registry


@pytest.fixture(scope="module", params=["local", pytest.param("spark", marks=pytest.mark.full)])
def stack(
    tmp_path_factory: pytest.TempPathFactory,
    jvm: Any,
    brokers: Brokers,
    registry: RegistryServer,
    request: pytest.FixtureRequest,
) -> Iterator[Stack]:
    engine: str = request.param
    folder = tmp_path_factory.mktemp("formats")
    with (
        brokers.lent() as kafka,
        Stack(folder, StackOptions(catalog=f"examples_{engine}", engine=engine, kafka=kafka)) as stack,
    ):
        base = stack.config_path.read_text().partition("[tables.")[0]
        section = f'\n[registry]\nurl = "{registry.url}"\n'
        stack.config_path.write_text(base + section + "".join(example.toml for example in SHOWN))
        stack.settings = load_settings(stack.config_path)
        for topic in TOPICS:
            kafka.create_topic(topic, 1)
        for example in SHOWN:
            assert entry.run(["--config", str(stack.config_path), "table", "create", example.name]) == 0
        yield stack


def test_each_example_reads_the_same_before_and_after_its_commit(
    stack: Stack, registry: RegistryServer
) -> None:
    ends_by_topic = {topic: written(stack, example) for topic, example in TOPICS.items()}
    ends = {example.name: ends_by_topic[example.settings.topics[0]] for example in SHOWN}
    server = stack.serve()
    stack.wait_until_ready(server)
    for example in SHOWN:
        assert looked_up(stack, example, ends[example.name]) == expected(example), example.name
    catalog = open_catalog(stack.settings.catalog)
    engine = start_engine(stack.settings, "examples")
    for example in SHOWN:
        owner = Owner.open(stack.settings, example.name, SystemClock(), engine=engine)
        registry.asked.clear()
        owner.catch_up(threading.Event())
        if stack.settings.ingest.engine == "spark":  # elsewhere, this process knows them
            assert {f"/schemas/ids/{id_}" for id_ in example.registered} <= set(registry.asked), example.name
        owner.close()
        committed = str(owner.position.snapshot_id)

        def is_served(name: str = example.name, snapshot_id: str = committed) -> bool:
            point = stack.get("/status")[1]["tables"][name].get("read_point", {})
            return bool(point.get("snapshot_id") == snapshot_id)

        stack.wait_for(is_served, "the server reads the new snapshot")
        assert looked_up(stack, example, ends[example.name]) == expected(example), example.name
        assert extracted(stack, example) == expected(example), example.name
        assert entry.run(["--config", str(stack.config_path), "verify", example.name]) == 0, example.name
        others = [index for index, one in enumerate(example.records) if one.becomes == "filtered"]
        totals = current_state(
            load_table(catalog, example.name, example.settings.identifier), example.name
        ).totals
        assert totals["filtered"] == len(others), example.name
        for index in others[:1]:
            assert tried(stack, example, index)["filtered"], example.name
    engine.stop()


def tried(stack: Stack, example: Example, index: int) -> Any:
    """What `try` says of a record."""
    place = f"{example.settings.topics[0]}/0@{index}"
    with redirect_stdout(out := io.StringIO()):
        arguments = ["--config", str(stack.config_path), "try", example.name, "--from", place]
        assert entry.run([*arguments, "--json"]) == 0
    return json.loads(out.getvalue())


def written(stack: Stack, example: Example) -> int:
    """Sends the records; the offset of the last one."""
    offsets: list[int] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        assert error is None
        assert offset is not None
        offsets.append(offset)

    producer = Producer({**stack.settings.kafka.client_config(), "linger.ms": 0, "log_level": 0})
    for record in example.records:
        headers: list[tuple[str, str | bytes | None]] = list(record.headers)
        producer.produce(
            example.settings.topics[0], record.value, record.key, headers=headers, on_delivery=delivered
        )
    assert producer.flush(30) == 0
    return max(offsets)


def expected(example: Example) -> Rows:
    rows: Rows = {}
    for record in example.records:
        if isinstance(record.becomes, dict):
            assert record.key is not None
            rows[record.key] = record.becomes
        elif record.becomes == "deleted":
            assert record.key is not None
            rows.pop(record.key, None)
    return rows


def looked_up(stack: Stack, example: Example, end: int) -> Rows:
    """What lookups of all rows that ever were give, by the key of the record that made them."""
    ever = {record.key: record.becomes for record in example.records if isinstance(record.becomes, dict)}
    (name,) = example.settings.key
    answer = httpx.post(
        f"{stack.url}/v1/tables/{example.name}/rows:batch",
        json={"entities": [{name: row[name]} for row in ever.values()]},
        headers={"Thermocline-Read-After": f"{example.settings.topics[0]}/0@{end}"},
        timeout=30,
    ).raise_for_status()
    found: Rows = {}
    for key, result in zip(ever, answer.json()["results"], strict=True):
        for row in result["rows"]:
            assert key is not None
            found[key] = {column: row[column] for column in example.settings.columns}
    return found


def extracted(stack: Stack, example: Example) -> Rows:
    """The same of an extract."""
    sink = io.BytesIO()
    private.extract(stack.settings, example.name, None, "arrow", sink, None, lambda _: None)
    read = pa.ipc.open_stream(sink.getvalue()).read_all().to_pylist(maps_as_pydicts="strict")
    rows = [json.loads(json_row(row)) for row in read]
    ever = {record.key: record.becomes for record in example.records if isinstance(record.becomes, dict)}
    (name,) = example.settings.key
    return {key: row for key, became in ever.items() for row in rows if key and row[name] == became[name]}
