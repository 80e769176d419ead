"""The first table, where its store can't be used: the store is named, and nothing was created."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.brokers import Brokers
from thermocline import cli
from thermocline.dev.broker import LocalKafka
from thermocline.errors import ExitCode
from thermocline.iceberg.catalog import open_catalog
from thermocline.settings import load_settings

CONFIG = """
[kafka]
bootstrap_servers = "{servers}"
[catalog]
uri = "sqlite:///catalog.db"
warehouse = "{warehouse}"
[catalog.properties]
"s3.endpoint" = "http://127.0.0.1:{port}"
"s3.region" = "us-east-1"
"s3.access-key-id" = "a"
"s3.secret-access-key" = "b"
[tables.orders]
identifier = "app.orders"
topics = ["orders"]
key = ["id"]
columns = {{ id = "int" }}
"""


@pytest.fixture(scope="module")
def kafka(brokers: Brokers) -> Iterator[LocalKafka]:
    with brokers.lent() as kafka:
        kafka.create_topic("orders", 1)
        kafka.create_topic("plain", 1)
        yield kafka


def test_a_new_table_says_which_records_would_be_bad_and_what_is_not_read(
    kafka: LocalKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Method: plain text keys beside JSON ones, and a field that is no column."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for key, value in [(b"u1", b"{}"), (b'{"id":1}', b'{"total":5,"note":"x"}'), (b"u2", None)]:
        producer.produce("plain", key=key, value=value)
    producer.flush()
    file = tmp_path / "thermocline.toml"
    text = CONFIG.format(servers=kafka.bootstrap_servers, warehouse="warehouse", port=1)
    text = text.replace('topics = ["orders"]', 'topics = ["plain"]')
    file.write_text(text.replace('id = "int"', 'id = "int", total = "int"'))
    assert cli.run(["--config", str(file), "table", "create", "orders"]) == ExitCode.DONE
    err = capsys.readouterr().err
    assert "2 of the 3 newest records that were looked at would be bad:" in err
    assert 'plain/0@0: not one JSON object: it begins "u1"; for plain text set key_format = "string"' in err
    assert 'no column is read from: field "note" in 1 of 2 sampled values' in err


@pytest.mark.parametrize("warehouse", ["s3://lake/warehouse", "taken/warehouse"])
def test_a_store_that_cannot_be_used_is_named_and_nothing_is_created(
    kafka: LocalKafka, warehouse: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    (tmp_path / "taken").write_text("a file where a folder is to be made")
    file = tmp_path / "thermocline.toml"
    file.write_text(CONFIG.format(servers=kafka.bootstrap_servers, warehouse=warehouse, port=port))
    code = cli.run(["--config", str(file), "table", "create", "orders"])
    err = capsys.readouterr().err
    assert (code, err.startswith("Error [storage-failed]")) == (ExitCode.UNAVAILABLE, True), err
    assert warehouse in err
    assert open_catalog(load_settings(file).catalog).list_tables("app") == []
