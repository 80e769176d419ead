"""Tests go through the product's public names: where one reaches inside, it is listed here."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = (
    *("cli", "client", "dev", "doctor", "ingest", "maintenance"),
    *("serving", "thermocline", "verify", "views"),
)
TESTS = ("tests", "benchmarks")
NOT_OURS = {"_jvm", "_replace"}  # PySpark's and namedtuple's, which have no other name
PATCHES = {"setattr", "delattr", "getattr", "watch"}  # they take a name as a string
PRIVATE = re.compile(r"\b_[a-zA-Z]\w*")

ALLOWED = {
    # A part is broken on purpose, to see that the simulation notices.
    "tests/simulation/test_broken_serving.py": 10,
    "tests/simulation/test_maintained.py": 3,
    "tests/simulation/test_simulation.py": 5,
    # The simulation drives a part without its process, and compares what it holds in memory.
    "tests/simulation/serving.py": 3,
    "tests/simulation/tailer_process.py": 3,
    "tests/simulation/workers.py": 6,
    # A process that was killed can't tidy up: what it holds is let go of from outside.
    "tests/serving/hot/test_hot_model.py": 1,
    "tests/serving/hot/test_hot_tier.py": 1,
    # A step of an object is run without the parts that only the other steps need.
    "tests/ingest/commit/test_protocol.py": 1,
    "tests/ingest/owner/test_rewrites_met.py": 4,
    "tests/verify/test_verifier.py": 2,
    # What is kept in memory is bounded, or is forgotten, which shows nowhere else.
    "tests/serving/http/test_protocol.py": 2,
    "tests/verify/test_entities.py": 3,
    "tests/verify/test_interrupted.py": 2,
    # Small functions with more cases than a whole command could be run for.
    "tests/maintenance/test_plan.py": 1,
    "tests/serving/http/test_requests.py": 1,
    "tests/thermocline/test_names_from_outside.py": 1,
    # The others.
    "benchmarks/commits.py": 1,
    "tests/behaviour/test_log.py": 1,
    "tests/ingest/small_ingest.py": 1,
    "tests/serving/full_disk.py": 1,
}
"""How often a file names something private of the product. Numbers only go down."""


def is_private(name: str) -> bool:
    return name.isidentifier() and name.startswith("_") and not name.startswith("__") and name != "_"


def names_made(tree: ast.Module) -> Iterator[str]:
    """All that a module gives a name, at any depth."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Attribute(attr=name, ctx=ast.Store()) | ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.alias(name=name, asname=alias):
                yield alias or name
            case _:
                pass


def names_used(tree: ast.Module) -> Iterator[str]:
    """The names that a module uses of something else than its own ``self``."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls") | ast.Call(func=ast.Name(id="super"))):
                pass
            case ast.Attribute(attr=name):
                yield name
            case ast.ImportFrom(names=names):
                yield from (one.name for one in names)
            case ast.Call(func=ast.Attribute(attr=called) | ast.Name(id=called), args=arguments):
                for one in arguments[:2] if called in PATCHES else ():
                    if isinstance(one, ast.Constant) and isinstance(one.value, str):
                        yield one.value.rpartition(".")[2]
            case _:
                pass


def modules(*folders: str, of: Collection[str] = ()) -> Iterator[tuple[str, ast.Module]]:
    """The modules in some folders; those alone that have one of these words somewhere, if there are any."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text()
            if not of or not set(PRIVATE.findall(text)).isdisjoint(of):
                yield str(path.relative_to(ROOT)), ast.parse(text)


def test_tests_reach_for_private_names_of_the_product_only_where_it_is_listed() -> None:
    ours = {name for _, tree in modules(*PRODUCT) for name in names_made(tree) if is_private(name)} - NOT_OURS
    found = Counter(
        path for path, tree in modules(*TESTS, of=ours) for name in names_used(tree) if name in ours
    )
    assert found == ALLOWED
