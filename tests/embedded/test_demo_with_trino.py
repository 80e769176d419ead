"""The demo with Trino beside it, as a user types it: broker, Spark, server and Trino are real ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.demo, pytest.mark.full]

# Few rows, so that it is Trino that takes most of the time.
ARGUMENTS = ("--trino", "--json", "--seconds", "6", "--rows", "2000", "--rate", "300", "--users", "200")


def test_every_answer_of_the_views_agrees_and_nothing_stays_behind(tmp_path: Path) -> None:
    """Lookups, extract and views are asked while rows change; the demo itself compares all their answers."""
    ended = subprocess.run(
        [sys.executable, "-m", "thermocline", "demo", *ARGUMENTS],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert document["agrees"]
    of_views = {
        "the live view",
        "the live view by key",
        "the pinned view",
        "the pinned view, extracted",
        "the views under way",
    }
    assert of_views <= document["checks"].keys()
    rows = {
        document["checks"][name]["compared"] for name in ("the extract", "the live view", "the pinned view")
    }
    assert len(rows) == 1
    assert document["views"]["answers"] > 0
    for figures in document["views"]["freshness_ms"].values():
        assert figures["count"] > 0
        assert figures["p50"] <= figures["p99"] <= figures["max"]
    assert [step["what"] for step in document["story"] if step.get("view_ms")] == [
        "written",
        "committed",
        "changed",
        "garbage",
        "deleted",
    ]
    tables = [task["note"] for task in document["tasks"] if task["title"] == "Iceberg: a table for it"]
    assert tables == ["app.profiles, format 2, merge-on-read"]
    assert list((tmp_path / ".thermocline" / "demo").iterdir()) == []
