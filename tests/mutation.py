"""What `make mutants` does to a safety line: the statement that has the mark ``# safety: NAME``.

The mark stands behind the statement, on any of its lines, or on a line of its own above it; several names
have commas between them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
ROOMS: Final = (
    *("cli", "client", "dev", "doctor", "ingest", "maintenance"),
    *("serving", "thermocline", "verify", "views"),
)
_MARK: Final = re.compile(r" *# safety: (?P<names>[\w'-]+(, [\w'-]+)*)$", re.MULTILINE)


class Whole(Enum):
    """What can be done to any statement of a kind."""

    DROP = "the statement is left out"
    NEVER = "its condition is False"
    ALWAYS = "its condition is True"
    SWAP = "it comes after the statement that follows it"


DROP, NEVER, ALWAYS, SWAP = Whole
FULL: Final = True
Mutation = Whole | tuple[str, str]
"""Of a pair the second text stands where the statement, or the head of a compound one, has the first."""


@dataclass(frozen=True, slots=True)
class Line:
    """What a safety line keeps, and the test, below ``tests/``, that fails without it.

    ``is_full``: only with pytest's ``--full``, in `make test-all`.
    """

    keeps: str
    mutation: Mutation
    test: str
    is_full: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """Where a marked statement is; ``number`` counts from 1, ``text`` is that line without the mark."""

    file: str
    number: int
    text: str


def places(root: Path = ROOT) -> dict[str, Place]:
    """Where each safety line is. Raises ValueError for a name that is given twice."""
    found: dict[str, Place] = {}
    for file in sorted(file for room in ROOMS for file in (root / room).rglob("*.py")):
        for name, place in _marks(str(file.relative_to(root)), file.read_text()):
            if name in found:
                raise ValueError(f"{name} marks two lines: {found[name]} and {place}")
            found[name] = place
    return found


def unmarked(text: str) -> str:
    """A module without its marks."""
    return _MARK.sub("", text)


def mutated(text: str, number: int, mutation: Mutation) -> str:
    """A module with its statement at a line mutated. Raises ValueError where it can't be."""
    code = unmarked(text)
    node, following = _statement_at(code, number)
    source = _Source(code)
    if isinstance(mutation, tuple):
        start, end = source.start(node), source.end_of_head(node)
        head, old = source.code[start:end], mutation[0].encode()
        if head.count(old) != 1:
            raise ValueError(f"{head.decode()!r} has {mutation[0]!r} {head.count(old)} times")
        return source.replaced((start, end, head.replace(old, mutation[1].encode())))
    if mutation is DROP:
        return source.replaced((*source.span(node), b"pass"))
    if mutation is SWAP and following is not None:
        first, second = source.span(node), source.span(following)
        return source.replaced((*first, source.code[slice(*second)]), (*second, source.code[slice(*first)]))
    if mutation in (NEVER, ALWAYS) and isinstance(node, ast.If | ast.While):
        return source.replaced((*source.span(node.test), str(mutation is ALWAYS).encode()))
    raise ValueError(f"no {mutation} of {source.code[slice(*source.span(node))].decode()!r}")


def _marks(file: str, text: str) -> Iterator[tuple[str, Place]]:
    lines = text.splitlines()
    for index, line in enumerate(lines):
        if mark := _MARK.search(line):
            at = index
            while not lines[at].split("#")[0].strip():  # a mark on a line of its own
                at += 1
            for name in mark["names"].split(", "):
                yield name, Place(file, at + 1, _MARK.sub("", lines[at]).strip())


Statement = ast.stmt | ast.ExceptHandler


@lru_cache(maxsize=1)
def parsed(code: str) -> ast.Module:
    """The module, parsed once for all of its lines in a row."""
    return ast.parse(code)


@lru_cache(maxsize=1)
def _statements(code: str) -> list[tuple[range, Statement, Statement | None]]:
    """Of each statement the lines of its head, itself, and the one that follows it in its block."""
    found = []
    parents: list[ast.AST] = [parsed(code)]
    while parents:
        parent = parents.pop()
        for name in ("body", "orelse", "finalbody", "handlers"):
            nodes: list[Statement] = getattr(parent, name, [])
            for node, following in zip(nodes, [*nodes[1:], None], strict=False):
                found.append((range(node.lineno, _last_line_of_head(node) + 1), node, following))
            parents += nodes
        parents += getattr(parent, "cases", [])
    return found


def _statement_at(code: str, number: int) -> tuple[Statement, Statement | None]:
    """The statement whose line, or whose head's, it is, and the one that follows it in its block."""
    for lines, node, following in _statements(code):
        if number in lines:
            return node, following
    raise ValueError(f"no statement at line {number}")


def _last_line_of_head(node: Statement) -> int:
    if isinstance(node, ast.Match):
        return node.cases[0].pattern.lineno - 1
    body = getattr(node, "body", None)
    return body[0].lineno - 1 if body else node.end_lineno or node.lineno


class _Source:
    """Code as bytes, in which the places of `ast` count."""

    def __init__(self, code: str) -> None:
        self.code = code.encode()
        self._lines = [0]
        for line in self.code.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def start(self, node: Statement | ast.expr) -> int:
        return self._lines[node.lineno - 1] + node.col_offset

    def span(self, node: Statement | ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.start(node), self._lines[node.end_lineno - 1] + node.end_col_offset

    def end_of_head(self, node: Statement) -> int:
        return min(self._lines[_last_line_of_head(node)], self.span(node)[1])

    def replaced(self, *parts: tuple[int, int, bytes]) -> str:
        """The code with other bytes in each span; the spans ascend."""
        code = self.code
        for start, end, new in reversed(parts):
            code = code[:start] + new + code[end:]
        return code.decode()
