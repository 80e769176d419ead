"""Removes each safety line in turn, in a copy of the repository, and sees that its test notices.

``python -m tests.mutants`` runs them all, ``python -m tests.mutants epoch`` those whose name or test holds
the word. A fast test keeps the list true to the code.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.safety_lines import MUTANTS, Mutant

ROOT: Final = Path(__file__).resolve().parent.parent
NOT_COPIED: Final = (".git", ".venv", ".thermocline", ".hypothesis", "*_cache", "__pycache__")
# A test that hangs without the line has noticed, too; none takes a third of this with it.
TEST_SECONDS_MAX: Final = 600
FAILED: Final = 1  # pytest's exit code for tests that ran and failed; others mean that it could not run them


def main(words: Sequence[str]) -> int:
    """Runs the mutants whose name holds one of the words, or all; the number that no test noticed."""
    chosen = [mutant for mutant in MUTANTS if _is_chosen(mutant, words)]
    survivors = 0
    with tempfile.TemporaryDirectory(prefix="thermocline-mutants-") as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*NOT_COPIED))
        for mutant in chosen:
            started_at = time.monotonic()
            is_caught = _is_caught(mutant, copy)
            survivors += not is_caught
            took_seconds = time.monotonic() - started_at
            verdict = "caught  " if is_caught else "SURVIVED"
            print(f"{verdict} {took_seconds:5.0f} s  {mutant.name}: {mutant.test}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} caught")
    return survivors


def _is_chosen(mutant: Mutant, words: Sequence[str]) -> bool:
    return not words or any(word in mutant.name or word in mutant.test for word in words)


def mutated(mutant: Mutant, text: str) -> str:
    """The text of the mutant's file without its line. Raises ValueError unless the line stands there once."""
    if text.count(mutant.line) != 1:
        raise ValueError(f"{mutant.name}: {mutant.file} holds its line {text.count(mutant.line)} times")
    return text.replace(mutant.line, mutant.without)


def _is_caught(mutant: Mutant, copy: Path) -> bool:
    file = copy / mutant.file
    original = file.read_text()
    file.write_text(mutated(mutant, original))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", mutant.test],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy)},
            capture_output=True,
            text=True,
            timeout=TEST_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    finally:
        file.write_text(original)
    if done.returncode not in (0, FAILED):
        raise RuntimeError(f"{mutant.name}: pytest could not run {mutant.test}\n{done.stdout[-2000:]}")
    return done.returncode == FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
