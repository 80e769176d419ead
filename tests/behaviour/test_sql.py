"""``thermocline sql`` on real parts: a join of two live tables, each at the read point that it prints."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.behaviour.live import Live
from thermocline.cli import entry
from thermocline.dev.stack import Stack
from thermocline.errors import ExitCode
from thermocline.rules.read_point import ReadPoint
from thermocline.serving.read import private
from thermocline.settings import load_settings

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"
STATEMENT = """
SELECT o.user_id, o.value AS ordered, p.value AS plan
FROM orders o JOIN plans p USING (app_id, user_id, key)
WHERE p.value <> 'none'
ORDER BY 1;
"""


@pytest.mark.full
def test_a_join_equals_the_extracts_at_its_read_points(
    new_stack: Callable[..., Stack],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two tables, both with committed rows and with changes of these rows that only Kafka has.

    Then the examples of docs/sql.md, on the same tables.
    """
    stack = new_stack("sql")
    orders, plans = Live(stack, "orders"), Live(stack, "plans")
    orders.write(range(8), "first")
    plans.write(range(2, 10), "free")
    orders.ingest()
    plans.ingest()
    orders.write([3, 20], "second")
    orders.write([4], None)
    plans.write([5, 20], "paid")
    plans.write([6], "none")

    config = _config_of(orders, plans)
    capsys.readouterr()
    assert entry.run(["--config", str(config), "sql", STATEMENT, "--json"]) == 0
    printed = capsys.readouterr()
    answer = json.loads(printed.out)
    points = {name: ReadPoint.parse(json.dumps(point)) for name, point in answer["read_points"].items()}
    assert all(f"read point of {name}: {point.to_header()}" in printed.err for name, point in points.items())

    ordered, plan = (_extracted(config, name, points[name]) for name in ("orders", "plans"))
    expected = [
        {"user_id": user, "ordered": ordered[user], "plan": plan[user]}
        for user in sorted(ordered.keys() & plan.keys())
        if plan[user] != "none"
    ]
    assert answer["rows"] == expected
    assert {row["user_id"]: (row["ordered"], row["plan"]) for row in expected} == {
        "u2": ("first", "free"),
        "u3": ("second", "free"),
        "u5": ("first", "paid"),
        "u7": ("first", "free"),
        "u20": ("second", "paid"),
    }

    file = tmp_path / "joined.parquet"
    assert entry.run(["--config", str(config), "sql", "-c", STATEMENT, "-o", str(file)]) == 0
    assert pq.read_table(file).to_pylist() == expected
    packed = tmp_path / "joined.csv.gz"
    assert entry.run(["--config", str(config), "sql", "-c", STATEMENT, "-o", str(packed)]) == 0
    with gzip.open(packed, "rt") as text:
        assert len(list(csv.DictReader(text))) == len(expected)
    for name in ("joined.parquet.gz", "joined.xls"):
        assert entry.run(["--config", str(config), "sql", "-c", STATEMENT, "-o", name]) == ExitCode.USAGE

    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"^\$ thermocline (sql .*)", PAGE.read_text(), re.MULTILINE)
    for example in examples:
        code = entry.run(["--config", str(config), *shlex.split(example)])
        assert code == (ExitCode.USAGE if "valeu" in example else ExitCode.DONE), example
    assert "3 rows" in capsys.readouterr().out
    assert pq.read_table("plans.parquet").num_rows == len(plan)


def _config_of(orders: Live, plans: Live) -> Path:
    """A configuration with both tables, as one user has it."""
    _, section, more = plans.config_path.read_text().partition("[tables.plans]")
    config = orders.config_path.with_name("both.toml")
    config.write_text(orders.config_path.read_text() + section + more)
    return config


def _extracted(config: Path, name: str, at: ReadPoint) -> dict[str, Any]:
    sink = io.BytesIO()
    private.extract(load_settings(config), name, None, "arrow", sink, at, lambda _: None)
    rows = pa.ipc.open_stream(sink.getvalue()).read_all().to_pylist()
    return {row["user_id"]: row["value"] for row in rows}
