"""What holds for every test: what needs Java is marked so, and fast tests go first."""

from __future__ import annotations

from pathlib import Path

import pytest

BEHAVIOUR = Path(__file__).parent / "behaviour"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(BEHAVIOUR) or item.get_closest_marker("trino"):
            item.add_marker(pytest.mark.jvm)
