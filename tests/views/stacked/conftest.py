"""The stack that all tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.views.stacked.started import started
from thermocline.dev.stack import Stack


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory, jvm: Any) -> Iterator[Stack]:
    with started(tmp_path_factory.mktemp("stacked")) as stack:
        yield stack
