"""The code that a session takes to a cluster: whole, importable, and of one name while it is the same."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from ingest.shipping import PACKAGES, pack


def test_the_same_code_has_the_same_bytes_and_name(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    first, again = pack(tmp_path), pack(tmp_path / "again")
    assert first.name == again.name
    assert first.read_bytes() == again.read_bytes()


def test_it_is_whole_and_has_nothing_else(tmp_path: Path) -> None:
    names = zipfile.ZipFile(pack(tmp_path)).namelist()
    assert {name.partition("/")[0] for name in names} == set(PACKAGES)
    assert not [name for name in names if "__pycache__" in name]
    for package in PACKAGES:
        root = Path(__file__).parents[2] / package
        assert {f"{package}/{path.relative_to(root)}" for path in root.rglob("*.py")} <= set(names)


def test_tasks_are_imported_from_it(tmp_path: Path) -> None:
    packed = pack(tmp_path)
    code = f"""
import sys
sys.path.insert(0, {str(packed)!r})
import ingest.batch, ingest.spark, maintenance.compact
print(ingest.batch.__file__, ingest.spark.__file__, maintenance.compact.__file__)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.split() == [
        f"{packed}/ingest/batch.py",
        f"{packed}/ingest/spark.py",
        f"{packed}/maintenance/compact.py",
    ]
