"""Names, docstrings and commit subjects follow AGENTS.md, as far as a machine can tell."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = (
    *("cli", "client", "dev", "doctor", "ingest", "maintenance"),
    *("serving", "thermocline", "verify", "views"),
)
WORDS = ROOT / "docs" / "architecture" / "README.md"
NOT_OURS = ("anew", "grave", "is away", "are away", "was away")
"""Of those that docs/architecture/README.md, "Words", says not to use, the ones that mean nothing else."""
SUBJECT_CHARACTERS_MAX = 72
SUBJECTS = 30


def modules(*rooms: str) -> Iterator[Path]:
    for room in rooms:
        yield from sorted((ROOT / room).rglob("*.py"))


def test_a_modules_docstring_says_what_it_is_and_is_no_question() -> None:
    questions = []
    for path in modules(*PRODUCT):
        said = (ast.get_docstring(ast.parse(path.read_text())) or "").split()
        if said and said[0].strip(",:") in {"What", "Whether", "Where", "How", "Who", "Which", "Why"}:
            questions.append(str(path.relative_to(ROOT)))
    assert questions == []


@pytest.mark.parametrize("word", NOT_OURS)
def test_a_word_that_is_not_ours_is_used_nowhere(word: str) -> None:
    used = re.compile(rf"(?<![a-z]){word}(?![a-z])", re.IGNORECASE)  # within names, too
    pages = [*modules(*PRODUCT, "tests", "benchmarks"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in pages
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if used.search(line)
        and path != Path(__file__)
        and not (path == WORDS and line.endswith(f" {word} |"))
    ]
    assert found == []


def test_no_file_has_both_sides_of_a_merge() -> None:
    marks = ["git", "grep", "-lIE", r"^(<{7}|>{7}) "]
    assert subprocess.run(marks, cwd=ROOT, capture_output=True, text=True, check=False).stdout == ""


def test_commit_subjects_are_short() -> None:
    """Of the newest ones: a clone may have no others."""
    logged = ["git", "log", f"-{SUBJECTS}", "--no-merges", "--format=%s"]
    said = subprocess.run(logged, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said
    assert [subject for subject in said if len(subject) > SUBJECT_CHARACTERS_MAX] == []
