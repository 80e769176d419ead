"""What ``status`` and ``table show`` tell of a table beside its rows: who stands by, and what altered it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.manual_clock import ManualClock
from tests.serving.small_lake import create_table, lake_settings
from thermocline.cli import entry as cli
from thermocline.iceberg.alterations import NotedAlteration, NotedCause, with_alteration
from thermocline.iceberg.catalog import open_table
from thermocline.ingest.claim.lease import OwnerLease
from thermocline.ingest.claim.standing_by import StandbyTrace
from thermocline.process.clock import SystemClock

CONFIG = """
[kafka]
bootstrap_servers = "127.0.0.1:9"
[catalog]
name = "lake"
uri = "sqlite:///{folder}/c.db"
warehouse = "{folder}/w"
[tables.orders]
identifier = "app.orders"
topics = ["orders"]
key = ["id"]
entity = ["id"]
columns = {{ id = "int", note = "string" }}
"""


@pytest.fixture
def table(tmp_path: Path) -> Any:
    settings = lake_settings(tmp_path, "orders")
    create_table(settings, "orders")
    return open_table(settings, "orders")


def told(capfd: pytest.CaptureFixture[str], folder: Path, *words: str) -> str:
    path = folder / "thermocline.toml"
    path.write_text(CONFIG.format(folder=folder))
    cli.run(["--config", str(path), *words])
    return capfd.readouterr().out


def test_status_names_a_standby(tmp_path: Path, table: Any, capfd: pytest.CaptureFixture[str]) -> None:
    words = ("status", "--without", "kafka", "--without", "server", "--json")
    assert "standby" not in json.loads(told(capfd, tmp_path, *words))["tables"][0]
    clock = SystemClock()
    owner = OwnerLease(table.io, table.location(), "orders", 60.0, clock, lambda _: None)
    owner.hold(1)
    trace = StandbyTrace("orders", clock)
    trace.leave(table.io, table.location())
    trace.wait(30)
    standby = json.loads(told(capfd, tmp_path, *words))["tables"][0]["standby"]
    assert standby["pid"] == os.getpid()
    assert standby.keys() == {"host", "pid", "since", "renewed"}
    shown = told(capfd, tmp_path, *words[:-1])
    assert f"standby: process {os.getpid()} on" in " ".join(shown.split())
    owner.release()


def test_status_says_how_a_contract_changed_the_table_last_and_why(
    tmp_path: Path, table: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ("status", "--without", "kafka", "--without", "server", "--json")
    assert json.loads(told(capfd, tmp_path, *words))["tables"][0]["schema_change"] is None
    cause = NotedCause(("score",), "orders/0@4", "value", "2", "version 7 of orders-value")
    note = NotedAlteration(2, 1_768_435_200_000, "b", ("score: new column, double",), (cause,))
    with table.transaction() as transaction:
        transaction.set_properties(with_alteration(table.properties, note))
    assert json.loads(told(capfd, tmp_path, *words))["tables"][0]["schema_change"] == {
        "at": "2026-01-15T00:00:00.000Z",
        "version": 2,
        "changes": ["score: new column, double"],
        "causes": [
            {
                "columns": ["score"],
                "record": "orders/0@4",
                "part": "value",
                "schema": "2",
                "named": "version 7 of orders-value",
            }
        ],
    }
    assert (
        "orders: changed by its contract 2026-01-15T00:00:00.000Z: score: new column, double; cause for "
        "score: schema 2 (version 7 of orders-value), first met at orders/0@4"
    ) in told(capfd, tmp_path, *words[:-1])


def test_a_table_is_shown_with_what_altered_it(
    tmp_path: Path, table: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    assert json.loads(told(capfd, tmp_path, "table", "show", "orders", "--json"))["alterations"] == []
    at_ms = ManualClock().now_ms()
    note = NotedAlteration(2, at_ms, "b", ("score: new column, double", "on_error becomes skip"))
    with table.transaction() as transaction:
        transaction.set_properties(with_alteration(table.properties, note))
    (shown,) = json.loads(told(capfd, tmp_path, "table", "show", "orders", "--json"))["alterations"]
    assert (shown["version"], shown["changes"]) == (2, ["score: new column, double", "on_error becomes skip"])
    assert "score: new column, double" in told(capfd, tmp_path, "table", "show", "orders")
