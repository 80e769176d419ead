"""Settings without an effect, and the command that deletes them and nothing else."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest

from thermocline.doctor.configuration import deletion, unused_in
from thermocline.settings import load_settings
from thermocline.settings.given import given_settings

TEXT = """\
[kafka]
bootstrap_servers = "b:1"
[catalog]
uri = "sqlite:///catalog.db"
warehouse = "warehouse"
[ingest]
engine = "local"
[spark]
master = "local[4]"
[audit]
path = "log"      # of no sink
rotate_bytes = 2000000
[serving]
port = 8181
[tables.t]
identifier = "app.t"
topics = ["t"]
key = ["id"]
[tables.t.columns]
id = "int"
path = "string"
"""


def test_each_setting_without_an_effect_is_named_and_deleted_by_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THERMOCLINE_REGISTRY__USER", "ada")
    file = tmp_path / "thermocline.toml"
    file.write_text(TEXT)
    found = list(unused_in(load_settings(file), given_settings(file), file))
    assert {one.subject: one.looked_at.partition(" (from")[0] for one in found} == {
        "spark.master": 'ingest.engine is "local"',
        "audit.path": 'audit.sink is not "file"',
        "audit.rotate_bytes": 'audit.sink is not "file"',
        "registry.user": "registry.url is empty",
    }
    fixes = "\n".join(one.fix for one in found)
    after = f"{fixes}\necho ${{THERMOCLINE_REGISTRY__USER-gone}}"
    done = subprocess.run(["bash", "-ec", after], capture_output=True, text=True, check=True)
    assert done.stdout == "gone\n"
    wanted = tomllib.loads(TEXT)
    for section, name in (("spark", "master"), ("audit", "path"), ("audit", "rotate_bytes")):
        del wanted[section][name]
    assert tomllib.loads(file.read_text()) == wanted


def test_a_setting_that_has_no_line_of_its_own_is_deleted_by_hand() -> None:
    assert deletion('audit = { path = "log" }\n', ("audit", "path")) is None
    assert deletion('[audit]\npath = """\nlog"""\n', ("audit", "path")) is None
    assert deletion('[audit]\npath = "a"\n', ("audit", "path")) is not None
