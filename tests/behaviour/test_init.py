"""`init` on real topics: what it writes makes a table, is committed and is looked up, and nobody edits it.

Method: real commands on a real broker, in one process; a registry in this process; the expected rows by hand.
"""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from tests.brokers import Brokers
from tests.thermocline.registry_server import RegistryServer
from thermocline import cli
from thermocline.dev.broker import LocalKafka
from thermocline.errors import ExitCode
from thermocline.kafka.log import Log
from thermocline.settings import KafkaSettings

READING = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "sensor", "type": "string", "doc": "its number on the wall"},
        {"name": "degrees", "type": ["null", "double"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
Run = Callable[..., tuple[int, Any, str]]


@pytest.fixture(scope="module")
def kafka(brokers: Brokers) -> Iterator[LocalKafka]:
    with brokers.lent() as kafka:
        yield kafka


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer().running() as registry:
        registry.add(3, READING)
        yield registry


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], jvm: Any) -> Run:
    """Runs a command in a folder of its own; exit code, JSON document and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, Any, str]:
        code = cli.run([*words, "--json"])
        out, err = capfd.readouterr()
        return int(code), json.loads(out) if out else None, err

    return run


def write(kafka: LocalKafka, topic: str, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
    kafka.create_topic(topic, 2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    for key, value in records:
        producer.produce(topic, value, key)
    assert producer.flush(30) == 0


def text(value: Any) -> bytes:
    return json.dumps(value).encode()


def committed_and_looked_up(run: Run, name: str, *key: str) -> list[dict[str, Any]]:
    """The rows of an entity, once `init` has been followed by the commands that it leads to."""
    assert run("config", "check")[0] == 0
    assert run("table", "create", name)[0] == 0
    code, _, err = run("ingest", "run", name, "--once")
    assert code == 0, err
    rows: list[dict[str, Any]] = run("lookup", name, *key)[1]["rows"]
    return rows


def init(run: Run, kafka: LocalKafka, topic: str, *words: str) -> dict[str, Any]:
    code, document, err = run("init", "--brokers", kafka.bootstrap_servers, "--topic", topic, "--yes", *words)
    assert code == ExitCode.DONE, err
    assert document["records"]["bad"] == 0
    assert document["next"] == f"thermocline table create {document['table']}"
    return dict(document)


def test_the_demos_topic(kafka: LocalKafka, run: Run) -> None:
    rows = [({"app_id": 7, "user_id": "u1", "key": name}, name) for name in ("plan", "language", "gone")]
    records = [
        (text(key), text({"value": value, "updated_at": "2026-01-05T10:00:00Z"})) for key, value in rows
    ]
    write(kafka, "profiles", [*records, (text(rows[2][0]), None)])
    found = init(run, kafka, "profiles", "--entity", "app_id,user_id")
    assert (found["records"]["looked_at"], found["records"]["deletes"]) == (4, 1)
    at = "2026-01-05T10:00:00Z"
    assert committed_and_looked_up(run, "profiles", "app_id=7", "user_id=u1") == [
        {"app_id": 7, "user_id": "u1", "key": "language", "value": "language", "updated_at": at},
        {"app_id": 7, "user_id": "u1", "key": "plan", "value": "plan", "updated_at": at},
    ]


def test_plain_keys(kafka: LocalKafka, run: Run) -> None:
    records = [(f"u{n}".encode(), text({"id": f"u{n}", "visits": n, "tags": ["a"]})) for n in range(5)]
    write(kafka, "users", records)
    init(run, kafka, "users")
    assert committed_and_looked_up(run, "users", "id=u3") == [{"id": "u3", "visits": 3, "tags": ["a"]}]


def test_avro_with_a_registry(kafka: LocalKafka, run: Run, registry: RegistryServer, tmp_path: Path) -> None:
    records = []
    for number in range(3):
        sink = io.BytesIO()
        fastavro.schemaless_writer(sink, READING, {"sensor": f"s{number}", "degrees": number / 2, "at": 1000})
        records.append((f"s{number}".encode(), b"\x00\x00\x00\x00\x03" + sink.getvalue()))
    write(kafka, "readings", records)
    code, _, err = run("init", "--brokers", kafka.bootstrap_servers, "--topic", "readings", "--yes")
    assert (code, json.loads(err.splitlines()[-1])["code"]) == (ExitCode.USAGE, "topic-unrecognised")
    assert not (tmp_path / "thermocline.toml").exists()
    init(run, kafka, "readings", "--registry", registry.url)
    assert committed_and_looked_up(run, "readings", "sensor=s1") == [
        {"sensor": "s1", "degrees": 0.5, "at": "1970-01-01T00:00:01Z"}
    ]


def test_debezium(kafka: LocalKafka, run: Run) -> None:
    def event(op: str, after: Any) -> bytes:
        return text({"op": op, "before": None, "after": after, "source": {"table": "customers"}, "ts_ms": 1})

    records = [
        (text({"id": 1}), event("c", {"id": 1, "name": "Ann", "active": True})),
        (text({"id": 2}), event("c", {"id": 2, "name": "Bob", "active": False})),
        (text({"id": 1}), event("u", {"id": 1, "name": "Anna", "active": True})),
        (text({"id": 2}), event("d", None)),
        (text({"id": 2}), None),
    ]
    write(kafka, "shop.public.customers", records)
    found = init(run, kafka, "shop.public.customers")
    assert (found["table"], found["records"]["deletes"]) == ("customers", 2)
    assert committed_and_looked_up(run, "customers", "id=1") == [{"id": 1, "name": "Anna", "active": True}]
    code, _, err = run("lookup", "customers", "id=2")
    assert json.loads(err)["code"] == "row-not-found", (code, err)


def test_a_table_is_added_to_a_configuration_that_is_there(
    kafka: LocalKafka, run: Run, tmp_path: Path
) -> None:
    write(kafka, "one", [(b"a", b'{"v":1}')])
    write(kafka, "two", [(b"a", b'{"w":1.5}')])
    init(run, kafka, "one")
    file = tmp_path / "thermocline.toml"
    before = file.read_bytes()
    assert run("init", "--topic", "two", "--dry-run")[0] == ExitCode.DONE
    assert file.read_bytes() == before
    assert run("init", "--topic", "two", "--yes")[0] == ExitCode.DONE
    assert file.read_bytes().startswith(before)
    assert sorted(tomllib.loads(file.read_text())["tables"]) == ["one", "two"]
    code, _, err = run("init", "--topic", "two", "--yes")
    assert (code, json.loads(err.splitlines()[-1])["code"]) == (ExitCode.USAGE, "config-exists")


def test_an_empty_topic_is_proposed_by_the_registry_or_refused(
    kafka: LocalKafka, run: Run, registry: RegistryServer
) -> None:
    kafka.create_topic("empty", 1)
    words = ("init", "--brokers", kafka.bootstrap_servers, "--topic", "empty", "--dry-run")
    code, _, err = run(*words)
    assert json.loads(err.splitlines()[-1])["code"] == "topic-unrecognised", (code, err)
    registry.add(4, '"string"')
    registry.schemas["/subjects/empty-key/versions/latest"] = {"id": 4, "schema": '"string"'}
    registry.schemas["/subjects/empty-value/versions/latest"] = {"id": 3, "schema": json.dumps(READING)}
    code, found, err = run(*words, "--registry", registry.url)
    assert code == ExitCode.DONE, err
    assert [(one["name"], one["type"]) for one in found["columns"]] == [
        ("id", "string"),
        ("sensor", "string"),
        ("degrees", "double"),
        ("at", "timestamptz"),
    ]
    assert found["columns"][1]["comment"] == "its number on the wall"


def test_a_look_makes_no_consumer_group(kafka: LocalKafka, run: Run) -> None:
    write(kafka, "watched", [(b"a", b'{"v":1}')])
    init(run, kafka, "watched")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    assert [one.group_id for one in admin.list_consumer_groups().result(10).valid] == []


def test_at_a_terminal_what_no_option_says_is_asked_for(kafka: LocalKafka, tmp_path: Path) -> None:
    write(kafka, "asked", [(b'{"a":1,"b":2}', b'{"v":1}')])
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "dumb", "COLUMNS": "200"}
    with subprocess.Popen(
        [sys.executable, "-m", "thermocline", "init"],
        cwd=tmp_path,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as command:
        os.close(theirs)
        # Brokers, catalog, warehouse, topic, name, entity; and yes, write it.
        os.write(ours, f"{kafka.bootstrap_servers}\n\n\nasked\nthings\na\ny\n".encode())
        shown = b""
        while part := _read(ours):
            shown += part
        code = command.wait()
    os.close(ours)
    assert code == 0, shown.decode()
    assert b"wrote " in shown
    table = tomllib.loads((tmp_path / "thermocline.toml").read_text())["tables"]["things"]
    assert (table["topics"], table["key"], table["entity"]) == (["asked"], ["a", "b"], ["a"])


def _read(terminal: int) -> bytes:
    """Nothing once the command has ended."""
    try:
        return os.read(terminal, 65_536)
    except OSError:
        return b""


def test_try_shows_what_a_record_replaces_and_which_others_wait(kafka: LocalKafka, run: Run) -> None:
    write(kafka, "tried", [(b"a", b'{"id":"a","n":1}'), (b"a", b'{"id":"a","n":2}')])
    init(run, kafka, "tried")
    place = _places(kafka, "tried")
    first, second = place
    code, found, err = run("try", "tried", "--from", first)
    assert (code, found["definition"]) == (0, "the configuration: there is no table yet"), err
    assert "replaces" not in found
    committed_and_looked_up(run, "tried", "id=a")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    for value in (b'{"n":3}', b'{"n":"x"}', None):
        producer.produce("tried", value, b"a")
    assert producer.flush(30) == 0
    partition = first.partition("@")[0]
    code, found, err = run("try", "tried", "--from", f"{partition}@2")
    assert (code, found["bad"], found["definition"]) == (0, False, "the table"), err
    replaces = found["replaces"]
    assert (replaces["row"]["n"], replaces["row"]["_kafka_offset"], replaces["committed"]) == (2, 1, False)
    assert [(one["record"], one["is"], one["does"][:12]) for one in replaces["others"]] == [
        (f"{partition}@3", "later", "bad: n (long"),
        (f"{partition}@4", "later", "deletes the "),
    ]
    code, found, err = run("try", "tried", "--from", f"{partition}@3")
    assert (code, found["stage"]) == (ExitCode.BAD_ANSWER, "contract")
    assert found["steps"][-1]["problem"] == found["reason"]
    code, found, err = run("try", "tried", "--from", second)
    assert (found["replaces"]["committed"], found["replaces"]["row"]["_kafka_offset"]) == (True, 1)


def test_a_record_that_is_not_there_is_named(kafka: LocalKafka, run: Run) -> None:
    write(kafka, "short", [(b"a", b'{"n":1}')])
    init(run, kafka, "short")
    wrong = {
        "short/7@0": "no partition 7",
        "short/0@99": "not there yet",
        "other/0@0": "not fed from",
        "x": "is not TOPIC",
    }
    for record, why in wrong.items():
        code, _, err = run("try", "short", "--from", record)
        assert (code, why in json.loads(err)["what"]) == (ExitCode.USAGE, True), err


def _places(kafka: LocalKafka, topic: str) -> list[str]:
    """The records of the one key of a topic."""
    log = Log(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers))
    (partition,) = [partition for _, partition, end in log.ends([topic]).items() if end]
    return [f"{topic}/{partition}@{offset}" for offset in (0, 1)]
