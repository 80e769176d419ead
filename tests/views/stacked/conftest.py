"""The stack that all tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from embedded.stack import Stack
from tests.behaviour.without_spark import in_place_of_spark
from tests.views.stacked.started import started


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, Any]]:
    with started(tmp_path_factory.mktemp("stacked")) as running:
        yield running


@pytest.fixture(scope="module")
def stack(running: tuple[Stack, Any]) -> Iterator[Stack]:
    """It outlives this folder's tests in a process that goes on with others: these have Spark again."""
    stack, jvm = running
    with in_place_of_spark(jvm):
        yield stack
