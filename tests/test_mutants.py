"""The list of safety lines is true to the code and to the tests."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache

from tests.mutation import ROOT, mutated, places
from tests.safety_lines import LINES


def test_each_marked_line_is_listed_and_each_listed_line_is_marked() -> None:
    assert sorted(places()) == sorted(LINES)


def test_each_line_can_be_broken_and_the_code_without_it_is_still_python() -> None:
    problems = []
    found = places()
    for name, line in sorted(LINES.items(), key=lambda item: found[item[0]].file):
        try:
            ast.parse(mutated((ROOT / found[name].file).read_text(), found[name].number, line.mutation))
        except (ValueError, SyntaxError) as error:
            problems.append(f"{name}: {error}")
    assert problems == []


def test_each_test_exists_and_one_that_only_make_test_all_runs_is_flagged() -> None:
    problems = []
    for name, line in LINES.items():
        file, _, test = line.test.partition("::")
        is_full = _tests_of(file).get(test.partition("[")[0])  # "" stands for all of them
        if is_full is None:
            problems.append(f"{name}: no {line.test}")
        elif is_full and not line.is_full:
            problems.append(f"{name}: {line.test} is full")
    assert problems == []


@cache
def _tests_of(file: str) -> dict[str, bool]:
    """The tests in a file below ``tests/``: whether they, or the whole file, are marked full."""
    tree = ast.parse((ROOT / "tests" / file).read_text())
    marks = [node for node in tree.body if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node)]
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return {"": _is_full(marks)} | {node.name: _is_full([*marks, *node.decorator_list]) for node in nodes}


def _is_full(marks: Sequence[ast.AST]) -> bool:
    """Whether all of a test is; one of several parameters alone does not count."""
    written = [ast.unparse(mark) for mark in marks]
    return any("mark.full" in mark and "pytest.param(" not in mark for mark in written)
