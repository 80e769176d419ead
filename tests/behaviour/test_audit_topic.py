"""The audit log in a topic of a real broker: each record once, those of a client in order."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from thermocline.dev.broker import LocalKafka
from thermocline.errors import AuditUnavailable
from thermocline.kafka.facts import OffsetRange
from thermocline.kafka.log import Log, read_ranges
from thermocline.serving.access.audit import Access, AuditLog, open_audit_log
from thermocline.settings import AuditSettings, CatalogSettings, KafkaSettings, Settings

CLIENTS = ("billing", "search", None)
PARTITIONS = 3
REQUESTS = 3_000
PATIENCE_SECONDS = 90.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """One that these tests alone stop and start."""
    with LocalKafka(tmp_path_factory.mktemp("kafka")) as kafka:
        yield kafka


def records_of(broker: LocalKafka, topic: str) -> list[tuple[int, bytes | None, dict[str, Any]]]:
    """The partition, key and line of each record."""
    kafka = KafkaSettings(bootstrap_servers=broker.bootstrap_servers)
    ends = Log(kafka).ends([topic])
    ranges = [OffsetRange(topic, partition, 0, end) for _, partition, end in ends.items()]
    return [
        (chunk.partition, key, json.loads(value or b""))
        for chunk in read_ranges(kafka.client_config(), ranges)
        for key, value in zip(chunk.keys, chunk.values, strict=True)
    ]


def opened(folder: Path, kafka: LocalKafka, topic: str) -> AuditLog:
    settings = Settings(
        kafka=KafkaSettings(bootstrap_servers=kafka.bootstrap_servers),
        catalog=CatalogSettings(type="glue"),
        audit=AuditSettings(sink="kafka", topic=topic, required=True, hash_key_file=folder / "audit.key"),
    )
    log = open_audit_log(settings)
    assert log is not None
    return log


def wait_until(log: AuditLog, is_well: bool) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (log.problem() is None) is not is_well:
        assert time.monotonic() < deadline, log.problem()
        time.sleep(0.05)


def test_each_record_is_there_once_and_those_of_a_client_in_order_though_the_broker_is_away(
    broker: LocalKafka, tmp_path: Path
) -> None:
    broker.create_topic("audit", PARTITIONS)
    log = opened(tmp_path, broker, "audit")

    def ask(first: int) -> None:
        for number in range(first, first + REQUESTS):
            log.write(Access("lookup", f"{number}", 200, 0.001, client=CLIENTS[number % len(CLIENTS)]))

    ask(0)
    time.sleep(0.5)  # some of them are on their way
    broker.stop()
    ask(REQUESTS)
    wait_until(log, is_well=False)
    with pytest.raises(AuditUnavailable):
        log.check()
    broker.start()
    wait_until(log, is_well=True)
    log.check()
    ask(2 * REQUESTS)
    log.close()
    found = records_of(broker, "audit")
    assert all(key == (line["client"].encode() if "client" in line else None) for _, key, line in found)
    for place, client in enumerate(CLIENTS):
        theirs = [(partition, line) for partition, _, line in found if line.get("client") == client]
        ids = [int(line["request_id"]) for _, line in theirs]
        # Those of nobody are in no order among partitions.
        assert (ids if client else sorted(ids)) == list(range(place, 3 * REQUESTS, len(CLIENTS)))
        assert client is None or len({partition for partition, _ in theirs}) == 1


def test_a_topic_that_is_missing_is_named_and_taken_once_it_exists(
    broker: LocalKafka, tmp_path: Path
) -> None:
    log = opened(tmp_path, broker, "late")
    for number in range(10):
        log.write(Access("lookup", f"{number}", 200, 0.001, client="billing"))
    wait_until(log, is_well=False)
    assert "audit log can't be written" in (log.problem() or "")
    broker.create_topic("late", 1)
    wait_until(log, is_well=True)
    log.close()
    assert [line["request_id"] for *_, line in records_of(broker, "late")] == [f"{n}" for n in range(10)]
