"""What the pages of proof point at exists: every test, module and make target that they name."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROOF = "\n".join((ROOT / "docs" / page).read_text() for page in ("proof.md", "torture.md"))
TEST = re.compile(r"`((?:tests/)?[a-z_/]+\.py)(?:::(test_[a-z0-9_]+))?`")
MODULE = re.compile(r"python -m (tests(?:\.[a-z_]+)+)")
TARGET = re.compile(r"`make ([a-z]+)")


def test_it_names_tests_modules_and_targets() -> None:
    assert len(TEST.findall(PROOF)) > 20
    assert MODULE.findall(PROOF)
    assert TARGET.findall(PROOF)


@pytest.mark.parametrize(("path", "name"), sorted(set(TEST.findall(PROOF))))
def test_a_test_that_it_names_exists(path: str, name: str) -> None:
    file = ROOT / "tests" / path.removeprefix("tests/")
    assert file.exists(), path
    if name:
        assert re.search(rf"^ *def {name}\(", file.read_text(), re.MULTILINE), f"{path}::{name}"


@pytest.mark.parametrize("module", sorted(set(MODULE.findall(PROOF))))
def test_a_module_that_it_runs_exists(module: str) -> None:
    assert importlib.util.find_spec(module), module


@pytest.mark.parametrize("target", sorted(set(TARGET.findall(PROOF))))
def test_a_target_that_it_makes_exists(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), target
