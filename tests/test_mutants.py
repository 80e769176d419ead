"""The list of safety lines is true to the code and to the tests."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import takewhile

from tests.mutation import ROOT, mutated, parsed, places, unmarked
from tests.safety_lines import LINES


def test_each_marked_line_is_listed_and_each_listed_line_is_marked() -> None:
    assert sorted(places()) == sorted(LINES)


def test_each_line_can_be_broken_and_the_code_without_it_is_still_python() -> None:
    problems = []
    found = places()
    for name, line in sorted(LINES.items(), key=lambda item: found[item[0]].file):
        try:
            text = (ROOT / found[name].file).read_text()
            ast.parse(changed(text, mutated(text, found[name].number, line.mutation)))
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


def changed(before: str, after: str) -> str:
    """The statements of a module that a mutation changed, of those at its top: parsing all takes long."""
    old, new = unmarked(before).splitlines(), after.splitlines()
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))
    behind = sum(
        1
        for _ in takewhile(
            lambda pair: pair[0] == pair[1], zip(old[same:][::-1], new[same:][::-1], strict=False)
        )
    )
    touched = [lines for lines in _top(before) if lines.stop > same and lines.start < len(old) - behind]
    first, last = touched[0].start, touched[-1].stop
    return "\n".join(new[first : len(new) - (len(old) - last)])


def test_of_a_mutated_module_the_changed_statements_are_parsed() -> None:
    before = "a = 1\n\ndef f():\n    if a:  # safety: x\n        return 1\n    return 2\n\nb = 3\n"
    after = "a = 1\n\ndef f():\n    pass\n    return 2\n\nb = 3\n"
    assert changed(before, after) == "def f():\n    pass\n    return 2"


@lru_cache(maxsize=1)
def _top(text: str) -> list[range]:
    """The lines of each statement at the top of a module, from 0."""
    return [
        range(
            min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))]) - 1,
            node.end_lineno or 0,
        )
        for node in parsed(unmarked(text)).body
    ]


@cache
def _tests_of(file: str) -> dict[str, bool]:
    """The tests in a file below ``tests/``: whether they, or the whole file, are marked full."""
    tree = ast.parse((ROOT / "tests" / file).read_text())
    marks = [node for node in tree.body if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node)]
    nodes = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {"": _is_full(marks)} | {node.name: _is_full([*marks, *node.decorator_list]) for node in nodes}


def _is_full(marks: Sequence[ast.AST]) -> bool:
    """Whether all of a test is; one of several parameters alone does not count."""
    written = [ast.unparse(mark) for mark in marks]
    return any("mark.full" in mark and "pytest.param(" not in mark for mark in written)
