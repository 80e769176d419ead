"""``thermocline topic create`` on a real broker: what it sets, what it leaves alone, what it only shows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource  # type: ignore[attr-defined]

from tests.brokers import Brokers
from thermocline import cli
from thermocline.dev.broker import LocalKafka

CONFIG = """
[kafka]
bootstrap_servers = "{servers}"
[catalog]
uri = "sqlite:///catalog.db"
warehouse = "warehouse"
[tables.orders]
identifier = "app.orders"
topics = ["orders", "returns"]
dead_letter_topic = "letters"
key = ["id"]
columns = {{ id = "int" }}
"""
Create = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def kafka(brokers: Brokers) -> Iterator[LocalKafka]:
    with brokers.lent() as kafka:
        yield kafka


@pytest.fixture
def create(kafka: LocalKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Create:
    """Types the command; its exit code, and what it printed."""
    file = tmp_path / "thermocline.toml"
    file.write_text(CONFIG.format(servers=kafka.bootstrap_servers))

    def typed(*words: str) -> tuple[int, str, str]:
        code = cli.run(["--config", str(file), "topic", "create", *words])
        return (code, *capsys.readouterr())

    return typed


def set_of(kafka: LocalKafka, topic: str) -> dict[str, str]:
    """What the topic's own configuration says."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    asked = ConfigResource(ConfigResource.Type.TOPIC, topic)
    entries: dict[str, Any] = admin.describe_configs([asked])[asked].result(30)
    of_topic = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {name: entry.value for name, entry in entries.items() if entry.source == of_topic}


def test_without_a_name_it_creates_the_topics_that_the_tables_lack(kafka: LocalKafka, create: Create) -> None:
    kafka.create_topic("returns", 1)
    code, out, _ = create()
    assert code == 0
    assert {name: count for name, count in kafka.topics().items() if not name.startswith("__")} == {
        "orders": 6,
        "returns": 1,
        "letters": 6,
    }
    assert set_of(kafka, "orders") == {
        "cleanup.policy": "delete",
        "retention.ms": "604800000",
        "message.timestamp.type": "LogAppendTime",
    }
    assert "retention.ms            604800000 (7 days)" in out
    assert "returns exists, with 1 partition; nothing was changed" in out
    assert out.splitlines()[-1].endswith("table create orders")
    assert create()[0] == 10


def test_what_is_given_goes_over_the_defaults(kafka: LocalKafka, create: Create) -> None:
    words = (
        "given",
        "--partitions",
        "3",
        "--config",
        "cleanup.policy=compact",
        "--config",
        "retention.ms=-1",
    )
    code, out, _ = create(*words, "--json")
    (topic,) = json.loads(out)["topics"]
    assert (code, topic["outcome"], topic["partitions"], topic["replication"]) == (0, "created", 3, 1)
    assert kafka.topics()["given"] == 3
    assert set_of(kafka, "given") == {
        "cleanup.policy": "compact",
        "retention.ms": "-1",
        "message.timestamp.type": "LogAppendTime",
    }


def test_a_dry_run_shows_what_would_be_set_and_sets_nothing(kafka: LocalKafka, create: Create) -> None:
    code, out, _ = create("shown", "--dry-run")
    assert code == 0
    assert "shown would be created with\n  partitions              6\n  replication             1\n" in out
    assert "shown" not in kafka.topics()


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_what_the_brokers_refuse_is_said_in_their_words(
    kafka: LocalKafka, create: Create, more: tuple[str, ...]
) -> None:
    code, _, err = create("refused", "--config", "retention=1", *more)
    assert code == 2
    assert (
        "Error [config-invalid]: the configuration of the topic refused has a problem: Unknown topic" in err
    )
    assert "refused" not in kafka.topics()
