"""The Trino that reads tables of format version 3, where this machine can run it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from embedded.trino import ICEBERG_ONLY, LocalTrino
from thermocline.errors import DependencyMissing


def newer_trino(folder: Path, **options: Any) -> LocalTrino:
    """It needs a JDK that no package index has, only the machine: without one, the test is skipped."""
    try:
        return LocalTrino(folder, release=ICEBERG_ONLY, **options)
    except DependencyMissing as error:
        if "jdk.incubator.vector" not in error.what_is_missing:
            raise
        pytest.skip(error.what)
