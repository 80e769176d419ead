"""For every test: its tier, whether it needs Java, and which tests share a process for their servers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from tests.brokers import Brokers
from tests.tier import FULL_VARIABLE, is_full
from thermocline.ingest.commit.java import small_jvm
from thermocline.settings import CatalogSettings

NO_CATALOG = CatalogSettings(uri="sqlite:///none.db", warehouse="none")
BEHAVIOUR = Path(__file__).parent / "behaviour"
NOT_ON_A_LAKE = {
    "test_lake": "brings a lake of its own",
    "test_live_catalog_store": "the same",
    "test_owner": "breaks the catalog's file and the table's folder",
    "test_stops": "the same",
    "test_failpoints": "counts the files of the table's folder",
    "test_failpoints_serving": "each point once is enough",
    "test_kills": "kills Spark's processes",
    "test_merge_oracle": "compares with Spark",
    "test_debezium": "is about records",
    "test_log": "is about the log",
}
"""With ``--lake`` the rest of the behaviour suite runs, but what asks Spark."""
SPARK_ON_A_LAKE = ("test_live_catalog_in_engines",)
"""And of that, this."""
NEED_JAVA = ("trino", "demo")
TOGETHER = ("tests/views/trino/", "tests/views/stacked/")
"""Folders of which all tests share one Trino."""
APART = ("tests/maintenance/test_crashes.py",)
"""Files with hundreds of slow tests, which all processes share."""


settings.register_profile("thermocline", deadline=None, print_blob=True)  # a busy machine is no bug
settings.load_profile("thermocline")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="Also run tests marked `full`, with full counts.")
    parser.addoption("--lake", action="store_true", help="Run the behaviour suite on S3 and a REST catalog.")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--full"):
        os.environ[FULL_VARIABLE] = "1"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(BEHAVIOUR) or any(map(item.get_closest_marker, NEED_JAVA)):
            item.add_marker(pytest.mark.jvm)
    if config.getoption("--lake"):
        _leave_out(config, items, lambda item: not _runs_on_a_lake(item))
    # The longest first, so that all processes end at about the same time.
    items.sort(key=lambda item: [not item.get_closest_marker(name) for name in ("trino", "jvm")])
    if not is_full():
        _leave_out(config, items, lambda item: item.get_closest_marker("full") is not None)


def _leave_out(
    config: pytest.Config, items: list[pytest.Item], is_out: Callable[[pytest.Item], bool]
) -> None:
    left_out = [item for item in items if is_out(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if not is_out(item)]


def _runs_on_a_lake(item: pytest.Item) -> bool:
    return (
        item.path.parent == BEHAVIOUR
        and item.path.stem not in NOT_ON_A_LAKE
        and not item.get_closest_marker("local_files")
        and (item.path.stem in SPARK_ON_A_LAKE or "new_spark" not in getattr(item, "fixturenames", ()))
    )


@pytest.fixture(scope="session")
def jvm() -> Iterator[Any]:
    """One small JVM for all tests of a process: commands and owners of theirs share it."""
    with small_jvm(NO_CATALOG) as view:
        yield view


@pytest.fixture(scope="session")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """The brokers of a process, for one test module after the other."""
    brokers = Brokers(lambda: tmp_path_factory.mktemp("broker"))
    yield brokers
    brokers.stop()


class OneServerEach(LoadScopeScheduling):  # type: ignore[misc]
    """Hands the tests of a file, or of a folder of `TOGETHER`, to one process; those of `APART` to any."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if file in APART:
            return nodeid
        return next((folder for folder in TOGETHER if file.startswith(folder)), file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    config.option.loadscopereorder = False  # else files with many tests come before those with slow ones
    return OneServerEach(config, log)
