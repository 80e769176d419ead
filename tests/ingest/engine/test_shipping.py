"""The code that a session takes to a cluster: whole, importable, and of one name while it is the same."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from thermocline.ingest.engine.shipping import LEFT_OUT, PACKAGE, pack


def test_the_same_code_has_the_same_bytes_and_name(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    first, again = pack(tmp_path), pack(tmp_path / "again")
    assert first.name == again.name
    assert first.read_bytes() == again.read_bytes()


def test_it_is_whole_and_has_nothing_else(tmp_path: Path) -> None:
    names = zipfile.ZipFile(pack(tmp_path)).namelist()
    assert {name.partition("/")[0] for name in names} == {PACKAGE}
    assert not [name for name in names if "__pycache__" in name]
    assert not [name for name in names if name.split("/")[1] in LEFT_OUT]
    root = Path(__file__).parents[3]
    for folder in ("ingest", "maintenance", "thermocline/rules"):
        room = Path(folder).name
        of_room = (path.relative_to(root / folder) for path in (root / folder).rglob("*.py"))
        assert {f"{PACKAGE}/{room}/{path}" for path in of_room} <= set(names)


def test_tasks_are_imported_from_it(tmp_path: Path) -> None:
    packed = pack(tmp_path)
    code = f"""
import sys
sys.path.insert(0, {str(packed)!r})
from thermocline.ingest.batch import batch
from thermocline.ingest.engine import spark
from thermocline.maintenance import compact
print(batch.__file__, spark.__file__, compact.__file__)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.split() == [
        f"{packed}/thermocline/ingest/batch/batch.py",
        f"{packed}/thermocline/ingest/engine/spark.py",
        f"{packed}/thermocline/maintenance/compact.py",
    ]
