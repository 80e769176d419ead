"""For every test: what needs Java is marked so, and what shares servers runs in one process."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

BEHAVIOUR = Path(__file__).parent / "behaviour"
NEED_JAVA = ("trino", "demo")
TOGETHER = ("tests/views/door/", "tests/views/stacked/")
"""Folders of which all tests share one Trino."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(BEHAVIOUR) or any(map(item.get_closest_marker, NEED_JAVA)):
            item.add_marker(pytest.mark.jvm)


class OneServerEach(LoadScopeScheduling):  # type: ignore[misc]
    """Hands the tests of one file, or of one folder of `TOGETHER`, to the same process."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return next((folder for folder in TOGETHER if file.startswith(folder)), file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    return OneServerEach(config, log)
