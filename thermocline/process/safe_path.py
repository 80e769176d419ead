"""Keeps packages of the current folder from being taken for ours: one may be called `ingest` or `views`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

VARIABLE: Final = "PYTHONSAFEPATH"
"""Set, Python doesn't look for packages in the current folder first."""
_ROOT: Final = Path(__file__).parents[2]


def leave_current_folder() -> None:
    """For ``python -m``, which put it first in the path."""
    current = _current_folder()
    if current not in (None, _ROOT) and not sys.flags.safe_path and sys.path[0] == str(current):
        del sys.path[0]


def variables() -> dict[str, str]:
    """For the environment of Python processes.

    None where the current folder is the one of our packages: a checkout need not be installed.
    """
    return {} if _current_folder() == _ROOT else {VARIABLE: "1"}


def pass_on() -> None:
    """To the processes that this one starts."""
    os.environ.update(variables())


def _current_folder() -> Path | None:
    """None where it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None
