"""A column of times of day on real parts: every read path has the records' values, hot, cold, and in between.

Method: real commands on a real broker, with ingest on the local engine; the values expected stand here.
"""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from datetime import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from tests.behaviour.live import wait_for
from tests.brokers import Brokers
from thermocline.cli import entry
from thermocline.client import Client
from thermocline.dev.stack import Stack, StackOptions
from thermocline.ingest.owner.owner import Owner
from thermocline.process.clock import SystemClock
from thermocline.serving.read import private
from thermocline.serving.read.wanted import Wanted
from thermocline.settings import load_settings

NAME = "shops"
SECTION = f"""
[tables.{NAME}]
identifier = "app.{NAME}"
topics = ["{NAME}"]
key = ["id"]
key_format = "string"
buckets = 1

[tables.{NAME}.columns]
id = "string"
opens = "time"
closes = {{ type = "time", epoch = "ms" }}
breaks = "list<time>"
"""
RECORDS: dict[str, Any] = {
    "a": {"opens": "00:00:00", "closes": 86_399_999, "breaks": ["12:00:00", None]},
    "b": {"opens": "09:33:00.000007", "closes": 0, "breaks": []},
    "c": {"opens": None},
}
ROWS: dict[str, Any] = {
    "a": {"opens": "00:00:00", "closes": "23:59:59.999000", "breaks": ["12:00:00", None]},
    "b": {"opens": "09:33:00.000007", "closes": "00:00:00", "breaks": []},
    "c": {"opens": None, "closes": None, "breaks": None},
}
LATER: dict[str, Any] = {"opens": "23:59:59.999999", "closes": 1, "breaks": None}
LATER_ROW: dict[str, Any] = {"opens": "23:59:59.999999", "closes": "00:00:00.001000", "breaks": None}
BAD = {"opens": "24:00:00"}
STATEMENT = f"SELECT id, opens, breaks[1] AS first FROM {NAME} WHERE opens < TIME '23:00:00' ORDER BY opens"


class Shops:
    """The table, what is written to its topic, and how it is read."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.offset = -1
        self._producer = Producer({**stack.settings.kafka.client_config(), "linger.ms": 0, "log_level": 0})

    @property
    def read_after(self) -> str:
        return f"{NAME}/0@{self.offset}"

    def write(self, key: str, value: Any) -> None:
        self._producer.produce(NAME, json.dumps(value).encode(), key.encode())
        assert self._producer.flush(30) == 0
        self.offset += 1

    def ingest(self) -> None:
        owner = Owner.open(self.stack.settings, NAME, SystemClock())
        try:
            owner.catch_up(threading.Event())
        finally:
            owner.close()

    def run(self, *arguments: str) -> int:
        return entry.run(["--config", str(self.stack.config_path), *arguments])

    def extracted(self, format_name: str, where: str | None = None) -> bytes:
        sink = io.BytesIO()
        wanted = Wanted(["id", "opens", "closes"], where)
        private.extract(self.stack.settings, NAME, wanted, format_name, sink, None, lambda _: None)
        return sink.getvalue()

    def ids(self, where: str) -> list[str]:
        return sorted(json.loads(line)["id"] for line in self.extracted("jsonl", where).splitlines())


@pytest.fixture
def shops(tmp_path: Path, jvm: Any, brokers: Brokers) -> Iterator[Shops]:
    with (
        brokers.lent() as kafka,
        Stack(tmp_path, StackOptions(catalog="times", engine="local", kafka=kafka)) as stack,
    ):
        base = stack.config_path.read_text().partition("[tables.")[0]
        stack.config_path.write_text(base + SECTION)
        stack.settings = load_settings(stack.config_path)
        kafka.create_topic(NAME, 1)
        yield Shops(stack)


def test_times_of_day_are_those_of_the_records_on_every_read_path(
    shops: Shops, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shops.run("table", "create", NAME) == 0
    for key, value in RECORDS.items():
        shops.write(key, value)
    server = shops.stack.serve()
    shops.stack.wait_until_ready(server)
    with Client(shops.stack.url) as client:
        assert {key: _looked_up(client, key, shops.read_after) for key in ROWS} == ROWS
        _check_reads(shops, capsys)

        shops.ingest()
        assert {key: _looked_up(client, key, shops.read_after) for key in ROWS} == ROWS
        _check_reads(shops, capsys)
        # Changes begin at the seam of a read point, so the server must have the commit.
        wait_for(lambda: client.lookup(NAME, id="a").read_point.seam == {NAME: {0: shops.offset + 1}})
        with client.extract(NAME, read_after=shops.read_after) as extract:
            point = extract.read_point

        shops.write("b", LATER)
        shops.write("d", BAD)
        shops.write("e", LATER)
        assert _looked_up(client, "b", shops.read_after) == LATER_ROW
        assert shops.ids("opens = '23:59:59.999999'") == ["b", "e"]
        shops.ingest()
        assert _looked_up(client, "b", shops.read_after) == LATER_ROW
        assert shops.ids("opens BETWEEN '00:00:00' AND '23:59:59.999998'") == ["a"]
        with client.extract(NAME, since=point, read_after=shops.read_after) as extract:
            changed = {
                row["id"]: (row["_change_type"], row["opens"]) for row in extract.to_arrow().to_pylist()
            }
        assert changed == dict.fromkeys("be", ("upsert", time(23, 59, 59, 999_999)))
    assert shops.run("verify", NAME) == 0
    capsys.readouterr()
    assert shops.run("quarantine", "show", NAME, f"{NAME}/0@4") == 0
    assert "opens (time): not a time of day" in capsys.readouterr().out


def _looked_up(client: Client, key: str, read_after: str) -> dict[str, Any]:
    (row,) = client.lookup(NAME, id=key, read_after=read_after).rows
    return {name: row[name] for name in ("opens", "closes", "breaks")}


def _check_reads(shops: Shops, capsys: pytest.CaptureFixture[str]) -> None:
    """Extracts in each format, conditions and SQL, of `RECORDS`."""
    last = time(23, 59, 59, 999_000)
    expected = [("a", time(), last), ("b", time(9, 33, 0, 7), time()), ("c", None, None)]
    for read in (
        pa.ipc.open_stream(shops.extracted("arrow")).read_all(),
        pq.read_table(pa.BufferReader(shops.extracted("parquet"))),
    ):
        assert sorted(tuple(row.values()) for row in read.to_pylist()) == expected
    assert sorted(shops.extracted("jsonl").decode().splitlines()) == [
        '{"id":"a","opens":"00:00:00","closes":"23:59:59.999000"}',
        '{"id":"b","opens":"09:33:00.000007","closes":"00:00:00"}',
        '{"id":"c","opens":null,"closes":null}',
    ]
    assert sorted(shops.extracted("csv").decode().splitlines()) == [
        '"a","00:00:00","23:59:59.999000"',
        '"b","09:33:00.000007","00:00:00"',
        '"c",,',
        '"id","opens","closes"',
    ]
    assert shops.ids("opens > '09:33:00'") == ["b"]
    assert shops.ids("closes IN ('23:59:59.999', '12:00:00')") == ["a"]
    assert shops.ids("opens IS NULL") == ["c"]
    assert shops.ids("opens > closes") == ["b"]
    capsys.readouterr()
    assert shops.run("sql", STATEMENT, "--json") == 0
    assert json.loads(capsys.readouterr().out)["rows"] == [
        {"id": "a", "opens": "00:00:00", "first": "12:00:00"},
        {"id": "b", "opens": "09:33:00.000007", "first": None},
    ]
