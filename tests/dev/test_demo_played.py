"""The demo as a user types it: broker, Spark, server and Trino are real ones."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants import NOT_COPIED
from tests.mutation import ROOT, mutated, places
from tests.safety_lines import LINES

pytestmark = [pytest.mark.demo, pytest.mark.full]

# Few rows, so that it is Trino that takes most of the time.
ARGUMENTS = ("--json", "--seconds", "6", "--rows", "2000", "--rate", "300", "--users", "200")
VIEWS = ["the live view by key", "the live view", "the pinned view"]


def played(folder: Path, *more: str, code: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "thermocline", "demo", *ARGUMENTS, *more],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(code)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_all_read_paths_agree_with_trino_beside_and_nothing_stays_behind(tmp_path: Path) -> None:
    """Lookups, extract and views are asked while rows change; the demo itself compares all their answers."""
    ended = played(tmp_path, "--trino")
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert document["agrees"]
    assert list(document["checks"]) == [
        "thermocline verify",
        "the lookups under way",
        *VIEWS,
    ]
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


def test_two_servers_and_trino_agree_with_a_lake_written_by_a_spark_cluster(tmp_path: Path) -> None:
    """A store of objects, a REST catalog, a standalone cluster: each server is compared on its own."""
    ended = played(tmp_path, "--lake", "--trino")
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert document["agrees"]
    assert (
        list(document["checks"])
        == [
            f"{check}, server {server}"
            for server in (1, 2)
            for check in ("thermocline verify", "the lookups under way")
        ]
        + VIEWS
    )
    assert len(document["urls"]) == 2
    assert list((tmp_path / ".thermocline" / "demo").iterdir()) == []


def test_a_wrong_row_in_the_extract_ends_it_with_a_bad_verdict(tmp_path: Path) -> None:
    """Goal: the demo can fail. Method: an extract that keeps the rows which newer records replace."""
    copy, folder = tmp_path / "copy", tmp_path / "run"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*NOT_COPIED), symlinks=True)
    place = places(copy)["overlay-extract"]
    file = copy / place.file
    file.write_text(mutated(file.read_text(), place.number, LINES["overlay-extract"].mutation))
    folder.mkdir()
    ended = played(folder, code=copy)
    assert ended.returncode == 1, ended.stderr
    assert json.loads(ended.stderr)["code"] == "verdict-bad"
    document = json.loads(ended.stdout)
    assert not document["agrees"]
    (bad,) = (check["differences"] for check in document["checks"].values() if check["differences"])
    assert any("[extract-differs]" in line for line in bad)
    assert len(list((folder / ".thermocline" / "demo").iterdir())) == 1  # kept, to be looked at
