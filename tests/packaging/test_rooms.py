"""The lists in ``pyproject.toml`` name all rooms: a new one is watched as the others are."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRACTS = {contract["name"]: contract for contract in PROJECT["tool"]["importlinter"]["contracts"]}
LINKED = {link.name for link in (ROOT / "thermocline").iterdir() if link.is_symlink()}
SHARED = {
    f"thermocline.{path.name if path.is_dir() else path.stem}"
    for path in (ROOT / "thermocline").iterdir()
    if path.name not in {*LINKED, "__init__.py", "__main__.py", "__pycache__"}
    and (path.is_dir() or path.suffix == ".py")
}


def contract(name: str) -> Any:
    return CONTRACTS[name]


@pytest.mark.parametrize(
    "name",
    [
        "what is shared knows none of the rooms",
        "what is shared needs no Spark and no web framework",
    ],
)
def test_all_that_is_shared_is_watched(name: str) -> None:
    assert "thermocline.rules" in SHARED
    assert set(contract(name)["source_modules"]) == SHARED


def test_what_is_shared_may_import_no_room() -> None:
    forbidden = contract("what is shared knows none of the rooms")["forbidden_modules"]
    assert set(forbidden) == {f"thermocline.{room}" for room in LINKED}


def test_the_client_may_import_nothing_else_of_ours() -> None:
    forbidden = set(
        contract("the client stands alone: httpx, and nothing else of the product")["forbidden_modules"]
    )
    ours = {name for name in forbidden if name.startswith("thermocline.")}
    assert ours == SHARED | {f"thermocline.{room}" for room in LINKED - {"client"}}


def test_no_room_is_imported_but_through_the_package() -> None:
    banned = PROJECT["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]
    assert set(banned) >= LINKED


def test_the_client_has_the_version_of_the_product() -> None:
    client = tomllib.loads((ROOT / "client" / "pyproject.toml").read_text())
    assert client["project"]["version"] == PROJECT["project"]["version"]
