"""Commands for this installation's programs: the demo prints commands that run as printed."""

from __future__ import annotations

import shlex
import shutil
import sys
from contextlib import suppress
from pathlib import Path


def program(name: str) -> str:
    """A program of this Python's environment, such as ``thermocline``, as it is typed here.

    Its name where PATH leads to it, else its path: `make` runs what is in `.venv` without that being on PATH.
    """
    beside = Path(sys.executable).with_name(name)
    found = shutil.which(name)
    if found and Path(found).parent.resolve() == beside.parent.resolve():
        return name
    if beside.exists():
        return path_typed(beside)
    return f"{path_typed(Path(sys.executable))} -m {name}"  # a checkout that is not installed


def path_typed(path: Path) -> str:
    """A path as it is typed here: relative if it is below the current folder, and quoted if need be."""
    with suppress(ValueError):
        path = path.relative_to(Path.cwd())
    return shlex.quote(str(path))
