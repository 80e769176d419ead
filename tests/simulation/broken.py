"""Product code with one line broken, for as long as a test runs."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def broken(function: Callable[..., Any], line: str, instead: str) -> Iterator[None]:
    """The function does another thing where it has that text, which it must have once, whoever calls it."""
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(line) == 1, f"{function.__qualname__} has {source.count(line)} times {line!r}"
    while source.startswith("@"):  # a classmethod or property is given as its function
        source = source.partition("\n")[2]
    made: dict[str, Any] = {}
    module = inspect.getmodule(function)
    assert module is not None
    exec("from __future__ import annotations\n" + source.replace(line, instead), vars(module), made)
    before = function.__code__
    function.__code__ = made[function.__name__].__code__
    try:
        yield
    finally:
        function.__code__ = before
