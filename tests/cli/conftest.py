"""What every test of commands has around it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def untouched_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Commands find no variables of ours, and leave the log as it was."""
    for name in list(os.environ):
        if name.startswith("THERMOCLINE_"):
            monkeypatch.delenv(name)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    logging.captureWarnings(False)
