"""``thermocline status`` on fields that no column is read from: how many sampled values have them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.serving.small_lake import create_table, lake_settings
from thermocline.cli import entry
from thermocline.cli.status_report import shown_unread
from thermocline.iceberg import catalog as catalogs
from thermocline.rules.unread_counts import Period, UnreadCounts

CONFIG = """
[kafka]
bootstrap_servers = "127.0.0.1:9"
[catalog]
type = "sql"
name = "lake"
uri = "sqlite:///{folder}/c.db"
warehouse = "{folder}/w"
[tables.orders]
identifier = "app.orders"
topics = ["orders"]
key = ["id"]
[tables.orders.columns]
id = "int"
note = "string"
"""
COUNTS = UnreadCounts(1, Period(7_000, 480, {"plan": 12, "x": 1, "(other)": 4}))


def test_each_field_is_told_with_the_number_of_sampled_values(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = lake_settings(tmp_path, "orders")
    create_table(settings, "orders")
    table = catalogs.open_table(settings, "orders")
    with table.transaction() as transaction:
        named = {catalogs.UNREAD_PROPERTY: json.dumps(["plan", "x"])}
        transaction.set_properties({**named, catalogs.UNREAD_COUNTS_PROPERTY: COUNTS.to_json()})
    file = tmp_path / "t.toml"
    file.write_text(CONFIG.format(folder=tmp_path))
    entry.run(["--config", str(file), "status", "--json", "--without", "kafka", "--without", "server"])
    (orders,) = json.loads(capfd.readouterr().out)["tables"]
    assert orders["unread_fields"] == ["plan", "x"]
    assert orders["unread"] == {"since_ms": 7_000, "values": 480, "fields": {"plan": 12, "x": 1}, "others": 4}


def test_the_line_of_a_table_has_the_next_command() -> None:
    counted = {"table": "orders", "unread_fields": ["plan", "x"], "unread": COUNTS.to_document()}
    assert shown_unread(counted) == (
        'no column is read from: field "plan" in 12 of 480 sampled values, '
        'field "x" in 1 of 480 sampled values, '
        "other fields, 4 times  next: declare what you want, then thermocline table alter orders"
    )


def test_names_that_an_earlier_release_noted_are_told_without_numbers() -> None:
    noted = {"table": "orders", "unread_fields": ["plan"], "unread": UnreadCounts().to_document()}
    assert shown_unread(noted).startswith("no column is read from: plan  next: ")
