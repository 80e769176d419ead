"""Breaks each safety line in turn, in copies of the repository, and sees that its test notices.

``python -m tests.mutants`` breaks them all, ``python -m tests.mutants epoch`` those whose name or test holds
the word; ``--jobs`` says how many at a time. A fast test keeps the list true to the code.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from tests.forks import Forks
from tests.mutation import ROOT, Line, Place, mutated, places
from tests.safety_lines import LINES

NOT_COPIED: Final = (".git", ".venv", ".thermocline", ".hypothesis", "*_cache", "__pycache__")
# A test that hangs without the line has noticed, too, if it ends with it; none takes a third of this then.
TEST_SECONDS_MAX: Final = 600
FAILED: Final = 1  # pytest's exit code for tests that ran and failed; others mean that it could not run them
_seconds: Final = count(1)


def main(words: Sequence[str], jobs: int) -> int:
    """Breaks the lines whose name or test holds one of the words, or all; the number that no test noticed."""
    chosen = {name: line for name, line in LINES.items() if _is_chosen(name, line, words)}
    with tempfile.TemporaryDirectory(prefix="thermocline-mutants-") as folder:
        copies = _Copies(Path(folder), jobs)
        with ThreadPoolExecutor(jobs) as threads:
            verdicts = list(threads.map(copies.is_caught, chosen.items()))
    caught = [line for line, is_caught in zip(chosen.values(), verdicts, strict=True) if is_caught]
    by_all = sum(line.is_full for line in caught)
    print(
        f"{len(caught)} of {len(chosen)} caught: {len(caught) - by_all} by make test, "
        f"{by_all} by make test-all alone"
    )
    return len(chosen) - len(caught)


class _Copies:
    """Copies of the repository, each with one broken line at a time, and what runs its test."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self._places = places()
        self._free: SimpleQueue[tuple[Path, Forks]] = SimpleQueue()
        for number in range(jobs):
            copy = folder / str(number)
            # With its links: what is imported is `thermocline/ROOM`, and what is broken lies where they lead.
            shutil.copytree(ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
            self._free.put((copy, Forks()))

    def is_caught(self, named: tuple[str, Line]) -> bool:
        name, line = named
        copy, forks = self._free.get()
        try:
            started_at = time.monotonic()
            is_caught = _is_caught(name, line, self._places[name], copy, forks)
            took_seconds = time.monotonic() - started_at
        finally:
            self._free.put((copy, forks))
        verdict = "caught  " if is_caught else "SURVIVED"
        tier = "test-all" if line.is_full else "test    "
        print(f"{verdict} {tier} {took_seconds:5.0f} s  {name}: {line.test}", flush=True)
        return is_caught


def _is_chosen(name: str, line: Line, words: Sequence[str]) -> bool:
    return not words or any(word in name or word in line.test for word in words)


def _is_caught(name: str, line: Line, place: Place, copy: Path, forks: Forks) -> bool:
    """Whether the line's test fails without it, or hangs without it alone."""
    file = copy / place.file
    original, written_at = file.read_text(), file.stat().st_mtime
    file.write_text(mutated(original, place.number, line.mutation))
    # Python knows compiled code by the second of its source: each line gets another one.
    os.utime(file, times=(0, next(_seconds)))
    try:
        is_passed = _is_passed(name, line, copy, forks)
    finally:
        file.write_text(original)
        os.utime(file, times=(0, written_at))
    if is_passed is None and _is_passed(name, line, copy, forks) is None:
        raise RuntimeError(f"{name}: {line.test} takes more than {TEST_SECONDS_MAX} s with the line, too")
    return not is_passed


def _is_passed(name: str, line: Line, copy: Path, forks: Forks) -> bool | None:
    """Whether the line's test passes in the copy as it is; None where it did not end."""
    full = ["--full"] if line.is_full else []
    options = ["-x", "-q", "-p", "no:cacheprovider", *full]
    code, output = forks.pytest(copy, [*options, f"tests/{line.test}"], TEST_SECONDS_MAX)
    if code is None:
        return None
    if code not in (0, FAILED):
        raise RuntimeError(f"{name}: pytest could not run {line.test}\n{output}")
    return code == 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="of a line's name or its test; all lines without")
    parser.add_argument("--jobs", type=int, default=2, help="lines broken at the same time")
    options = parser.parse_args()
    sys.exit(main(options.words, options.jobs))
