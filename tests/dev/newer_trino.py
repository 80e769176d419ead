"""The Trino that reads tables of format version 3, where this machine can run it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.dev.trino_jars import MAIN, iceberg_tree
from thermocline.dev.trino import LocalTrino, Release
from thermocline.jvm.java import has_vector_module
from thermocline.jvm.trino_java import find_trino_java

ICEBERG_ONLY = Release((25,), iceberg_tree, MAIN)
"""Trino 483: format version 3, no Kafka, and none of the managers of groups and session properties."""


def newer_trino(folder: Path, **options: Any) -> LocalTrino:
    """It needs a JDK that no package index has, only the machine: without one, the test is skipped."""
    if not has_vector_module(find_trino_java(ICEBERG_ONLY.java_versions).home):
        pytest.skip("no JDK 25 with the module jdk.incubator.vector")
    return LocalTrino(folder, release=ICEBERG_ONLY, **options)
