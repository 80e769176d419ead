"""The two tiers of tests: quick ones for each change (`make test`), and all of them (`make test-all`)."""

from __future__ import annotations

import os
from typing import Final

FULL_VARIABLE: Final = "TESTS_FULL"
"""Set by pytest's option ``--full`` before any test module is imported, for all processes of the run."""


def is_full() -> bool:
    """Whether all tests run, with their full counts."""
    return FULL_VARIABLE in os.environ


def quick_or_full(quick: int, full: int) -> int:
    """How many histories, rounds or records a test takes."""
    return full if is_full() else quick
